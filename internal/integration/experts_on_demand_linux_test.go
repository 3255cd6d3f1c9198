package integration_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/samber/lo"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/internal/tools/parity"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/checkpoint"
)

// TestExpertsStayInTheMap: where memory has no room for the file, a token's step reads of its
// experts those that it goes to, and no copy of the others is made.
func TestExpertsStayInTheMap(t *testing.T) {
	if testfiles.UnderQEMU() {
		t.Skip("qemu drops the advice to read nothing ahead")
	}
	const experts, chosen, width, ffn = 40, 2, 512, 512
	path := filepath.Join(t.TempDir(), "model.gguf")
	f, err := os.Create(path)
	require.NoError(t, err)
	c := parity.Case{Name: "experts", Seed: 3, Config: models.Config{
		Family: "qwen3moe", Name: "experts", Vocab: 264, Width: width, Layers: 2, Heads: 8, KVHeads: 2, Head: 64, FFN: ffn, Context: 128, Eps: 1e-5,
		Rope: models.Rope{Theta: 1000}, Experts: models.Experts{Count: experts, Chosen: chosen, FFN: ffn},
	}}
	require.NoError(t, c.Write(f, "q4_0"))
	size, err := f.Seek(0, 1)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	forget(t, f)

	m, err := smelt.Open(path, "")
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	opts := fixture.Options(t, "cpu", dtype.F16)
	opts.Context, opts.Prefill = 60, 32
	p, err := m.Compile(opts)
	require.NoError(t, err)
	readAlone(t, m.File())
	var stacks []*checkpoint.Tensor
	for i := range m.File().Tensors() {
		if w := &m.File().Tensors()[i]; len(w.Shape) == 3 {
			stacks = append(stacks, w)
		}
	}
	// What was read ahead of the file's header. A busy disk may bring some of it after it was to be
	// forgotten, so that it has to stay away for a while.
	absent := func(w *checkpoint.Tensor) bool { return presence(t, w.Data) == 0 }
	forget(t, f)
	away := 0
	for tries := 0; away < 3 && tries < 50; tries++ {
		time.Sleep(10 * time.Millisecond)
		if away++; !lo.EveryBy(stacks, absent) {
			away = 0
			forget(t, f)
		}
	}
	if stacks = lo.Filter(stacks, func(w *checkpoint.Tensor, _ int) bool { return absent(w) }); len(stacks) < 4 {
		t.Skip("the system keeps in memory what nothing reads")
	}
	room := size / 3
	s := fixture.SessionOn(t, p, smelt.Device{Name: "cpu", Threads: 2, Options: device.Options{Rearrange: device.RearrangeNow, MemoryLimit: room}})
	memory := s.Loaded().OnDevice().Memory()
	require.Positive(t, memory.Rearranged, "matrices that every token reads are")
	require.Less(t, memory.Rearranged+memory.Converted, room)
	for _, w := range stacks {
		require.Zero(t, presence(t, w.Data), "%s is read before a step", w.Name)
	}
	for step := range 3 {
		_, err = s.Feed(t.Context(), []int32{int32(17 * step)})
		require.NoError(t, err)
		for _, w := range stacks {
			read := 0
			for e := range experts {
				n := len(w.Data) / experts
				switch present := presence(t, w.Data[e*n:][:n]); present {
				case 0:
				case 1:
					read++
				default:
					t.Errorf("%s: of expert %d, %.2f is read", w.Name, e, present)
				}
			}
			require.GreaterOrEqual(t, read, chosen, w.Name)
			require.LessOrEqual(t, read, (step+1)*chosen, w.Name)
		}
	}
}

// forget has the system drop what it keeps of a file.
func forget(t *testing.T, f *os.File) {
	const dontNeed = 4 // POSIX_FADV_DONTNEED
	require.NoError(t, f.Sync())
	_, _, failed := syscall.Syscall6(syscall.SYS_FADVISE64, f.Fd(), 0, 0, dontNeed, 0, 0)
	require.Zero(t, failed)
}

// readAlone has the system read pages that are touched, and none ahead of them.
func readAlone(t *testing.T, m *checkpoint.Checkpoint) {
	for _, w := range m.Tensors() {
		page := uintptr(os.Getpagesize())
		from := uintptr(unsafe.Pointer(unsafe.SliceData(w.Data)))
		_, _, failed := syscall.Syscall(syscall.SYS_MADVISE, from&^(page-1), uintptr(len(w.Data))+from%page, syscall.MADV_RANDOM)
		require.Zero(t, failed)
	}
}

// presence is which share of a mapping's pages is in memory, but for those at both ends, which
// hold what lies beside it, too.
func presence(t *testing.T, data []byte) float64 {
	page := os.Getpagesize()
	address := int(uintptr(unsafe.Pointer(unsafe.SliceData(data))))
	first, end := (address+page-1)/page, (address+len(data))/page
	present := make([]byte, end-first)
	_, _, failed := syscall.Syscall(syscall.SYS_MINCORE, uintptr(first*page), uintptr((end-first)*page), uintptr(unsafe.Pointer(&present[0])))
	require.Zero(t, failed)
	return float64(lo.CountBy(present, func(p byte) bool { return p&1 == 1 })) / float64(end-first)
}
