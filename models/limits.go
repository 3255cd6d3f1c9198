package models

import (
	"errors"
	"fmt"
	"math"
)

// ErrConfig is wrapped by errors about a model's configuration.
var ErrConfig = errors.New("unsupported model")

// ConfigError returns an error that wraps ErrConfig.
func ConfigError(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrConfig, fmt.Errorf(format, args...))
}

// Bounds on the values of files: far beyond any model, and small enough that products of two fit an
// int and that a graph of MaxLayers layers builds without delay.
const (
	MaxExtent = 1 << 24
	MaxLayers = 1 << 10
	maxScale  = 1e9

	MaxExperts = 1 << 14
	maxChosen  = 256 // capacity of the top-k kernel
)

// Extent is a size, its bound, and its name in errors.
type Extent struct {
	Name   string
	N, Max int
}

// CheckExtents returns an error for the first size that is less than one or above its bound.
func CheckExtents(sizes ...Extent) error {
	for _, s := range sizes {
		if s.N < 1 || s.N > s.Max {
			return ConfigError("the %s is %d, want 1 to %d", s.Name, s.N, s.Max)
		}
	}
	return nil
}

func positive(x float64) bool { return x > 0 && !math.IsInf(x, 1) }
