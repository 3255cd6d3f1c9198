package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Choice is what lower decided by size for one kind of dispatch.
type Choice struct {
	Op         string `json:"op"`
	Kernel     string `json:"kernel"` // host name
	Shape      string `json:"shape"`  // what the sizes are that decided
	Choice     string `json:"choice"`
	Reason     string `json:"reason"`
	Measured   bool   `json:"measured"`   // on the device: see [Site]
	Dispatches int    `json:"dispatches"` // of this kind in the phase
}

// Setting is what a choice may be set to: numbers by the names of its fields.
type Setting map[string]int64

// String lists the fields by name: "rows 4, simdgroups 8".
func (s Setting) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(s)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, s[name]))
	}
	return strings.Join(parts, ", ")
}

// Site is a choice that a Plan makes in one way for all dispatches of a kernel and a shape:
// what to measure, and to keep the fastest setting of.
type Site struct {
	Choice, Kernel, Shape string
	Taken                 Setting
	Settings              []Setting // that may be tried
	Exact                 bool      // by the kernels' laws none of them changes a bit of a result

	values map[int32]bool
}

// Key tells sites apart.
func (s *Site) Key() string { return s.Choice + "|" + s.Kernel + "|" + s.Shape }

// Add makes the dispatches of a value of the graph some of those that the site is about.
func (s *Site) Add(value int32) { s.values[value] = true }
