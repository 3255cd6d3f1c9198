package models

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/models/gguf"
	"github.com/smelt-ml/smelt/models/hf"
	"github.com/smelt-ml/smelt/models/safetensors"
	"github.com/smelt-ml/smelt/models/tokenizer"
)

func openHF(dir string) (*Model, error) {
	described, err := hf.Load(dir)
	if err != nil {
		return nil, err
	}
	config, family, err := configFromHF(described)
	if err == nil {
		err = config.check()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, "config.json"), err)
	}
	f, err := safetensors.Open(dir)
	if err != nil {
		return nil, err
	}
	names := family.canonical(config.Layers)
	tensors := make([]Tensor, len(f.Tensors))
	for i, t := range f.Tensors {
		name, ok := names[t.Name]
		if !ok {
			name = t.Name
		}
		tensors[i] = Tensor{
			Name: name, DType: t.DType, Stored: t.Type, File: t.File, Offset: t.Offset, Data: t.Data,
			Shape: lo.Map(t.Shape, func(d int64, _ int) int { return int(d) }),
		}
	}
	if config.Tied {
		tie(tensors)
	}
	m, err := newModel(dir, family, config, tensors)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, errors.Join(err, f.Close()))
	}
	m.close = f.Close
	m.tokenizer = func() (*tokenizer.Tokenizer, error) { return tokenizer.FromHF(dir) }
	m.metadata, m.reordered = func() ([]gguf.KV, error) { return folderMetadata(dir, config) }, true
	return m, nil
}

// tie gives the table of a model whose head is its embedding the name of the
// embedding. Folders may store it once, under the name of the head.
func tie(tensors []Tensor) {
	const embedding, head = "token_embd.weight", "output.weight"
	if slices.ContainsFunc(tensors, func(t Tensor) bool { return t.Name == embedding }) {
		return
	}
	for i := range tensors {
		if tensors[i].Name == head {
			tensors[i].Name = embedding
		}
	}
}

// configFromHF refuses what the families here do not compute.
func configFromHF(h *hf.Config) (c Config, family *Family, err error) {
	if len(h.Architectures) > 0 {
		family, err = familyBy("architectures", hfName, h.Architectures[0])
	} else {
		family, err = familyBy("model_type", ggufName, h.ModelType)
	}
	if err != nil {
		return c, nil, err
	}
	switch {
	case h.HiddenAct != "silu":
		return c, nil, configError("hidden_act is %q, not silu", h.HiddenAct)
	case h.AttentionBias:
		return c, nil, configError("attention_bias is true")
	case h.MLPBias:
		return c, nil, configError("mlp_bias is true")
	case h.PartialRotaryFactor != 1:
		return c, nil, configError("partial_rotary_factor is %g", h.PartialRotaryFactor)
	case h.UseSlidingWindow:
		return c, nil, configError("attention has a sliding_window of %d", h.SlidingWindow)
	}
	rope, err := ropeFromHF(h)
	return Config{
		Family: family.Name,
		Vocab:  h.VocabSize, Width: h.HiddenSize, Layers: h.NumHiddenLayers, FFN: h.IntermediateSize,
		Heads: h.NumAttentionHeads, KVHeads: h.NumKeyValueHeads, Head: h.HeadDim,
		Context: h.MaxPositionEmbeddings, Eps: h.RMSNormEps, Rope: rope, Tied: h.TieWordEmbeddings,
	}, family, err
}

func ropeFromHF(h *hf.Config) (Rope, error) {
	r := Rope{Theta: h.RopeTheta, Rotated: h.HeadDim, Linear: 1}
	s := h.RopeScaling
	if s == nil {
		return r, nil
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
				return r, configError("YaRN RoPE scaling with %s", name)
			}
		}
		r.YaRN = &YaRNRope{FastBeta: 32, SlowBeta: 1, OldContext: float64(h.MaxPositionEmbeddings)}
		names, fields = []string{"factor"}, []*float64{&r.YaRN.Factor}
		for name, field := range map[string]*float64{"original_max_position_embeddings": &r.YaRN.OldContext,
			"beta_fast": &r.YaRN.FastBeta, "beta_slow": &r.YaRN.SlowBeta, "attention_factor": &r.YaRN.Magnitude} {
			if x, ok := s.Numbers[name]; ok {
				*field = x
			}
		}
	default:
		return r, configError("RoPE scaling of type %q", s.Kind)
	}
	for i, name := range names {
		x, err := s.Number(name)
		if err != nil {
			return r, err
		}
		*fields[i] = x
	}
	return r, nil
}
