package models

import (
	"errors"
	"fmt"
	"math"
)

// ErrConfig is wrapped by errors about what a model says of itself.
var ErrConfig = errors.New("unsupported model")

// ConfigError returns an error that wraps ErrConfig.
func ConfigError(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrConfig, fmt.Errorf(format, args...))
}

// Bounds on what a file may say: far beyond any model, and small enough that
// products of two fit an int and that a graph of that many layers is built at once.
const (
	MaxExtent = 1 << 24
	MaxLayers = 1 << 10
	maxScale  = 1e9

	MaxExperts = 1 << 14
	maxChosen  = 256 // what the kernel that chooses has room for
)

// Extent is a size and what errors call it.
type Extent struct {
	Name   string
	N, Max int
}

// CheckExtents reports the first size that is less than one or too large.
func CheckExtents(sizes ...Extent) error {
	for _, s := range sizes {
		if s.N < 1 || s.N > s.Max {
			return ConfigError("the %s is %d", s.Name, s.N)
		}
	}
	return nil
}

func positive(x float64) bool { return x > 0 && !math.IsInf(x, 1) }
