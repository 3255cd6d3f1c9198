// Package mapped maps whole files read-only, allocates memory of the same kind, and reads small
// files.
//
// Weights are gigabytes that several processes may share and that are read in
// any order, so they are mapped, never copied to the heap. mmap-go does the mapping:
// one call covers Unix and Windows, for which x/sys alone would need a file each
// (Windows has no mmap, but a section object and a view).
//
// A view is valid until [File.Close]; reading it later is a memory fault. Of a file that is
// shortened meanwhile, the missing pages are read as zeros, and [File.Intact] reports it: readers
// ask when they are done. It takes cgo and a Unix; elsewhere the fault kills the process.
package mapped

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"

	"github.com/edsrzf/mmap-go"
)

// File is a mapped file, or memory allocated by [New].
type File struct {
	file  *os.File // open for Intact; nil for memory
	data  mmap.MMap
	watch watch
}

// ErrCut is wrapped by errors about a file that was shortened while it was mapped. A failing disk
// is not told apart.
var ErrCut = errors.New("the file was cut short, or cannot be read any more, since it was opened")

// Open maps the regular file at path. An empty file gives an empty view.
func Open(path string) (*File, error) {
	f, info, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	var data mmap.MMap
	switch {
	case info.Size() > math.MaxInt:
		err = fmt.Errorf("open %s: %d bytes exceed the address space", path, info.Size())
	case info.Size() > 0:
		if data, err = mmap.Map(f, mmap.RDONLY, 0); err != nil {
			err = fmt.Errorf("map %s: %w", path, err)
		}
	}
	if data == nil {
		f.Close()
		return &File{}, err
	}
	return &File{f, data, watchFaults(data)}, nil
}

// openRegular opens a regular file. It asks for the kind first, since opening a FIFO waits for a
// writer and opening a device may have effects.
func openRegular(path string) (*os.File, fs.FileInfo, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("open %s: not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
	}
	return f, info, err
}

// ReadFile returns the bytes of the regular file at path, or an error if there are more than most.
// The size is compared before anything is read: a sparse file takes no disk.
func ReadFile(path string, most int64) ([]byte, error) {
	f, info, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info.Size() > most {
		return nil, tooLong(path, most)
	}
	return ReadAll(f, path, most)
}

// ReadAll returns the bytes of a stream, or an error with its name if there are more than most.
func ReadAll(r io.Reader, name string, most int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(data)) > most {
		return nil, tooLong(name, most)
	}
	return data, err
}

func tooLong(name string, most int64) error { return fmt.Errorf("%s: more than %d bytes", name, most) }

// New allocates writable memory of that size, zeroed, on pages of its own.
func New(bytes int64) (*File, error) {
	switch {
	case bytes == 0:
		return &File{}, nil
	case bytes < 0 || bytes > math.MaxInt:
		return nil, fmt.Errorf("%d bytes exceed the address space", bytes)
	}
	data, err := mmap.MapRegion(nil, int(bytes), mmap.RDWR, mmap.ANON, 0)
	if err != nil {
		return nil, fmt.Errorf("memory of %d bytes: %w", bytes, err)
	}
	return &File{data: data}, nil
}

// Bytes returns the view. Writing to the view of a file is a memory fault.
func (f *File) Bytes() []byte { return f.data }

// Intact returns an error that wraps [ErrCut] if the file has become shorter than the view, or a page
// of it could not be read when that was tried. It costs a system call.
func (f *File) Intact() error {
	if f.file == nil {
		return nil
	}
	if end, err := f.file.Seek(0, io.SeekEnd); err == nil && end >= int64(len(f.data)) && !f.watch.faulted() {
		return nil
	}
	return fmt.Errorf("%s: %w", f.file.Name(), ErrCut)
}

// Close unmaps the file. Further calls do nothing.
func (f *File) Close() error {
	if f.data == nil {
		return nil
	}
	f.watch.end()
	err := f.data.Unmap() // sets data to nil
	if f.file != nil {
		err = errors.Join(err, f.file.Close())
		f.file = nil
	}
	return err
}
