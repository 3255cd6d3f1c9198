package models

import (
	"fmt"
	"strings"

	"github.com/samber/lo"
)

// joins lists weights of layers that files may have as one, whose rows are those of its parts,
// one after the other. A definition asks for the parts.
var joins = map[string][]string{
	"attn_qkv": {"attn_q", "attn_k", "attn_v"},
	"ffn_up":   {"ffn_gate", "ffn_up"},
}

// rows is how many a product of the layer has.
func (l *Layer) rows(role string) int {
	switch role {
	case "attn_q":
		return l.Heads * l.Head
	case "attn_k", "attn_v":
		return l.KVHeads * l.Head
	default:
		return l.FFN
	}
}

// inLayer takes the name of a layer's tensor apart: "blk.3.attn_q.bias".
func inLayer(name string) (layer int, role, kind string, ok bool) {
	words := strings.Split(name, ".")
	if len(words) != 4 || words[0] != "blk" {
		return 0, "", "", false
	}
	n, err := fmt.Sscan(words[1], &layer)
	return layer, words[2], words[3], n == 1 && err == nil
}

// parts cuts a stored tensor into those that the definition asks for, or gives none where it
// is what it is called.
func (c *Config) parts(t *Tensor) []Tensor {
	i, role, kind, ok := inLayer(t.Name)
	roles := joins[role]
	if !ok || roles == nil || i < 0 || i >= c.Layers || len(t.Shape) == 0 {
		return nil
	}
	l := c.Layer(i)
	if l.Recurrent || lo.SumBy(roles, l.rows) != t.Shape[0] {
		return nil
	}
	parts, at := make([]Tensor, len(roles)), int64(0)
	for k, role := range roles {
		p := *t
		p.Name = fmt.Sprintf("blk.%d.%s.%s", i, role, kind)
		p.Shape = append([]int{l.rows(role)}, t.Shape[1:]...)
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

// storedAs returns what a weight is part of in GGUF files of the family, or its own name.
func (f *Family) storedAs(name string) string {
	_, role, _, ok := inLayer(name)
	joined, found := lo.Find(f.Joined, func(joined string) bool { return lo.Contains(joins[joined], role) })
	if !ok || !found {
		return name
	}
	return strings.Replace(name, role, joined, 1)
}

// join makes of the weights of a definition the tensors of the family's GGUF files.
func (f *Family) join(weights []Tensor) []Tensor {
	var out []Tensor
	at := make(map[string]int)
	for _, w := range weights {
		name := f.storedAs(w.Name)
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

// cut says that a tensor of a folder holds all parts of a join.
func cut(joined string, stored Stored) map[string]Stored {
	out := make(map[string]Stored)
	for i, role := range joins[joined] {
		s := stored
		s.Rows = func(c *Config) (first, n int) {
			l := c.Layer(0)
			return lo.SumBy(joins[joined][:i], l.rows), l.rows(role)
		}
		out["blk.#."+role+".weight"] = s
	}
	return out
}
