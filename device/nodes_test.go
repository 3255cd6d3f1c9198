//go:build cgo && linux && (amd64 || arm64)

package device_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/testfiles"
	small "github.com/smelt-ml/smelt/internal/tiny"
	"github.com/smelt-ml/smelt/models"
)

// TestManyThreads runs models by up to 64 threads on as many memory nodes as there may be, of which
// this machine need have none: the bits are those of one thread, and what is executed is what the
// Plan lists.
func TestManyThreads(t *testing.T) {
	mixture := small.Small()
	mixture.Family, mixture.Rope = "qwen3moe", models.Rope{Theta: 1e4}
	mixture.Experts = models.Experts{Count: 8, Chosen: 2, FFN: 64}
	for name, path := range map[string]string{
		"dense": small.GGUF(t, "tiny-qwen3", "Q4_0"), "of experts": small.Random(t, mixture, "q8_0"),
	} {
		program := compiled(t, path)
		want := feed(t, program, "cpu", device.Options{Threads: 1})
		for _, cores := range [][]int{{2}, {7}, {64}, {1, 1}, {3, 1}, {1, 5}, {3, 3, 2}, {16, 16, 16, 16}, {8, 8, 8, 8, 8, 8, 8, 8}} {
			for _, when := range []device.Rearrange{device.RearrangeNow, device.RearrangeLater, device.RearrangeNever} {
				o := onNodes(device.Options{Rearrange: when}, cores...)
				require.Equal(t, want, feed(t, program, "cpu", o), "%s: threads %v, rearranged %v", name, cores, when)
			}
		}
		loaded, err := program.Load(smelt.Device{Name: "cpu", Threads: 8, Options: onNodes(device.Options{}, 3, 3, 2)})
		require.NoError(t, err)
		require.Equal(t, "8 threads on 3 memory nodes", loaded.Info().Workers())
		require.NoError(t, loaded.Close())
	}
}

// TestMemoryNodes runs a model on a machine that has several memory nodes: threads keep to the
// processors of one, while they work, and each node has its part of each matrix. "make test-nodes"
// runs it on such a machine of qemu's.
func TestMemoryNodes(t *testing.T) {
	if len(device.Nodes()) < 2 {
		t.Skip("this machine has one memory node")
	}
	program := compiled(t, small.Heavy(t, "tiny-qwen3", 1<<17))
	want := feed(t, program, "cpu", device.Options{Threads: 1})
	everywhere := statusField(t, "/proc/thread-self/status", "Cpus_allowed_list")
	session := sessionOn(t, program, "cpu", device.Options{Rearrange: device.RearrangeNow})
	defer session.Loaded().Close()
	require.Equal(t, want, feedTo(t, session))
	info := session.Loaded().Info()
	require.Equal(t, len(device.Nodes()), info.Nodes)

	// Each thread has a core of its own, but the first: that is Go's, and back where it came from.
	tasks, err := filepath.Glob("/proc/self/task/*")
	require.NoError(t, err)
	cores := map[string]bool{}
	for _, task := range tasks {
		name, err := os.ReadFile(task + "/comm")
		require.NoError(t, err)
		cpus := statusField(t, task+"/status", "Cpus_allowed_list")
		if strings.HasPrefix(string(name), "smelt-") {
			cores[cpus] = true
		} else {
			require.Equal(t, everywhere, cpus, string(name))
		}
	}
	require.Len(t, cores, info.Threads-1)
	require.NotContains(t, cores, everywhere)

	// Pages of memory that prefers a node are on it, and each node has about as many.
	maps, err := os.ReadFile("/proc/self/numa_maps")
	require.NoError(t, err)
	policy, count := regexp.MustCompile(`^\S+ prefer[^:]*:(\d+) `), regexp.MustCompile(` N(\d+)=(\d+)`)
	on, off := make([]int, len(device.Nodes())), 0
	var order []string
	for line := range strings.Lines(string(maps)) {
		p := policy.FindStringSubmatch(line)
		if p == nil {
			continue
		}
		order = append(order, p[1])
		for _, n := range count.FindAllStringSubmatch(line, -1) {
			pages, err := strconv.Atoi(n[2])
			require.NoError(t, err)
			node, err := strconv.Atoi(n[1])
			require.NoError(t, err)
			if n[1] == p[1] {
				on[node] += pages
			} else {
				off += pages
			}
		}
	}
	require.Equal(t, []string{"0", "1"}, order[:2], "the first rows are read by the first threads")
	t.Log("pages on the nodes that prefer them:", on, "and elsewhere:", off)
	all := off
	for _, n := range on {
		all += n
	}
	require.Greater(t, int64(all*os.Getpagesize()), session.Loaded().Memory().Weights*9/10)
	require.LessOrEqual(t, off, all/50)
	for _, n := range on {
		require.InDelta(t, all/len(device.Nodes()), n, float64(all)/20)
	}
}

// TestNeighbour decodes beside somebody who keeps one core busy: that costs half a core, which is
// what the neighbour gets of it, and no more but a fifth of what is left.
func TestNeighbour(t *testing.T) {
	threads := device.DefaultThreads()
	if !testfiles.Full("load") || threads < 2 {
		t.Skip("measures for some seconds, on two cores that do nothing else")
	}
	program := compiled(t, small.Heavy(t, "tiny-qwen3", 1<<17))
	session := sessionOn(t, program, "cpu", device.Options{Rearrange: device.RearrangeNow})
	defer session.Loaded().Close()
	rate := func() float64 {
		tokens := 0
		began := time.Now()
		for time.Since(began) < time.Second {
			session.Reset()
			_, err := session.Feed(t.Context(), []int32{12})
			require.NoError(t, err)
			tokens++
		}
		return float64(tokens) / time.Since(began).Seconds()
	}
	beside := func(cpu int) float64 {
		neighbour := exec.Command("sh", "-c", "while :; do :; done")
		require.NoError(t, neighbour.Start())
		defer func() {
			_ = neighbour.Process.Kill()
			_ = neighbour.Wait() // killed
		}()
		var only unix.CPUSet
		only.Set(cpu)
		require.NoError(t, unix.SchedSetaffinity(neighbour.Process.Pid, &only))
		return rate()
	}
	var cpus []int
	for _, n := range device.Nodes() {
		cpus = append(cpus, slices.Concat(n.Cores...)...)
	}
	busy := slices.Max(cpus)
	rate()
	var ratios []float64
	for range 5 {
		ratios = append(ratios, beside(busy)/rate())
	}
	slices.Sort(ratios)
	t.Logf("beside a neighbour: %.2f of the speed", ratios)
	require.Greater(t, ratios[2], 0.8*(float64(threads)-0.5)/float64(threads))
}

// onNodes returns options for a machine that has memory nodes of so many cores each, as it seems.
func onNodes(o device.Options, cores ...int) device.Options {
	var text []string
	for _, n := range cores {
		text = append(text, strconv.Itoa(n))
	}
	o.Own = map[string]string{"nodes": strings.Join(text, ",")}
	return o
}

// compiled returns the program of a model for "cpu".
func compiled(t *testing.T, path string) *smelt.Program {
	t.Helper()
	model, err := smelt.Open(path, "")
	require.NoError(t, err)
	t.Cleanup(func() { model.Close() })
	program, err := model.Compile(smelt.Options{Target: "cpu", Level: 1, Context: 64, Prefill: 16})
	require.NoError(t, err)
	return program
}

func statusField(t *testing.T, path, name string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	require.Fail(t, "no "+name, path)
	return ""
}
