package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Decision is the outcome of a choice, by size or measurement, for dispatches of one kind.
type Decision struct {
	Op         string `json:"op"`
	Kernel     string `json:"kernel"` // host name
	Shape      string `json:"shape"`  // the sizes that decided
	Choice     string `json:"choice"`
	Reason     string `json:"reason"`
	Measured   bool   `json:"measured"`   // on the device: see [Site]
	Dispatches int    `json:"dispatches"` // of this kind in the phase
}

// Setting is one possible outcome of a choice: numbers by the names of its fields.
type Setting map[string]int64

// String lists the fields by name: "rows 4, simdgroups 8".
func (s Setting) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(s)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, s[name]))
	}
	return strings.Join(parts, ", ")
}

// Site is a choice with one setting for all dispatches of a kernel and a shape. A measurement tries
// its Settings and keeps the fastest.
type Site struct {
	Choice, Kernel, Shape string
	Taken                 Setting
	Settings              []Setting // all possible ones
	Exact                 bool      // by the kernels' laws all give bit-identical results

	values map[int32]bool
}

// Key returns the identity of the site: choice, kernel and shape.
func (s *Site) Key() string { return s.Choice + "|" + s.Kernel + "|" + s.Shape }

// Add adds the dispatches of a value of the graph to the site.
func (s *Site) Add(value int32) { s.values[value] = true }
