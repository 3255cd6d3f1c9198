// Package mapped maps whole files read-only, allocates memory of the same kind, and reads small
// files.
//
// Weights are gigabytes that several processes may share and that are read in
// any order, so they are mapped, never copied to the heap. mmap-go does the mapping:
// one call covers Unix and Windows, for which x/sys alone would need a file each
// (Windows has no mmap, but a section object and a view).
//
// A view is valid until [File.Close]; reading it later is a memory fault, and so is
// reading it after another process has shortened the file. Such a fault kills the
// process, so a file that is being downloaded should be renamed into place.
package mapped

import (
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"

	"github.com/edsrzf/mmap-go"
)

// File is a mapped file, or memory allocated by [New].
type File struct {
	data mmap.MMap
}

// Open maps the regular file at path. An empty file gives an empty view.
func Open(path string) (*File, error) {
	f, info, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // a mapping outlives its descriptor
	switch {
	case info.Size() > math.MaxInt:
		return nil, fmt.Errorf("open %s: %d bytes exceed the address space", path, info.Size())
	case info.Size() == 0:
		return &File{}, nil
	}
	data, err := mmap.Map(f, mmap.RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	return &File{data}, nil
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
	return &File{data}, nil
}

// Bytes returns the view. Writing to the view of a file is a memory fault.
func (f *File) Bytes() []byte { return f.data }

// Close unmaps the file. Further calls do nothing.
func (f *File) Close() error {
	if f.data == nil {
		return nil
	}
	return f.data.Unmap() // sets data to nil
}
