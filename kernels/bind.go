package kernels

import (
	"fmt"
	"maps"
	"slices"
)

// Bind converts a kernel's arguments and function constants from names to indices: buffers
// holds memory and the encoded parameter struct by [[buffer(i)]], nil where nothing is bound,
// and bits holds function constants by [[function_constant(i)]]. Parameters that are nil are
// not bound. The error names an argument, struct or constant that the kernel does not have.
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
	for _, name := range slices.Sorted(maps.Keys(args)) {
		a, ok := k.Named(name)
		if !ok {
			return nil, nil, fmt.Errorf("kernel %s has no argument %q", kernel, name)
		}
		put(a.Index, args[name])
	}
	if params != nil {
		if name := structName(params); name != k.Params {
			return nil, nil, fmt.Errorf("kernel %s takes %s, not %s", kernel, k.Params, name)
		}
		put(k.ParamsIndex, Encode(params))
	}
	bits = make(map[uint32]uint32, len(constants))
	for _, name := range slices.Sorted(maps.Keys(constants)) {
		c, ok := k.Constant(name)
		if !ok {
			return nil, nil, fmt.Errorf("kernel %s has no function constant %q", kernel, name)
		}
		bits[uint32(c.Index)] = constants[name]
	}
	return buffers, bits, nil
}
