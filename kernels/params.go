package kernels

import (
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"strings"
	"unicode"
)

// Params is one of the parameter structs of params.h. Every field is 32 bits wide, in
// the order of the C struct, so that the words of [Words] are its memory.
type Params interface {
	params()
}

// EmbedParams of embed.
type EmbedParams struct {
	Tokens uint32
	Width  uint32
	Vocab  uint32
}

// NormParams of rms_norm, norm_residual and layer_norm.
type NormParams struct {
	Rows    uint32
	Width   uint32
	XStride uint32
	Eps     float32
}

// LinearParams of linear_vec and linear_mat.
type LinearParams struct {
	Tokens    uint32
	K         uint32
	N0        uint32
	N1        uint32
	N2        uint32
	XStride   uint32
	OutStride uint32
	Eps       float32
}

// RopeParams of rope.
type RopeParams struct {
	Tokens    uint32
	Heads     uint32
	Head      uint32
	Rotated   uint32
	XStride   uint32
	First     uint32
	Log2Theta float32
	FreqScale float32
	Magnitude float32
}

// CacheWriteParams of cache_write.
type CacheWriteParams struct {
	Tokens  uint32
	KvHeads uint32
	Head    uint32
	Block   uint32
	KStride uint32
	VStride uint32
}

// CacheReadParams of cache_read.
type CacheReadParams struct {
	Seqs        uint32
	Context     uint32
	KvHeads     uint32
	Head        uint32
	Block       uint32
	TableStride uint32
}

// RopeWriteParams of rope_qkv_write and head_norm_rope_kv_write.
type RopeWriteParams struct {
	Tokens    uint32
	Heads     uint32
	KvHeads   uint32
	Head      uint32
	Rotated   uint32
	QStride   uint32
	KStride   uint32
	VStride   uint32
	Block     uint32
	First     uint32
	Log2Theta float32
	FreqScale float32
	Magnitude float32
	Eps       float32
}

// AttentionParams of attention_vec and attention_tile.
type AttentionParams struct {
	Tokens      uint32
	Seqs        uint32
	Heads       uint32
	KvHeads     uint32
	Head        uint32
	Block       uint32
	TableStride uint32
	BlockStride uint32
	HeadStride  uint32
	RowStride   uint32
	Scale       float32
	Window      uint32
	SoftCap     float32
}

// AttentionWriteParams of attention_write.
type AttentionWriteParams struct {
	Tokens      uint32
	Seqs        uint32
	Heads       uint32
	KvHeads     uint32
	Head        uint32
	Block       uint32
	TableStride uint32
	BlockStride uint32
	HeadStride  uint32
	RowStride   uint32
	Scale       float32
	Window      uint32
	SoftCap     float32
	Rotated     uint32
	Log2Theta   float32
	FreqScale   float32
	Magnitude   float32
	Eps         float32
}

// FlashParams of flash_attention.
type FlashParams struct {
	Batch        uint32
	Heads        uint32
	KvHeads      uint32
	SeqQ         uint32
	SeqKv        uint32
	Head         uint32
	Offset       uint32
	QHeadStride  uint32
	QRowStride   uint32
	KvHeadStride uint32
	KvRowStride  uint32
	Scale        float32
}

// ReduceParams of attention_reduce.
type ReduceParams struct {
	Tokens     uint32
	Heads      uint32
	Head       uint32
	Partitions uint32
}

// PagedAttentionParams of paged_attention_v1, paged_attention_v2 and paged_attention_reduce.
type PagedAttentionParams struct {
	Heads       uint32
	KvHeads     uint32
	Head        uint32
	Block       uint32
	TableStride uint32
	QStride     uint32
	BlockStride uint32
	HeadStride  uint32
	Partitions  uint32
	Scale       float32
	Window      uint32
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
	BlockStride uint32
	HeadStride  uint32
}

// CopyBlocksParams of copy_blocks.
type CopyBlocksParams struct {
	Pairs       uint32
	Width       uint32
	BlockStride uint32
}

// ShortConvParams of short_conv.
type ShortConvParams struct {
	Tokens      uint32
	Seqs        uint32
	Width       uint32
	Taps        uint32
	XStride     uint32
	Block       uint32
	TableStride uint32
}

// DeltaNetParams of delta_net.
type DeltaNetParams struct {
	Tokens      uint32
	Seqs        uint32
	Heads       uint32
	KeyHeads    uint32
	Head        uint32
	Block       uint32
	TableStride uint32
	Eps         float32
}

// ElementParams of the element-wise kernels, gather_rows, softmax and argmax.
type ElementParams struct {
	Rows    uint32
	Width   uint32
	AStride uint32
	BStride uint32
	Value   float32
}

// WeightedSumParams of weighted_sum.
type WeightedSumParams struct {
	Rows  uint32
	Width uint32
	Each  uint32
}

// TopKParams of top_k.
type TopKParams struct {
	Rows    uint32
	Width   uint32
	XStride uint32
	K       uint32
}

// GroupByExpertParams of group_by_expert.
type GroupByExpertParams struct {
	Rows   uint32
	Groups uint32
}

// RepeatParams of repeat_kv.
type RepeatParams struct {
	Tokens  uint32
	KvHeads uint32
	Head    uint32
	Repeats uint32
}

// TransposeParams of transpose.
type TransposeParams struct {
	Size   [3]uint32
	Stride [3]uint32
}

// MatmulParams of matmul.
type MatmulParams struct {
	Batch uint32
	M     uint32
	N     uint32
	K     uint32
}

// MaskParams of mask.
type MaskParams struct {
	Heads   uint32
	Tokens  uint32
	Seqs    uint32
	Context uint32
	Window  uint32
}

func (EmbedParams) params()          {}
func (NormParams) params()           {}
func (LinearParams) params()         {}
func (RopeParams) params()           {}
func (CacheWriteParams) params()     {}
func (CacheReadParams) params()      {}
func (RopeWriteParams) params()      {}
func (AttentionParams) params()      {}
func (AttentionWriteParams) params() {}
func (FlashParams) params()          {}
func (ReduceParams) params()         {}
func (PagedAttentionParams) params() {}
func (PagedWriteParams) params()     {}
func (CopyBlocksParams) params()     {}
func (ShortConvParams) params()      {}
func (DeltaNetParams) params()       {}
func (ElementParams) params()        {}
func (TopKParams) params()           {}
func (GroupByExpertParams) params()  {}
func (WeightedSumParams) params()    {}
func (RepeatParams) params()         {}
func (TransposeParams) params()      {}
func (MatmulParams) params()         {}
func (MaskParams) params()           {}

func structName(p Params) string { return reflect.TypeOf(p).Name() }

// wordNames returns what params.h calls the words of a struct.
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
