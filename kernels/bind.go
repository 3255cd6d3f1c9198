package kernels

import "fmt"

// Bind puts what a kernel is launched with in the order that launches have: memory and the
// parameter struct by [[buffer(i)]], nil where nothing is bound, and the bits of function
// constants by [[function_constant(i)]]. The parameters
// may be nil: they are not bound then. The error names what the kernel lacks.
func Bind(kernel string, args map[string][]byte, params Params, constants map[string]uint32) (buffers [][]byte, bits map[uint32]uint32, err error) {
	k, ok := Lookup(kernel)
	if !ok {
		return nil, nil, fmt.Errorf("no kernel is called %s", kernel)
	}
	put := func(index int, memory []byte) {
		for len(buffers) <= index {
			buffers = append(buffers, nil)
		}
		buffers[index] = memory
	}
	for name, memory := range args {
		a, ok := k.Named(name)
		if !ok {
			return nil, nil, fmt.Errorf("kernel %s has no argument %q", kernel, name)
		}
		put(a.Index, memory)
	}
	if params != nil {
		if name := structName(params); name != k.Params {
			return nil, nil, fmt.Errorf("kernel %s takes %s, not %s", kernel, k.Params, name)
		}
		put(k.ParamsIndex, Encode(params))
	}
	bits = make(map[uint32]uint32, len(constants))
	for name, v := range constants {
		c, ok := k.Constant(name)
		if !ok {
			return nil, nil, fmt.Errorf("kernel %s has no function constant %q", kernel, name)
		}
		bits[uint32(c.Index)] = v
	}
	return buffers, bits, nil
}
