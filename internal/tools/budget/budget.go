// Package budget holds what building, testing and starting smelt may cost, in one table.
// What every run of the tests can measure is held by the tests of cmd/smelt: the size of
// the binary, the C++ that is compiled into it, what its packages do before main. Times
// of compilers are held by make cold, which starts with an empty build cache.
//
//	budget.Binary.Check(megabytes) // nil, or an error that names the figure and its bound
package budget

import "fmt"

// Bound is what a figure may be.
type Bound struct {
	Name string
	Unit string
	Want float64 // what is meant
	Room float64 // the part of Want that a busy machine may add
}

// The bounds. Times are those of two cores of a server of 2023.
var (
	DemoCPU    = Bound{"processor time of a cold make demo", "s", 180, 0.15}
	DemoWall   = Bound{"wall time of a cold make demo", "s", 90, 0.25}
	TestWall   = Bound{"wall time of a cold make test", "s", 480, 0.1}
	Binary     = Bound{"size of the binary", "MB", 25, 0}
	CPlusPlus  = Bound{"C++ in the binary", "MB of code", 2, 0.15} // of which a second of g++ makes some 20 kB
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
	return fmt.Errorf("%s: %.1f %s, where %.1f are wanted and %.1f allowed", b.Name, figure, b.Unit, b.Want, b.Most())
}
