package checkpoint

import (
	"fmt"
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/models"
)

// parts splits stored tensors that hold several weights into those of the definition.
func parts(c *models.Config) rule {
	return func(tensors []Tensor, emit func(Derivation) error) error {
		for i := range tensors {
			for _, d := range partsOf(c, &tensors[i]) {
				if err := emit(d); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// partsOf returns the weights that a stored tensor holds; none if it holds one.
func partsOf(c *models.Config, t *Tensor) []Derivation {
	i, role, kind, ok := models.InLayer(t.Name)
	if ok && role == gateUp && i >= 0 && i < c.Layers {
		return expertHalves(t, i, kind)
	}
	roles, shape := models.Joins[role], t.Shape
	if kind == "bias" { // a vector may be a matrix of one row
		shape = withoutOnes(shape)
	}
	if !ok || roles == nil || i < 0 || i >= c.Layers || len(shape) == 0 {
		return nil
	}
	l := c.Layer(i)
	if l.Recurrent && role == "attn_qkv" || lo.SumBy(roles, l.Rows) != shape[0] { // which layers with a state have as one
		return nil
	}
	out, at, first := make([]Derivation, len(roles)), int64(0), 0
	for k, role := range roles {
		n := l.Rows(role)
		p := Tensor{Name: fmt.Sprintf("blk.%d.%s.%s", i, role, kind), DType: t.DType, Stored: t.Stored, Shape: append([]int{n}, shape[1:]...)}
		out[k] = Derivation{Way: Parted, From: []Tensor{*t}, Steps: []string{rowsText(first, n)}, to: p, at: at, bytes: p.Bytes()}
		if readable(t.DType) {
			at += p.Bytes()
		}
		first += n
	}
	return out
}

// gateUp is the role of a stack of experts, [E, 2·N, K], or of their biases, [E, 2·N], with the rows of an
// expert's gate before those of up.
const gateUp = "ffn_gate_up_exps"

func expertHalves(t *Tensor, layer int, kind string) []Derivation {
	if len(t.Shape) < 2 || t.Shape[1]%2 != 0 || !readable(t.DType) {
		return nil
	}
	shape := slices.Clone(t.Shape)
	shape[1] /= 2
	return lo.Map([]string{"ffn_gate_exps", "ffn_up_exps"}, func(role string, half int) Derivation {
		p := Tensor{Name: fmt.Sprintf("blk.%d.%s.%s", layer, role, kind), DType: t.DType, Stored: t.Stored, Shape: shape}
		d := Derivation{Way: Made, From: []Tensor{*t}, Steps: []string{rowsOfEach(half*shape[1], shape[1])}, to: p}
		size := int(p.Bytes()) / shape[0]
		d.fill = func(out []byte) error {
			return inParallel(shape[0], func(e int) error {
				copy(out[e*size:][:size], t.Data[(2*e+half)*size:])
				return nil
			})
		}
		return d
	})
}

// rowsText describes the n rows that begin with first; n < 0: all from it on.
func rowsText(first, n int) string {
	if n < 0 {
		return fmt.Sprintf("rows from %d on", first)
	}
	return fmt.Sprintf("rows %d to %d", first, first+n-1)
}

// join concatenates a definition's weights into the tensors of the family's GGUF files.
func join(f *models.Family, weights []Tensor) []Tensor {
	var out []Tensor
	at := make(map[string]int)
	for _, w := range weights {
		name := f.StoredAs(w.Name)
		if i, ok := at[name]; ok {
			out[i].Shape = append([]int{out[i].Shape[0] + w.Shape[0]}, w.Shape[1:]...)
			continue
		}
		at[name] = len(out)
		w.Name = name
		out = append(out, w)
	}
	return out
}
