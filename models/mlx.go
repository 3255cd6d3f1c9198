package models

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/internal/quant"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models/hf"
)

// MLX packs a matrix of n rows of k elements as three tensors: codes, words of 32 bits with the
// first element in the lowest ones, [n, k·bits/32]; and a scale and a bias for each group of
// elements of a row, [n, k/group]. In mode "affine" an element is scale·code + bias, which is
// what Q4_1 is: a group becomes one block of it for each 32 elements, with the same d and m. Mode
// "mxfp4" has no biases, and is MXFP4 with its codes in another order.

// packed is such a matrix.
type packed struct {
	codes, scales, biases Tensor
	how                   *hf.Quantization
	rows, k               int
}

// unpackMLX replaces the tensors of packed matrices by one each, under the name of its codes, in
// memory of the arena.
func unpackMLX(q *hf.Quantization, tensors []Tensor, memory *arena) ([]Tensor, error) {
	if q == nil {
		return tensors, nil
	}
	named := lo.KeyBy(tensors, func(t Tensor) string { return t.Name })
	taken := make(map[string]bool)
	out := slices.Clone(tensors)
	for i, t := range out {
		module, ok := strings.CutSuffix(t.Name, ".weight")
		scales, scaled := named[module+".scales"]
		if !ok || !scaled {
			continue
		}
		p := packed{codes: t, scales: scales, biases: named[module+".biases"], how: q.Of(module)}
		if err := p.check(); err != nil {
			return nil, err
		}
		var err error
		if out[i], err = p.unpack(memory); err != nil {
			return nil, err
		}
		taken[p.scales.Name], taken[p.biases.Name] = true, true
	}
	return slices.DeleteFunc(out, func(t Tensor) bool { return taken[t.Name] }), nil
}

// mlxGroups are the sizes of groups that MLX has for each mode.
var mlxGroups = map[string][]int{"affine": {32, 64, 128}, "mxfp4": {32}}

func (p *packed) check() error {
	t := &p.codes
	groups, ok := mlxGroups[lo.FromPtr(p.how).Mode]
	switch {
	case p.how == nil:
		return configError("tensor %q has scales, but quantization says that it is not packed", t.Name)
	case !ok:
		return configError("tensor %q: quantization has the mode %q; known are affine and mxfp4", t.Name, p.how.Mode)
	case p.how.Bits != 4:
		return configError("tensor %q: quantization has %d bits; of what MLX packs, 4 can be read", t.Name, p.how.Bits)
	case !slices.Contains(groups, p.how.GroupSize):
		return configError("tensor %q: quantization has groups of %d elements; in mode %s MLX has %v", t.Name, p.how.GroupSize, p.how.Mode, groups)
	case t.Stored != "U32" || len(t.Shape) < 2:
		return configError("tensor %q is %s %v, where packed weights are U32 with rows", t.Name, t.Stored, t.Shape)
	}
	p.k = t.Shape[len(t.Shape)-1] * 32 / p.how.Bits
	p.rows = lo.Reduce(t.Shape[:len(t.Shape)-1], func(n, d, _ int) int { return n * d }, 1)
	if p.k%p.how.GroupSize != 0 {
		return configError("tensor %q has rows of %d elements, no whole number of groups of %d", t.Name, p.k, p.how.GroupSize)
	}
	want := append(slices.Clone(t.Shape[:len(t.Shape)-1]), p.k/p.how.GroupSize)
	module := strings.TrimSuffix(t.Name, ".weight")
	beside := func(s *Tensor, name string, fits bool, kind string) error {
		switch {
		case s.Name == "":
			return configError("tensor %q has no %s beside it", t.Name, module+"."+name)
		case !fits || !slices.Equal(s.Shape, want):
			return configError("tensor %q is %s %v, where %s %v is wanted", s.Name, s.Stored, s.Shape, kind, want)
		}
		return nil
	}
	if p.how.Mode == "mxfp4" {
		if p.biases.Name != "" {
			return configError("tensor %q is not part of weights in mode mxfp4", p.biases.Name)
		}
		return beside(&p.scales, "scales", p.scales.Stored == "U8", "U8")
	}
	return errors.Join(beside(&p.scales, "scales", p.scales.DType.IsFloat(), "a float type"),
		beside(&p.biases, "biases", p.biases.DType.IsFloat(), "a float type"))
}

// unpack writes the matrix as blocks, several rows at a time.
func (p *packed) unpack(memory *arena) (Tensor, error) {
	t := p.codes
	t.DType, t.File, t.Offset = ir.Q4_1, "", 0
	if p.how.Mode == "mxfp4" {
		t.DType = ir.MXFP4
	}
	t.Stored = t.DType.String()
	t.Shape = append(slices.Clone(t.Shape[:len(t.Shape)-1]), p.k)
	data, err := memory.take(t.Bytes())
	if err != nil {
		return t, fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	t.Data = data
	row := int(t.DType.Bytes(int64(p.k)))
	return t, inParallel(p.rows, func(r int) error { return p.row(r, data[r*row:][:row], t.DType) })
}

// inParallel calls do for each of n rows, several at a time, up to the first error of each share.
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

// row writes a row's blocks: what scales 32 elements, and their codes.
func (p *packed) row(r int, out []byte, as ir.DType) error {
	codes := p.codes.Data[r*p.k/2:][:p.k/2]
	groups := p.k / p.how.GroupSize
	var d, m []byte
	if as == ir.Q4_1 {
		var err error
		if d, err = halvesOfRow(&p.scales, r, groups); err == nil {
			m, err = halvesOfRow(&p.biases, r, groups)
		}
		if err != nil {
			return err
		}
	}
	for at := 0; at < p.k; at += 32 {
		g := at / p.how.GroupSize
		if as == ir.Q4_1 {
			copy(out, d[2*g:][:2])
			copy(out[2:], m[2*g:][:2])
		} else {
			out[0] = p.scales.Data[r*groups+g]
		}
		spread(out[as.BlockBytes()-16:], codes[at/2:])
		out = out[as.BlockBytes():]
	}
	return nil
}

// spread writes the codes of 32 elements, of which a byte of `from` has two neighbours, as blocks
// have them: byte j of 16 has elements j and j+16.
func spread(to, from []byte) {
	low, high := from[:8], from[8:16]
	for j := range 8 {
		to[2*j] = low[j]&15 | high[j]<<4
		to[2*j+1] = low[j]>>4 | high[j]&0xf0
	}
}

// halvesOfRow returns row r of scales or biases as halves. A bfloat16 is one, unless it is large
// or below 2^-17: then the nearest multiple of 2^-24 moves a weight by no more than 15·2^-25. What
// moves further is an error.
func halvesOfRow(t *Tensor, r, n int) ([]byte, error) {
	size := int(t.DType.Bytes(1))
	floats, halves, back := make([]float32, n), make([]byte, 2*n), make([]float32, n)
	err := quant.Dequantize(floats, t.Data[r*n*size:][:n*size], t.DType)
	if err == nil {
		err = quant.Quantize(halves, floats, ir.F16)
	}
	if err == nil {
		err = quant.Dequantize(back, halves, ir.F16)
	}
	if err != nil {
		return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	for i, x := range floats {
		if !(math.Abs(float64(back[i])-float64(x)) <= 0x1p-25) {
			return nil, configError("tensor %q: element %d, %g, is not a number that a half holds", t.Name, r*n+i, x)
		}
	}
	return halves, nil
}
