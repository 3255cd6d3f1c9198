package fusion

import (
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
)

// Emitter appends the values of a replacement to a graph, all in one layer. Operands that
// do not fit stop the rewrite with an error, which means a wrong rule or decomposition
// and never a wrong input.
type Emitter struct {
	f     *ir.Func
	layer int
}

type emitError struct{ err error }

// emit runs build. On an error it removes the values that build appended.
func emit(f *ir.Func, layer int, build func(e *Emitter) []*ir.Value) (out []*ir.Value, err error) {
	first := len(f.Values)
	defer func() {
		switch r := recover().(type) {
		case nil:
		case emitError:
			f.Values, out, err = f.Values[:first], nil, r.err
		default:
			panic(r)
		}
	}()
	return build(&Emitter{f, layer}), nil
}

// Emit appends a value of the type that its operands imply. It drops nil operands,
// such as an optional capture without a match.
func (e *Emitter) Emit(op ir.Op, attr any, args ...*ir.Value) *ir.Value {
	present := args[:0:0]
	for _, a := range args {
		if a != nil {
			present = append(present, a)
		}
	}
	v, err := e.f.Emit(op, attr, e.layer, present...)
	if err != nil {
		panic(emitError{err})
	}
	return v
}

// EmitAs is Emit with elements of another floating-point type.
func (e *Emitter) EmitAs(t dtype.Type, op ir.Op, attr any, args ...*ir.Value) *ir.Value {
	v := e.Emit(op, attr, args...)
	v.Type.DType = t
	return v
}

// Reshape appends a reshape of x.
func (e *Emitter) Reshape(x *ir.Value, shape ...ir.Dim) *ir.Value {
	return e.f.Append(ir.OpReshape, ir.TensorOf(x.Type.DType, shape...), nil, e.layer, x)
}

// oneHead appends a reshape of x, [T,D], to [T,1,D].
func (e *Emitter) oneHead(x *ir.Value) *ir.Value {
	return e.Reshape(x, x.Type.Shape[0], ir.Const(1), ir.Const(int(x.Type.Shape.Last())))
}

// Cast appends a cast of x, unless it has that type.
func (e *Emitter) Cast(x *ir.Value, t dtype.Type) *ir.Value {
	if x.Type.DType == t {
		return x
	}
	return e.f.Append(ir.OpCast, ir.TensorOf(t, x.Type.Shape...), nil, e.layer, x)
}

// Select appends a select of element i of a tuple.
func (e *Emitter) Select(tuple *ir.Value, i int) *ir.Value {
	return e.Emit(ir.OpSelect, ir.SelectAttr{Index: i}, tuple)
}
