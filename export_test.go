package smelt

import (
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
)

// Shape is Open for a shape that has no name.
func Shape(c models.Config, weightType string) (*Model, error) {
	file, err := models.Synthetic(c, weightType)
	if err != nil {
		return nil, err
	}
	return fromFile(c.Name, "", file), nil
}

// AfterPass has Verify change graphs after a pass, as a wrong pass would, until the
// returned function is called.
func AfterPass(change func(pass string, f *ir.Func)) (undo func()) {
	afterPass = change
	return func() { afterPass = nil }
}

// EmulatedWork bounds what Verify emulates, until the returned function is called.
func EmulatedWork(n float64) (undo func()) {
	saved := emulatedWork
	emulatedWork = n
	return func() { emulatedWork = saved }
}

// LogLikelihood is for tests of its arithmetic.
var LogLikelihood = logLikelihood

// Compare judges one result, [rows, columns], against another.
func Compare(op ir.Op, result string, rows int, want, got []float32, bound float64) Difference {
	var g gap
	g.add(sighting{rows: rows, data: want, probe: &probe{value: &ir.Value{Op: op, Layer: ir.NoLayer}, result: result}}, got)
	return g.judge(bound)
}

// ReferenceWeights has Verify compute in float64 with other weights than the device has,
// until the returned function is called.
func ReferenceWeights(w Weights) (undo func()) {
	saved := referenceWeights
	referenceWeights = func(*Model) Weights { return w }
	return func() { referenceWeights = saved }
}

// CompareBits judges one result, [rows, columns], that should have the same bits.
func CompareBits(op ir.Op, rows int, want, got []float32) Difference {
	return differentBits(&sighting{rows: rows, data: want, probe: &probe{value: &ir.Value{Op: op, Layer: ir.NoLayer}}}, got)
}
