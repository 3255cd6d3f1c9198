package ir

// Attributes are comparable structs, so that two values compute the same thing
// if and only if op, type, arguments and attribute are equal. Every field is a
// string, bool, int, float64 or a struct of such; text.go prints them by name.

// NameAttr names an input or a weight.
type NameAttr struct{ Name string }

// ConstAttr holds the little-endian bytes of a constant's elements.
type ConstAttr struct{ Data string }

// CacheAttr says which layer's cache a state value starts.
type CacheAttr struct{ Layer int }

// CacheReadAttr chooses what cache_read returns.
type CacheReadAttr struct{ Values bool } // V instead of K

// NormAttr belongs to rms_norm and layer_norm.
type NormAttr struct{ Eps float64 }

// TransposeAttr gives, for each axis of the result, the axis of the operand.
type TransposeAttr struct{ A, B, C int }

// RopeAttr describes a rotary position embedding. The angle of pair i at
// position p is p · FreqScale · Theta^(−2i/Rotated), divided by factor i where
// the op has a table of factors.
type RopeAttr struct {
	Interleaved bool // pairs (2i, 2i+1); otherwise NeoX pairs (i, i+Rotated/2)
	Rotated     int  // leading elements of a head that rotate
	Theta       float64
	FreqScale   float64
	Magnitude   float64 // multiplies cosine and sine; 1 but for YaRN
}

// RepeatAttr says how often repeat_kv and repeat_kv_pair repeat each KV head.
type RepeatAttr struct{ N int }

// MatmulAttr belongs to matmul.
type MatmulAttr struct{ TransB bool } // b is [batch, n, k]

// ScaleAttr belongs to scale and soft_cap.
type ScaleAttr struct{ Value float64 }

// MaskAttr belongs to mask.
type MaskAttr struct {
	Window int // keys that a token sees, its own the last of them; 0 for all up to its own
}

// AttentionAttr belongs to attention.
type AttentionAttr struct {
	Scale   float64 // of the products of query and key
	Window  int     // as MaskAttr has it
	SoftCap float64 // scores become SoftCap · tanh(score / SoftCap) once scaled; 0 for none
}

// GELUAttr chooses the form of gelu.
type GELUAttr struct{ Tanh bool } // the approximation by tanh instead of x·Φ(x)

// TopKAttr says how many elements of each row top_k returns.
type TopKAttr struct{ K int }

// SliceAttr selects columns [Start, End) of the innermost axis.
type SliceAttr struct{ Start, End int }

// SelectAttr takes one element out of a tuple.
type SelectAttr struct{ Index int }

// LinearAttr says what a fused_linear does besides multiplying. Its operands are
// x, then Weights matrices, then the norm weight if Norm, then the residual if
// Residual.
type LinearAttr struct {
	Weights  int     // matrices whose outputs stand side by side, 1 to 3
	SiLUPair bool    // two weights: silu(w0·x) · (w1·x)
	Norm     bool    // x is RMS-normalised first
	Eps      float64 // of Norm
	Residual bool    // the residual is added to the result
}

// RopeWriteAttr belongs to rope_qkv_write and head_norm_rope_kv_write.
type RopeWriteAttr struct {
	Rope  RopeAttr
	Heads int     // query heads; the cache's type tells the KV heads
	Eps   float64 // of the head norms, 0 for rope_qkv_write
}
