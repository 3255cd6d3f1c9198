package models

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/models/gguf"
)

// Format is a notation in which files describe a model.
type Format int

const (
	GGUF   Format = iota // metadata of a GGUF file
	Folder               // config.json of a Hugging Face folder
)

// Field maps one entry of a file's description to the configuration. Exactly one of Size, Number,
// Flag, Only, Repeats and Read is set.
type Field struct {
	GGUF string // key after the architecture and a dot; see docs/gguf.md of ggml-org/ggml
	HF   string // member of config.json; either is "" where files of that format have no such entry

	Size   func(c *Config) *int
	Number func(c *Config) *float64
	Flag   func(c *Config) *bool
	// Only is the single value that the family computes, a bool, a string or an int. Another value
	// is refused; files without the entry mean this one.
	Only any
	// Repeats returns a size that another field has read. Files may repeat it, and must agree.
	Repeats func(c *Config) int
	// Repeated is the key of that field, for errors; "" where the size is of several.
	Repeated string
	// Read handles what spans several entries, or none. Write returns the entry of a GGUF file, if
	// there is one.
	Read  func(d Description, c *Config)
	Write func(c *Config) (key string, v gguf.Value, ok bool)

	// Optional makes a Size or Number 0 in files without the entry.
	Optional bool
	// Unsaid is the value of a Flag in files without the entry.
	Unsaid bool
	// GGUFTensor is the tensor that GGUF files hold exactly if the Flag is set.
	GGUFTensor string

	// ByTensor is set for a Size that GGUF files' tensors may have given before. The entry is then
	// not read, as it can be stale.
	ByTensor bool

	// Absent returns the default of a Size or Number, from the fields before it. Where it is nil or
	// returns 0, files must have the entry, unless it is Optional.
	Absent func(c *Config, format Format) float64
}

// Description is a model's description as a file gives it. A missing entry, or a value of the wrong
// type, becomes the description's error; the first error stays.
type Description interface {
	Format() Format
	Has(key string) bool
	Size(key string, absent int) int // absent is the default; 0: the entry is required; Unset: 0 and −1 are values too
	Sizes(key string) []int          // in GGUF files also of a single number
	Number(key string, absent float64) float64
	Flag(key string) bool
	Text(key string) string
	ReadRope(c *Config)
	Sections() []int                   // RoPE pairs of a head for each axis of an image; nil: not said
	Windowed(every, layers int) []bool // which layers have a sliding window; by default all but every n-th

	Flags(key string) []bool                    // GGUF only
	Rows(tensor string) (n int, ok bool)        // GGUF only: rows of a tensor
	Texts(key string) []string                  // folders only
	Names(key string) []string                  // folders only: of an object's members
	Numbers(key string) []float64               // folders only
	Word(key string) string                     // folders only: a string, "true" or "false"
	ReadRopeOf(kind string, c *Config, r *Rope) // folders only: of one kind of layers
	Scaling(name string) float64                // folders only: a number of rope_scaling; 0: absent

	Fail(err error)
	FullName(key string) string // the key as errors show it
}

// Unset is what [Description.Size] returns for an absent entry that may also be 0 or −1.
const Unset = -1

// key returns the field's name in one format, or "".
func (f *Field) key(format Format) string {
	if format == GGUF {
		return f.GGUF
	}
	return f.HF
}

func (f *Field) ReadFrom(d Description, c *Config) {
	if f.Read != nil {
		f.Read(d, c)
		return
	}
	key, absent := f.key(d.Format()), 0.0
	if f.GGUFTensor != "" && d.Format() == GGUF {
		_, *f.Flag(c) = d.Rows(f.GGUFTensor)
		return
	}
	if key == "" || f.ByTensor && d.Format() == GGUF && *f.Size(c) != 0 {
		return
	}
	if f.Absent != nil {
		absent = f.Absent(c, d.Format())
	}
	if f.Optional && !d.Has(key) && absent == 0 {
		return
	}
	switch {
	case f.Size != nil && f.Optional:
		*f.Size(c) = max(d.Size(key, Unset), 0)
	case f.Size != nil:
		*f.Size(c) = d.Size(key, int(absent))
	case f.Number != nil:
		*f.Number(c) = d.Number(key, absent)
	case f.Flag != nil:
		*f.Flag(c) = f.Unsaid && !d.Has(key) || d.Flag(key)
	case !d.Has(key):
	case f.Repeats != nil:
		demand(d, key, f.Repeats(c), f.Repeated)
	default:
		demand(d, key, f.Only, "")
	}
}

// demand refuses a value that the family does not compute; as is the key that has the same one, or "".
func demand(d Description, key string, want any, as string) {
	var have any
	switch want.(type) {
	case bool:
		have = d.Flag(key)
	case string:
		have = d.Text(key)
	case int:
		have = d.Size(key, Unset)
	}
	if have != want {
		if as != "" {
			as = " as " + d.FullName(as)
		}
		d.Fail(ConfigError("%s is %s, not %s%s", d.FullName(key), quoted(have), quoted(want), as))
	}
}

func quoted(v any) string {
	if s, ok := v.(string); ok {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprint(v)
}

// unset reports whether an optional field is zero and needs no entry.
func (f *Field) unset(c *Config) bool {
	if f.Size != nil {
		return *f.Size(c) == 0
	}
	return *f.Number(c) == 0
}

// Entry returns the field's entry in a GGUF file; its key lacks the architecture.
func (f *Field) Entry(c *Config) (string, gguf.Value, bool) {
	if f.Write != nil {
		return f.Write(c)
	}
	v, ok := f.metadata(c)
	return f.GGUF, v, ok
}

func (f *Field) metadata(c *Config) (gguf.Value, bool) {
	switch {
	case f.GGUF == "" || f.Only != nil:
	case f.Optional && f.Absent == nil && f.unset(c):
	case f.Flag != nil:
		return gguf.Bool(*f.Flag(c)), true
	case f.Repeats != nil:
		return gguf.Uint32(uint32(f.Repeats(c))), true
	case f.Size != nil:
		return gguf.Uint32(uint32(*f.Size(c))), true
	case f.Number != nil:
		return gguf.Float32(float32(*f.Number(c))), true
	}
	return gguf.Value{}, false
}

// DecoderFields returns the fields of Llama and models built like it. head returns the head size
// where a file has none.
func DecoderFields(head func(c *Config, format Format) float64) []Field {
	return slices.Concat(ShapeFields(head), Biased, []Field{RMSEps, WholeRope, Tied(false), Activation("silu"), NoWindow, NoExperts, {Read: RefuseWindow}})
}

// ByWidth are the sizes of decoder-only models whose heads make up the width where files do not say their
// size.
var ByWidth = ShapeFields(WidthByHeads)

// ShapeFields returns the sizes of decoder-only models. head returns the head size where a file has
// none.
func ShapeFields(head func(c *Config, format Format) float64) []Field {
	return []Field{
		{GGUF: "vocab_size", HF: "vocab_size", Size: func(c *Config) *int { return &c.Vocab }, ByTensor: true},
		{GGUF: "context_length", HF: "max_position_embeddings", Size: func(c *Config) *int { return &c.Context }, Absent: InFolders(2048)},
		{GGUF: "embedding_length", HF: "hidden_size", Size: func(c *Config) *int { return &c.Width }},
		{GGUF: "block_count", HF: "num_hidden_layers", Size: func(c *Config) *int { return &c.Layers }},
		{Read: guessingBlocks},
		{GGUF: "feed_forward_length", HF: "intermediate_size", Size: func(c *Config) *int { return &c.FFN }},
		{GGUF: "attention.head_count", HF: "num_attention_heads", Size: func(c *Config) *int { return &c.Heads }},
		{GGUF: "attention.head_count_kv", HF: "num_key_value_heads", Size: func(c *Config) *int { return &c.KVHeads },
			Absent: func(c *Config, _ Format) float64 { return float64(c.Heads) }},
		{GGUF: "attention.key_length", HF: "head_dim", Size: func(c *Config) *int { return &c.Head }, Absent: head},
		{GGUF: "attention.value_length", Repeats: func(c *Config) int { return c.Head }, Repeated: "attention.key_length"},
	}
}

const keyGuessing = "nextn_predict_layers"

// ClassifierField reads the classifier of a GGUF file, by its tensors. Others count its classes by their
// labels, of which a classifier of one needs none.
var ClassifierField = Field{
	Read: func(d Description, c *Config) {
		c.Classifier.Classes, _ = d.Rows("cls.output.weight")
		_, c.Classifier.Dense = d.Rows("cls.weight")
		if c.Classifier.Dense && c.Classifier.Classes == 0 {
			d.Fail(ConfigError("cls.weight has no cls.output.weight behind it"))
		}
	},
	Write: func(c *Config) (string, gguf.Value, bool) {
		n := c.Classifier.Classes
		return "classifier.output_labels", gguf.StringArray(lo.Times(n, strconv.Itoa)), n > 1
	},
}

// guessingBlocks reads how many blocks guess further tokens (multi-token prediction, as in
// DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024). They follow the layers, and GGUF files count
// them as such.
func guessingBlocks(d Description, c *Config) {
	if d.Format() == Folder {
		c.Guessing = max(d.Size("num_"+keyGuessing, Unset), 0)
		return
	}
	if !d.Has(keyGuessing) {
		return
	}
	if c.Guessing = d.Size(keyGuessing, 0); c.Guessing >= c.Layers && c.Guessing > 0 {
		d.Fail(ConfigError("%s is %d of %d blocks, which leaves no layer", d.FullName(keyGuessing), c.Guessing, c.Layers))
		return
	}
	c.Layers -= c.Guessing
}

// Without returns fields but those with the given GGUF names.
func Without(fields []Field, names ...string) []Field {
	return lo.Reject(fields, func(f Field, _ int) bool { return slices.Contains(names, f.GGUF) })
}

// Renamed returns fields with other names in folders.
func Renamed(fields []Field, names map[string]string) []Field {
	return lo.Map(fields, func(f Field, _ int) Field {
		if name, ok := names[f.HF]; ok {
			f.HF = name
		}
		return f
	})
}

// FourWidths makes the feed-forward width default to 4·Width.
func FourWidths(fields []Field) []Field {
	return lo.Map(fields, func(f Field, _ int) Field {
		if f.GGUF == "feed_forward_length" {
			f.Absent = func(c *Config, _ Format) float64 { return 4 * float64(c.Width) }
		}
		return f
	})
}

// Fields that several families share.
var (
	RMSEps = Field{GGUF: "attention.layer_norm_rms_epsilon", HF: "rms_norm_eps", Number: func(c *Config) *float64 { return &c.Eps },
		Absent: InFolders(1e-6)}
	WholeRope = Field{Read: wholeHeads}
	NoWindow  = Field{GGUF: "attention.sliding_window", Only: 0}
	NoExperts = Field{GGUF: "expert_count", Only: 0}

	Window   = Field{GGUF: "attention.sliding_window", HF: "sliding_window", Size: func(c *Config) *int { return &c.Window }, Optional: true}
	SoftCap  = Field{GGUF: "attn_logit_softcapping", HF: "attn_logit_softcapping", Number: func(c *Config) *float64 { return &c.SoftCap }, Optional: true}
	LogitCap = Field{GGUF: "final_logit_softcapping", HF: "final_logit_softcapping", Number: func(c *Config) *float64 { return &c.LogitCap }, Optional: true}
)

// poolings are the ways of pooling token embeddings into one, in the order of llama.cpp's enum.
// "rank" gives scores of pairs of texts.
var poolings = []string{"none", "mean", "cls", "last", "rank"}

// pooling is how token embeddings are pooled into one.
var pooling = Field{
	Read: func(d Description, c *Config) {
		if d.Format() == Folder || !d.Has(keyPooling) {
			return
		}
		switch n := d.Size(keyPooling, 0); {
		case n >= len(poolings):
			d.Fail(ConfigError("%s is %d, of %d known ones", d.FullName(keyPooling), n, len(poolings)))
		default:
			c.Pooling = poolings[n]
		}
	},
	Write: func(c *Config) (string, gguf.Value, bool) {
		n := slices.Index(poolings, c.Pooling)
		return keyPooling, gguf.Uint32(uint32(max(n, 0))), n >= 0
	},
}

// causal marks attention in which a token sees no later token.
var causal = Field{
	Read: func(d Description, c *Config) { c.Both = d.Format() == GGUF && d.Has(keyCausal) && !d.Flag(keyCausal) },
	Write: func(c *Config) (string, gguf.Value, bool) {
		return keyCausal, gguf.Bool(false), c.Both
	},
}

// commonFields are fields of all families: any model may have been trained to embed texts, and any GGUF
// file may have biases of Q, K and V.
var commonFields = []Field{pooling, causal, {Read: refuseSizes}, {GGUFTensor: Biased[0].GGUFTensor, Flag: Biased[0].Flag}}

// KeyTokenTypes and KeySuppressed have no architecture before them.
const (
	KeyTokenTypes = "tokenizer.ggml.token_type_count"
	KeySuppressed = "tokenizer.ggml.suppress_tokens"
)

const (
	keyPooling = "pooling_type"
	keyCausal  = "attention.causal"
)

// refuseSizes refuses GGUF files with embeddings of another width than the model, and, in families that do
// not read it, those whose heads have another size in layers with a sliding window, or rotate another
// part of it there.
func refuseSizes(d Description, c *Config) {
	if d.Format() != GGUF {
		return
	}
	fields := []Field{{GGUF: "embedding_length_out", Only: c.Width}}
	if slices.Contains(c.Windowed, true) {
		head := cmp.Or(c.WindowHead, c.Head)
		fields = append(fields, Field{GGUF: "attention.key_length_swa", Only: head}, Field{GGUF: "attention.value_length_swa", Only: head},
			Field{GGUF: KeyWindowRotated, Only: cmp.Or(c.WindowRope.Rotated, c.Rope.Rotated)})
	}
	for _, f := range fields {
		f.ReadFrom(d, c)
	}
}

// wholeHeads reads RoPE of models that rotate all elements of a head. Many GGUF files have another
// rope.dimension_count, so that only folders are checked.
func wholeHeads(d Description, c *Config) {
	d.ReadRope(c)
	if d.Format() == Folder && c.Rope.Rotated != c.Head {
		d.Fail(ConfigError("partial_rotary_factor is %g", float64(c.Rope.Rotated)/float64(c.Head)))
	}
}

// PartOfHeads is RoPE of models that rotate a part of each head; absent is the fraction where a
// folder has none.
func PartOfHeads(absent float64) Field {
	return Field{Read: func(d Description, c *Config) {
		d.ReadRope(c)
		if d.Format() == Folder && !d.Has("partial_rotary_factor") && !d.Has("rope_parameters") {
			c.Rope.Rotated = int(absent * float64(c.Head))
		}
	}}
}

// LayerEps is the epsilon of LayerNorm, called hf in folders.
func LayerEps(hf string, absent float64) Field {
	return Field{GGUF: "attention.layer_norm_epsilon", HF: hf, Number: func(c *Config) *float64 { return &c.Eps }, Absent: InFolders(absent)}
}

// HeadNorms marks models that normalise heads of Q and K.
func HeadNorms(hf string) Field {
	return Field{HF: hf, GGUFTensor: "blk.0.attn_q_norm.weight", Flag: func(c *Config) *bool { return &c.HeadNorms }}
}

// Tied marks models whose output head is the embedding table; unsaid is the default in folders.
func Tied(unsaid bool) Field {
	return Field{HF: "tie_word_embeddings", Flag: func(c *Config) *bool { return &c.Tied }, Unsaid: unsaid}
}

func Activation(name string) Field { return Field{HF: "hidden_act", Only: name} }

// Biased marks products with biases; in GGUF files by the tensors that they hold.
var Biased = []Field{
	{HF: "attention_bias", GGUFTensor: "blk.0.attn_q.bias", Flag: func(c *Config) *bool { return &c.Biases.QKV }},
	{HF: "attention_bias", GGUFTensor: "blk.0.attn_output.bias", Flag: func(c *Config) *bool { return &c.Biases.Output }},
	{HF: "mlp_bias", GGUFTensor: "blk.0.ffn_up.bias", Flag: func(c *Config) *bool { return &c.Biases.FFN }},
}

// Windowed reads which layers have a sliding window: by default all but every n-th.
func Windowed(every int) Field {
	const key = "attention.sliding_window_pattern"
	return Field{
		Read: func(d Description, c *Config) {
			if c.Window == 0 || c.Layers > MaxLayers {
				return
			}
			c.Windowed = d.Windowed(every, c.Layers)
		},
		Write: func(c *Config) (string, gguf.Value, bool) { return key, gguf.BoolArray(c.Windowed), c.Windowed != nil },
	}
}

// AllButEvery returns false for every n-th layer, counted from one, and true for the others; n = 0
// means true for all. A negative n counts from zero: the first layer is false.
func AllButEvery(every, layers int) []bool {
	return lo.Times(layers, func(i int) bool {
		if every < 0 {
			return i%every != 0
		}
		return every == 0 || (i+1)%every != 0
	})
}

// RecurrentKinds reads from a folder which layers are of the given kind, without attention.
func RecurrentKinds(d Description, c *Config, kind string) []bool {
	return lo.Map(d.Texts("layer_types"), func(is string, _ int) bool {
		if is != kind && is != "full_attention" {
			d.Fail(ConfigError("a layer is of type %q", is))
		}
		return is == kind
	})
}

// InFolders returns a default for folders, as transformers assumes it; GGUF files must have the
// entry.
func InFolders(absent float64) func(*Config, Format) float64 {
	return func(_ *Config, format Format) float64 {
		if format == Folder {
			return absent
		}
		return 0
	}
}

// InFiles returns a default for GGUF files; folders must have the entry.
func InFiles(absent func(c *Config) int) func(*Config, Format) float64 {
	return func(c *Config, format Format) float64 {
		if format == GGUF {
			return float64(absent(c))
		}
		return 0
	}
}

func WidthByHeads(c *Config, _ Format) float64 { return float64(c.Width / max(1, c.Heads)) }

// RefuseWindow refuses folders with a sliding window that is in use, for families without one.
func RefuseWindow(d Description, _ *Config) {
	if d.Format() != Folder || !d.Has("sliding_window") {
		return
	}
	window := d.Size("sliding_window", 0)
	if !d.Has("use_sliding_window") || d.Flag("use_sliding_window") {
		d.Fail(ConfigError("attention has a sliding_window of %d", window))
	}
}

// ropeFields are RoPE's entries that have the same names in all families.
var ropeFields = []Field{
	{GGUF: KeyTheta, Number: func(c *Config) *float64 { return &c.Rope.Theta }},
	{GGUF: KeyRotated, Size: func(c *Config) *int { return &c.Rope.Rotated }},
}

// What GGUF metadata call RoPE, after the architecture and a dot.
const (
	KeyTheta   = "rope.freq_base"
	KeyRotated = "rope.dimension_count"
	// KeyWindowRotated is KeyRotated of layers with a sliding window.
	KeyWindowRotated = "rope.dimension_count_swa"

	KeyScaling    = "rope.scaling.type"
	KeyScalingBy  = "rope.scaling.factor"
	KeyOldScaling = "rope.scale_linear" // before there were types
	KeyOldContext = "rope.scaling.original_context_length"
	KeyFastBeta   = "rope.scaling.yarn_beta_fast"
	KeySlowBeta   = "rope.scaling.yarn_beta_slow"
	KeyMagnitude  = "rope.scaling.attn_factor" // times what YaRN makes of the factor
	KeySections   = "rope.dimension_sections"
	// KeyStrength divides YaRN's magnitude by that of this strength in files of Mistral 3. For those of
	// DeepSeek, which have a tenth of it, see [Rope.FromFile].
	KeyStrength = "rope.scaling.yarn_log_multiplier"
)
