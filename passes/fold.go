package passes

import (
	"encoding/binary"
	"math"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
)

// ropeTables replaces the base of RoPE's frequencies by a table that the compiler
// computes in float64, one constant for all layers, so that kernels compute no powers.
// Constant factors are folded into the table; a RoPE whose factors are a weight keeps
// its base.
func ropeTables(f *ir.Func, _ *ir.Target, _ ir.Steps) (int, error) {
	type key struct {
		attr    ir.RopeAttr
		factors *ir.Value
	}
	tables := make(map[key]*ir.Value)
	changes := 0
	for _, v := range f.Values { // tables are appended behind what this ranges over
		attr, ok := v.Attr.(ir.RopeAttr)
		if !ok || v.Op != ir.OpRope || attr.Theta == 1 {
			continue
		}
		k := key{attr: attr}
		if len(v.Args) > 2 {
			if k.factors = v.Args[2]; k.factors.Op != ir.OpConst || k.factors.Type.DType != dtype.F32 {
				continue
			}
		}
		table := tables[k]
		if table == nil {
			table = ropeTable(f, attr, k.factors)
			tables[k] = table
		}
		attr.Theta, attr.FreqScale = 1, 1
		v.Attr = attr
		v.Args = append(v.Args[:2:2], table)
		changes++
	}
	if changes == 0 {
		return 0, nil
	}
	f.Sweep()
	return changes, f.Sort()
}

// ropeTable emits the divisors of a position that give the angle of each pair.
func ropeTable(f *ir.Func, a ir.RopeAttr, factors *ir.Value) *ir.Value {
	n := a.Rotated / 2
	data := make([]byte, 0, 4*n)
	for i := range n {
		x := math.Pow(a.Theta, float64(2*i)/float64(a.Rotated)) / a.FreqScale
		if factors != nil {
			raw := factors.Attr.(ir.ConstAttr).Data[4*i:]
			x *= float64(math.Float32frombits(binary.LittleEndian.Uint32([]byte(raw[:4]))))
		}
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(x)))
	}
	return f.Append(ir.OpConst, ir.TensorOf(dtype.F32, ir.Const(n)), ir.ConstAttr{Data: string(data)}, ir.NoLayer)
}
