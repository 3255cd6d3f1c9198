package checkpoint

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/hf"
	"github.com/smelt-ml/smelt/models/quant"
)

// MLX packs a matrix of n rows of k elements as three tensors: codes, 32-bit words with the first
// element in the lowest bits, [n, k·bits/32]; and a scale and a bias for each group of elements of
// a row, [n, k/group]. In mode "affine" an element is scale·code + bias. A group of 64 becomes a
// block of MLX4 or MLX8, one of 128 two blocks with equal d and m, and one of 32 a block of Q4_1.
// Mode "mxfp4" has no biases; it is MXFP4 with its codes in another order.

// packing is a format in which MLX packs a matrix.
type packing struct {
	mode        string
	bits, group int
}

// packings are the supported formats, each with the type that it is unpacked to.
var packings = map[packing]dtype.Type{
	{"affine", 4, 32}: dtype.Q4_1, {"affine", 4, 64}: dtype.MLX4, {"affine", 4, 128}: dtype.MLX4,
	{"affine", 8, 64}: dtype.MLX8, {"affine", 8, 128}: dtype.MLX8,
	{"mxfp4", 4, 32}: dtype.MXFP4,
}

func (p packing) String() string {
	return fmt.Sprintf("%s with %d bits in groups of %d", p.mode, p.bits, p.group)
}

// readablePackings lists the supported formats for an error.
func readablePackings() string {
	names := lo.Map(lo.Keys(packings), func(p packing, _ int) string { return p.String() })
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// packed is a packed matrix.
type packed struct {
	codes, scales, biases Tensor
	how                   packing
	as                    dtype.Type
	rows, k               int
}

// unpackMLX derives a tensor from each packed matrix, named like its codes.
func unpackMLX(q *hf.Quantization) rule {
	return func(tensors []Tensor, emit func(Derivation) error) error {
		if q == nil {
			return nil
		}
		named := lo.KeyBy(tensors, func(t Tensor) string { return t.Name })
		for _, t := range tensors {
			module, ok := strings.CutSuffix(t.Name, ".weight")
			scales, scaled := named[module+".scales"]
			if !ok || !scaled {
				continue
			}
			how := q.Of(module)
			if how == nil {
				return models.ConfigError("tensor %q has scales, but is not packed according to quantization", t.Name)
			}
			p := &packed{codes: t, scales: scales, biases: named[module+".biases"], how: packing{how.Mode, how.Bits, how.GroupSize}}
			if err := p.check(); err != nil {
				return err
			}
			if err := emit(p.unpack()); err != nil {
				return err
			}
		}
		return nil
	}
}

func (p *packed) check() error {
	t := &p.codes
	p.as = packings[p.how]
	switch {
	case p.as == dtype.Invalid:
		return models.ConfigError("tensor %q: quantization has %s, which is not supported; supported are %s", t.Name, p.how, readablePackings())
	case t.Stored != "U32" || len(t.Shape) < 2:
		return models.ConfigError("tensor %q is %s %v, where packed weights are U32 with rows", t.Name, t.Stored, t.Shape)
	}
	p.k = t.Shape[len(t.Shape)-1] * (32 / p.how.bits)
	p.rows = lo.Reduce(t.Shape[:len(t.Shape)-1], func(n, d, _ int) int { return n * d }, 1)
	if p.k%p.how.group != 0 {
		return models.ConfigError("tensor %q has rows of %d elements, which are not whole groups of %d", t.Name, p.k, p.how.group)
	}
	want := append(slices.Clone(t.Shape[:len(t.Shape)-1]), p.k/p.how.group)
	module := strings.TrimSuffix(t.Name, ".weight")
	beside := func(s *Tensor, name string, fits bool, kind string) error {
		switch {
		case s.Name == "":
			return models.ConfigError("tensor %q has no %s beside it", t.Name, module+"."+name)
		case !fits || !slices.Equal(s.Shape, want):
			return models.ConfigError("tensor %q is %s %v, where %s %v is wanted", s.Name, s.Stored, s.Shape, kind, want)
		}
		return nil
	}
	if p.as == dtype.MXFP4 {
		if p.biases.Name != "" {
			return models.ConfigError("tensor %q is not part of weights in mode mxfp4", p.biases.Name)
		}
		return beside(&p.scales, "scales", p.scales.Stored == "U8", "U8")
	}
	return errors.Join(beside(&p.scales, "scales", p.scales.DType.IsFloat(), "a float type"),
		beside(&p.biases, "biases", p.biases.DType.IsFloat(), "a float type"))
}

// unpack derives the matrix in blocks, several rows in parallel.
func (p *packed) unpack() Derivation {
	t := &p.codes
	to := Tensor{Name: t.Name, DType: p.as, Stored: p.as.String(), Shape: append(slices.Clone(t.Shape[:len(t.Shape)-1]), p.k)}
	d := Derivation{Way: Unpacked, From: []Tensor{p.codes, p.scales}, to: to}
	if p.biases.Name != "" {
		d.From = append(d.From, p.biases)
	}
	d.fill = func(out []byte) error {
		row := int(p.as.Bytes(int64(p.k)))
		return inParallel(p.rows, func(r int) error { return p.row(r, out[r*row:][:row]) })
	}
	return d
}

// inParallel calls do for each of n rows, divided among workers; a worker stops at its first error.
func inParallel(n int, do func(i int) error) error {
	workers := runtime.GOMAXPROCS(0)
	failed := make([]error, workers)
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := w * n / workers; i < (w+1)*n/workers && failed[w] == nil; i++ {
				failed[w] = do(i)
			}
		})
	}
	all.Wait()
	return errors.Join(failed...)
}

// row writes the blocks of a row: scales, biases and codes.
func (p *packed) row(r int, out []byte) error {
	bytes := p.k * p.how.bits / 8
	codes := p.codes.Data[r*bytes:][:bytes]
	groups, elems := p.k/p.how.group, p.as.BlockElems()
	var d, m []byte
	if p.as != dtype.MXFP4 {
		var err error
		if d, err = halvesOfRow(&p.scales, r, groups); err == nil {
			m, err = halvesOfRow(&p.biases, r, groups)
		}
		if err != nil {
			return err
		}
	}
	for at := 0; at < p.k; at += elems {
		g := at / p.how.group
		if p.as == dtype.MXFP4 {
			out[0] = p.scales.Data[r*groups+g]
		} else {
			copy(out, d[2*g:][:2])
			copy(out[2:], m[2*g:][:2])
		}
		block := elems * p.how.bits / 8
		to := out[p.as.BlockBytes()-block:][:block]
		if p.how.bits == 8 {
			copy(to, codes)
		} else {
			for i := 0; i < block; i += 16 {
				spread(to[i:], codes[i:])
			}
		}
		codes, out = codes[block:], out[p.as.BlockBytes():]
	}
	return nil
}

// spread writes the codes of 32 elements in the order of blocks: byte j of 16 has elements j and
// j+16, where `from` has two neighbours a byte.
func spread(to, from []byte) {
	low, high := from[:8], from[8:16]
	for j := range 8 {
		to[2*j] = low[j]&15 | high[j]<<4
		to[2*j+1] = low[j]>>4 | high[j]&0xf0
	}
}

// halvesOfRow returns row r of scales or biases as float16. A bfloat16 converts exactly, unless it
// is large or below 2^-17: then the nearest multiple of 2^-24 moves a weight by at most its code
// times 2^-25. A larger deviation is an error.
func halvesOfRow(t *Tensor, r, n int) ([]byte, error) {
	size := int(t.DType.Bytes(1))
	floats, halves, back := make([]float32, n), make([]byte, 2*n), make([]float32, n)
	err := quant.Dequantize(floats, t.Data[r*n*size:][:n*size], t.DType)
	if err == nil {
		err = quant.Quantize(halves, floats, dtype.F16)
	}
	if err == nil {
		err = quant.Dequantize(back, halves, dtype.F16)
	}
	if err != nil {
		return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	for i, x := range floats {
		if !(math.Abs(float64(back[i])-float64(x)) <= 0x1p-25) {
			return nil, models.ConfigError("tensor %q: element %d, %g, does not fit float16", t.Name, r*n+i, x)
		}
	}
	return halves, nil
}
