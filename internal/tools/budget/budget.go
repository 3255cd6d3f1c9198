// Package budget holds in one table what building, testing and starting smelt may cost. The
// tests of cmd/smelt check what every test run can measure: the size of the binary, the C++
// compiled into it, the work of its packages before main. make cold checks compile times,
// starting with an empty build cache.
//
//	budget.Binary.Check(megabytes) // nil, or an error that names the figure and its bound
package budget

import "fmt"

// Bound is the limit on a figure.
type Bound struct {
	Name string
	Unit string
	Want float64 // target
	Room float64 // share of Want that may be added on a busy machine
}

// Bounds. Times are for two cores of a server of 2023.
var (
	DemoCPU    = Bound{"processor time of a cold make demo", "s", 200, 0.2}
	DemoWall   = Bound{"wall time of a cold make demo", "s", 100, 0.25}
	TestWall   = Bound{"wall time of a cold make test", "s", 600, 0.2}
	Binary     = Bound{"size of the binary", "MB", 32, 0}
	CPlusPlus  = Bound{"C++ in the binary", "MB of code", 2.8, 0.25} // one second of g++ makes about 20 kB
	InitTime   = Bound{"initialisation of all packages", "ms", 5, 1}
	InitMemory = Bound{"memory that initialisation takes", "MB", 2, 0}
	Start      = Bound{"processor time of a verb that says its usage", "ms", 15, 1}
)

// Most returns the figure above which Check fails.
func (b Bound) Most() float64 { return b.Want * (1 + b.Room) }

// Check compares a figure with its bound.
func (b Bound) Check(figure float64) error {
	if figure <= b.Most() {
		return nil
	}
	return fmt.Errorf("%s: %.1f %s, want %.1f and at most %.1f", b.Name, figure, b.Unit, b.Want, b.Most())
}
