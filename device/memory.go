package device

import "fmt"

// Memory is what an executable or instance holds, in bytes.
type Memory struct {
	Weights    int64 // of the Plan; mapped from the file but for what follows
	InPlace    int64 // of them, what a GPU reads where it is mapped and must keep resident
	Converted  int64 // weights copied because of their types, orders or addresses, and vectors among rearranged matrices
	Rearranged int64 // at most: weights copied into another order, in the place of the file's pages
	Cache      int64 // with every slot in use
	Arena      int64
	Inputs     int64 // of all slots of the ring
	Outputs    int64 // at the largest sizes
}

type part struct {
	name  string
	bytes int64
}

// parts lists what is allocated, or must be resident.
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

// AvailableMemory returns how many bytes this process may still use.
func AvailableMemory() int64 { return availableMemory() }

// FormatBytes returns a size as people read it: "1.5 GiB".
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
