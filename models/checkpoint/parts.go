package checkpoint

import (
	"fmt"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/models"
)

// partsOf cuts a stored tensor into those that the definition asks for, or gives none where it
// is what it is called.
func partsOf(c *models.Config, t *Tensor) []Tensor {
	i, role, kind, ok := models.InLayer(t.Name)
	roles := models.Joins[role]
	if !ok || roles == nil || i < 0 || i >= c.Layers || len(t.Shape) == 0 {
		return nil
	}
	l := c.Layer(i)
	if l.Recurrent || lo.SumBy(roles, l.Rows) != t.Shape[0] {
		return nil
	}
	parts, at := make([]Tensor, len(roles)), int64(0)
	for k, role := range roles {
		p := *t
		p.Name = fmt.Sprintf("blk.%d.%s.%s", i, role, kind)
		p.Shape = append([]int{l.Rows(role)}, t.Shape[1:]...)
		p.Offset += at
		if t.Data != nil {
			p.Data = t.Data[at:][:p.Bytes()]
		}
		if readable(t.DType) {
			at += p.Bytes()
		}
		parts[k] = p
	}
	return parts
}

// join makes of the weights of a definition the tensors of the family's GGUF files.
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
