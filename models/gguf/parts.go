package gguf

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
)

// The keys and names of a file in parts are those of llama.cpp's gguf-split: the first part has the
// metadata of all, and may hold no tensors.
const (
	keyPart    = PartKeys + "no"
	keyParts   = PartKeys + "count"
	keyTensors = PartKeys + "tensors.count"
	maxParts   = 4096
)

// PartKeys is what the keys of files in parts begin with.
const PartKeys = "split."

var partName = regexp.MustCompile(`^(.*)-\d{5}-of-\d{5}\.gguf$`)

// addParts opens the parts of which f, at path, is the first, and adds their tensors. A file that
// is not in parts stays as it is.
func (f *File) addParts(path string) error {
	count, err := f.split(keyParts)
	if err != nil || count <= 1 {
		return err
	}
	name := partName.FindStringSubmatch(filepath.Base(path))
	switch no, err := f.split(keyPart); {
	case err != nil:
		return err
	case count > maxParts:
		return fmt.Errorf("%s: %s is %d, more than %d", path, keyParts, count, maxParts)
	case no != 0 && name != nil:
		return fmt.Errorf("%s: part %d of %d; open the first, %s", path, no+1, count, fmt.Sprintf("%s-%05d-of-%05d.gguf", name[1], 1, count))
	case no != 0:
		return fmt.Errorf("%s: part %d of %d; open the first", path, no+1, count)
	case name == nil:
		return fmt.Errorf("%s: the first of %d parts has a name such as model-%05d-of-%05d.gguf", path, count, 1, count)
	}
	for i := 1; i < count; i++ {
		p, err := openPart(filepath.Join(filepath.Dir(path), fmt.Sprintf("%s-%05d-of-%05d.gguf", name[1], i+1, count)), i, count)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		f.parts = append(f.parts, p)
		for _, t := range p.Tensors {
			if at, twice := f.names[t.Name]; twice {
				return fmt.Errorf("%s: tensor %q is in %s too", p.Name, t.Name, filepath.Base(f.Tensors[at].File))
			}
			f.names[t.Name] = len(f.Tensors)
			f.Tensors = append(f.Tensors, t)
		}
	}
	if !f.Has(keyTensors) {
		return nil
	}
	want, err := f.split(keyTensors)
	if err == nil && want != len(f.Tensors) {
		err = fmt.Errorf("%s: its %d parts have %d tensors, not the %d of %s", path, count, len(f.Tensors), want, keyTensors)
	}
	return err
}

// openPart opens part number no, counted from 0, of a file in parts.
func openPart(path string, no, count int) (*File, error) {
	p, err := openOne(path)
	if err != nil {
		return nil, fmt.Errorf("part %d of %d: %w", no+1, count, err)
	}
	haveNo, err := p.split(keyPart)
	haveCount, err2 := p.split(keyParts)
	if err = errors.Join(err, err2); err == nil && (haveNo != no || haveCount != count) {
		err = fmt.Errorf("%s: it is part %d of %d by %s and %s, not part %d of %d", path, haveNo+1, haveCount, keyPart, keyParts, no+1, count)
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// split returns a number of the keys of parts, 0 where it is missing.
func (f *File) split(key string) (int, error) {
	if !f.Has(key) {
		return 0, nil
	}
	n, err := f.Int(key)
	if err == nil && (n < 0 || n > 1<<31-1) {
		err = fmt.Errorf("%s: %s is %d", f.Name, key, n)
	}
	return int(n), err
}
