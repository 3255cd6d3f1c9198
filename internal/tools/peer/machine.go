//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// machine measures the load of the whole machine.
type machine struct {
	stat string // the path of /proc/stat
	cpus int
}

func thisMachine() machine { return machine{stat: "/proc/stat", cpus: runtime.NumCPU()} }

// busy returns the processor time used on the whole machine since it started, in seconds,
// including time that a host gave to other guests. Its resolution is 10 ms.
func (m machine) busy() (float64, error) {
	text, err := os.ReadFile(m.stat)
	if err != nil {
		return 0, err
	}
	return parseBusy(string(text))
}

// parseBusy sums the first line of /proc/stat without idle and wait times; guest times (the
// ninth and tenth) are included in the first two.
func parseBusy(stat string) (float64, error) {
	var user, nice, system, idle, wait, irq, softirq, steal int64
	if _, err := fmt.Sscanf(stat, "cpu %d %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &wait, &irq, &softirq, &steal); err != nil {
		return 0, fmt.Errorf("/proc/stat: %w", err)
	}
	const hertz = 100
	return float64(user+nice+system+irq+softirq+steal) / hertz, nil
}

// silence waits for other load to end, because thread pools spin for a while after a step and
// other processes come and go.
const (
	silenceWindow = 100 * time.Millisecond
	silenceBusy   = 0.015 // seconds in silenceWindow: one tick
)

// silence waits until nothing runs, at most for patience.
func (m machine) silence(ctx context.Context, patience time.Duration) error {
	for end := time.Now().Add(patience); ; {
		before, err := m.busy()
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(silenceWindow):
		}
		after, err := m.busy()
		if err != nil {
			return err
		}
		if after-before < silenceBusy || time.Now().After(end) {
			return nil
		}
	}
}

// othersWhile runs work and returns the share, 0 to 1, of the machine's processor time that
// other processes used meanwhile. work returns the time that the engine used.
func (m machine) othersWhile(work func() (cpu float64, err error)) (float64, error) {
	before, err := m.busy()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	cpu, err := work()
	if err != nil {
		return 0, err
	}
	elapsed := time.Since(began).Seconds()
	after, err := m.busy()
	if err != nil {
		return 0, err
	}
	return max(0, after-before-cpu) / (elapsed * float64(m.cpus)), nil
}

// describe returns the processor's name, the number of CPUs and the memory size.
func (m machine) describe() string {
	var sys unix.Sysinfo_t
	memory := ""
	if unix.Sysinfo(&sys) == nil {
		memory = fmt.Sprintf(", %.0f GiB", float64(sys.Totalram)*float64(sys.Unit)/(1<<30))
	}
	return fmt.Sprintf("%d CPUs of %s%s, Linux on %s", m.cpus, processorName(), memory, runtime.GOARCH)
}

// processorName returns the processor's name from /proc/cpuinfo, with its family and model,
// because the names of virtual machines' processors are often shared by several generations.
func processorName() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "an unknown processor"
	}
	field := func(name string) string {
		for line := range strings.Lines(string(text)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
				return strings.TrimSpace(value)
			}
		}
		return ""
	}
	switch name, model := field("model name"), field("model"); {
	case name == "":
		return "an unnamed processor"
	case model == "":
		return name
	default:
		return fmt.Sprintf("%s (family %s, model %s)", name, field("cpu family"), model)
	}
}

// freeMemory returns the bytes that programs can allocate without swapping.
func freeMemory() int64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "MemAvailable: %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	return 0
}
