package hf

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// fields reads the members of a JSON object. The first error sticks; null counts
// as absent, as it does in transformers.
type fields struct {
	file   string
	values map[string]json.RawMessage
	err    error
}

func parse(text []byte, file string) (*fields, error) {
	f := &fields{file: file}
	if err := json.Unmarshal(text, &f.values); err != nil {
		return nil, fmt.Errorf("%s: not a JSON object: %w", file, err)
	}
	if f.values == nil {
		return nil, fmt.Errorf("%s: not a JSON object", file)
	}
	return f, nil
}

func (f *fields) fail(name string, err error) {
	if f.err == nil {
		f.err = &FieldError{File: f.file, Field: name, Err: err}
	}
}

// has reports whether the field is there and not null.
func (f *fields) has(name string) bool {
	v, ok := f.values[name]
	return ok && string(v) != "null"
}

// decode stores the field in dst if it is there; want describes dst's type.
func (f *fields) decode(name, want string, dst any) bool {
	if !f.has(name) {
		return false
	}
	if json.Unmarshal(f.values[name], dst) != nil {
		f.fail(name, fmt.Errorf("%s is not %s", excerpt(f.values[name]), want))
		return false
	}
	return true
}

func excerpt(v json.RawMessage) string {
	const most = 40
	if len(v) > most {
		return strings.ToValidUTF8(string(v[:most]), "") + "…"
	}
	return string(v)
}

// size is a positive integer; absent gives the default, or an error if that is 0.
func (f *fields) size(name string, absent int) int {
	var n int
	if !f.has(name) {
		if absent == 0 {
			f.fail(name, ErrMissing)
		}
		return absent
	}
	if f.decode(name, "an integer", &n) && (n <= 0 || n > math.MaxInt32) {
		f.fail(name, fmt.Errorf("%d is not a positive integer of 32 bits", n))
	}
	return n
}

// number is a positive float.
func (f *fields) number(name string, absent float64) float64 {
	x := absent
	if f.decode(name, "a number", &x) && x <= 0 {
		f.fail(name, fmt.Errorf("%v is not positive", x))
	}
	return x
}

func (f *fields) flag(name string) (b bool) {
	f.decode(name, "true or false", &b)
	return b
}

func (f *fields) text(name string) (s string) {
	f.decode(name, "a string", &s)
	return s
}

// ids is one token id or a list of them.
func (f *fields) ids(name string) []int {
	if !f.has(name) {
		return nil
	}
	var list []json.RawMessage
	if json.Unmarshal(f.values[name], &list) != nil {
		list = []json.RawMessage{f.values[name]}
	}
	ids := make([]int, len(list))
	for i, v := range list {
		id, err := strconv.ParseInt(string(v), 10, 32)
		if err != nil || id < 0 {
			f.fail(name, fmt.Errorf("%s is not a token id or a list of them", excerpt(f.values[name])))
			return nil
		}
		ids[i] = int(id)
	}
	return ids
}

// ParseConfig reads config.json, which name stands for in errors.
func ParseConfig(text []byte, name string) (*Config, error) {
	f, err := parse(text, name)
	if err != nil {
		return nil, err
	}
	c := &Config{
		ModelType:             f.text("model_type"),
		HiddenSize:            f.size("hidden_size", 0),
		NumHiddenLayers:       f.size("num_hidden_layers", 0),
		NumAttentionHeads:     f.size("num_attention_heads", 0),
		IntermediateSize:      f.size("intermediate_size", 0),
		VocabSize:             f.size("vocab_size", 0),
		MaxPositionEmbeddings: f.size("max_position_embeddings", 2048),
		RMSNormEps:            f.number("rms_norm_eps", 1e-6),
		RopeTheta:             f.number("rope_theta", 10000),
		PartialRotaryFactor:   f.number("partial_rotary_factor", 1),
		TieWordEmbeddings:     f.flag("tie_word_embeddings"),
		AttentionBias:         f.flag("attention_bias"),
		MLPBias:               f.flag("mlp_bias"),
		HiddenAct:             f.text("hidden_act"),
		TorchDType:            f.text("torch_dtype"),
		BOSTokenIDs:           f.ids("bos_token_id"),
		EOSTokenIDs:           f.ids("eos_token_id"),
	}
	f.decode("architectures", "a list of strings", &c.Architectures)
	if c.TorchDType == "" {
		c.TorchDType = f.text("dtype") // its name since transformers 5
	}
	if c.HiddenAct == "" {
		c.HiddenAct = "silu"
	}
	c.NumKeyValueHeads = f.size("num_key_value_heads", max(c.NumAttentionHeads, 1))
	c.HeadDim = c.headDim(f)
	if f.has("sliding_window") {
		c.SlidingWindow = f.size("sliding_window", 0)
	}
	c.UseSlidingWindow = c.SlidingWindow > 0
	if f.has("use_sliding_window") {
		c.UseSlidingWindow = f.flag("use_sliding_window")
	}
	c.rope(f)
	if f.err == nil {
		c.check(f)
	}
	if f.err != nil {
		return nil, f.err
	}
	return c, nil
}

// headDim is the head size: as the file has it, else what transformers assumes.
func (c *Config) headDim(f *fields) int {
	if f.has("head_dim") {
		return f.size("head_dim", 0)
	}
	if c.ModelType == "qwen3" {
		return 128
	}
	if f.err == nil && c.HiddenSize%c.NumAttentionHeads != 0 {
		f.fail("head_dim", fmt.Errorf("%w, and hidden_size %d is not a multiple of %d heads", ErrMissing, c.HiddenSize, c.NumAttentionHeads))
	}
	return c.HiddenSize / max(c.NumAttentionHeads, 1)
}

func (c *Config) check(f *fields) {
	switch {
	case c.ModelType == "" && len(c.Architectures) == 0:
		f.fail("model_type", ErrMissing)
	case c.NumAttentionHeads%c.NumKeyValueHeads != 0:
		f.fail("num_key_value_heads", fmt.Errorf("%d heads are not a multiple of %d key-value heads", c.NumAttentionHeads, c.NumKeyValueHeads))
	case c.HeadDim%2 != 0:
		f.fail("head_dim", fmt.Errorf("%d is odd", c.HeadDim))
	case c.UseSlidingWindow && c.SlidingWindow == 0:
		f.fail("sliding_window", fmt.Errorf("%w, but use_sliding_window is true", ErrMissing))
	}
}

// rope reads rope_parameters (transformers 5, with the base inside) or
// rope_scaling, and sets RopeTheta and RopeScaling.
func (c *Config) rope(f *fields) {
	const current, former = "rope_parameters", "rope_scaling"
	name := former
	if f.has(current) {
		name = current
	}
	if !f.has(name) {
		return
	}
	r := &RopeScaling{Raw: f.values[name], Numbers: map[string]float64{}, file: f.file, field: name}
	var members map[string]json.RawMessage
	if !f.decode(name, "an object", &members) {
		return
	}
	inner := &fields{file: f.file, values: members}
	for member, v := range members {
		var x float64
		var object map[string]json.RawMessage
		switch {
		case string(v) == "null":
		case json.Unmarshal(v, &x) == nil:
			r.Numbers[member] = x
		case json.Unmarshal(v, &object) == nil:
			// Models with layers of several kinds nest one object for each kind.
			f.fail(name+"."+member, errors.New("parameters that differ by layer are not supported"))
		}
	}
	r.Kind = inner.text("rope_type")
	if r.Kind == "" {
		r.Kind = inner.text("type")
	}
	if name == current {
		c.RopeTheta = inner.number("rope_theta", c.RopeTheta)
		c.PartialRotaryFactor = inner.number("partial_rotary_factor", c.PartialRotaryFactor)
		delete(r.Numbers, "rope_theta")
	}
	if inner.err != nil {
		var field *FieldError
		if errors.As(inner.err, &field) {
			f.fail(name+"."+field.Field, field.Err)
		}
		return
	}
	switch {
	case r.Kind == "default" || r.Kind == "" && name == current:
	case r.Kind == "":
		f.fail(name+".rope_type", ErrMissing)
	default:
		c.RopeScaling = r
	}
}

// ParseGeneration reads generation_config.json, which name stands for in errors.
func ParseGeneration(text []byte, name string) (Generation, error) {
	f, err := parse(text, name)
	if err != nil {
		return Generation{}, err
	}
	g := Generation{
		BOSTokenIDs: f.ids("bos_token_id"),
		EOSTokenIDs: f.ids("eos_token_id"),
		PadTokenIDs: f.ids("pad_token_id"),
	}
	if f.err != nil {
		return Generation{}, f.err
	}
	return g, nil
}
