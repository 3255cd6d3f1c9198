package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/samber/lo"
	"github.com/spf13/cobra"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/models/gguf"
)

func inspectVerb() *cobra.Command {
	var (
		asJSON, weights bool
		target          string
	)
	cmd := &cobra.Command{
		Use:   "inspect FILE",
		Short: "List what a file holds",
		Long: "Lists the metadata and tensors of a GGUF file or a Hugging Face folder, or the tables of a compiled plan.\n" +
			"A note names each tensor that loading copies because it is misaligned in the file.\n\n" +
			"--weights lists the weights of the compiled model: how each derives from the tensors that the file\n" +
			"stores, and what the device does to it: in place, copied, rearranged (into the order that its kernels\n" +
			"read fastest, if memory allows) or scales apart (separated from the codes).",
		Example: `  smelt inspect model.gguf
  smelt inspect model/ --weights --target metal`,
		Args: modelArg,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.Flags().BoolVar(&weights, "weights", false, "list how each weight is transformed between the file and the kernels")
	cmd.Flags().StringVar(&target, "target", "", "with --weights: metal or cpu (default: that of --device auto here)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if weights {
			list, err := inspectWeights(args[0], target, cmd.ErrOrStderr())
			switch {
			case err != nil:
				return err
			case asJSON:
				return json.NewEncoder(cmd.OutOrStdout()).Encode(list)
			}
			return list.print(cmd.OutOrStdout())
		}
		if target != "" {
			return usagef("--target goes with --weights")
		}
		sheet, err := inspect(args[0])
		if err != nil {
			return err
		}
		if asJSON {
			return json.NewEncoder(cmd.OutOrStdout()).Encode(sheet)
		}
		return sheet.print(cmd.OutOrStdout())
	}
	return cmd
}

// sheet is the output of inspect.
type sheet struct {
	File     string      `json:"file"`
	Format   string      `json:"format"`
	Metadata []entry     `json:"metadata"`
	Tensors  []tensorRow `json:"tensors"`
	// Misaligned lists the tensors that no kernel can read in place.
	Misaligned []misaligned `json:"misaligned,omitempty"`
}

// misaligned is a tensor that loading copies because of its offset.
type misaligned struct {
	Name      string `json:"name"`
	Offset    int64  `json:"offset"`
	Alignment int    `json:"alignment"` // required, in bytes
}

// check adds a tensor to Misaligned if its offset is misaligned. It skips types that smelt does
// not read.
func (s *sheet) check(name string, t dtype.Type, offset int64, data []byte) {
	if len(data) > 0 && (t.IsFloat() || t.IsQuantized()) && !device.Aligned(data, t) {
		s.Misaligned = append(s.Misaligned, misaligned{name, offset, device.Alignment(t)})
	}
}

type entry struct {
	Key   string `json:"key"`
	Value any    `json:"value"`
}

type tensorRow struct {
	Name   string  `json:"name"`
	Type   string  `json:"type"`
	Shape  []int64 `json:"shape"`
	Offset int64   `json:"offset"`
	Bytes  int64   `json:"bytes"`
}

func inspect(path string) (*sheet, error) {
	if isPlan(path) {
		return inspectPlan(path)
	}
	path, err := localModel(path)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		return inspectGGUF(path)
	}
	return inspectModel(path)
}

func inspectGGUF(path string) (*sheet, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s := &sheet{File: path, Format: fmt.Sprintf("GGUF v%d", f.Version)}
	for _, kv := range f.Metadata {
		s.Metadata = append(s.Metadata, entry{kv.Key, metadata{kv.Value}})
	}
	for _, t := range f.Tensors {
		s.Tensors = append(s.Tensors, tensorRow{t.Name, t.Type.String(), t.Shape, t.Offset, t.Size})
		s.check(t.Name, t.DType, t.Offset, t.Data)
	}
	return s, nil
}

func inspectPlan(path string) (*sheet, error) {
	f, err := compiler.ReadPlan(path)
	if err != nil {
		return nil, err
	}
	s := &sheet{File: path, Format: "plan"}
	p := f.Plan
	s.Metadata = []entry{
		{"model", p.Model}, {"made for", lo.CoalesceOrEmpty(f.Model.Base, "arch:"+f.Model.Arch)}, {"target", p.Target}, {"activations", p.Act.String()},
		{"context", p.Context}, {"buffers", len(p.Buffers)},
	}
	for i := range p.Phases {
		ph := &p.Phases[i]
		of, what := sym.T, "tokens"
		if ph.Bounds[sym.C] > 0 {
			of, what = sym.C, "blocks"
		}
		s.Metadata = append(s.Metadata, entry{ph.Name, fmt.Sprintf("%d to %d %s, %d dispatches in %d command buffers, arena of %d bytes",
			ph.Least[of], ph.Bounds[of], what, len(ph.Dispatches), len(ph.CommandBuffers), ph.ArenaBytes)})
	}
	for _, t := range p.Tensors {
		shape := lo.Map(t.Shape, func(n, _ int) int64 { return int64(n) })
		s.Tensors = append(s.Tensors, tensorRow{Name: t.Name, Type: t.DType.String(), Shape: shape, Bytes: t.DType.Bytes(t.Elements())})
	}
	return s, nil
}

func inspectModel(path string) (*sheet, error) {
	m, err := openModel(path, "")
	if err != nil {
		return nil, err
	}
	defer m.Close()
	c := m.File().Config
	s := &sheet{File: path, Format: lo.Ternary(m.HasWeights(), "safetensors", "shape without weights")}
	s.Metadata = []entry{
		{"family", c.Family}, {"vocabulary", c.Vocab}, {"width", c.Width}, {"layers", c.Layers}, {"heads", c.Heads},
		{"kv heads", c.KVHeads}, {"head size", c.Head}, {"feed-forward width", c.FFN}, {"context", c.Context},
		{"rms eps", c.Eps}, {"rope theta", c.Rope.Theta}, {"tied output head", c.Tied},
	}
	if tok, err := m.Tokenizer(); err == nil {
		s.Metadata = append(s.Metadata, entry{"tokens of the tokenizer", tok.Len()})
	} else {
		s.Metadata = append(s.Metadata, entry{"tokenizer", err.Error()})
	}
	for _, t := range m.File().Tensors() {
		shape := lo.Map(t.Shape, func(n, _ int) int64 { return int64(n) })
		s.Tensors = append(s.Tensors, tensorRow{t.Name, t.Stored, shape, t.Offset, int64(len(t.Data))})
		s.check(t.Name, t.DType, t.Offset, t.Data)
	}
	return s, nil
}

// metadata is abbreviated in the table and complete in JSON.
type metadata struct{ gguf.Value }

func (m metadata) MarshalJSON() ([]byte, error) { return json.Marshal(m.Any()) }

func (s *sheet) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "%s: %s\n\n", s.File, s.Format)
	for _, e := range s.Metadata {
		fmt.Fprintf(w, "%s\t%v\n", e.Key, e.Value)
	}
	var total int64
	if len(s.Tensors) > 0 {
		fmt.Fprintf(w, "\nTENSOR\tTYPE\tSHAPE\tBYTES\n")
	}
	for _, t := range s.Tensors {
		fmt.Fprintf(w, "%s\t%s\t%v\t%d\n", t.Name, t.Type, t.Shape, t.Bytes)
		total += t.Bytes
	}
	fmt.Fprintf(w, "\n%d tensors, %d bytes\n", len(s.Tensors), total)
	for _, m := range s.Misaligned {
		fmt.Fprintf(w, "note: %s is copied when it is loaded: it lies at %d in its file, and its kernels want a multiple of %d\n", m.Name, m.Offset, m.Alignment)
	}
	return w.Flush()
}
