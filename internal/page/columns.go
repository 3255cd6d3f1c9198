package page

import (
	"fmt"
	"slices"
	"strings"

	"github.com/smelt-ml/smelt/ir"
)

// column is the graph after one pass.
type column struct {
	Name, Doc   string
	Values      int
	Fewer, More int  // values less and more than before the pass
	Same        bool // the pass changed nothing
	Groups      []group
}

// group is a section of a column.
type group struct {
	Title string
	Open  bool
	Lines []line
}

// line is a value; Mark is "", "new", "gone" or "edit".
type line struct{ Mark, Text, Title string }

func (in *Input) columns() []column {
	var out []column
	docs := docs()
	for i := range in.Trace.steps {
		s := &in.Trace.steps[i]
		c := column{Name: s.pass, Doc: docs[s.pass], Values: len(s.f.Values)}
		before := s
		if i > 0 {
			before = &in.Trace.steps[i-1]
			c.Same = s.f.String() == before.f.String()
			c.Fewer = max(0, len(before.f.Values)-len(s.f.Values))
			c.More = max(0, len(s.f.Values)-len(before.f.Values))
		} else {
			c.Name, c.Doc = "source", "the graph of the model's definition"
		}
		if !c.Same {
			c.Groups = groups(before, s)
		}
		out = append(out, c)
	}
	return out
}

// groups returns the values outside of the layers, layer 0, and the first layer of each further
// kind.
func groups(before, s *step) []group {
	out := []group{{Title: "outside the layers", Open: true, Lines: diff(before, s, ir.NoLayer)}}
	layers := s.f.Layers()
	if layers == 0 {
		return out
	}
	keys := make([]string, layers)
	for _, v := range s.f.Values {
		if v.Layer != ir.NoLayer {
			keys[v.Layer] += "." // so that layers without values equal no others
		}
	}
	for layer, key := range layerKeys(s.f) {
		keys[layer] = key
	}
	done := make([]bool, layers)
	for layer := range layers {
		if done[layer] {
			continue
		}
		var like []int
		for other := layer; other < layers; other++ {
			if keys[other] == keys[layer] {
				done[other] = true
				like = append(like, other)
			}
		}
		title := fmt.Sprintf("layer %d", layer)
		if len(like) > 1 {
			title += fmt.Sprintf(", equal to: %s", ranges(like[1:]))
		}
		out = append(out, group{Title: title, Open: layer == 0, Lines: diff(before, s, layer)})
	}
	return out
}

// ranges formats 1, 2, 3, 5 as "1–3, 5".
func ranges(list []int) string {
	var parts []string
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		if i == j {
			parts = append(parts, fmt.Sprint(list[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d–%d", list[i], list[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ", ")
}

// layerKeys returns a key for each layer, equal for layers with equal values up to numbering.
func layerKeys(f *ir.Func) []string {
	keys := make([]strings.Builder, f.Layers())
	numbers := make([]map[ir.ID]int, len(keys))
	for _, v := range f.Values {
		if v.Layer == ir.NoLayer || v.Op == ir.OpWeight {
			continue
		}
		if numbers[v.Layer] == nil {
			numbers[v.Layer] = map[ir.ID]int{}
		}
		number := func(id ir.ID) string {
			n := numbers[v.Layer]
			if _, ok := n[id]; !ok {
				n[id] = len(n)
			}
			return fmt.Sprint("#", n[id])
		}
		k := &keys[v.Layer]
		for _, a := range v.Args {
			if a.Op == ir.OpInput || a.Op == ir.OpConst {
				fmt.Fprint(k, " ", a)
			} else if a.Op == ir.OpWeight {
				fmt.Fprint(k, " ", weight(a))
			} else {
				fmt.Fprint(k, " ", number(a.ID))
			}
		}
		attr := v.Attr
		if c, ok := attr.(ir.CacheAttr); ok {
			c.Layer = 0
			attr = c
		}
		fmt.Fprintf(k, " → %s = %s %v %s\n", number(v.ID), v.Op, attr, v.Type)
	}
	out := make([]string, len(keys))
	for i := range keys {
		out[i] = keys[i].String()
	}
	return out
}

// weight returns a tensor's name without its layer, and its type.
func weight(v *ir.Value) string {
	name := v.Name()
	if rest, ok := strings.CutPrefix(name, "blk."); ok {
		if _, tail, ok := strings.Cut(rest, "."); ok {
			name = tail
		}
	}
	return strings.TrimSuffix(name, ".weight") + "·" + v.Type.DType.String()
}

// text formats a value as a line; weights are shown as operands.
func text(v *ir.Value) string {
	full := strings.TrimSuffix(v.LongString(), fmt.Sprintf(" @%d", v.Layer))
	head := fmt.Sprintf("%s = %s", v, v.Op)
	rest := strings.TrimPrefix(full, head)
	var b strings.Builder
	b.WriteString(head)
	for _, a := range v.Args {
		rest = strings.TrimPrefix(rest, " "+a.String())
		if a.Op == ir.OpWeight {
			b.WriteString(" " + weight(a))
		} else {
			b.WriteString(" " + a.String())
		}
	}
	if data, ok := v.Attr.(ir.ConstAttr); ok {
		rest = fmt.Sprintf(" {%d bytes} : %s", len(data.Data), v.Type)
	}
	b.WriteString(strings.TrimPrefix(rest, " {}"))
	return b.String()
}

// lines returns the values of a layer without weights, and outside of the layers the results too.
func lines(f *ir.Func, layer int) (ids []ir.ID, texts []string) {
	for _, v := range f.Values {
		if v.Layer == layer && v.Op != ir.OpWeight {
			ids, texts = append(ids, v.ID), append(texts, text(v))
		}
	}
	if layer == ir.NoLayer {
		hidden := 0
		for i, r := range f.Results {
			if !shown(r.Value) {
				hidden++
				continue
			}
			ids, texts = append(ids, ir.ID(-1-i)), append(texts, fmt.Sprintf("return %q %s", r.Name, r.Value))
		}
		if hidden > 0 {
			ids, texts = append(ids, ir.ID(-1-len(f.Results))), append(texts, fmt.Sprintf("return … %d of other layers", hidden))
		}
	}
	return ids, texts
}

// diff returns the values of a layer, with those that the pass removed at their old positions.
func diff(before, now *step, layer int) []line {
	oldIDs, oldTexts := lines(before.f, layer)
	ids, texts := lines(now.f, layer)
	var out []line
	add := func(mark string, f *step, id ir.ID, text string) {
		l := line{Mark: mark, Text: text}
		if v := f.byID[id]; v != nil && v.Op != ir.OpConst {
			l.Title = v.LongString()
		}
		out = append(out, l)
	}
	kept := common(oldIDs, ids)
	i := 0
	for j := range ids {
		at := slices.Index(oldIDs, ids[j])
		if at >= 0 && slices.Contains(kept, ids[j]) {
			for ; i < at; i++ {
				if !slices.Contains(ids, oldIDs[i]) {
					add("gone", before, oldIDs[i], oldTexts[i])
				}
			}
			i = at + 1
		}
		mark := ""
		switch {
		case at < 0:
			mark = "new"
		case oldTexts[at] != texts[j]:
			mark = "edit"
		}
		add(mark, now, ids[j], texts[j])
	}
	for ; i < len(oldIDs); i++ {
		if !slices.Contains(ids, oldIDs[i]) {
			add("gone", before, oldIDs[i], oldTexts[i])
		}
	}
	return out
}

// common returns a longest common subsequence of two lists.
func common(a, b []ir.ID) []ir.ID {
	best := make([][]int, len(a)+1)
	for i := range best {
		best[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				best[i][j] = best[i+1][j+1] + 1
			} else {
				best[i][j] = max(best[i+1][j], best[i][j+1])
			}
		}
	}
	var out []ir.ID
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i] == b[j]:
			out = append(out, a[i])
			i, j = i+1, j+1
		case best[i+1][j] >= best[i][j+1]:
			i++
		default:
			j++
		}
	}
	return out
}
