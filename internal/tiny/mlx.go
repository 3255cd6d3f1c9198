package tiny

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models/quant"
	"github.com/smelt-ml/smelt/models/safetensors"
)

// RawTensor is a tensor of a safetensors file as its header describes it, of any type.
type RawTensor struct {
	Type  string
	Shape []int64
	Data  []byte
}

// MLX is a folder as MLX packs it: matrices of a few bits per element, with scales per group of
// elements.
type MLX struct {
	model   string
	Config  map[string]any
	Tensors map[string]RawTensor
	// Values are the values of the packed matrices by definition: scale·code + bias, or
	// scale·value of the code for MXFP4.
	Values map[string][]float32
}

// Packing describes how MLX packs matrices: the bits of a code, 4 or 8, the elements of a group,
// and the float type of scales and biases; without that type it is MXFP4, whose scales are
// bytes.
type Packing struct {
	Bits, Group int
	Scales      dtype.Type
}

// NewMLX packs the matrices of a model's folder.
func NewMLX(t testing.TB, model string, p Packing) *MLX {
	t.Helper()
	dir := Folder(t, model)
	m := &MLX{model: model, Tensors: map[string]RawTensor{}, Values: map[string][]float32{}}
	text, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err == nil {
		err = json.Unmarshal(text, &m.Config)
	}
	if err != nil {
		t.Fatal(err)
	}
	how := map[string]any{"group_size": p.Group, "bits": p.Bits}
	if p.Scales == dtype.Invalid {
		how["mode"] = "mxfp4"
	}
	m.Config["quantization"] = how
	f, err := safetensors.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, w := range f.Tensors {
		if len(w.Shape) != 2 {
			m.Tensors[w.Name] = RawTensor{w.Type, w.Shape, slices.Clone(w.Data)}
			continue
		}
		x := make([]float32, w.Elems())
		if err := quant.Dequantize(x, w.Data, w.DType); err != nil {
			t.Fatal(err)
		}
		m.pack(t, strings.TrimSuffix(w.Name, ".weight"), w.Shape, x, p)
	}
	return m
}

func (m *MLX) pack(t testing.TB, module string, shape []int64, x []float32, p Packing) {
	as, group, groups := p.Scales, p.Group, len(x)/p.Group
	codes, each, top := make([]byte, len(x)*p.Bits/8), 8/p.Bits, float64(int(1)<<p.Bits-1)
	put := func(i int, code byte) { codes[i/each] |= code << (i % each * p.Bits) }
	values := make([]float32, len(x))
	of := func(columns int64) []int64 { return []int64{shape[0], columns} }
	if as == dtype.Invalid {
		scales := make([]byte, groups)
		for g := range groups {
			block := make([]byte, dtype.MXFP4.BlockBytes())
			in, out := x[g*group:][:group], values[g*group:][:group]
			if err := quant.Quantize(block, in, dtype.MXFP4); err != nil {
				t.Fatal(err)
			}
			if err := quant.Dequantize(out, block, dtype.MXFP4); err != nil {
				t.Fatal(err)
			}
			scales[g] = block[0]
			for i := range group {
				put(g*group+i, block[1+i%16]>>(i/16*4)&15)
			}
		}
		m.Tensors[module+".scales"] = RawTensor{"U8", of(shape[1] / int64(group)), scales}
	} else {
		size := as.BlockBytes()
		scales, biases := make([]byte, groups*size), make([]byte, groups*size)
		for g := range groups {
			in := x[g*group:][:group]
			scale, bias := affine(in, float32(top))
			var stored [2]float32
			for i, to := range [][]byte{scales[g*size:][:size], biases[g*size:][:size]} {
				if err := quant.Quantize(to, []float32{scale, bias}[i:][:1], as); err != nil {
					t.Fatal(err)
				}
				if err := quant.Dequantize(stored[i:][:1], to, as); err != nil {
					t.Fatal(err)
				}
			}
			for i, v := range in {
				code := min(max(math.RoundToEven(float64((v-bias)/scale)), 0), top)
				put(g*group+i, byte(code))
				values[g*group+i] = float32(stored[0]*float32(code)) + stored[1]
			}
		}
		name := strings.ToUpper(as.String())
		m.Tensors[module+".scales"] = RawTensor{name, of(shape[1] / int64(group)), scales}
		m.Tensors[module+".biases"] = RawTensor{name, of(shape[1] / int64(group)), biases}
	}
	m.Tensors[module+".weight"] = RawTensor{"U32", of(shape[1] * int64(p.Bits) / 32), codes}
	m.Values[module+".weight"] = values
}

// affine returns MLX's scale and bias of a group: the end of larger magnitude is a multiple of
// the scale, which may be negative.
func affine(x []float32, top float32) (scale, bias float32) {
	least, most := slices.Min(x), slices.Max(x)
	scale = max((most-least)/top, 1e-7)
	edge := least
	if math.Abs(float64(least)) <= math.Abs(float64(most)) {
		scale, edge = -scale, most
	}
	steps := float32(math.RoundToEven(float64(edge / scale)))
	if steps == 0 {
		return scale, 0
	}
	return edge / steps, edge
}

// Write writes the folder.
func (m *MLX) Write(t testing.TB) string {
	t.Helper()
	return m.write(t, m.Config, m.Tensors)
}

// WriteValues writes the folder with the matrices' values as floats.
func (m *MLX) WriteValues(t testing.TB) string {
	t.Helper()
	config, tensors := maps.Clone(m.Config), map[string]RawTensor{}
	delete(config, "quantization")
	for name, w := range m.Tensors {
		if strings.HasSuffix(name, ".scales") || strings.HasSuffix(name, ".biases") {
			continue
		}
		if values, ok := m.Values[name]; ok {
			data := make([]byte, 4*len(values))
			for i, v := range values {
				binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(v))
			}
			w = RawTensor{"F32", []int64{w.Shape[0], int64(len(values)) / w.Shape[0]}, data}
		}
		tensors[name] = w
	}
	return m.write(t, config, tensors)
}

// Safetensors returns a safetensors file of tensors of any types.
func Safetensors(t testing.TB, tensors map[string]RawTensor) []byte {
	t.Helper()
	type entry struct {
		Type    string   `json:"dtype"`
		Shape   []int64  `json:"shape"`
		Offsets [2]int64 `json:"data_offsets"`
	}
	header := map[string]entry{}
	var data []byte
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		w, from := tensors[name], int64(len(data))
		data = append(data, w.Data...)
		header[name] = entry{w.Type, w.Shape, [2]int64{from, int64(len(data))}}
	}
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	return slices.Concat(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text, data)
}

// write changes a copy of the model's folder; its other files stay.
func (m *MLX) write(t testing.TB, config map[string]any, tensors map[string]RawTensor) string {
	t.Helper()
	described, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	dir := Folder(t, m.model)
	for name, b := range map[string][]byte{
		"config.json": described,
		weightsFile:   Safetensors(t, tensors),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(fmt.Errorf("%s: %w", name, err))
		}
	}
	return dir
}
