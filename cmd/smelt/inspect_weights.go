package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/lower/plan"
	"github.com/smelt-ml/smelt/models/checkpoint"
)

// weightRow is a weight of a compiled model and its transformations between the file and the
// kernels.
type weightRow struct {
	Name  string   `json:"name"`
	Type  string   `json:"type"`
	Shape []int    `json:"shape"`
	Way   string   `json:"way"`            // one of package checkpoint's ways
	From  []string `json:"from,omitempty"` // tensors that it derives from; none: stored under its own name
	How   string   `json:"how"`            // the derivation in words
	// Device is the device's treatment: "in place", "copied", "rearranged" or "scales apart".
	Device string `json:"device"`
}

// weightList is the output of inspect --weights.
type weightList struct {
	File    string      `json:"file"`
	Target  string      `json:"target"`
	Weights []weightRow `json:"weights"`
}

// inspectWeights returns the weights of a model that a plan for the target reads.
func inspectWeights(path, target string, stderr io.Writer) (*weightList, error) {
	opts := smelt.DefaultOptions()
	if target == "" {
		d := deviceFlags{device: "auto"}
		if err := d.resolve(&opts); err != nil {
			return nil, err
		}
	} else if _, err := targetOf(target); err != nil {
		return nil, err
	} else {
		opts.Target = target
	}
	m, err := openModel(path, "")
	if err != nil {
		return nil, err
	}
	defer m.Close()
	useOwnTuning(stderr, &opts)
	p, err := m.Compile(opts)
	if err != nil {
		return nil, err
	}
	s := &weightList{File: path, Target: opts.Target}
	buffers := make(map[string]*plan.Buffer)
	for i := range p.Plan.Buffers {
		if b := &p.Plan.Buffers[i]; b.Kind == plan.Weight {
			buffers[b.Name] = b
		}
	}
	for _, w := range p.Plan.Tensors {
		t, ok := m.File().Tensor(w.Name)
		if !ok {
			return nil, fmt.Errorf("%s: the plan reads a tensor %q that the model lacks", path, w.Name)
		}
		row := weightRow{Name: w.Name, Type: w.DType.String(), Shape: w.Shape, Way: string(t.How()), How: t.History(), Device: deviceDoes(buffers[w.Name], t)}
		if t.Derived != nil {
			row.From = lo.Map(t.Derived.From, func(f checkpoint.Tensor, _ int) string { return f.Name })
		}
		if m.File().Config.Tied && w.Name == "token_embd.weight" {
			row.How += "; the output head is tied to it"
		}
		s.Weights = append(s.Weights, row)
	}
	return s, nil
}

// deviceDoes returns a device's treatment of a weight, when it loads a plan or after the first step.
func deviceDoes(b *plan.Buffer, t *checkpoint.Tensor) string {
	switch {
	case b != nil && b.Rearrange:
		return "rearranged"
	case b != nil && b.Lines:
		return "scales apart"
	case len(t.Data) > 0 && !device.Aligned(t.Data, t.DType):
		return "copied"
	}
	return "in place"
}

func (s *weightList) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "%s: weights of a plan for %s\n\nWEIGHT\tTYPE\tSHAPE\tDEVICE\tHOW\n", s.File, s.Target)
	for _, r := range s.Weights {
		fmt.Fprintf(w, "%s\t%s\t%v\t%s\t%s\n", r.Name, r.Type, r.Shape, r.Device, r.How)
	}
	counts := lo.CountValuesBy(s.Weights, func(r weightRow) string { return r.Way })
	fmt.Fprintf(w, "\n%d weights:", len(s.Weights))
	ways := lo.Keys(counts)
	slices.Sort(ways)
	for i, way := range ways {
		fmt.Fprintf(w, "%s %d %s", lo.Ternary(i > 0, ",", ""), counts[way], way)
	}
	fmt.Fprintln(w)
	return w.Flush()
}
