package smelt

import (
	"strings"

	"github.com/smelt-ml/smelt/internal/compiler"
)

// Load opens a model as [Open] does, compiles it and loads the program on Options.Device.
// Closing the result also closes the model. A path that ends in .plan is a compiled Plan: Load
// opens the model beside it and ignores all options but Device.
func Load(path string, opts Options) (*Loaded, error) {
	p, err := open(path, opts)
	if err != nil {
		return nil, err
	}
	l, err := p.Load(opts.Device)
	if err != nil {
		p.Close()
		return nil, err
	}
	l.owns = true
	return l, nil
}

func open(path string, opts Options) (*Program, error) {
	source, plan := path, strings.HasSuffix(path, ".plan")
	if plan {
		var err error
		if source, err = compiler.PlanModel(path); err != nil {
			return nil, err
		}
	}
	m, err := Open(source, "")
	if err != nil {
		return nil, err
	}
	var p *Program
	if plan {
		p, err = m.ReadPlan(path)
	} else {
		p, err = m.Compile(opts)
	}
	if err != nil {
		m.Close()
	}
	return p, err
}
