package checkpoint

import (
	"fmt"
	"strings"
)

// role returns the name of a layer's tensor within the layer.
func role(name string) string {
	_, role, _ := strings.Cut(strings.TrimPrefix(name, "blk."), ".")
	return role
}

// layerOf returns the number of the layer that a name begins with, or 0.
func layerOf(name string) (layer int) {
	if rest, ok := strings.CutPrefix(name, "blk."); ok {
		_, _ = fmt.Sscanf(rest, "%d.", &layer)
	}
	return layer
}

// inLayerOf returns the full name of a layer's tensor.
func inLayerOf(layer int, role string) string { return fmt.Sprintf("blk.%d.%s", layer, role) }
