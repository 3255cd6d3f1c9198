//go:build !linux && !(darwin && cgo)

package device

import "math"

// No device of this build runs on other systems, so nothing here has a bound.
func availableCores() int { return math.MaxInt }

func availableNodes() []Node { return nil }

func availableMemory() int64 { return math.MaxInt64 }

func touchedMemory() int64 { return 0 }

func askPages([]byte) {}

func mapPages([]byte, bool) (waited bool) { return true }

func processor() string { return "" }
