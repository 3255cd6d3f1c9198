package lower

import (
	"fmt"
	"strconv"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower/plan"
	"github.com/smelt-ml/smelt/lower/predict"
)

// Product is a matrix product as a placement sees it: x[Tokens, K]·Wᵀ.
type Product struct {
	Phase  string
	Layer  int   // ir.NoLayer outside the layers
	Tokens int64 // at most
	K, N   int64
	Bytes  int64 // of the weights
}

// Work returns the multiply-adds of the product.
func (p Product) Work() float64 { return float64(p.Tokens) * float64(p.K) * float64(p.N) }

// Placement tells which products the CPU runs, of a target with a GPU. nil gives it none.
type Placement func(Product) bool

// AtLeast places products of so many multiply-adds and more, as Minerva's ADR-003 does
// with 1,000,000. That sends the products of a single token to the CPU: it is for
// measuring.
func AtLeast(work float64) Placement {
	return func(p Product) bool { return p.Work() >= work }
}

// What the CPU of Apple silicon is taken to do beside its GPU: the share of the
// memory's bandwidth that its cores reach, and the rate of its matrix units for each
// GB/s of it. Handing over takes a drained GPU and two events. The figures are
// estimates from what is published about M1 to M4, and none was measured here.
const (
	cpuReach     = 0.5  // of the chip's bandwidth
	cpuFlops     = 15e9 // float operations a second for each GB/s
	handoverTime = 100  // µs, there and back
)

// Cheaper places the products that a chip's CPU is predicted to end sooner, the
// handover included. On every chip known here the GPU wins at every size, since it
// has the memory's whole bandwidth and no handover.
func Cheaper(c *predict.Chip) Placement {
	return func(p Product) bool {
		gpu := c.Time(float64(p.Bytes), 2*p.Work())
		read := float64(p.Bytes) / (c.Bandwidth * cpuReach * 1e3)
		compute := 2 * p.Work() / (cpuFlops * c.Bandwidth) * 1e6
		return handoverTime+max(read, compute) < gpu
	}
}

// ParsePlacement reads "gpu", "cpu", "auto" (by predicted time on the chip), or the
// least multiply-adds of a product for the CPU.
func ParsePlacement(text, chip string) (Placement, error) {
	switch text {
	case "", "gpu":
		return nil, nil
	case "cpu":
		return AtLeast(0), nil
	case "auto":
		c := predict.Slowest
		if chip != "" {
			var err error
			if c, err = predict.FindChip(chip); err != nil {
				return nil, err
			}
		}
		return Cheaper(c), nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= 0) {
		return nil, fmt.Errorf("products on %q: want gpu, cpu, auto or a number of multiply-adds", text)
	}
	return AtLeast(n), nil
}

// onCPU tells whether a product is placed on the CPU.
func (p *phase) onCPU(v *ir.Value, call linearCall, tokens int64) bool {
	if p.products == nil || !p.target.GPU {
		return false
	}
	w := Product{Phase: p.out.Name, Layer: v.Layer, Tokens: tokens, K: last(call.in.X), N: last(v)}
	for _, t := range call.in.Weights {
		n, _ := t.Type.Shape.Elements()
		elements, _ := n.IsConst()
		w.Bytes += t.Type.DType.Bytes(elements)
	}
	return p.products(w)
}

// cpuProduct lowers a product for the CPU, whose kernels take and give floats:
// activations of another type pass through scratch memory at both ends.
func (p *phase) cpuProduct(v *ir.Value, call linearCall, rows ir.Dim, vec bool) error {
	first := len(p.out.Dispatches)
	var x, y place
	var xBytes, yBytes plan.Expr
	narrow, narrows := call.in.X.Type.DType != dtype.F32, v.Type.DType != dtype.F32
	if narrow {
		x, xBytes = p.floats(rows, last(call.in.X))
		d := p.dispatch("cast_"+call.in.X.Type.DType.String()+"_f32", v)
		d.in("x", call.in.X)
		d.bind("out", x, plan.Binding{Bytes: xBytes, Write: true})
		d.params(elements(rows, lastDim(call.in.X)))
		d.cover()
	}
	d := p.dispatch(linearKernel(vec)+"f32_f32", v)
	if narrow {
		d.bind("x", x, plan.Binding{Bytes: xBytes, Read: true})
	} else {
		d.in("x", call.in.X)
	}
	d.linear(v, call, rows)
	d.panelScratch(call, rows)
	if narrows {
		y, yBytes = p.floats(rows, last(v))
		d.bind("out", y, plan.Binding{Bytes: yBytes, Write: true})
	} else {
		d.out("out", v)
		if call.attr.Residual {
			d.mayReplace(call.in.Residual, v)
		}
	}
	d.linearLaunch(v, call, dtype.F32, rows, vec)
	if narrows {
		c := p.dispatch("cast_f32_"+v.Type.DType.String(), v)
		c.bind("x", y, plan.Binding{Bytes: yBytes, Read: true})
		c.out("out", v)
		c.params(elements(rows, lastDim(v)))
		c.cover()
	}
	for i := first; i < len(p.out.Dispatches); i++ {
		p.out.Dispatches[i].OnCPU = true
	}
	return nil
}

// panelScratch binds memory in which a BLAS widens weights, where it may take the
// product: float weights and several tokens.
func (e emitter) panelScratch(call linearCall, rows ir.Dim) {
	tokens := e.p.bound(Extent(rows))
	var heights []int64
	for _, w := range call.in.Weights {
		if tokens == 1 || !w.Type.DType.IsFloat() {
			return
		}
		n, _ := w.Type.Shape[0].IsConst()
		heights = append(heights, n)
	}
	bytes := plan.Number(kernels.PanelScratch(tokens, last(call.in.X), heights, call.attr.Gated))
	e.bindAt(kernels.HostScratch, e.p.scratch(bytes), plan.Binding{Bytes: bytes, Write: true})
}

// floats returns scratch memory for rows of so many floats.
func (p *phase) floats(rows ir.Dim, width int64) (place, plan.Expr) {
	bytes := Extent(rows).Times(4 * width)
	return p.scratch(bytes), bytes
}
