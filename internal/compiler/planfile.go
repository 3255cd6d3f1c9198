package compiler

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/smelt-ml/smelt/lower/plan"
	"github.com/smelt-ml/smelt/models/checkpoint"
)

// ReadPlan reads a Plan file.
func ReadPlan(path string) (*plan.File, error) {
	r, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	f, err := plan.Read(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// PlanModel returns the path of a Plan file's model: the file of the recorded name in the same
// folder.
func PlanModel(path string) (string, error) {
	f, err := ReadPlan(path)
	if err != nil {
		return "", err
	}
	if f.Model.Base == "" || f.Model.Base != filepath.Base(f.Model.Base) || f.Model.Base == ".." {
		return "", fmt.Errorf("%s: %w: it was compiled from the shape %s; give the model with --weights", path, checkpoint.ErrNoWeights, checkpoint.ArchPrefix+f.Model.Arch)
	}
	model := filepath.Join(filepath.Dir(path), f.Model.Base)
	if _, err := os.Stat(model); err != nil {
		return "", fmt.Errorf("%s: its model should be beside it; give another place with --weights: %w", path, err)
	}
	return model, nil
}
