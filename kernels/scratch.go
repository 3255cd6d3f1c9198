package kernels

// HostScratch is the buffer index of a CPU dispatch's scratch memory. It is larger than the
// index of any kernel's argument.
const HostScratch = 30

// Tile sizes of products by a BLAS (kernels/native/blas): panelRows weight rows, converted
// to floats, times panelTokens tokens, in up to panelLanes concurrent lanes. The lanes keep
// the matrix units of all core clusters busy while panels are converted.
const (
	panelRows   = 128
	panelTokens = 256
	panelLanes  = 4
)

// PanelScratch returns the scratch bytes of a product of x[tokens, k] with weights of
// rows[i] rows; a pair is a gated product, whose two weights have one result.
func PanelScratch(tokens, k int64, rows []int64, pair bool) int64 {
	var tallest, panels int64
	for _, n := range rows {
		tallest = max(tallest, n)
		panels += (n + panelRows - 1) / panelRows
	}
	sides := int64(1)
	if pair {
		sides, panels = 2, panels/2
	}
	lane := sides * min(tallest, panelRows) * (k + min(tokens, panelTokens))
	return 4 * lane * min(panels, panelLanes)
}
