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

// Options are those of devices on the CPU, for their tests.
func Options() []device.Option {
	return []device.Option{
		{Key: "nodes", Doc: "numbers of cores, as in 3,3,2: threads work as if on that many memory nodes; else those of the machine"},
		{Key: "order", Values: orders, Doc: "in which the emulator runs the threads of a threadgroup between barriers, shuffled by the seed; else ascending"},
		{Key: "shuffle", Values: []string{"on", "off"}, Doc: "dispatches between two barriers run one by one, in an order that the seed and the step's number decide, and the threadgroups of each from either end; else off"},
	}
}

// orders are by their numbers in kernels/abi.h. A right kernel gives the same result in each.
var orders = []string{"ascending", "descending", "shuffled"}

// Open opens a device on the CPU. Kernels are emulator's, an smelt_emulator, and native's, an
// smelt_native, where that has them; it may be nil.
func Open(o device.Options, emulator, native unsafe.Pointer) (device.Driver, error) {
	if Provider() == nil || emulator == nil {
		return nil, fmt.Errorf("%w: the emulated kernels are not part of it", device.ErrUnavailable)
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

// simulated returns nodes of so many cores each, as text lists them: all are processors of
// this machine.
func simulated(text string, nodes []device.Node) ([]device.Node, error) {
	var all []int
	for _, n := range nodes {
		all = append(all, slices.Concat(n.Cores...)...)
	}
	var list []device.Node
	for id, field := range strings.Split(text, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 1 || n > 1024 {
			return nil, fmt.Errorf("%w: nodes is %q, not numbers of cores as in 3,3,2", device.ErrOption, text)
		}
		list = append(list, device.Node{ID: id, Cores: slices.Repeat([][]int{all}, n)})
	}
	return list, nil
}
