package predict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Chip holds the figures of an Apple GPU that predictions use.
type Chip struct {
	Name      string
	Bandwidth float64 // of memory, GB/s, as Apple states it
	Cores     int     // of the GPU, in the largest configuration
	Clock     float64 // of the GPU, GHz
	Family    int     // Apple's number of the GPU family: 7 for M1

	// Cache is the size in bytes of the system level cache, the last one before memory.
	Cache int64

	// Reach is the share of the bandwidth that a kernel reaches which only reads.
	Reach float64
	// Barrier is the time in µs from the end of the last dispatch before a barrier to the start of
	// work after it: draining the GPU and filling it again.
	Barrier float64
}

// lanes is the number of fused multiply-adds of a GPU core per clock; half precision is no faster.
// Source: philipturner/metal-benchmarks, for M1 and M2; it agrees with the reported TFLOPS of later
// chips.
const lanes = 128

// TFLOPS returns the peak rate of floating-point operations, in 10¹² per second.
func (c *Chip) TFLOPS() float64 { return float64(c.Cores) * lanes * 2 * c.Clock / 1e3 }

// Ridge returns the floating-point operations per byte of traffic at which computing takes as long
// as reading. Kernels with fewer are memory-bound.
func (c *Chip) Ridge() float64 { return c.TFLOPS() * 1e3 / c.Bandwidth }

// chips: bandwidths and cores are in Apple's technical specifications of the Macs
// with these chips; of M5 they are in its announcements of October 2025, and of March 2026
// for Pro and Max (153, 307 and 614 GB/s). Apple publishes no clocks; these are what system
// tools report; for M5, whose tables differ (1.58 to 1.74), the lowest.
// Apple publishes no sizes of caches either. 8 MB on M1 was measured by Chips and Cheese
// (iGPU Cache Setups Compared, 2022), and The Eclectic Light Company reports up to 96 MB on an
// Ultra (Apple silicon: Memory and internal storage, 2024); the rest, and all of M4 and M5, are
// assumed to grow with the memory's channels in the same way.
// Reach and Barrier follow measurements of decoding engines at batch 1: 74 to 90 % of the bandwidth
// with large weights (7B and 8B in F16 or Q8_0, and any on the smallest chips), less on the two dies
// of an Ultra, and about 2 µs per dispatch of small models, whose dispatches wait for each other
// (Qwen3-0.6B). Those of M5 are copied from M4.
var chips = []Chip{
	{"m1", 68.25, 8, 1.278, 7, 8 << 20, 0.82, 1.5},
	{"m1-pro", 200, 16, 1.296, 7, 24 << 20, 0.80, 1.7},
	{"m1-max", 400, 32, 1.296, 7, 48 << 20, 0.78, 2.2},
	{"m1-ultra", 800, 64, 1.296, 7, 96 << 20, 0.70, 3.5},
	{"m2", 100, 10, 1.398, 8, 8 << 20, 0.85, 1.5},
	{"m2-pro", 200, 19, 1.398, 8, 24 << 20, 0.82, 1.7},
	{"m2-max", 400, 38, 1.398, 8, 48 << 20, 0.80, 2.2},
	{"m2-ultra", 800, 76, 1.398, 8, 96 << 20, 0.74, 3.5},
	{"m3", 100, 10, 1.398, 9, 8 << 20, 0.87, 1.5},
	{"m3-pro", 150, 18, 1.398, 9, 12 << 20, 0.85, 1.7},
	{"m3-max", 400, 40, 1.398, 9, 48 << 20, 0.88, 2.0},
	{"m3-ultra", 819, 80, 1.398, 9, 96 << 20, 0.76, 3.2},
	{"m4", 120, 10, 1.470, 9, 8 << 20, 0.88, 1.2},
	{"m4-pro", 273, 20, 1.578, 9, 24 << 20, 0.88, 1.4},
	{"m4-max", 546, 40, 1.578, 9, 48 << 20, 0.84, 1.8},
	{"m5", 153.6, 10, 1.578, 10, 8 << 20, 0.88, 1.2},
	{"m5-pro", 307, 20, 1.578, 10, 24 << 20, 0.88, 1.4},
	{"m5-max", 614, 40, 1.578, 10, 48 << 20, 0.84, 1.8},
}

// narrower lists the chips whose smaller configuration also has less memory bandwidth: its maximum
// number of cores, and GB/s. Source: Apple's technical specifications.
var narrower = map[string]struct {
	cores     int
	bandwidth float64
}{
	"m3-max": {30, 300}, "m4-max": {32, 410}, "m5-max": {32, 460},
}

// Slowest is the slowest chip of the table; bounds on time hold for it.
var Slowest = &chips[0]

// AnyCores is the number of cores assumed for an unknown chip: that of a Pro.
const AnyCores = 16

// Chips returns the names that FindChip accepts.
func Chips() []string {
	names := make([]string, len(chips))
	for i := range chips {
		names[i] = chips[i].Name
	}
	return names
}

// FindChip returns a chip by name; case does not matter.
func FindChip(name string) (*Chip, error) {
	for i := range chips {
		if strings.EqualFold(chips[i].Name, name) {
			return &chips[i], nil
		}
	}
	return nil, fmt.Errorf("no chip is called %q; known are %s", name, strings.Join(Chips(), ", "))
}

// FindGPU returns the chip of a GPU as a system describes it: by Metal's name, such as "Apple M4
// Max", or one of [Chips]; the number of its family; and its cores, 0 if unknown. For a chip that
// the table lacks, known is false and the figures are those of the chip nearest in cores in its
// family's latest generation, or in the last generation, scaled to its cores.
func FindGPU(name string, family, cores int) (c *Chip, known bool) {
	slug := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, "Apple "), " ", "-"))
	if row, err := FindChip(slug); err == nil {
		return row.with(cores), true
	}
	like := slices.DeleteFunc(slices.Clone(chips), func(c Chip) bool { return c.generation() != latest(family) })
	if cores <= 0 {
		cores = AnyCores
	}
	nearest := slices.MinFunc(like, func(a, b Chip) int { return cmp.Compare(a.distance(cores), b.distance(cores)) })
	share := float64(cores) / float64(nearest.Cores)
	nearest.Name, nearest.Cores = slug, cores
	if family > 0 {
		nearest.Family = family
	}
	nearest.Bandwidth *= share
	nearest.Cache = int64(float64(nearest.Cache) * share)
	return &nearest, false
}

// latest returns the latest generation of a family, or the last generation of the table if it lacks
// the family.
func latest(family int) string {
	generation := chips[len(chips)-1].generation()
	for i := range chips {
		if chips[i].Family == family {
			generation = chips[i].generation()
		}
	}
	return generation
}

func (c *Chip) generation() string {
	generation, _, _ := strings.Cut(c.Name, "-")
	return generation
}

func (c *Chip) distance(cores int) int { return max(c.Cores, cores) - min(c.Cores, cores) }

// with returns the chip in its configuration of cores cores; 0: the largest.
func (c *Chip) with(cores int) *Chip {
	out := *c
	if cores > 0 {
		out.Cores = cores
	}
	if n, ok := narrower[c.Name]; ok && out.Cores <= n.cores {
		out.Bandwidth = n.bandwidth
	}
	return &out
}
