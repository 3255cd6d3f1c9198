package checkpoint

import (
	"fmt"
	"strings"
)

// role returns what a tensor of a layer is called within it.
func role(name string) string {
	_, role, _ := strings.Cut(strings.TrimPrefix(name, "blk."), ".")
	return role
}

// layerOf returns the layer that a name begins with, or 0.
func layerOf(name string) (layer int) {
	if rest, ok := strings.CutPrefix(name, "blk."); ok {
		_, _ = fmt.Sscanf(rest, "%d.", &layer)
	}
	return layer
}

// inLayerOf returns the whole name of a tensor of a layer.
func inLayerOf(layer int, role string) string { return fmt.Sprintf("blk.%d.%s", layer, role) }
