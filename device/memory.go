package device

import "fmt"

// Memory is what an executable or instance holds, in bytes.
type Memory struct {
	Weights    int64 // all of the Plan's, of which the following are parts
	InPlace    int64 // weights that a GPU reads where they are mapped, and must keep resident
	Converted  int64 // weights copied because of their types, orders or addresses, and vectors among rearranged matrices
	Rearranged int64 // upper bound: weights copied into another order, which replace the file's pages
	Cache      int64 // with every slot in use
	Arena      int64
	Inputs     int64 // of all slots of the ring
	Outputs    int64 // at the largest sizes
}

type part struct {
	name  string
	bytes int64
}

// parts returns the memory that is allocated, or must be resident.
func (m Memory) parts() []part {
	return []part{{"weights in place", m.InPlace}, {"converted weights", m.Converted}, {"rearranged weights", m.Rearranged}, {"cache", m.Cache}, {"arena", m.Arena}, {"inputs", m.Inputs}, {"outputs", m.Outputs}}
}

func (m Memory) allocated() int64 {
	sum := -m.InPlace
	for _, p := range m.parts() {
		sum += p.bytes
	}
	return sum
}

// AvailableMemory returns the number of bytes that this process can still allocate.
func AvailableMemory() int64 { return availableMemory() }

// FormatBytes formats a size with a binary unit: "1.5 GiB".
func FormatBytes(n int64) string {
	units := []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	if n < 1<<10 {
		return fmt.Sprintf("%d bytes", n)
	}
	v, u := float64(n)/1024, 0
	for ; v >= 1024 && u+1 < len(units); u++ {
		v /= 1024
	}
	return fmt.Sprintf("%.1f %s", v, units[u])
}
