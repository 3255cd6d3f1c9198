package device

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/models/mapped"
)

// TestReader brings tensors that begin and end anywhere from a file that nobody has read: their
// pages are in memory, and touching them costs hardly a fault.
func TestReader(t *testing.T) {
	if testfiles.UnderQEMU() {
		t.Skip("qemu drops the advice to read ahead")
	}
	const last = 3*readPiece + 5000
	_, memory := unread(t, last)
	r := read([][]byte{memory[100:200], memory[4*4096+1 : 2*readPiece], memory[2*readPiece : last]})
	<-r.done
	for i, is := range resident(t, memory) {
		require.True(t, is || i > 0 && i < 4, "page %d", i)
	}
	if !mapsPages() {
		t.Skip("Linux maps no pages before they are touched until 5.14")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	require.Less(t, touching(t, memory[4*4096:last]), int64(10), "pages are mapped by sixteen at most")
}

// TestMapPages waits for a file that nobody has read. Once it is in memory nothing is waited for,
// and all of it is mapped, whether it is said to be on its way or not.
func TestMapPages(t *testing.T) {
	if testfiles.UnderQEMU() {
		t.Skip("qemu drops the advice to map pages")
	}
	if !mapsPages() {
		t.Skip("Linux maps no pages before they are touched until 5.14")
	}
	for name, arriving := range map[string]bool{"arriving": true, "looked for": false} {
		t.Run(name, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			path, memory := unread(t, 2*readPiece+5000)
			require.True(t, mapPages(memory, arriving))
			_, err := os.ReadFile(path)
			require.NoError(t, err)
			f, err := mapped.Open(path)
			require.NoError(t, err)
			defer f.Close()
			require.False(t, mapPages(f.Bytes()[1:], arriving))
			require.Less(t, touching(t, f.Bytes()), int64(10))
		})
	}
}

// TestReaderAsks asks for nothing where nothing is waited for, and else, once for each piece, for as
// many as the lead has, as far as doubt reaches.
func TestReaderAsks(t *testing.T) {
	const lead, doubt = readLead / readPiece, readDoubt / readPiece
	pieces := make([][]byte, 2*(doubt+lead))
	place := make(map[*byte]int, len(pieces))
	for i := range pieces {
		pieces[i] = make([]byte, 1)
		place[&pieces[i][0]] = i
	}
	for name, c := range map[string]struct {
		waits    func(i int) bool
		from, to int // of what is asked for
	}{
		"all there":     {func(int) bool { return false }, 0, 0},
		"none there":    {func(int) bool { return true }, 1, len(pieces)},
		"one missing":   {func(i int) bool { return i == 5 }, 6, 5 + doubt + 1 + lead},
		"end missing":   {func(i int) bool { return i == len(pieces)-2 }, len(pieces) - 1, len(pieces)},
		"missing later": {func(i int) bool { return i == 5 || i == 5+lead }, 6, 5 + lead + doubt + 1 + lead},
	} {
		t.Run(name, func(t *testing.T) {
			at, next := 0, c.from
			new(reader).bring(pieces, func(p []byte) {
				require.Equal(t, next, place[&p[0]])
				require.LessOrEqual(t, next, at-1+lead)
				next++
			}, func(p []byte, arriving bool) bool {
				require.Equal(t, at, place[&p[0]])
				require.Equal(t, c.from <= at && at < next, arriving, "piece %d", at)
				at++
				return c.waits(at - 1)
			})
			require.Equal(t, len(pieces), at)
			require.Equal(t, c.to, next)
		})
	}
}

// TestReaderStops leaves readers at any time, after which memory may be unmapped; so it may where
// there is none.
func TestReaderStops(t *testing.T) {
	var none *reader
	none.stepDone()
	none.stop()
	for range 20 {
		path := filepath.Join(t.TempDir(), "weights")
		require.NoError(t, os.WriteFile(path, make([]byte, 8*readPiece), 0o600))
		f, err := mapped.Open(path)
		require.NoError(t, err)
		r := read([][]byte{f.Bytes()})
		r.stepDone()
		r.stop()
		require.NoError(t, f.Close())
	}
}

// unread maps a new file whose pages are not in memory.
func unread(t *testing.T, bytes int) (path string, memory []byte) {
	path = filepath.Join(t.TempDir(), "weights")
	require.NoError(t, os.WriteFile(path, slices.Repeat([]byte{1}, bytes), 0o600))
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Sync())
	require.NoError(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
	m, err := mapped.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	if slices.Contains(resident(t, m.Bytes()), true) {
		t.Skip("the system keeps files of " + t.TempDir() + " in memory")
	}
	return path, m.Bytes()
}

// mapsPages tells whether Linux maps pages before they are touched.
func mapsPages() bool {
	page := make([]byte, 2*os.Getpagesize())
	return unix.Madvise(wholePages(page[len(page)-1:]), unix.MADV_POPULATE_READ) == nil
}

// touching is how often touching all pages finds one that is not mapped.
func touching(t *testing.T, memory []byte) int64 {
	sum := byte(0)
	mapped, waited := faults()
	for i := 0; i < len(memory); i += 4096 {
		sum += memory[i]
	}
	nowMapped, nowWaited := faults()
	require.NotZero(t, sum)
	return nowMapped + nowWaited - mapped - waited
}

// resident tells which pages of a mapping are in memory.
func resident(t *testing.T, memory []byte) []bool {
	pages := make([]byte, (len(memory)+unix.Getpagesize()-1)/unix.Getpagesize())
	_, _, failure := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&memory[0])), uintptr(len(memory)), uintptr(unsafe.Pointer(&pages[0])))
	require.Zero(t, failure)
	there := make([]bool, len(pages))
	for i, p := range pages {
		there[i] = p&1 != 0
	}
	return there
}
