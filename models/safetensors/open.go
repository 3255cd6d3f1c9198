package safetensors

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/smelt-ml/smelt/models/mapped"
)

const (
	extension  = ".safetensors"
	singleName = "model" + extension
	indexName  = singleName + ".index.json"
)

// Open maps and checks the file, or the files of the folder, at path.
func Open(path string) (*File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return openShards(path, []string{path}, nil)
	}
	if single := filepath.Join(path, singleName); exists(single) {
		return openShards(path, []string{single}, nil)
	}
	if index := filepath.Join(path, indexName); exists(index) {
		home, shards, err := readIndex(index)
		if err != nil {
			return nil, err
		}
		return openShards(path, shards, home)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var shards []string
	for _, e := range entries {
		if filepath.Ext(e.Name()) == extension {
			shards = append(shards, filepath.Join(path, e.Name()))
		}
	}
	if len(shards) == 0 {
		return nil, fmt.Errorf("%s: %w", path, ErrNoWeights)
	}
	return openShards(path, shards, nil)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// openShards maps the shards and merges their tensors. home maps each tensor to its shard in the
// index, all of which must exist. Like Hugging Face, it also loads tensors that the index lacks,
// unless two shards have one.
func openShards(name string, shards []string, home map[string]string) (_ *File, err error) {
	all := &File{Name: name, names: map[string]int{}}
	defer func() {
		if err != nil {
			all.Close()
		}
	}()
	for i, shard := range shards {
		m, err := mapped.Open(shard)
		if err != nil {
			return nil, err
		}
		all.mappings = append(all.mappings, m)
		f, err := Parse(m.Bytes(), shard)
		err = cmp.Or(m.Intact(), err)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			all.Metadata = f.Metadata
		}
		for _, t := range f.Tensors {
			if assigned, ok := home[t.Name]; ok && assigned != shard {
				continue
			}
			if first, dup := all.Tensor(t.Name); dup {
				return nil, &FormatError{File: shard, Field: fmt.Sprintf("tensor %q", t.Name), Err: fmt.Errorf("it is in %s too", filepath.Base(first.File))}
			}
			all.names[t.Name] = len(all.Tensors)
			all.Tensors = append(all.Tensors, t)
		}
	}
	var missing []string
	for tensor := range home {
		if _, ok := all.names[tensor]; !ok {
			missing = append(missing, fmt.Sprintf("%q is not in %s", tensor, filepath.Base(home[tensor])))
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		text := strings.Join(missing[:min(len(missing), 5)], ", ")
		if more := len(missing) - 5; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		return nil, &FormatError{File: filepath.Join(name, indexName), Field: "weight_map", Err: errors.New(text)}
	}
	return all, nil
}

// readIndex returns the shard of each tensor and the sorted list of shards, as paths beside the
// index.
func readIndex(path string) (home map[string]string, shards []string, err error) {
	fail := func(field string, err error) (map[string]string, []string, error) {
		return nil, nil, &FormatError{File: path, Field: field, Err: err}
	}
	text, err := mapped.ReadFile(path, maxHeader)
	if err != nil {
		return nil, nil, err
	}
	fields, err := object(text)
	if err != nil {
		return fail("index", err)
	}
	at := slices.IndexFunc(fields, func(f field) bool { return f.key == "weight_map" })
	if at < 0 {
		return fail("weight_map", errors.New("missing"))
	}
	entries, err := object(fields[at].value)
	if err != nil {
		return fail("weight_map", err)
	}
	home = make(map[string]string, len(entries))
	for _, e := range entries {
		name, err := quoted(e.value)
		if err == nil {
			err = checkShardName(name)
		}
		if err != nil {
			return fail(fmt.Sprintf("weight_map %q", e.key), err)
		}
		shard := filepath.Join(filepath.Dir(path), name)
		home[e.key] = shard
		shards = append(shards, shard)
	}
	if len(shards) == 0 {
		return fail("weight_map", errors.New("no tensors"))
	}
	slices.Sort(shards)
	return home, slices.Compact(shards), nil
}

// checkShardName accepts names of files in the same folder only, on any platform's separators.
func checkShardName(name string) error {
	if !strings.HasSuffix(name, extension) || strings.ContainsAny(name, "/\\:\x00") || !filepath.IsLocal(name) {
		return fmt.Errorf("%q is not the name of a %s file in this folder", name, extension)
	}
	return nil
}
