package kernels

import (
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"strings"
	"unicode"
)

// Params is a parameter struct: one of this file, from which `go test ./kernels -run Params
// -update` makes those of abi/params.gen.h, for the Metal sources and the native kernels. Every
// field is 32 bits wide, so that the words of [Words] are its memory: a Plan holds them, each a
// constant or an expression of the step's sizes. Strides count elements; kernels compute byte
// offsets in 64 bits.
type Params any

// EmbedParams of embed.
type EmbedParams struct {
	Tokens uint32
	Width  uint32 // elements of a row of the table and of the output
	Vocab  uint32 // rows of the table; ids outside give zeros
}

// NormParams of rms_norm, norm_residual and layer_norm.
type NormParams struct {
	Rows    uint32
	Width   uint32
	XStride uint32 // elements between rows of the input
	Eps     float32
	Groups  uint32 // rows of the weight of rms_norm; 1 in the others
}

// LinearParams of linear_vec and linear_mat.
type LinearParams struct {
	Tokens         uint32
	K              uint32 // input features
	N0, N1, N2, N3 uint32 // output features of the weights bound side by side; 0 where unbound
	XStride        uint32
	OutStride      uint32
	Eps            float32 // of the norm prologue
	GateStride     uint32
	GateFrom       uint32 // the element of a row of the gate
}

// RopeParams of rope.
type RopeParams struct {
	Tokens    uint32
	Heads     uint32
	Head      uint32 // elements of a head
	Rotated   uint32 // leading elements of a head that rotate, even
	XStride   uint32
	First     uint32 // position of token 0 where no buffer holds positions
	Log2Theta float32
	FreqScale float32 // multiplies every angle: 1/factor under linear scaling
	Magnitude float32 // multiplies cosine and sine: 1 but for YaRN
}

// CacheWriteParams of cache_write.
type CacheWriteParams struct {
	Tokens  uint32
	KvHeads uint32
	Head    uint32
	Block   uint32 // slots of a cache block
	KStride uint32
	VStride uint32
}

// CacheReadParams of cache_read.
type CacheReadParams struct {
	Seqs        uint32
	Context     uint32 // Smax: rows of the output for each sequence
	KvHeads     uint32
	Head        uint32
	Block       uint32
	TableStride uint32 // NB
}

// RopeWriteParams of rope_qkv_write and head_norm_rope_kv_write.
type RopeWriteParams struct {
	Tokens    uint32
	Heads     uint32
	KvHeads   uint32
	Head      uint32
	Rotated   uint32
	QStride   uint32 // elements between tokens of Q, K and V: one number where they are joined
	KStride   uint32
	VStride   uint32
	Block     uint32 // slots of a cache block: all of them where slots are positions
	First     uint32
	Log2Theta float32
	FreqScale float32
	Magnitude float32
	Eps       float32 // of the head norms
}

// AttentionParams of attention_vec and attention_tile.
type AttentionParams struct {
	Tokens      uint32
	Seqs        uint32
	Heads       uint32
	KvHeads     uint32
	Head        uint32
	Block       uint32
	TableStride uint32 // NB
	BlockStride uint32 // of both caches: from a block to the next,
	HeadStride  uint32 // from a KV head to the next,
	RowStride   uint32 // and from a slot to the next
	Scale       float32
	Window      uint32  // keys that a token sees, its own among them; 0: all up to its own
	SoftCap     float32 // scores become soft_cap · tanh(score / soft_cap); 0: as they are
	GateStride  uint32
	GateFrom    uint32 // where the gate begins in a row
}

// AttentionWriteParams of attention_write.
type AttentionWriteParams struct {
	Tokens      uint32
	Seqs        uint32
	Heads       uint32
	KvHeads     uint32
	Head        uint32
	Block       uint32
	TableStride uint32 // NB
	BlockStride uint32 // of both caches, as of attention_vec
	HeadStride  uint32
	RowStride   uint32
	Scale       float32
	Window      uint32
	SoftCap     float32
	GateStride  uint32
	GateFrom    uint32
	Rotated     uint32
	Log2Theta   float32
	FreqScale   float32
	Magnitude   float32
	Eps         float32 // of the head norms
	QkvStride   uint32
}

// FlashParams of flash_attention.
type FlashParams struct {
	Batch        uint32
	Heads        uint32
	KvHeads      uint32
	SeqQ         uint32
	SeqKv        uint32
	Head         uint32
	Offset       uint32 // keys before those of query row 0
	QHeadStride  uint32 // of q and out
	QRowStride   uint32
	KvHeadStride uint32 // of k and v
	KvRowStride  uint32
	Scale        float32
}

// ReduceParams of attention_reduce.
type ReduceParams struct {
	Tokens     uint32
	Heads      uint32
	Head       uint32
	Partitions uint32
	GateStride uint32
	GateFrom   uint32 // where the gate begins in a row
}

// PagedAttentionParams of paged_attention_v1, paged_attention_v2 and paged_attention_reduce.
type PagedAttentionParams struct {
	Heads       uint32
	KvHeads     uint32
	Head        uint32
	Block       uint32 // slots of a cache block: 8, 16 or 32
	TableStride uint32 // entries of the block table for a sequence
	QStride     uint32 // from a sequence's query to the next
	BlockStride uint32 // of both caches: from a block to the next
	HeadStride  uint32 // and from a KV head to the next
	Partitions  uint32 // of 512 keys, as the grid has them; 1 for paged_attention_v1
	Scale       float32
	Window      uint32 // keys that a query sees; 0: all
	SoftCap     float32
}

// PagedWriteParams of reshape_and_cache.
type PagedWriteParams struct {
	Tokens      uint32
	KvHeads     uint32
	Head        uint32
	Block       uint32
	KStride     uint32
	VStride     uint32
	BlockStride uint32 // of both caches
	HeadStride  uint32
}

// CopyBlocksParams of copy_blocks.
type CopyBlocksParams struct {
	Pairs       uint32
	Width       uint32 // elements of a block, a multiple of 4
	BlockStride uint32 // of both caches
}

// ShortConvParams of short_conv.
type ShortConvParams struct {
	Tokens  uint32
	Seqs    uint32
	Width   uint32
	Taps    uint32 // tokens that a result is a sum over, its own the last: 2 to 8
	XStride uint32
}

// DeltaNetParams of delta_net.
type DeltaNetParams struct {
	Tokens     uint32
	Seqs       uint32
	Heads      uint32 // of V, and of the state
	KeyHeads   uint32
	Head       uint32  // elements of a head
	Share      uint32  // adjacent heads of V with the same head of Q and K
	GateStride uint32  // of alpha and beta
	BetaFrom   uint32  // where beta begins in a row
	ZStride    uint32  // of the gate of the result
	ZFrom      uint32  // where the gate begins in a row
	Eps        float32 // of the lengths of Q and K
	NormEps    float32 // of the norm of the result
}

// Mamba2Params of mamba2.
type Mamba2Params struct {
	Tokens   uint32
	Seqs     uint32
	Heads    uint32
	Groups   uint32 // of B and C, which divide the heads
	Head     uint32 // elements of a head
	States   uint32 // elements of a group of B and of C
	DtStride uint32
	DtFrom   uint32 // where dt begins in a row
	ZStride  uint32 // of the gate of the result
}

// ElementParams of the element-wise kernels, gather_rows, softmax and argmax.
type ElementParams struct {
	Rows    uint32
	Width   uint32
	AStride uint32
	BStride uint32  // of softmax with sinks: rows that share one
	Value   float32 // of scale and soft_cap
}

// ConcatParams of concat.
type ConcatParams struct {
	Rows           uint32
	Width          uint32 // columns of the result
	N0, N1, N2, N3 uint32 // columns of each part, 0 where unbound
}

// WeightedSumParams of weighted_sum.
type WeightedSumParams struct {
	Rows  uint32
	Width uint32
	Each  uint32 // rows of x that make a row of the result
}

// RouterParams of router.
type RouterParams struct {
	Rows       uint32
	Experts    uint32 // 1 to 1024
	Stride     uint32 // elements between rows of logits
	Chosen     uint32 // experts of a token, 1 to 32
	Groups     uint32 // 0 to 32; 0 or 1: no groups
	UsedGroups uint32
	Scale      float32
	Floor      float32
	Sharpness  float32 // of the logits
}

// GroupByExpertParams of group_by_expert.
type GroupByExpertParams struct {
	Rows   uint32
	Groups uint32 // experts, and one for the rows without
}

// IndicesParams of indices.
type IndicesParams struct {
	Rows  uint32
	Width uint32
}

// LatentWriteParams of latent_write.
type LatentWriteParams struct {
	Tokens    uint32
	Heads     uint32
	KvHeads   uint32 // 1
	Head      uint32 // elements of a row of the cache
	Block     uint32 // slots of a cache block
	QHead     uint32 // elements of a head of q
	AllStride uint32
	AllFrom   uint32 // where the latent vector begins in a row of all
	Rotated   uint32 // elements at the end of a head of q, and of a row of the cache
	Rows      uint32 // heads, and the row of the cache
	Log2Theta float32
	FreqScale float32
	Magnitude float32
	Eps       float32
}

// LatentAttentionParams of latent_attention.
type LatentAttentionParams struct {
	Tokens      uint32
	Seqs        uint32
	Heads       uint32
	KvHeads     uint32 // 1
	Head        uint32 // elements of a row of the cache
	Block       uint32
	TableStride uint32 // NB
	BlockStride uint32 // as of attention_vec
	HeadStride  uint32
	RowStride   uint32
	Scale       float32
	Window      uint32
	SoftCap     float32
	QHead       uint32 // as of latent_write
	AllStride   uint32
	AllFrom     uint32
	Rotated     uint32
	Log2Theta   float32
	FreqScale   float32
	Magnitude   float32
	Eps         float32
}

// RepeatParams of repeat_kv.
type RepeatParams struct {
	Tokens  uint32
	KvHeads uint32
	Head    uint32
	Repeats uint32 // query heads that share one KV head
}

// TransposeParams of transpose.
type TransposeParams struct {
	Size   [3]uint32 // of the output
	Stride [3]uint32 // of the input, in the output's axis order
}

// MatmulParams of matmul.
type MatmulParams struct {
	Batch   uint32
	M, N, K uint32
}

// MaskParams of mask.
type MaskParams struct {
	Heads   uint32
	Tokens  uint32
	Seqs    uint32
	Context uint32 // Smax; a row of scores has seqs × context columns
	Window  uint32 // keys that a token sees, its own among them; 0: all up to its own
}

func structName(p Params) string { return reflect.TypeOf(p).Name() }

// wordNames returns what params.gen.h calls the words of a struct.
func wordNames(p Params) []string {
	var out []string
	typ := reflect.TypeOf(p)
	for i := range typ.NumField() {
		field := typ.Field(i)
		name := snake(field.Name)
		if field.Type.Kind() != reflect.Array {
			out = append(out, name)
			continue
		}
		for j := range field.Type.Len() {
			out = append(out, fmt.Sprintf("%s[%d]", name, j))
		}
	}
	return out
}

// snake turns XStride into x_stride.
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// Words returns the memory of the struct as 32-bit words.
func Words(p Params) []uint32 {
	var out []uint32
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Uint32:
			out = append(out, uint32(v.Uint()))
		case reflect.Float32:
			out = append(out, math.Float32bits(float32(v.Float())))
		case reflect.Array:
			for i := range v.Len() {
				walk(v.Index(i))
			}
		default:
			for i := range v.NumField() {
				walk(v.Field(i))
			}
		}
	}
	walk(reflect.ValueOf(p))
	return out
}

// Encode returns the memory of the struct as little-endian bytes.
func Encode(p Params) []byte {
	var out []byte
	for _, w := range Words(p) {
		out = binary.LittleEndian.AppendUint32(out, w)
	}
	return out
}
