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

// machine tells what the whole machine does.
type machine struct {
	stat string // the path of /proc/stat
	cpus int
}

func thisMachine() machine { return machine{stat: "/proc/stat", cpus: runtime.NumCPU()} }

// busy is the processor time that all of the machine has used, in seconds since it was
// started, what the host of a guest gave to others included. Its steps are 10 ms.
func (m machine) busy() (float64, error) {
	text, err := os.ReadFile(m.stat)
	if err != nil {
		return 0, err
	}
	return parseBusy(string(text))
}

// parseBusy adds up the first line of /proc/stat but for idling and waiting; guests
// (the ninth and tenth) are counted in the first two.
func parseBusy(stat string) (float64, error) {
	var user, nice, system, idle, wait, irq, softirq, steal int64
	if _, err := fmt.Sscanf(stat, "cpu %d %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &wait, &irq, &softirq, &steal); err != nil {
		return 0, fmt.Errorf("/proc/stat: %w", err)
	}
	const hertz = 100
	return float64(user+nice+system+irq+softirq+steal) / hertz, nil
}

// Waiting for the machine to fall silent: thread pools spin for a while after a step,
// and others come and go.
const (
	silenceWindow = 100 * time.Millisecond
	silenceBusy   = 0.015 // seconds in it: one tick
)

// silence waits until nothing runs, or until patience is over.
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

// othersWhile runs work and returns the share of the machine's processors that others
// than the engine had meanwhile, 0 to 1; work returns what the engine used.
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

// describe names the processor, its count and the memory.
func (m machine) describe() string {
	var sys unix.Sysinfo_t
	memory := ""
	if unix.Sysinfo(&sys) == nil {
		memory = fmt.Sprintf(", %.0f GiB", float64(sys.Totalram)*float64(sys.Unit)/(1<<30))
	}
	return fmt.Sprintf("%d CPUs of %s%s, Linux on %s", m.cpus, processorName(), memory, runtime.GOARCH)
}

// processorName is what /proc/cpuinfo calls the processor; names of guests are often
// shared by several generations, which the model number tells apart.
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

// freeMemory is what programs could allocate without swapping, in bytes.
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
