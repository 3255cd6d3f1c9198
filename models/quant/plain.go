package quant

import (
	"encoding/binary"
	"math"

	"github.com/smelt-ml/smelt/ir/dtype/half"
)

var le = binary.LittleEndian

func decodeF32(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(le.Uint32(src[4*i:]))
	}
}

func encodeF32(dst []byte, src []float32) int {
	for i, v := range src {
		le.PutUint32(dst[4*i:], math.Float32bits(v))
	}
	return -1
}

func decodeF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = half.F16ToF32(le.Uint16(src[2*i:]))
	}
}

func encodeF16(dst []byte, src []float32) int {
	for i, v := range src {
		le.PutUint16(dst[2*i:], half.F32ToF16(v))
	}
	return -1
}

func decodeBF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = half.BF16ToF32(le.Uint16(src[2*i:]))
	}
}

func encodeBF16(dst []byte, src []float32) int {
	for i, v := range src {
		le.PutUint16(dst[2*i:], half.F32ToBF16(v))
	}
	return -1
}
