package page

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/lower/predict"
)

// counts are the page's tables of figures.
type counts struct {
	Ops     []opCount
	Kernels []kernelCount
	Total   kernelCount
	Rules   []ruleCount
}

// ruleCount is a formatted Fusion.
type ruleCount struct{ Rule, Doc, Matches, Dispatches, Read, Written, Micros string }

// opCount is the number of occurrences of an op in both graphs; 0 is shown as a dot.
type opCount struct{ Op, Source, Fused string }

type kernelCount struct {
	Kernel            string
	Dispatches        int
	Read, Written     string
	Ops, Micros       string
	Share             float64 // percent of the predicted time
	bytes, operations int64
	micros            float64
}

func (in *Input) counts() counts {
	var c counts
	first, last := in.Trace.first().OpCounts(), in.Trace.last().OpCounts()
	ops := maps.Clone(first)
	for op := range last {
		ops[op] += 0
	}
	for _, op := range slices.SortedFunc(maps.Keys(ops), func(a, b ir.Op) int { return cmp.Compare(a.String(), b.String()) }) {
		c.Ops = append(c.Ops, opCount{op.String(), dot(first[op]), dot(last[op])})
	}
	docs := docs()
	for _, f := range in.Fusions {
		r := ruleCount{Rule: f.Rule, Doc: docs[f.Rule], Matches: dot(f.Matches), Dispatches: dot(f.Dispatches), Read: "·", Written: "·", Micros: "·"}
		if f.Rule == "" {
			r.Rule, r.Doc, r.Matches = "all", "the difference to a step without any of the rules", ""
		}
		if f.Dispatches != 0 || f.Read != 0 || f.Written != 0 {
			r.Read, r.Written, r.Micros = size(f.Read), size(f.Written), fmt.Sprintf("%.1f", f.Micros)
		}
		c.Rules = append(c.Rules, r)
	}
	byName := map[string]*kernelCount{}
	written := map[string]int64{}
	for i := range in.Phase.Dispatches {
		d := &in.Phase.Dispatches[i]
		k := byName[d.Kernel]
		if k == nil {
			k = &kernelCount{Kernel: d.Kernel}
			byName[d.Kernel] = k
		}
		cost := predict.CostOf(in.Plan, d, in.Sizes)
		k.Dispatches++
		k.bytes += cost.Read
		written[d.Kernel] += cost.Written
		k.operations += cost.Ops
		k.micros += in.Timeline.Spans[i].End - in.Timeline.Spans[i].Start
	}
	total := &c.Total
	for name, k := range byName {
		k.finish(written[name], in.Timeline.Total)
		c.Kernels = append(c.Kernels, *k)
		total.Dispatches += k.Dispatches
		total.bytes += k.bytes
		written[""] += written[name]
		total.operations += k.operations
	}
	slices.SortFunc(c.Kernels, func(a, b kernelCount) int {
		return cmp.Or(cmp.Compare(b.micros, a.micros), cmp.Compare(a.Kernel, b.Kernel))
	})
	total.micros = in.Timeline.Total
	total.finish(written[""], in.Timeline.Total)
	return c
}

func (k *kernelCount) finish(written int64, total float64) {
	k.Read, k.Written, k.Ops = size(k.bytes), size(written), amount(k.operations)
	k.Micros, k.Share = fmt.Sprintf("%.0f", k.micros), 100*k.micros/total
}

func dot(n int) string {
	if n == 0 {
		return "·"
	}
	return fmt.Sprint(n)
}

// amount formats a number of operations with three digits.
func amount(n int64) string {
	x := float64(n)
	for _, unit := range []string{"", " k", " M", " G"} {
		if x < 1000 {
			return fmt.Sprintf("%.3g%s", x, unit)
		}
		x /= 1000
	}
	return fmt.Sprintf("%.3g T", x)
}
