package host

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/device/provider"
)

// Options returns the options of devices on the CPU, which are for tests.
func Options() []device.Option {
	return []device.Option{
		{Key: "nodes", Doc: "simulated memory nodes, as their numbers of cores: 3,3,2; default: the machine's own"},
		{Key: "order", Values: orders, Doc: "order in which the emulator runs the threads of a threadgroup between barriers; the seed decides the shuffled one; default: ascending"},
		{Key: "shuffle", Values: []string{"on", "off"}, Doc: "run dispatches between two barriers one by one, in an order that the seed and the step's number decide, and the threadgroups of each from either end; default: off"},
	}
}

// orders is indexed by the numbers of kernels/abi.h. A correct kernel gives the same result in each.
var orders = []string{"ascending", "descending", "shuffled"}

// Open opens a device on the CPU with the kernels of native, an smelt_native or nil, and of
// emulator, an smelt_emulator, for launches that native does not cover.
func Open(o device.Options, emulator, native unsafe.Pointer) (device.Driver, error) {
	if Provider() == nil || emulator == nil {
		return nil, fmt.Errorf("%w: it has no emulated kernels", device.ErrUnavailable)
	}
	nodes := device.Nodes()
	if text, ok := o.Own["nodes"]; ok {
		var err error
		if nodes, err = simulated(text, nodes); err != nil {
			return nil, err
		}
		o.Threads = 0
		for _, n := range nodes {
			o.Threads += len(n.Cores)
		}
	}
	return provider.Open(Provider(), provider.Options{
		Threads: o.Threads, Places: placesOf(o.Threads, nodes),
		UseNative: native != nil, Shuffle: o.Own["shuffle"] == "on", Rearrange: o.Rearrange, Mapped: o.Mapped,
		Order: max(0, slices.Index(orders, o.Own["order"])), Seed: o.Seed, Poison: o.Poison,
		Emulator: emulator, Native: native,
	})
}

// simulated returns memory nodes with the numbers of cores that text lists. Each core is all
// processors of this machine.
func simulated(text string, nodes []device.Node) ([]device.Node, error) {
	var all []int
	for _, n := range nodes {
		all = append(all, slices.Concat(n.Cores...)...)
	}
	var list []device.Node
	for id, field := range strings.Split(text, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 1 || n > 1024 {
			return nil, fmt.Errorf("%w: nodes is %q, not a list of numbers of cores such as 3,3,2", device.ErrOption, text)
		}
		list = append(list, device.Node{ID: id, Cores: slices.Repeat([][]int{all}, n)})
	}
	return list, nil
}
