package models

import (
	"bytes"
	"cmp"
	"encoding/json"

	"github.com/smelt-ml/smelt/models/gguf"
	"github.com/smelt-ml/smelt/models/hf"
)

// What GGUF metadata call RoPE, after the architecture and a dot.
const (
	keyTheta      = "rope.freq_base"
	keyRotated    = "rope.dimension_count"
	keyScaling    = "rope.scaling.type"
	keyScalingBy  = "rope.scaling.factor"
	keyOldScaling = "rope.scale_linear" // before there were types
	keyOldContext = "rope.scaling.original_context_length"
	keyFastBeta   = "rope.scaling.yarn_beta_fast"
	keySlowBeta   = "rope.scaling.yarn_beta_slow"
	keyMagnitude  = "rope.scaling.attn_factor" // times what YaRN makes of the factor
	keySections   = "rope.dimension_sections"
	// keyStrength divides YaRN's magnitude by that of this strength. In files of DeepSeek it is
	// a tenth of it.
	keyStrength = "rope.scaling.yarn_log_multiplier"
)

// rope reads how heads rotate, and how angles are changed for long contexts.
func (k *keys) rope(c *Config) {
	r := &c.Rope
	r.Theta, r.Linear = k.number(keyTheta, 10000), 1
	r.Rotated = k.size(keyRotated, c.Head)
	kind := "linear"
	switch {
	case k.holds(ropeLong): // files of Phi-3 say no more
		kind = "longrope"
	case k.has(keyScaling):
		kind = k.text(keyScaling)
	}
	oldContext := func() float64 { return float64(k.size(keyOldContext, c.Context)) }
	magnitude := k.number(keyMagnitude, 1)
	switch kind {
	case "none":
	case "linear":
		r.Linear = k.linear()
		if magnitude != 1 {
			k.fail(configError("linear RoPE scaling with %s", k.fullName(keyMagnitude)))
		}
	case "yarn":
		for _, key := range []string{"rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor"} {
			if k.has(key) {
				k.fail(configError("YaRN RoPE scaling with %s", k.fullName(key)))
			}
		}
		y := &YaRNRope{Factor: k.number(keyScalingBy, 0), FastBeta: k.number(keyFastBeta, 32), SlowBeta: k.number(keySlowBeta, 1),
			OldContext: oldContext()}
		if k.has(keyStrength) {
			magnitude /= yarnMagnitude(y.Factor, k.number(keyStrength, 0))
		}
		if magnitude != 1 {
			y.Magnitude = magnitude * y.magnitude()
		}
		r.YaRN = y
	case "longrope":
		if !k.holds(ropeLong) || !k.holds(ropeShort) {
			k.fail(configError("LongRoPE without the tensors %s and %s", ropeShort, ropeLong))
		}
		r.Linear = k.linear()
		r.Long = &LongRope{OldContext: oldContext(), Magnitude: magnitude}
	default:
		k.fail(configError("RoPE scaling of type %q", kind))
	}
}

// linear is what positions are divided by.
func (k *keys) linear() float64 {
	if factor := k.number(keyScalingBy, k.number(keyOldScaling, 1)); factor != 0 { // llama.cpp takes 0 for no scaling
		return factor
	}
	return 1
}

// metadata returns the entries of a GGUF file. Llama3 factors are a tensor there.
func (r *Rope) metadata(arch string) []gguf.KV {
	entry := func(key string, v gguf.Value) gguf.KV { return gguf.KV{Key: arch + "." + key, Value: v} }
	count := func(key string, n int) gguf.KV { return entry(key, gguf.Uint32(uint32(n))) }
	number := func(key string, x float64) gguf.KV { return entry(key, gguf.Float32(float32(x))) }
	kvs := []gguf.KV{number(keyTheta, r.Theta), count(keyRotated, r.Rotated)}
	if r.Linear != 1 {
		if r.Long == nil { // whose files have a factor too, and one type
			kvs = append(kvs, entry(keyScaling, gguf.String("linear")))
		}
		kvs = append(kvs, number(keyScalingBy, r.Linear))
	}
	if y := r.YaRN; y != nil {
		kvs = append(kvs, entry(keyScaling, gguf.String("yarn")), number(keyScalingBy, y.Factor), count(keyOldContext, int(y.OldContext)),
			number(keyFastBeta, y.FastBeta), number(keySlowBeta, y.SlowBeta))
		switch {
		case y.Scores != 0:
			kvs = append(kvs, number(keyStrength, y.Scores/10))
		case y.Magnitude != 0:
			kvs = append(kvs, number(keyMagnitude, y.Magnitude/yarnMagnitude(y.Factor, 1)))
		}
	}
	if l := r.Long; l != nil {
		kvs = append(kvs, entry(keyScaling, gguf.String("longrope")), count(keyOldContext, int(l.OldContext)), number(keyMagnitude, l.Magnitude))
	}
	return kvs
}

// scaling is what an object rope_scaling says by numbers, and where they go.
type scaling struct {
	needs, may []member
	refuses    []string // members that change angles in a way that is not known
	settle     func()   // what follows from the numbers; nil: nothing
}

type member struct {
	name string
	to   *float64
}

// rope reads what transformers calls rope_scaling or rope_parameters.
func (d *folder) rope(c *Config) {
	r := &c.Rope
	h := d.Rope()
	*r = Rope{Theta: h.Theta, Interleaved: r.Interleaved, Rotated: int(h.PartialRotaryFactor * float64(c.Head)), Linear: 1}
	if h.Scaling == nil {
		return
	}
	const oldContext = "original_max_position_embeddings"
	old := float64(d.size(oldContext, max(c.Context, 1)))
	var s scaling
	switch kind := h.Scaling.Kind; kind {
	case "mrope": // parts of a head turn by the axes of an image, which in a text are one
		return
	case "linear":
		s.needs = []member{{"factor", &r.Linear}}
	case "llama3":
		l := new(Llama3Rope)
		r.Llama3 = l
		s.needs = []member{{"factor", &l.Factor}, {"low_freq_factor", &l.LowFrequency}, {"high_freq_factor", &l.HighFrequency}, {oldContext, &l.OldContext}}
	case "yarn":
		y := &YaRNRope{FastBeta: 32, SlowBeta: 1, OldContext: old}
		r.YaRN = y
		var strength, ofAll float64
		var rounds struct {
			Truncate *bool `json:"truncate"`
		}
		if err := json.Unmarshal(h.Scaling.Raw, &rounds); err != nil {
			d.fail(configError("RoPE scaling of type %q: %w", kind, err))
		}
		y.Between = rounds.Truncate != nil && !*rounds.Truncate
		s = scaling{needs: []member{{"factor", &y.Factor}},
			may: []member{{oldContext, &y.OldContext}, {"beta_fast", &y.FastBeta}, {"beta_slow", &y.SlowBeta},
				{"attention_factor", &y.Magnitude}, {"mscale", &strength}, {"mscale_all_dim", &ofAll}},
			settle: func() {
				if y.Magnitude == 0 && strength != 0 && ofAll != 0 {
					y.Magnitude = yarnMagnitude(y.Factor, strength) / yarnMagnitude(y.Factor, ofAll)
				}
			}}
	case "dynamic":
		r.Dynamic = &DynamicRope{OldContext: old}
		s = scaling{needs: []member{{"factor", &r.Dynamic.Factor}}, may: []member{{oldContext, &r.Dynamic.OldContext}},
			refuses: []string{"alpha"}}
	case "longrope", "su":
		l := &LongRope{OldContext: old}
		r.Long = l
		l.Short, l.Long = d.factors(h.Scaling, "short_factor"), d.factors(h.Scaling, "long_factor")
		var factor float64
		s = scaling{may: []member{{oldContext, &l.OldContext}, {"attention_factor", &l.Magnitude}, {"factor", &factor}},
			refuses: []string{"short_mscale", "long_mscale"},
			settle: func() {
				l.Magnitude = cmp.Or(l.Magnitude, longMagnitude(cmp.Or(factor, float64(c.Context)/l.OldContext), l.OldContext))
			}}
	default:
		d.fail(configError("RoPE scaling of type %q", kind))
	}
	d.scaling(h.Scaling, &s)
}

func (d *folder) scaling(from *hf.RopeScaling, s *scaling) {
	for _, name := range s.refuses {
		if bytes.Contains(from.Raw, []byte(`"`+name+`"`)) {
			d.fail(configError("RoPE scaling of type %q with %s", from.Kind, name))
		}
	}
	for _, m := range s.needs {
		x, err := from.Number(m.name)
		if err != nil {
			d.fail(err)
		}
		*m.to = x
	}
	for _, m := range s.may {
		if x, ok := from.Numbers[m.name]; ok {
			*m.to = x
		}
	}
	if s.settle != nil {
		s.settle()
	}
}

// factors reads a list with a number for each pair.
func (d *folder) factors(s *hf.RopeScaling, name string) (list []float64) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(s.Raw, &members); err != nil {
		d.fail(configError("RoPE scaling of type %q: %w", s.Kind, err))
		return nil
	}
	if err := json.Unmarshal(members[name], &list); err != nil || len(list) == 0 {
		d.fail(configError("RoPE scaling of type %q: %s is no list of numbers", s.Kind, name))
	}
	return list
}
