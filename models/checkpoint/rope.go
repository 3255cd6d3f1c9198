package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/json"

	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/hf"
)

// ReadRope reads RoPE and its scaling for long contexts.
func (k *keys) ReadRope(c *models.Config) {
	r := &c.Rope
	r.Theta, r.Linear = k.Number(models.KeyTheta, 10000), 1
	r.Rotated = k.Size(models.KeyRotated, c.Head)
	kind := "linear"
	switch {
	case k.holds(models.RopeLong): // files of Phi-3 have no type
		kind = "longrope"
	case k.Has(models.KeyScaling):
		kind = k.Text(models.KeyScaling)
	}
	oldContext := func() float64 { return float64(k.Size(models.KeyOldContext, c.Context)) }
	magnitude := k.Number(models.KeyMagnitude, 1)
	switch kind {
	case "none", "linear":
		if kind == "linear" {
			r.Linear = k.linear()
		}
		if magnitude != 1 {
			r.Magnitude = magnitude
		}
	case "yarn": // llama.cpp reads yarn_ext_factor and yarn_attn_factor of Grok's files alone
		y := &models.YaRNRope{Factor: k.linear(), FastBeta: k.Number(models.KeyFastBeta, 32), SlowBeta: k.Number(models.KeySlowBeta, 1),
			OldContext: oldContext()}
		if magnitude != 1 {
			y.Magnitude = magnitude * models.YaRNMagnitude(y.Factor, 1)
		}
		if r.YaRN = y; k.holds(models.RopeFreqs) {
			k.Fail(models.ConfigError("the tensor %s scales RoPE beside YaRN", models.RopeFreqs))
		}
	case "longrope":
		if !k.holds(models.RopeLong) || !k.holds(models.RopeShort) {
			k.Fail(models.ConfigError("%s: LongRoPE lacks the tensors %s and %s", k.FullName(models.KeyScaling), models.RopeShort, models.RopeLong))
		}
		r.Linear = k.linear()
		r.Long = &models.LongRope{OldContext: oldContext(), Magnitude: magnitude}
	default:
		k.Fail(models.ConfigError("RoPE scaling of type %q is not supported", kind))
	}
}

// linear returns the divisor of positions.
func (k *keys) linear() float64 {
	if factor := k.Number(models.KeyScalingBy, k.Number(models.KeyOldScaling, 1)); factor != 0 { // llama.cpp takes 0 for no scaling
		return factor
	}
	return 1
}

// scaling lists the numbers of a kind of rope_scaling, and their destinations.
type scaling struct {
	needs, may []member
	refuses    []string // members that change angles in an unsupported way
	settle     func()   // runs once the numbers are read; nil: nothing
}

type member struct {
	name string
	to   *float64
}

// ReadRopeOf is for folders only.
func (k *keys) ReadRopeOf(string, *models.Config, *models.Rope) {}

// ReadRope reads rope_scaling or rope_parameters of transformers.
func (d *folder) ReadRope(c *models.Config) { d.readRope(d.Rope(), c, &c.Rope) }

// ReadRopeOf reads those of one kind of layers into r.
func (d *folder) ReadRopeOf(kind string, c *models.Config, r *models.Rope) {
	d.readRope(d.RopeOf(kind), c, r)
}

func (d *folder) readRope(h hf.Rope, c *models.Config, r *models.Rope) {
	*r = models.Rope{Theta: h.Theta, Interleaved: r.Interleaved, Rotated: int(h.PartialRotaryFactor * float64(c.Head)), Linear: 1}
	if h.Scaling == nil {
		return
	}
	const oldContext = "original_max_position_embeddings"
	old := float64(d.Size(oldContext, max(c.Context, 1)))
	var s scaling
	switch kind := h.Scaling.Kind; kind {
	case "mrope": // parts of a head rotate by the axes of an image, which are equal in a text
		return
	case "linear":
		s.needs = []member{{"factor", &r.Linear}}
	case "proportional":
		r.Turned, r.Rotated = r.Rotated/2, c.Head/2*2
		s.may = []member{{"factor", &r.Linear}}
	case "llama3":
		l := new(models.Llama3Rope)
		r.Llama3 = l
		s.needs = []member{{"factor", &l.Factor}, {"low_freq_factor", &l.LowFrequency}, {"high_freq_factor", &l.HighFrequency}, {oldContext, &l.OldContext}}
	case "yarn":
		y := &models.YaRNRope{FastBeta: 32, SlowBeta: 1, OldContext: old}
		r.YaRN = y
		var strength, ofAll float64
		var rounds struct {
			Truncate *bool `json:"truncate"`
		}
		if err := json.Unmarshal(h.Scaling.Raw, &rounds); err != nil {
			d.Fail(models.ConfigError("RoPE scaling of type %q: %w", kind, err))
		}
		y.Between = rounds.Truncate != nil && !*rounds.Truncate
		s = scaling{needs: []member{{"factor", &y.Factor}},
			may: []member{{oldContext, &y.OldContext}, {"beta_fast", &y.FastBeta}, {"beta_slow", &y.SlowBeta},
				{"attention_factor", &y.Magnitude}, {"mscale", &strength}, {"mscale_all_dim", &ofAll}},
			settle: func() {
				if y.Magnitude == 0 && strength != 0 && ofAll != 0 {
					y.Magnitude = models.YaRNMagnitude(y.Factor, strength) / models.YaRNMagnitude(y.Factor, ofAll)
				}
			}}
	case "dynamic":
		r.Dynamic = &models.DynamicRope{OldContext: old}
		s = scaling{needs: []member{{"factor", &r.Dynamic.Factor}}, may: []member{{oldContext, &r.Dynamic.OldContext}},
			refuses: []string{"alpha"}}
	case "longrope", "su":
		l := &models.LongRope{OldContext: old}
		r.Long = l
		l.Short, l.Long = d.factors(h.Scaling, "short_factor"), d.factors(h.Scaling, "long_factor")
		var factor float64
		s = scaling{may: []member{{oldContext, &l.OldContext}, {"attention_factor", &l.Magnitude}, {"factor", &factor}},
			refuses: []string{"short_mscale", "long_mscale"},
			settle: func() {
				l.Magnitude = cmp.Or(l.Magnitude, models.LongMagnitude(cmp.Or(factor, float64(c.Context)/l.OldContext), l.OldContext))
			}}
	default:
		d.Fail(models.ConfigError("RoPE scaling of type %q is not supported", kind))
	}
	d.scaling(h.Scaling, &s)
}

func (d *folder) scaling(from *hf.RopeScaling, s *scaling) {
	for _, name := range s.refuses {
		if bytes.Contains(from.Raw, []byte(`"`+name+`"`)) {
			d.Fail(models.ConfigError("RoPE scaling of type %q has the unsupported %s", from.Kind, name))
		}
	}
	for _, m := range s.needs {
		x, err := from.Number(m.name)
		if err != nil {
			d.Fail(err)
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
		d.Fail(models.ConfigError("RoPE scaling of type %q: %w", s.Kind, err))
		return nil
	}
	if err := json.Unmarshal(members[name], &list); err != nil || len(list) == 0 {
		d.Fail(models.ConfigError("RoPE scaling of type %q: %s is not a list of numbers", s.Kind, name))
	}
	return list
}
