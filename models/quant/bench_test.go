package quant_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models/quant"
)

func BenchmarkQuantize(b *testing.B) {
	src := gaussian(1<<16, 0.02, 1)
	for _, t := range dtype.All() {
		if !quant.CanQuantize(t) {
			continue
		}
		b.Run(t.String(), func(b *testing.B) {
			dst := make([]byte, t.Bytes(int64(len(src))))
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, quant.Quantize(dst, src, t))
			}
			b.ReportMetric(float64(len(src))*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mvalues/s")
		})
	}
}

func BenchmarkDequantize(b *testing.B) {
	for _, t := range dtype.All() {
		if !quant.CanDequantize(t) {
			continue
		}
		b.Run(t.String(), func(b *testing.B) {
			dst := make([]float32, 1<<16)
			src := make([]byte, t.Bytes(int64(len(dst))))
			for i := range src {
				src[i] = byte(i*7) & 0x3f // keeps halves finite
			}
			for b.Loop() {
				require.NoError(b, quant.Dequantize(dst, src, t))
			}
			b.ReportMetric(float64(len(dst))*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mvalues/s")
		})
	}
}
