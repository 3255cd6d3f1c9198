package models

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models/gguf"
)

// Router is how a mixture chooses the experts of a token, and weights them.
type Router struct {
	Score      ir.RouterScore // NoScore: that of the family, and whether weights are normalised
	Normalised bool           // weights are divided by their sum
	Scale      float64        // factor of the weights; 0: 1
	Groups     int            // equal ranges of experts; 0: no groups
	UsedGroups int            // groups that a token chooses from
	Biased     bool           // a vector is added to the scores for the choice
}

// leastSum is the least sum that normalised weights are divided by, llama.cpp's.
const leastSum = 1.0 / (1 << 14)

// scoreNames are the scores that folders have, by their names there.
var scoreNames = map[string]ir.RouterScore{"softmax": ir.SoftmaxScore, "sigmoid": ir.SigmoidScore, "sqrtsoftplus": ir.SqrtSoftplusScore}

// RouterKeys is what a family's files say of its router. The Router is what they mean without a
// key. Where GGUF files have no keys, no file may say anything else, since it could not be kept there.
type RouterKeys struct {
	Router
	HFNormalises bool // folders without HFNormalised normalise
	Keyed        bool // GGUF files say how experts are scored, and whether and how weights are normalised and scaled
	// Members of config.json: a name, a flag, a number, two sizes and a flag; "" where there is none.
	HFScore, HFNormalised, HFScale, HFGroups, HFUsedGroups, HFBias string
}

// RouterBias is the role of the vector that is added to scores for the choice.
const RouterBias = "exp_probs_b"

const (
	keyGating     = "expert_gating_func"
	keyNormalised = "expert_weights_norm"
	keyScale      = "expert_weights_scale"
	keyGroups     = "expert_group_count"
	keyUsedGroups = "expert_group_used_count"
)

// fields returns the entries that read and write the router; none for families without mixtures.
func (k RouterKeys) fields() []Field {
	if k.Score == ir.NoScore {
		return nil
	}
	return []Field{
		{GGUF: keyGroups, HF: k.HFGroups, Size: func(c *Config) *int { return &c.Experts.Router.Groups }, Optional: true},
		{GGUF: keyUsedGroups, HF: k.HFUsedGroups, Size: func(c *Config) *int { return &c.Experts.Router.UsedGroups }, Optional: true},
		{Read: k.read},
		k.entry(keyGating, func(r *Router) (gguf.Value, bool) { return gguf.Uint32(uint32(r.Score)), true }),
		k.entry(keyNormalised, func(r *Router) (gguf.Value, bool) { return gguf.Bool(r.Normalised), true }),
		k.entry(keyScale, func(r *Router) (gguf.Value, bool) { return gguf.Float32(float32(r.Scale)), r.Scale != 0 }),
	}
}

// read reads the score, the weights and whether there is a bias.
func (k RouterKeys) read(d Description, c *Config) {
	if c.Experts.Count == 0 { // a dense model of a family that also has mixtures
		c.Experts.Router = Router{}
		return
	}
	r := k.Router
	if c.Experts.Router.Score != ir.NoScore { // which the family's own fields have set
		r.Score = c.Experts.Router.Score
	}
	names := [3]string{keyGating, keyNormalised, keyScale}
	if d.Format() == Folder {
		if k.HFBias != "" && d.Has(k.HFBias) {
			r.Biased = d.Flag(k.HFBias)
		}
		if k.HFGroups != "" && d.Has(keyMethod) {
			k.method(d, c, &r)
		}
		r.Normalised = r.Normalised || k.HFNormalises
		names = [3]string{k.HFScore, k.HFNormalised, k.HFScale}
	} else if k.Keyed || k.Biased {
		first := max(c.Experts.Dense, slices.Index(c.Networks, true))
		_, r.Biased = d.Rows(fmt.Sprintf("blk.%d.%s.bias", first, RouterBias))
	}
	if names[0] != "" && d.Has(names[0]) {
		r.Score = cmp.Or(score(d, names[0]), r.Score)
	}
	if names[1] != "" && d.Has(names[1]) {
		r.Normalised = d.Flag(names[1])
	}
	if names[2] != "" && d.Has(names[2]) {
		r.Scale = d.Number(names[2], 0)
	}
	if given := k.Router; !k.Keyed && (r.Score != given.Score || r.Normalised != given.Normalised || r.scale() != given.scale()) {
		said := lo.FilterMap(names[:], func(name string, _ int) (string, bool) { return d.FullName(name), name != "" && d.Has(name) })
		d.Fail(ConfigError("%s: the router has score %s, normalised %t and scale %g, want %s, %t and %g", strings.Join(said, ", "), r.Score, r.Normalised, r.scale(), given.Score, given.Normalised, given.scale()))
	}
	r.Groups, r.UsedGroups = c.Experts.Router.Groups, c.Experts.Router.UsedGroups
	c.Experts.Router = r
}

// keyMethod is a folder's name of the way in which DeepSeek's models choose.
const keyMethod = "topk_method"

// method reads it: among all experts, or among those of some groups by scores with a bias.
func (k RouterKeys) method(d Description, c *Config, r *Router) {
	switch method := d.Text(keyMethod); method {
	case "greedy":
		c.Experts.Router.Groups, c.Experts.Router.UsedGroups = 0, 0
	case "noaux_tc":
		r.Score, r.Biased = ir.SigmoidScore, true // unless a score is named
	default:
		d.Fail(ConfigError("%s is %q; known are \"greedy\" and \"noaux_tc\"", keyMethod, method))
	}
}

// score reads the function of logits by which experts are scored.
func score(d Description, key string) ir.RouterScore {
	if d.Format() == Folder {
		name := d.Text(key)
		if s, ok := scoreNames[name]; ok {
			return s
		}
		d.Fail(ConfigError("%s: no router scores experts by %s", d.FullName(key), name))
		return ir.NoScore
	}
	n := d.Size(key, Unset)
	if n == 0 { // which llama.cpp takes as not said
		return ir.NoScore
	}
	if !slices.ContainsFunc(ir.RouterScores(), func(s ir.RouterScore) bool { return int(s) == n }) {
		d.Fail(ConfigError("%s: no router has the number %d", d.FullName(key), n))
	}
	return ir.RouterScore(n)
}

// scale returns the factor of the weights.
func (r *Router) scale() float64 {
	if r.Scale == 0 {
		return 1
	}
	return r.Scale
}

// complete sets what a configuration that no file gave does not say.
func (k RouterKeys) complete(r *Router) {
	if r.Score == ir.NoScore {
		r.Score, r.Normalised, r.Biased = k.Score, k.Normalised, r.Biased || k.Biased
	}
}

// check returns an error for a router over n experts, of which each token goes to chosen, that no
// graph can be built from.
func (r *Router) check(n, chosen int) error {
	if r.Scale != 0 && !(r.Scale >= 1/maxScale && r.Scale <= maxScale) {
		return ConfigError("the scale of experts is %g", r.Scale)
	}
	if r.Groups == 0 || r.Groups == 1 && r.UsedGroups <= 1 {
		return nil
	}
	if err := CheckExtents(Extent{"number of groups of experts", r.Groups, maxChosen}, Extent{"number of groups a token chooses from", r.UsedGroups, r.Groups}); err != nil {
		return err
	}
	if n%r.Groups != 0 || n/r.Groups*r.UsedGroups < chosen {
		return ConfigError("%d of %d experts cannot be chosen from %d of %d groups", chosen, n, r.UsedGroups, r.Groups)
	}
	return nil
}

// route returns the weights and the numbers of each token's experts, both [T, Chosen], by the
// logits of a router, [T, Count], times a factor. gains multiply the weights of each expert, [Count]; nil: by 1.
func (l *LayerBuilder) route(logits *ir.Value, sharpness float64, gains *ir.Value) (weights, experts *ir.Value) {
	e := &l.Config.Experts
	attr := ir.RouterAttr{Sharpness: sharpness, Score: e.Router.Score, Chosen: e.Chosen, Normalised: e.Router.Normalised, Scale: e.Router.Scale}
	var bias *ir.Value
	if e.Router.Biased {
		bias = l.Builder.Weight(l.Name(RouterBias+".bias"), e.Count)
	}
	if e.Router.Groups > 1 {
		attr.Groups, attr.UsedGroups = e.Router.Groups, e.Router.UsedGroups
	}
	if attr.Score == ir.SoftmaxScore && attr.Normalised && bias == nil && attr.Groups == 0 {
		attr.Score, attr.Normalised = ir.ChosenSoftmaxScore, false // the same, without a pass over all experts
	}
	if attr.Normalised {
		attr.Floor = leastSum
	}
	return l.Builder.Router(logits, bias, gains, attr)
}

// entry writes what GGUF files of the family say of a router.
func (k RouterKeys) entry(key string, value func(r *Router) (gguf.Value, bool)) Field {
	return Field{Write: func(c *Config) (string, gguf.Value, bool) {
		v, ok := value(&c.Experts.Router)
		return key, v, ok && k.Keyed && c.Experts.Count > 0
	}}
}
