package kernels_test

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/kernels"
)

// The report of a full run: how many cases each kernel passed, by the type of its
// weights, and how near its results came to their bounds. A launch is known by the test
// that ran it, and a comparison counts for every kernel that its test has launched.

var reportFlag = flag.Bool("kernels.report", false, "print the cases and the largest error of each kernel")

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if everything() || *reportFlag {
		seen.print(os.Stdout)
	}
	if code == 0 && everything() && wholeRun() {
		for _, k := range kernels.All() {
			if !seen.compared(k.Name) {
				fmt.Printf("FAIL: no result of kernel %s was compared\n", k.Name)
				code = 1
			}
		}
	}
	os.Exit(code)
}

// wholeRun reports whether no flag leaves tests out.
func wholeRun() bool {
	whole := true
	flag.Visit(func(f *flag.Flag) {
		switch f.Name {
		case "test.run", "test.skip", "test.short", "test.bench", "test.list":
			whole = whole && (f.Value.String() == "" || f.Value.String() == "false")
		}
	})
	return whole
}

// subject is a row of the report.
type subject struct{ kernel, weights string }

// tally sums up the cases of a subject.
type tally struct {
	launches    int
	comparisons int
	deviation   deviation
	at          string // test of the largest error
}

// deviation is the largest error of a comparison: as it is, relative to the size of its
// value, and as a share of its bound. A bound of zero is met exactly or not at all.
type deviation struct{ absolute, relative, share float64 }

// add takes one element into account.
func (d *deviation) add(err, size, bound float64) {
	if err == 0 {
		return
	}
	d.absolute = max(d.absolute, err)
	if size > 0 {
		d.relative = max(d.relative, err/size)
	}
	if bound > 0 {
		d.share = max(d.share, err/bound)
	}
}

type recorder struct {
	mu       sync.Mutex
	launched map[string][]subject // by test
	tallies  map[subject]*tally
}

var seen = recorder{launched: map[string][]subject{}, tallies: map[subject]*tally{}}

// launch notes a launch that has run in every order.
func (r *recorder) launch(t *testing.T, k *kernels.Kernel, constants map[string]uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := subject{k.Name, weightsOf(k, constants)}
	if r.tallies[s] == nil {
		r.tallies[s] = &tally{}
	}
	r.tallies[s].launches++
	name := t.Name()
	if len(r.launched[name]) == 0 {
		t.Cleanup(func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			delete(r.launched, name)
		})
	}
	if !slices.Contains(r.launched[name], s) {
		r.launched[name] = append(r.launched[name], s)
	}
}

// compare notes that what the test's launches wrote is within its bounds.
func (r *recorder) compare(t *testing.T, d deviation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.launched[t.Name()] {
		to := r.tallies[s]
		to.comparisons++
		if d.share > to.deviation.share {
			to.at = t.Name()
		}
		to.deviation.absolute = max(to.deviation.absolute, d.absolute)
		to.deviation.relative = max(to.deviation.relative, d.relative)
		to.deviation.share = max(to.deviation.share, d.share)
	}
}

// compared reports whether a result of the kernel was compared with its formula.
func (r *recorder) compared(kernel string) bool {
	for s, t := range r.tallies {
		if s.kernel == kernel && t.comparisons > 0 {
			return true
		}
	}
	return false
}

// weightsOf names the types of the stored weights that a launch reads.
func weightsOf(k *kernels.Kernel, constants map[string]uint32) string {
	names := map[string]bool{}
	for _, c := range k.Constants {
		if v := constants[c.Name]; strings.HasPrefix(c.Name, "fc_type") && v != 0 {
			names[dtype.Type(v).String()] = true
		}
	}
	switch len(names) {
	case 0:
		return "-"
	case 1:
		return slices.Collect(maps.Keys(names))[0]
	}
	return "mixed"
}

// print writes the table in the order of kernels.All.
func (r *recorder) print(w io.Writer) {
	order := map[string]int{}
	for i, k := range kernels.All() {
		order[k.Name] = i
	}
	rows := slices.SortedFunc(maps.Keys(r.tallies), func(a, b subject) int {
		return cmp.Or(cmp.Compare(order[a.kernel], order[b.kernel]), cmp.Compare(a.weights, b.weights))
	})
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "KERNEL\tWEIGHTS\tCASES\tOF BOUND\tRELATIVE\tABSOLUTE\tWORST CASE")
	number := func(v float64) string {
		if v == 0 {
			return "exact"
		}
		return fmt.Sprintf("%.1e", v)
	}
	launches := 0
	for _, s := range rows {
		t := r.tallies[s]
		launches += t.launches
		share := "exact"
		switch {
		case t.comparisons == 0:
			share = "-"
		case t.deviation.share > 0:
			share = fmt.Sprintf("%.1f%%", math.Ceil(1000*t.deviation.share)/10)
		}
		_, at, _ := strings.Cut(t.at, s.kernel+"/")
		fmt.Fprintf(tw, "%s\t%s\t%d\t%s\t%s\t%s\t%s\n", s.kernel, s.weights, t.launches, share,
			number(t.deviation.relative), number(t.deviation.absolute), at)
	}
	tw.Flush()
	fmt.Fprintf(w, "%d launches of %d kernels, each in %d orders of lanes\n", launches, len(kernels.All()), len(turns()))
}
