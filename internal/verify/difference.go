package verify

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/smelt-ml/smelt/internal/engine"
	"github.com/smelt-ml/smelt/ir"
)

// Difference measures how far two results differ.
type Difference struct {
	// Absolute is the largest difference of two elements. Relative is the largest in relation to
	// its row: to the standard deviation of a row of logits, since only differences between
	// logits have meaning, and to the largest magnitude of any other row. Both may belong to
	// different elements.
	Absolute Measure `json:"absolute"`
	Relative Measure `json:"relative"`
	Bound    float64 `json:"bound"` // of Relative
	Where    string  `json:"where,omitempty"`
	Verdict  Verdict `json:"verdict"`
}

// Verdict is the outcome of a comparison.
type Verdict string

// The verdicts.
const (
	Within    Verdict = "ok"
	Beyond    Verdict = "out of bounds"
	NotFinite Verdict = "not finite" // a result is NaN or infinite
	Skipped   Verdict = "skipped"    // What gives the reason
)

// Measure is a size; JSON has null where it is not finite.
type Measure float64

// MarshalJSON returns a number or null.
func (m Measure) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(m)) || math.IsInf(float64(m), 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(m))
}

// joined concatenates the logits of all steps and keeps the caches as the last step leaves them.
// step leaves them.
func (t trace) joined() trace {
	last := 0
	for _, s := range t {
		last = max(last, s.step)
	}
	var out trace
	var logits sighting
	for _, s := range t {
		switch {
		case s.probe.part == "" && logits.probe == nil:
			logits = s
			logits.step = last
		case s.probe.part == "":
			logits.rows += s.rows
			logits.data = append(logits.data, s.data...)
		case s.step == last:
			out = append(out, s)
		}
	}
	for i := range out {
		out[i].step = 0
	}
	if logits.probe != nil {
		logits.step = 0
		out = append(out, logits)
	}
	return out
}

// when returns the step in which something was seen, as text.
func (s *sighting) when(steps []int) string {
	if s.step < len(steps) {
		return fmt.Sprintf("step %d of %d tokens", s.step+1, steps[s.step])
	}
	return fmt.Sprintf("step %d", s.step+1)
}

// errTraces reports traces that do not belong together, a fault of this package.
var errTraces = errors.New("the two graphs do not return the same")

// compareTraces compares the results of two runs. got may hold fewer than want.
func compareTraces(want, got trace) (gap, error) {
	type key struct {
		step         int
		result, part string
	}
	wanted := make(map[key]sighting, len(want))
	for _, s := range want {
		wanted[key{s.step, s.probe.result, s.probe.part}] = s
	}
	var g gap
	if len(got) == 0 {
		return g, fmt.Errorf("%w: there are no results", errTraces)
	}
	for _, o := range got {
		s, ok := wanted[key{o.step, o.probe.result, o.probe.part}]
		if !ok || len(o.data) != len(s.data) {
			return g, fmt.Errorf("%w: %s in step %d", errTraces, o.probe, o.step+1)
		}
		before := g.relative
		if g.add(s, o.data); g.relative != before {
			g.where = fmt.Sprintf("step %d, %s", s.step+1, g.where)
		}
	}
	return g, nil
}

// gap accumulates the differences between results.
type gap struct {
	absolute, relative float64
	where              string
	broken             bool // some element is NaN or infinite
}

// add compares what a probe saw with what another saw of the same value.
func (g *gap) add(want sighting, got []float32) {
	width := len(want.data) / max(want.rows, 1)
	logits := want.probe.result == engine.Logits
	for r := range want.rows {
		a, b := want.data[r*width:(r+1)*width], got[r*width:(r+1)*width]
		most := 0.0
		for i := range a {
			x, y := float64(a[i]), float64(b[i])
			d := math.Abs(x - y)
			switch {
			case x == y && math.IsInf(x, -1) && want.probe.value.Op == ir.OpMask:
				continue
			case math.IsNaN(d) || math.IsInf(d, 0):
				g.broken = true
				if math.IsNaN(x) && math.IsNaN(y) || x == y {
					continue // the same non-finite value on both sides
				}
				d = math.Inf(1)
			}
			most = max(most, d)
		}
		if most == 0 {
			continue
		}
		relative := most / magnitude(a, logits)
		if math.IsNaN(relative) {
			relative = math.Inf(1)
		}
		if g.absolute = max(g.absolute, most); relative > g.relative {
			g.relative = relative
			g.where = fmt.Sprintf("%s, row %d", want.probe, r)
		}
	}
}

// magnitude returns the scale of the differences in a row: the standard deviation of logits,
// else the largest magnitude.
func magnitude(row []float32, logits bool) float64 {
	most, mean, squares, n := 0.0, 0.0, 0.0, 0.0
	for _, x := range row {
		if e := float64(x); !math.IsNaN(e) && !math.IsInf(e, 0) {
			most = max(most, math.Abs(e))
			n++
			d := e - mean // Welford's way: logits may lie far from zero
			mean += d / n
			squares += d * (e - mean)
		}
	}
	if logits {
		return math.Sqrt(squares / n)
	}
	return most
}

// judge returns the gap's verdict against a bound.
func (g *gap) judge(bound float64) Difference {
	d := Difference{Absolute: Measure(g.absolute), Relative: Measure(g.relative), Bound: bound, Where: g.where, Verdict: Within}
	switch {
	case g.broken:
		d.Verdict = NotFinite
	case g.relative > bound:
		d.Verdict = Beyond
	}
	return d
}

// worse orders differences by verdict, and then by the share of their bound.
func worse(a, b Difference) bool {
	if x, y := severity[a.Verdict], severity[b.Verdict]; x != y {
		return x > y
	}
	return share(a) > share(b)
}

var severity = map[Verdict]int{Within: 0, Beyond: 1, NotFinite: 2}

// share returns a difference as a fraction of its bound.
func share(d Difference) float64 {
	if d.Relative == 0 {
		return 0
	}
	return float64(d.Relative) / d.Bound
}
