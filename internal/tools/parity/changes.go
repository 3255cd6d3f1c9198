package parity

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/families"
	"github.com/smelt-ml/smelt/models/gguf"
)

// Change is one thing in which a file differs from that of a case: a key of its architecture, or a
// tensor, in all layers that can have it.
type Change struct {
	Name string // "rope.freq_base=500", "-attn_q.bias", "+attn_q.scale"
	Of   string // the key without the architecture, or the tensor without the layer, which errors name

	set     []gguf.KV // keys without the architecture; those without a value are taken away
	tensors func(b *Base) []gguf.TensorWriter
}

// Key reports whether the change is of a key, not of tensors.
func (c Change) Key() bool { return c.tensors == nil }

// Named reports whether an error names a key that the change sets, or tensors.
func (c Change) Named(err string) bool {
	return strings.Contains(err, "weight") || strings.Contains(err, "tensor") || slices.ContainsFunc(c.set, func(kv gguf.KV) bool { return strings.Contains(err, kv.Key) })
}

// Same is how far results of F32 may be apart, in deviations, that are the same but for rounding.
const Same = 1e-5

// Embeds reports whether the case's results are hidden states, [Tokens, Width], not logits.
func (c Case) Embeds() bool {
	f, err := families.ByName("the family", c.Config.Family)
	return err == nil && f.Encodes
}

// Base is the file of a case whose changes are compared.
type Base struct {
	Case
	*gguf.File
}

// Base writes the case's file in F32 to memory.
func (c Case) Base() (*Base, error) {
	var b bytes.Buffer
	if err := c.Write(&b, "f32"); err != nil {
		return nil, err
	}
	f, err := gguf.Parse(b.Bytes(), c.Name)
	return &Base{c, f}, err
}

// Bases returns the cases whose files are changed, one of each family: of the geometries of four layers
// the one in which layers differ most.
func Bases() []Case {
	encoders := lo.Filter(Embedders(), func(family string, _ int) bool { return Cases(family)[0].Embeds() })
	return lo.Map(append(Families(), encoders...), func(family string, _ int) Case {
		return Cases(family)[lo.Ternary(slices.Contains([]string{"olmo2", "muse-glimmer"}, family), 3, 0)]
	})
}

// Write writes the file with a change.
func (b *Base) Write(w io.Writer, c Change) error {
	arch := b.Config.Family + "."
	metadata := lo.Reject(b.Metadata, func(kv gguf.KV, _ int) bool {
		return slices.ContainsFunc(c.set, func(s gguf.KV) bool { return arch+s.Key == kv.Key })
	})
	for _, kv := range c.set {
		if kv.Value != (gguf.Value{}) {
			metadata = append(metadata, gguf.KV{Key: arch + kv.Key, Value: kv.Value})
		}
	}
	tensors := lo.Map(b.Tensors, func(t gguf.Tensor, _ int) gguf.TensorWriter { return t.Writer() })
	if c.tensors != nil {
		tensors = c.tensors(b)
	}
	return gguf.Write(w, metadata, tensors)
}

// Changes returns what is changed in a case's file, one at a time: every key of llama.cpp's table set to
// values that no file of the case has, every key and tensor of the file taken away, tensors that
// files may have added, and other forms of the same file.
func (b *Base) Changes() []Change {
	var out []Change
	set := func(kvs ...gguf.KV) {
		c := Change{Of: kvs[0].Key, set: kvs}
		c.Name = strings.Join(lo.Map(kvs, func(kv gguf.KV, _ int) string {
			if kv.Value == (gguf.Value{}) {
				return "-" + kv.Key
			}
			return kv.Key + "=" + kv.Value.String()
		}), " ")
		if !slices.ContainsFunc(out, func(o Change) bool { return o.Name == c.Name }) {
			out = append(out, c)
		}
	}
	arch := b.Config.Family + "."
	has := func(key string) bool { return b.Has(arch + key) }
	yarn := []gguf.KV{{Key: models.KeyScaling, Value: gguf.String("yarn")}, {Key: models.KeyScalingBy, Value: gguf.Float32(4)}, {Key: models.KeyOldContext, Value: gguf.Uint32(32)}}
	for _, row := range keyValues(&b.Config) {
		for _, v := range row.values {
			set(append([]gguf.KV{{Key: row.key, Value: v}}, row.with...)...)
			if (strings.HasPrefix(row.key, "rope.") || row.key == "context_length") && has(models.KeyTheta) && !has(models.KeyScaling) {
				over := lo.Reject(yarn, func(kv gguf.KV, _ int) bool {
					return kv.Key == row.key || row.key == "context_length" && kv.Key == models.KeyOldContext
				})
				set(append([]gguf.KV{{Key: row.key, Value: v}}, over...)...)
			}
		}
	}
	for _, kv := range b.Metadata {
		key, ok := strings.CutPrefix(kv.Key, arch)
		if !ok {
			continue
		}
		out = append(out, Change{Name: "-" + key, Of: key, set: []gguf.KV{{Key: key}}})
		if n, single := kv.Value.Any().(uint32); single && slices.Contains(byLayer, key) {
			set(gguf.KV{Key: key, Value: gguf.Uint32Array(slices.Repeat([]uint32{n}, b.Config.Layers))})
		}
	}
	return append(out, b.tensorChanges()...)
}

// Groups splits changes into those that may be computed at once: keys that the family's fields do not
// read, by sixteens, and each other change alone.
func (b *Base) Groups(changes []Change) (groups [][]Change) {
	family, _ := families.ByName("the family", b.Config.Family)
	known := append(lo.FlatMap(family.AllFields(), func(f models.Field, _ int) []string {
		key, _, _ := f.Entry(&b.Config)
		return []string{f.GGUF, key}
	}), lo.Map(b.Metadata, func(kv gguf.KV, _ int) string { return strings.TrimPrefix(kv.Key, b.Config.Family+".") })...)
	var open []Change
	var keys []string
	flush := func() {
		if len(open) > 0 {
			groups = append(groups, open)
		}
		open, keys = nil, nil
	}
	for _, c := range changes {
		own := lo.Map(c.set, func(kv gguf.KV, _ int) string { return kv.Key })
		if len(own) == 0 || lo.Some(known, own) {
			groups = append(groups, []Change{c})
			continue
		}
		if len(open) == 16 || lo.Some(keys, own) {
			flush()
		}
		open, keys = append(open, c), append(keys, own...)
	}
	flush()
	return groups
}

// Together returns several changes of different keys as one.
func Together(list []Change) Change {
	if len(list) == 1 {
		return list[0]
	}
	return Change{set: lo.FlatMap(list, func(c Change, _ int) []gguf.KV { return c.set })}
}

// byLayer are the keys that may have a value for each layer.
var byLayer = []string{"feed_forward_length", "attention.head_count", "attention.head_count_kv", "expert_feed_forward_length", "expert_used_count"}

type keyRow struct {
	key    string
	values []gguf.Value
	with   []gguf.KV
}

// keyValues returns the keys of llama.cpp's table (LLM_KV_NAMES) with values that change what they can
// change in so small a model.
func keyValues(c *models.Config) []keyRow {
	u, f, s, yes := gguf.Uint32, gguf.Float32, gguf.String, gguf.Bool
	us := func(x ...uint32) []gguf.Value { return lo.Map(x, func(n uint32, _ int) gguf.Value { return u(n) }) }
	fs := func(x ...float32) []gguf.Value { return lo.Map(x, func(n float32, _ int) gguf.Value { return f(n) }) }
	either := []gguf.Value{yes(true), yes(false)}
	flags := func(every int) gguf.Value { return gguf.BoolArray(models.AllButEvery(every, c.Layers)) }
	floats := gguf.Float32Array(slices.Repeat([]float32{0.5}, c.Layers))
	sizes := func(n uint32) gguf.Value { return gguf.Uint32Array(slices.Repeat([]uint32{n}, c.Layers)) }
	half := uint32(c.Head / 4 * 2)
	plain := func(values []gguf.Value, keys ...string) []keyRow {
		return lo.Map(keys, func(key string, _ int) keyRow { return keyRow{key: key, values: values} })
	}
	return slices.Concat([]keyRow{
		{key: "vocab_size", values: us(Vocab + 8)}, {key: "context_length", values: us(64, 16)},
		{key: "block_count", values: us(uint32(c.Layers-1), uint32(c.Layers+1))},
		{key: "feed_forward_length", values: us(uint32(c.FFN + 8))},
		{key: "expert_feed_forward_length", values: append(us(uint32(c.Experts.FFN+8)), sizes(uint32(c.Experts.FFN)))},
		{key: "expert_shared_feed_forward_length", values: us(40)},
		{key: "swiglu_clamp_exp", values: []gguf.Value{floats}}, {key: "swiglu_clamp_shexp", values: []gguf.Value{floats}},
		{key: "use_parallel_residual", values: either}, {key: "tensor_data_layout", values: []gguf.Value{s("Meta AI original pth")}},
		{key: "expert_count", values: us(0, 4)}, {key: "expert_used_count", values: us(1, 3)},
		{key: "expert_group_count", values: us(2, 4), with: []gguf.KV{{Key: "expert_group_used_count", Value: u(1)}}},
		{key: "expert_group_used_count", values: us(1)}, {key: "expert_group_count", values: us(1)},
		{key: "expert_weights_scale", values: fs(1.75, 0)}, {key: "expert_weights_norm", values: either},
		{key: "expert_gating_func", values: us(0, 1, 2, 3, 4)}, {key: "hidden_activation", values: []gguf.Value{s("gelu"), s("relu")}},
		{key: "pooling_type", values: us(0, 1, 2, 3, 4)}, {key: "deepstack_mapping", values: []gguf.Value{gguf.Int32Array(slices.Repeat([]int32{0}, c.Layers))}},
		{key: "nextn_predict_layers", values: us(0, 1)},
		{key: "full_attention_interval", values: us(3), with: []gguf.KV{{Key: "attention.recurrent_layers"}}}, {key: "full_attention_interval", values: us(3)},
		{key: "attention.head_count", values: us(uint32(c.Heads/2), uint32(2*c.Heads))}, {key: "attention.head_count_kv", values: us(1, uint32(c.Heads))},
		{key: "attention.max_alibi_bias", values: fs(4, 0)}, {key: "attention.clamp_kqv", values: fs(0.5, 0)},
		{key: "attention.layer_norm_epsilon", values: fs(0.25)}, {key: "attention.layer_norm_rms_epsilon", values: fs(0.25)},
		{key: "attention.causal", values: either},
		{key: "attention.key_length", values: us(half)}, {key: "attention.value_length", values: us(half)},
		{key: "attention.sliding_window", values: us(2, 0)}, {key: "attention.sliding_window_pattern", values: append(us(3, 1, 0), flags(3), flags(-2))},
		{key: "attention.sliding_window", values: us(2), with: []gguf.KV{{Key: "attention.sliding_window_pattern", Value: flags(2)}}},
		{key: "attention.rope_pattern", values: []gguf.Value{flags(2)}}, {key: "attention.recurrent_layers", values: []gguf.Value{flags(3)}},
		{key: "attention.indexer.types", values: []gguf.Value{flags(2)}}, {key: "attention.compress_ratios", values: []gguf.Value{sizes(4)}},
		{key: "attention.temperature_scale", values: fs(4)}, {key: "attention.temperature_length", values: us(4)},
		{key: "attention.temperature_scale", values: fs(4), with: []gguf.KV{{Key: "attention.temperature_length", Value: u(4)}}},
		{key: models.KeyRotated, values: us(half)}, {key: "rope.dimension_count_swa", values: us(half)},
		{key: models.KeySections, values: []gguf.Value{gguf.Int32Array([]int32{4, 2, 2, 0}), gguf.Int32Array([]int32{0, 0, 0, 0})}},
		{key: models.KeyTheta, values: fs(500)}, {key: "rope.freq_base_swa", values: fs(50)},
		{key: "rope.freq_base_swa", values: fs(50), with: []gguf.KV{{Key: "attention.sliding_window", Value: u(3)}}},
		{key: models.KeyOldScaling, values: fs(2)}, {key: models.KeyScalingBy, values: fs(2, 0)},
		{key: models.KeyScaling, values: []gguf.Value{s("none"), s("linear"), s("yarn"), s("longrope")}, with: []gguf.KV{{Key: models.KeyScalingBy, Value: f(2)}}},
		{key: models.KeyScaling, values: []gguf.Value{s("none"), s("linear"), s("yarn"), s("longrope")}},
		{key: "rope.scaling.alpha", values: fs(50)}, {key: models.KeyMagnitude, values: fs(1.25)},
		{key: models.KeyOldContext, values: us(8)}, {key: "rope.scaling.finetuned", values: either},
		{key: models.KeyStrength, values: fs(0.5, 0.0707)}, {key: "rope.scaling.yarn_ext_factor", values: fs(0.5, 0, 1)},
		{key: "rope.scaling.yarn_attn_factor", values: fs(1.25)}, {key: models.KeyFastBeta, values: fs(4)}, {key: models.KeySlowBeta, values: fs(0.25)},
		{key: "classifier.output_labels", values: []gguf.Value{gguf.StringArray([]string{"a", "b", "c"})}},
		{key: "target_layers", values: []gguf.Value{gguf.Int32Array([]int32{1})}}, {key: "ple.layers", values: []gguf.Value{gguf.Int32Array([]int32{1})}},
	},
		plain(fs(0.5), "logit_scale", "residual_scale", "embedding_scale", "attention.scale", "attention.output_scale", "attention.value_scale", "attn_logit_softcapping",
			"router_logit_softcapping", "final_logit_softcapping", "expert_group_scale", "attention.group_norm_epsilon", "hyper_connection.epsilon", "hyper_connection.magnitude",
			"activation.situ_beta", "activation.situ_linear_beta", "attention.compress_rope_freq_base", "adapters.router_gain", "kda.gate_lower_bound"),
		plain(us(2), "embedding_length", "embedding_length_out", "embedding_length_per_layer_input", "features_length", "leading_dense_block_count", "attn_res.block_size",
			"expert_chunk_feed_forward_length", "expert_shared_count", "expert_latent_length", "experts_per_group", "moe_every_n_layers", "moe_latent_size", "n_deepstack_layers",
			"decoder_start_token_id", "decoder_block_count", "rescale_every_n_layers", "time_mix_extra_dim", "time_decay_extra_dim", "token_shift_count",
			"interleave_moe_layer_step", "num_loops", "attention.group_norm_groups", "attention.q_lora_rank", "attention.kv_lora_rank", "attention.decay_lora_rank", "attention.iclr_lora_rank",
			"attention.value_residual_mix_lora_rank", "attention.gate_lora_rank", "attention.relative_buckets_count", "attention.key_length_mla", "attention.value_length_mla",
			"attention.key_length_swa", "attention.value_length_swa", "attention.key_length_mla_swa", "attention.value_length_mla_swa", "attention.kv_lora_rank_swa",
			"attention.indexer.head_count", "attention.indexer.key_length", "attention.indexer.top_k", "attention.indexer.block_size", "attention.indexer.local_blocks",
			"attention.output_group_count", "attention.output_lora_rank", "attention.shared_kv_layers", "hyper_connection.count", "hyper_connection.sinkhorn_iterations",
			"hyper_connection.low_rank", "hash_layer_count", "ssm.conv_kernel", "ssm.inner_size", "ssm.state_size", "ssm.time_step_rank", "ssm.group_count", "kda.head_dim",
			"wkv.head_size", "posnet.embedding_length", "posnet.block_count", "convnext.embedding_length", "convnext.block_count", "target_hidden_size", "block_size", "conv_kernel_size",
			"conv_group_size", "selector_rank", "selector_top_k", "shortconv.l_cache", "dense_2_feat_in", "dense_2_feat_out", "dense_3_feat_in", "dense_3_feat_out",
			"hrm.layers_per_stack", "hrm.h_cycles", "hrm.l_cycles", "ple.ngram_size", "ple.heads_per_ngram", "ple.conv_kernel", "ple.eos_token_id", "ple.image_token_id",
			"adapters.count", "adapters.lora_rank"),
		plain(us(0), "leading_dense_block_count", "expert_shared_count", "expert_shared_feed_forward_length", "n_deepstack_layers", "attention.q_lora_rank", "interleave_moe_layer_step"),
		plain(either, "swin_norm", "skip_loop_final_norm", "norm_before_residual", "norm_before_fc", "ssm.dt_b_c_rms", "kda.safe_gate", "hrm.prefix_lm"),
		plain([]gguf.Value{gguf.Int32Array([]int32{1, 2, 3, 4})}, "adapters.token_ids_activate", "adapters.token_ids_substitute", "ple.layer_multipliers", "ple.head_offsets", "ple.head_vocab_sizes"))
}

// tensorChanges are the changes of tensors.
func (b *Base) tensorChanges() []Change {
	var out []Change
	add := func(name, of string, tensors func(b *Base) []gguf.TensorWriter) {
		out = append(out, Change{Name: name, Of: of, tensors: tensors})
	}
	roles := lo.UniqBy(b.Tensors, func(t gguf.Tensor) string { return bare(t.Name) })
	for _, t := range roles {
		role := bare(t.Name)
		add("-"+role, role, func(b *Base) []gguf.TensorWriter {
			return b.with(func(t gguf.Tensor) []gguf.TensorWriter {
				return lo.Ternary(bare(t.Name) == role, nil, []gguf.TensorWriter{t.Writer()})
			})
		})
		name, weight := strings.CutSuffix(role, ".weight")
		if !weight {
			continue
		}
		beside := func(kind string, shape func(t gguf.Tensor) []int64) {
			if of := name + "." + kind; !b.holds(of) {
				add("+"+of, of, func(b *Base) []gguf.TensorWriter {
					return b.with(func(t gguf.Tensor) []gguf.TensorWriter {
						own := []gguf.TensorWriter{t.Writer()}
						if bare(t.Name) != role {
							return own
						}
						return append(own, random(strings.TrimSuffix(t.Name, "weight")+kind, shape(t)...))
					})
				})
			}
		}
		beside("bias", func(t gguf.Tensor) []int64 { return t.Shape[:max(len(t.Shape)-1, 1)] })
		if len(t.Shape) > 1 {
			numbers := func(t gguf.Tensor) []int64 { return []int64{lo.Ternary(len(t.Shape) == 3, t.Shape[0], 1)} }
			beside("scale", numbers)
			beside("input_scale", numbers)
		}
	}
	for _, join := range [][]string{{"attn_qkv", "attn_q", "attn_k", "attn_v"}, {"ffn_gate_up_exps", "ffn_gate_exps", "ffn_up_exps"}, {"ffn_up", "ffn_gate", "ffn_up"}} {
		if parts := join[1:]; lo.EveryBy(parts, func(part string) bool { return b.holds(part + ".weight") }) {
			add(strings.Join(parts, "+"), join[0]+".weight", func(b *Base) []gguf.TensorWriter { return b.joined(join[0], parts) })
		}
	}
	for _, extra := range extraTensors(&b.Config) {
		if b.holds(extra.name) {
			continue
		}
		add("+"+extra.name+fmt.Sprint(extra.shape), extra.name, func(b *Base) []gguf.TensorWriter {
			all := b.with(func(t gguf.Tensor) []gguf.TensorWriter {
				own := []gguf.TensorWriter{t.Writer()}
				if bare(t.Name) == extra.beside && strings.HasPrefix(t.Name, "blk.") {
					own = append(own, random(strings.TrimSuffix(t.Name, extra.beside)+extra.name, extra.shape...))
				}
				return own
			})
			if extra.beside == "" {
				all = append(all, random(extra.name, extra.shape...))
			}
			return all
		})
	}
	add("vectors as matrices of one row", "", func(b *Base) []gguf.TensorWriter {
		return b.with(func(t gguf.Tensor) []gguf.TensorWriter {
			w := t.Writer()
			if len(w.Shape) == 1 {
				w.Shape = []int64{1, w.Shape[0]}
			}
			return []gguf.TensorWriter{w}
		})
	})
	return out
}

// bare returns a tensor's name within its layer.
func bare(name string) string {
	if rest, ok := strings.CutPrefix(name, "blk."); ok {
		_, rest, _ = strings.Cut(rest, ".")
		return rest
	}
	return name
}

func (b *Base) holds(role string) bool {
	return slices.ContainsFunc(b.Tensors, func(t gguf.Tensor) bool { return bare(t.Name) == role })
}

// with returns the file's tensors with each replaced.
func (b *Base) with(each func(t gguf.Tensor) []gguf.TensorWriter) []gguf.TensorWriter {
	return lo.FlatMap(b.Tensors, func(t gguf.Tensor, _ int) []gguf.TensorWriter { return each(t) })
}

// joined concatenates the rows of several tensors of a layer, of each expert where there are such, and
// of their biases.
func (b *Base) joined(whole string, parts []string) []gguf.TensorWriter {
	return b.with(func(t gguf.Tensor) []gguf.TensorWriter {
		role, kind, _ := strings.Cut(bare(t.Name), ".")
		before := strings.TrimSuffix(t.Name, bare(t.Name))
		at := slices.Index(parts, role)
		all := lo.FilterMap(parts, func(part string, _ int) (gguf.Tensor, bool) { return b.Tensor(before + part + "." + kind) })
		switch {
		case at < 0 || len(all) < len(parts):
			return []gguf.TensorWriter{t.Writer()}
		case at > 0:
			return nil
		}
		rows := func(t gguf.Tensor) int { return len(t.Shape) - lo.Ternary(kind == "weight", 2, 1) }
		shape := slices.Clone(t.Shape)
		shape[rows(t)] = lo.SumBy(all, func(t gguf.Tensor) int64 { return t.Shape[rows(t)] })
		experts := 1
		if rows(t) > 0 {
			experts = int(t.Shape[0])
		}
		return []gguf.TensorWriter{{Name: before + whole + "." + kind, Type: t.Type, Shape: shape, Write: func(w io.Writer) error {
			for e := range experts {
				for _, t := range all {
					n := len(t.Data) / experts
					if _, err := w.Write(t.Data[e*n:][:n]); err != nil {
						return err
					}
				}
			}
			return nil
		}}}
	})
}

// extraTensor may stand in layers that have the tensor beside it, or outside of layers.
type extraTensor struct {
	name, beside string
	shape        []int64
}

// extraTensors returns tensors that llama.cpp reads of some architecture and that are no bias or scale.
func extraTensors(c *models.Config) []extraTensor {
	n := func(x ...int) []int64 { return lo.Map(x, func(x, _ int) int64 { return int64(x) }) }
	heads, kv, pairs := c.Heads*c.Head, c.KVHeads*c.Head, max(c.Rope.Rotated, c.Head)/2
	if c.Rope.Rotated > 0 {
		pairs = c.Rope.Rotated / 2
	}
	const attention, dense, experts = "attn_output.weight", "ffn_down.weight", "ffn_down_exps.weight"
	out := []extraTensor{
		{"output.weight", "", n(c.Vocab, c.Width)}, {"output.bias", "", n(c.Vocab)}, {"rope_freqs.weight", "", n(pairs)}, {"position_embd.weight", "", n(c.Context, c.Width)},
		{"token_embd_norm.weight", "", n(c.Width)}, {"output_norm.weight", "", n(c.Width)}, {"token_types.weight", "", n(2, c.Width)}, {"cls.weight", "", n(c.Width, c.Width)}, {"cls.output.weight", "", n(1, c.Width)}, {"cls.norm.weight", "", n(c.Width)},
		{"dense_2.weight", "", n(c.Width, c.Width)}, {"dense_3.weight", "", n(c.Width, c.Width)},
		{"attn_q_norm.weight", attention, n(c.Head)}, {"attn_k_norm.weight", attention, n(c.Head)}, {"attn_q_norm.weight", attention, n(heads)}, {"attn_k_norm.weight", attention, n(kv)},
		{"attn_q_norm.weight", attention, n(c.Heads, c.Head)}, {"attn_k_norm.weight", attention, n(c.KVHeads, c.Head)}, {"attn_sinks.weight", attention, n(c.Heads)},
		{"attn_gate.weight", attention, n(heads, c.Width)}, {"attn_gate.weight", attention, n(c.Heads, c.Width)}, {"attn_rot_embd.weight", attention, n(pairs)},
		{"attn_norm_2.weight", attention, n(c.Width)}, {"attn_sub_norm.weight", attention, n(heads)}, {"post_attention_norm.weight", attention, n(c.Width)}, {"attn_norm.weight", attention, n(c.Width)},
		{"ffn_norm.weight", attention, n(c.Width)}, {"post_ffw_norm.weight", attention, n(c.Width)}, {"ffn_sub_norm.weight", dense, n(c.FFN)}, {"layer_output_norm.weight", attention, n(c.Width)},
		{"layer_output_scale.weight", attention, n(1)}, {"attn_output_norm.weight", attention, n(c.Width)},
		{"ffn_gate.weight", dense, n(c.FFN, c.Width)}, {"ffn.act.scales", dense, n(c.FFN)}, {"exp_probs_b.bias", experts, n(c.Experts.Count)}, {"exp_probs_b.weight", experts, n(c.Experts.Count)},
		{"ffn_gate_inp_shexp.weight", experts, n(c.Width)}, {"ffn_gate_shexp.weight", experts, n(c.FFN, c.Width)},
		{"ffn_latent_down.weight", experts, n(32, c.Width)}, {"ffn_latent_up.weight", experts, n(c.Width, 32)},
	}
	if c.Experts.Count == 0 {
		out = append(out, extraTensor{"ffn_gate_inp.weight", dense, n(2, c.Width)})
	}
	return slices.DeleteFunc(out, func(t extraTensor) bool { return t.name == "rope_freqs.weight" && pairs == 0 }) // of a model without heads
}

// random returns a tensor of F32 with values like those of trained models.
func random(name string, shape ...int64) gguf.TensorWriter {
	return gguf.TensorWriter{Name: name, Shape: shape, Write: func(w io.Writer) error {
		r := rand.New(rand.NewPCG(uint64(len(name)), uint64(name[len(name)-1])))
		mean, spread := 1.0, 0.25
		switch {
		case strings.HasSuffix(name, "bias"):
			mean, spread = 0, 0.3
		case len(shape) > 1 && !strings.Contains(name, "norm"):
			mean, spread = 0, 1/math.Sqrt(float64(shape[len(shape)-1]))
		}
		var data []byte
		for range (gguf.Tensor{Shape: shape}).Elems() {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(mean+spread*r.NormFloat64())))
		}
		_, err := w.Write(data)
		return err
	}}
}
