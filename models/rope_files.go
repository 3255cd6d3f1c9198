package models

import (
	"bytes"

	"github.com/smelt-ml/smelt/models/gguf"
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
)

// rope reads how heads rotate, and how angles are changed for long contexts.
func (k *keys) rope(c *Config) {
	r := &c.Rope
	r.Theta, r.Linear = k.number(keyTheta, 10000), 1
	r.Rotated = k.size(keyRotated, c.Head)
	kind := "linear"
	if k.has(keyScaling) {
		kind = k.text(keyScaling)
	}
	switch kind {
	case "none":
	case "linear":
		if factor := k.number(keyScalingBy, k.number(keyOldScaling, 1)); factor != 0 { // llama.cpp takes 0 for no scaling
			r.Linear = factor
		}
	case "yarn":
		for _, key := range []string{"rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor", "rope.scaling.yarn_log_multiplier"} {
			if k.has(key) {
				k.fail(configError("YaRN RoPE scaling with %s", k.fullName(key)))
			}
		}
		y := &YaRNRope{Factor: k.number(keyScalingBy, 0), FastBeta: k.number(keyFastBeta, 32), SlowBeta: k.number(keySlowBeta, 1),
			OldContext: float64(k.size(keyOldContext, c.Context))}
		if k.has(keyMagnitude) {
			y.Magnitude = k.number(keyMagnitude, 0) * y.magnitude()
		}
		r.YaRN = y
	default:
		k.fail(configError("RoPE scaling of type %q", kind))
	}
}

// metadata returns the entries of a GGUF file. Llama3 factors are a tensor there.
func (r *Rope) metadata(arch string) []gguf.KV {
	entry := func(key string, v gguf.Value) gguf.KV { return gguf.KV{Key: arch + "." + key, Value: v} }
	count := func(key string, n int) gguf.KV { return entry(key, gguf.Uint32(uint32(n))) }
	number := func(key string, x float64) gguf.KV { return entry(key, gguf.Float32(float32(x))) }
	kvs := []gguf.KV{number(keyTheta, r.Theta), count(keyRotated, r.Rotated)}
	if r.Linear != 1 {
		kvs = append(kvs, entry(keyScaling, gguf.String("linear")), number(keyScalingBy, r.Linear))
	}
	if y := r.YaRN; y != nil {
		kvs = append(kvs, entry(keyScaling, gguf.String("yarn")), number(keyScalingBy, y.Factor), count(keyOldContext, int(y.OldContext)),
			number(keyFastBeta, y.FastBeta), number(keySlowBeta, y.SlowBeta))
		if y.Magnitude != 0 {
			paper := YaRNRope{Factor: y.Factor}
			kvs = append(kvs, number(keyMagnitude, y.Magnitude/paper.magnitude()))
		}
	}
	return kvs
}

// rope reads what transformers calls rope_scaling or rope_parameters.
func (d *folder) rope(c *Config) {
	r := &c.Rope
	h := d.Rope()
	*r = Rope{Theta: h.Theta, Interleaved: r.Interleaved, Rotated: int(h.PartialRotaryFactor * float64(c.Head)), Linear: 1}
	s := h.Scaling
	if s == nil {
		return
	}
	var fields []*float64
	var names []string
	switch s.Kind {
	case "linear":
		names, fields = []string{"factor"}, []*float64{&r.Linear}
	case "llama3":
		r.Llama3 = new(Llama3Rope)
		names = []string{"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}
		fields = []*float64{&r.Llama3.Factor, &r.Llama3.LowFrequency, &r.Llama3.HighFrequency, &r.Llama3.OldContext}
	case "yarn":
		for _, name := range []string{"mscale", "mscale_all_dim", "truncate"} {
			if bytes.Contains(s.Raw, []byte(`"`+name+`"`)) {
				d.fail(configError("YaRN RoPE scaling with %s", name))
			}
		}
		r.YaRN = &YaRNRope{FastBeta: 32, SlowBeta: 1, OldContext: float64(c.Context)}
		names, fields = []string{"factor"}, []*float64{&r.YaRN.Factor}
		for name, field := range map[string]*float64{"original_max_position_embeddings": &r.YaRN.OldContext,
			"beta_fast": &r.YaRN.FastBeta, "beta_slow": &r.YaRN.SlowBeta, "attention_factor": &r.YaRN.Magnitude} {
			if x, ok := s.Numbers[name]; ok {
				*field = x
			}
		}
	default:
		d.fail(configError("RoPE scaling of type %q", s.Kind))
	}
	for i, name := range names {
		x, err := s.Number(name)
		if err != nil {
			d.fail(err)
		}
		*fields[i] = x
	}
}
