package verify

import "github.com/smelt-ml/smelt/ir"

// AfterPass has Run change graphs after a pass, as a wrong pass would, until the
// returned function is called.
func AfterPass(change func(pass string, f *ir.Func)) (undo func()) {
	afterPass = change
	return func() { afterPass = nil }
}

// AfterDispatch has Run change the results of dispatches that run by themselves, as a wrong
// kernel would, until the returned function is called.
func AfterDispatch(change func(device string, v *ir.Value, tokens int, out []float32)) (undo func()) {
	afterDispatch = change
	return func() { afterDispatch = nil }
}

// EmulatedWork bounds what Run emulates, until the returned function is called.
func EmulatedWork(n float64) (undo func()) {
	saved := emulatedWork
	emulatedWork = n
	return func() { emulatedWork = saved }
}

// ReferenceWeights has Run compute in float64 with other weights than the device has,
// until the returned function is called.
func ReferenceWeights(w weights) (undo func()) {
	saved := referenceWeights
	referenceWeights = func(Subject) weights { return w }
	return func() { referenceWeights = saved }
}

// Compare judges one result, [rows, columns], against another.
func Compare(op ir.Op, result string, rows int, want, got []float32, bound float64) Difference {
	var g gap
	g.add(sighting{rows: rows, data: want, probe: &probe{value: &ir.Value{Op: op, Layer: ir.NoLayer}, result: result}}, got)
	return g.judge(bound)
}

// CompareBits judges one result, [rows, columns], that should have the same bits.
func CompareBits(op ir.Op, rows int, want, got []float32) Difference {
	return differentBits(&sighting{rows: rows, data: want, probe: &probe{value: &ir.Value{Op: op, Layer: ir.NoLayer}}}, got)
}
