package device

import (
	"bufio"
	"bytes"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/samber/lo"
	"golang.org/x/sys/unix"
)

// system reads Linux's files about the machine, below its root directory.
type system struct{ root fs.FS }

func thisSystem() system { return system{os.DirFS("/")} }

// availableCores returns the number of physical cores in this process's affinity
// mask, bounded by the CPU quota of its control group.
func availableCores() int {
	allowed := allowedCPUs()
	if allowed == nil {
		return math.MaxInt
	}
	s := thisSystem()
	return min(max(1, len(s.cores(allowed))), s.quota())
}

// allowedCPUs returns the logical processors of this process's affinity mask; nil if unknown.
func allowedCPUs() []int {
	var cpus unix.CPUSet
	if err := unix.SchedGetaffinity(0, &cpus); err != nil {
		return nil
	}
	var allowed []int
	for i := range len(cpus) * 64 {
		if cpus.IsSet(i) {
			allowed = append(allowed, i)
		}
	}
	return allowed
}

// availableNodes returns the memory nodes whose processors this process may use.
func availableNodes() []Node { return thisSystem().nodes(allowedCPUs()) }

// nodes returns the memory nodes that have some of these processors, in the order of their
// numbers; one node if the system lists none.
func (s system) nodes(cpus []int) []Node {
	dirs, err := fs.Glob(s.root, "sys/devices/system/node/node*")
	if err != nil {
		return nil // never: the pattern is right
	}
	var list []Node
	for _, dir := range dirs {
		id, err := strconv.Atoi(strings.TrimPrefix(path.Base(dir), "node"))
		if err != nil {
			continue
		}
		here := lo.Filter(cpus, func(cpu, _ int) bool {
			_, err := fs.Stat(s.root, path.Join(dir, "cpu"+strconv.Itoa(cpu)))
			return err == nil
		})
		if len(here) > 0 {
			list = append(list, Node{id, s.cores(here)})
		}
	}
	if len(list) == 0 && len(cpus) > 0 {
		return []Node{{0, s.cores(cpus)}}
	}
	slices.SortFunc(list, func(a, b Node) int { return a.ID - b.ID })
	return list
}

// cores groups logical processors by physical core.
func (s system) cores(cpus []int) [][]int {
	type core struct{ pack, id string }
	index := map[core]int{}
	var list [][]int
	for _, i := range cpus {
		dir := path.Join("sys/devices/system/cpu", "cpu"+strconv.Itoa(i), "topology")
		id := s.text(path.Join(dir, "core_id"))
		if id == "" {
			id = "cpu" + strconv.Itoa(i) // no topology: each is a core
		}
		c := core{s.text(path.Join(dir, "physical_package_id")), id}
		if _, ok := index[c]; !ok {
			index[c] = len(list)
			list = append(list, nil)
		}
		list[index[c]] = append(list[index[c]], i)
	}
	return list
}

// quota returns the CPU quota of this process's control groups in CPUs, rounded up.
func (s system) quota() int {
	n := math.MaxInt
	limit := func(quota, period string) {
		q, err1 := strconv.ParseFloat(quota, 64)
		p, err2 := strconv.ParseFloat(period, 64)
		if err1 == nil && err2 == nil && q > 0 && p > 0 {
			n = min(n, int(math.Ceil(q/p)))
		}
	}
	for _, dir := range s.groups("") {
		if f := strings.Fields(s.text(path.Join(dir, "cpu.max"))); len(f) == 2 {
			limit(f[0], f[1])
		}
	}
	for _, dir := range s.groups("cpu") {
		limit(s.text(path.Join(dir, "cpu.cfs_quota_us")), s.text(path.Join(dir, "cpu.cfs_period_us")))
	}
	return n
}

// availableMemory returns the number of bytes that this process can allocate before the
// machine swaps or a control group's limit kills it.
func availableMemory() int64 { return thisSystem().memory() }

// touchedMemory returns the number of resident bytes of this process's anonymous memory.
func touchedMemory() int64 { return thisSystem().touched() }

func (s system) touched() int64 {
	data, err := fs.ReadFile(s.root, "proc/self/status")
	if err != nil {
		return 0
	}
	kib, _ := field(data, "RssAnon:")
	return kib << 10
}

func (s system) memory() int64 {
	n := int64(math.MaxInt64)
	if data, err := fs.ReadFile(s.root, "proc/meminfo"); err == nil {
		if kib, ok := field(data, "MemAvailable:"); ok {
			n = kib << 10
		}
	}
	// A group's cached file pages are reclaimed on demand.
	limit := func(dir, limitFile, usageFile, cacheField string) {
		most, err1 := strconv.ParseInt(s.text(path.Join(dir, limitFile)), 10, 64)
		used, err2 := strconv.ParseInt(s.text(path.Join(dir, usageFile)), 10, 64)
		if err1 != nil || err2 != nil {
			return // "max", or no such file
		}
		if data, err := fs.ReadFile(s.root, path.Join(dir, "memory.stat")); err == nil {
			cached, _ := field(data, cacheField)
			used -= cached
		}
		n = min(n, max(0, most-max(0, used)))
	}
	for _, dir := range s.groups("") {
		limit(dir, "memory.max", "memory.current", "inactive_file")
	}
	for _, dir := range s.groups("memory") {
		limit(dir, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
	}
	return n
}

// groups returns the directories of this process's control group and of its ancestors: of version 2
// for "", of version 1 for a controller's name.
func (s system) groups(controller string) []string {
	data, err := fs.ReadFile(s.root, "proc/self/cgroup")
	if err != nil {
		return nil
	}
	var dirs []string
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		// hierarchy:controllers:path
		f := strings.SplitN(lines.Text(), ":", 3)
		if len(f) != 3 {
			continue
		}
		mount := "sys/fs/cgroup"
		if controller != "" {
			mount = path.Join(mount, controller)
		}
		if controller == "" && f[1] != "" || controller != "" && !slices.Contains(strings.Split(f[1], ","), controller) {
			continue
		}
		// In a container the path may be the host's, while the mount shows the group itself.
		// Both are read; a missing directory sets no limit.
		for at := path.Clean("/" + f[2]); ; at = path.Dir(at) {
			dirs = append(dirs, path.Join(mount, at))
			if at == "/" {
				break
			}
		}
	}
	return dirs
}

// text returns the trimmed content of a file; "" if it cannot be read.
func (s system) text(name string) string {
	data, _ := fs.ReadFile(s.root, name)
	return strings.TrimSpace(string(data))
}

// field returns the number after a name at the start of a line.
func field(data []byte, name string) (int64, bool) {
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) >= 2 && f[0] == name {
			n, err := strconv.ParseInt(f[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// readWindow is the maximum number of bytes that Linux reads per request, with a device's default
// window.
const readWindow = 128 << 10

// askPages makes the system begin to read the missing pages of a mapped file.
func askPages(memory []byte) {
	for part := range slices.Chunk(wholePages(memory), readWindow) {
		_ = unix.Madvise(part, unix.MADV_WILLNEED) // only advice: without it, pages are read when touched
	}
}

// faultAround is the number of bytes of cached pages that Linux maps at one fault.
const faultAround = 64 << 10

// mapPages maps a file's pages, reads missing ones, and reports whether it waited for any; true if
// unknown, before Linux 5.14, which maps nothing here. Unless the pages are arriving, it touches one
// page per faultAround, as touching each costs twice as much. Faults are counted by thread, so the
// goroutine must be locked to its own.
func mapPages(memory []byte, arriving bool) (waited bool) {
	memory = wholePages(memory)
	_, before := faults()
	if arriving {
		waited = unix.Madvise(memory, unix.MADV_POPULATE_READ) != nil
	} else {
		for ; len(memory) > 0 && !waited; memory = memory[min(len(memory), faultAround):] {
			waited = unix.Madvise(memory[:1], unix.MADV_POPULATE_READ) != nil
		}
	}
	_, now := faults()
	return waited || now != before
}

// faults returns this thread's minor and major page faults: of pages that were not mapped, and of
// pages that it waited for.
func faults() (mapped, waited int64) {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_THREAD, &u) // fails before Linux 2.6.26 alone
	return u.Minflt, u.Majflt
}

func processor() string { return thisSystem().processor() }

// processor returns the model name of the first core, or its vendor and part numbers.
func (s system) processor() string {
	data, err := fs.ReadFile(s.root, "proc/cpuinfo")
	if err != nil {
		return ""
	}
	var numbers []string
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		switch strings.TrimSpace(name) {
		case "model name":
			numbers = append(numbers, strings.TrimSpace(value))
		case "cpu family", "model", "CPU implementer", "CPU part":
			numbers = append(numbers, strings.TrimSpace(name)+" "+strings.TrimSpace(value))
		case "":
			return strings.Join(numbers, ", ") // the next paragraph is of another core
		}
	}
	return strings.Join(numbers, ", ")
}
