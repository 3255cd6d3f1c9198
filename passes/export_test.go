package passes

import (
	"fmt"

	"github.com/smelt-ml/smelt/ir"
)

// CheckOrder is for tests of the order table.
var CheckOrder = checkOrder

// NewPass makes a pass of a function that changes something.
func NewPass(name string, run func(f *ir.Func) error) Pass {
	return Pass{Name: name, run: func(f *ir.Func, _ *ir.Target, _ ir.Steps) (int, error) { return 1, run(f) }}
}

// CompileWith is Compile with one more pass at the front.
func CompileWith(p Pass, f *ir.Func, t *ir.Target, s ir.Steps) (*Report, error) {
	saved := pipeline
	defer func() { pipeline = saved }()
	pipeline = append([]Pass{p}, saved...)
	return Compile(f, t, s, Options{Level: 1})
}

// RunOne runs a single pass.
func RunOne(name string, f *ir.Func, t *ir.Target, s ir.Steps) (int, error) {
	for _, p := range pipeline {
		if p.Name == name {
			return p.run(f, t, s)
		}
	}
	return 0, fmt.Errorf("no pass %s", name)
}
