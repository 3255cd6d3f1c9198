package checkpoint_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/checkpoint"
)

// uneven is a model of three layers, each of which differs from the one before.
func uneven() models.Config {
	c := small("llama")
	c.Layers = 3
	rope := models.Rope{Theta: 1e6, Rotated: 4, Linear: 1}
	c.ByLayer = []models.Layer{
		{Heads: 6, KVHeads: 2, Head: 8, FFN: 64, Rope: &rope, Window: 16, SoftCap: 50},
		{Heads: 6, KVHeads: 3, Head: 8, FFN: 96, ALiBi: 8}, // heads that do not rotate
		{Heads: 6, KVHeads: 3, Head: 16, FFN: 64, Rope: &rope, Sinks: true},
	}
	return c
}

func TestLayersThatDiffer(t *testing.T) {
	m := synthetic(t, uneven(), "f32")
	f, err := m.Build(ir.Options{})
	require.NoError(t, err)
	require.NoError(t, f.Verify())
	type seen struct {
		window, ropes, softCaps, sinks, slopes, heads, head, ffn int
	}
	var layers [3]seen
	for _, v := range f.Values {
		if v.Layer == ir.NoLayer {
			continue
		}
		l := &layers[v.Layer]
		switch v.Op {
		case ir.OpMask:
			l.window = v.Attr.(ir.MaskAttr).Window
			if l.slopes = len(v.Args) - 4; l.slopes > 0 {
				want := []float64{0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125} // powers of 1/4, then the odd ones of 1/2
				data := v.Args[4].Attr.(ir.ConstAttr).Data
				for i, x := range want {
					require.Equal(t, float32(x), math.Float32frombits(binary.LittleEndian.Uint32([]byte(data[4*i:4*i+4]))))
				}
			}
		case ir.OpRope:
			require.Equal(t, 4, v.Attr.(ir.RopeAttr).Rotated)
			l.ropes++
		case ir.OpSoftCap:
			l.softCaps++
		case ir.OpSoftmax:
			l.sinks = len(v.Args) - 1
			heads, _ := v.Type.Shape[0].IsConst()
			l.heads = int(heads)
		case ir.OpCache:
			l.head = v.Type.Cache.Head
		case ir.OpActivate:
			l.ffn = int(v.Type.Shape.Last())
		}
	}
	require.Equal(t, [3]seen{
		{window: 16, ropes: 2, softCaps: 1, heads: 6, head: 8, ffn: 64},
		{slopes: 1, heads: 6, head: 8, ffn: 96},
		{ropes: 2, sinks: 1, heads: 6, head: 16, ffn: 64},
	}, layers)
}

// TestLayersThatReadOthers: a layer that reads an earlier layer's keys and values has no cache and no
// projections of its own.
func TestLayersThatReadOthers(t *testing.T) {
	c := uneven()
	c.ByLayer[2] = models.Layer{Heads: 3, KVHeads: 3, Head: 8, FFN: 64, Back: 1}
	f, err := synthetic(t, c, "f32").Build(ir.Options{})
	require.NoError(t, err)
	require.NoError(t, f.Verify())
	linears := map[int]int{}
	for _, v := range f.Values {
		switch v.Op {
		case ir.OpCache, ir.OpCacheWrite:
			require.Less(t, v.Layer, 2)
		case ir.OpCacheRead:
			require.Equal(t, min(v.Layer, 1), v.Args[0].Layer)
		case ir.OpLinear:
			linears[v.Layer]++
		}
	}
	require.Equal(t, linears[1]-2, linears[2])
}

func TestLayersThatDoNotFit(t *testing.T) {
	for want, edit := range map[string]func(c *models.Config){
		"2 layers are described, the model has 3":                                                    func(c *models.Config) { c.ByLayer = c.ByLayer[:2] },
		"layer 1: unsupported model: 6 query heads cannot share 4 KV heads evenly":                   func(c *models.Config) { c.ByLayer[1].KVHeads = 4 },
		"layer 2: unsupported model: the feed-forward width is 0":                                    func(c *models.Config) { c.ByLayer[2].FFN = 0 },
		"layer 0: unsupported model: the sliding window has -1 keys":                                 func(c *models.Config) { c.ByLayer[0].Window = -1 },
		"layer 2: unsupported model: it attends over the keys and values of the layer 3 before it":   func(c *models.Config) { c.ByLayer[2].Back = 3 },
		"layer 1: unsupported model: it attends over the keys and values of layer 0, which has none": func(c *models.Config) { c.ByLayer[0].Recurrent, c.ByLayer[1].Back = true, 1 },
		"layer 2: unsupported model: it attends over the keys and values of layer 1, which has none": func(c *models.Config) {
			c.ByLayer[1] = c.ByLayer[0]
			c.ByLayer[2] = c.ByLayer[0]
			c.ByLayer[1].Back, c.ByLayer[2].Back = 1, 1
		},
		"layer 2: unsupported model: 3 KV heads of 16 elements are those of layer 1, which has 3 of 8": func(c *models.Config) { c.ByLayer[2].Back = 1 },
		"layer 1: unsupported model: it sees more keys than layer 0, which keeps 16": func(c *models.Config) {
			c.ByLayer[1] = c.ByLayer[0]
			c.ByLayer[1].Back, c.ByLayer[1].Window = 1, 17
		},
		"layer 0: unsupported model: the soft cap of scores is -1":           func(c *models.Config) { c.ByLayer[0].SoftCap = -1 },
		"layer 0: unsupported model: RoPE rotates 3 elements of a head of 8": func(c *models.Config) { c.ByLayer[0].Rope.Rotated = 3 },
	} {
		c := uneven()
		edit(&c)
		_, err := checkpoint.Synthetic(c, "f32")
		require.ErrorIs(t, err, models.ErrConfig)
		require.ErrorContains(t, err, want)
	}
}
