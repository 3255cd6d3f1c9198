// Package mapped maps whole files read-only, and allocates memory of the same kind.
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
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // a mapping outlives its descriptor
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("open %s: not a regular file", path)
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
