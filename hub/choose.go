package hub

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// DefaultType is the type of weights that is chosen among several GGUF files if the name has none.
// It is the one that most repositories offer, and the default of other tools.
const DefaultType = "Q4_K_M"

// model is the files of a repository that make up one model.
type model struct {
	files []string
	open  string // the file to open, or "" for the folder
}

// errMissing is wrapped where a file of a model is missing.
var errMissing = errors.New("is missing")

// choose returns the model that a name selects among files. read returns the contents of one of
// them.
func (n Name) choose(files []string, read func(file string) ([]byte, error)) (model, error) {
	ggufs := group(files)
	if n.File != "" {
		for _, g := range ggufs {
			if slices.Contains(g.files, n.File) {
				return g.whole()
			}
		}
		if !slices.Contains(files, n.File) {
			return model{}, fmt.Errorf("%s %w", n.File, errMissing)
		}
		return model{files: []string{n.File}, open: n.File}, nil
	}
	ggufs = slices.DeleteFunc(ggufs, func(m model) bool { return beside.MatchString(path.Base(m.open)) })
	if len(ggufs) == 0 && n.Type == "" {
		return folder(files, read)
	}
	if n.Type == "" && len(ggufs) == 1 {
		return ggufs[0].whole()
	}
	wanted := n.Type
	if wanted == "" {
		wanted = DefaultType
	}
	found := slices.DeleteFunc(slices.Clone(ggufs), func(m model) bool { return !ofType(m.open, wanted) })
	switch {
	case len(found) == 1:
		return found[0].whole()
	case len(found) > 1:
		return model{}, fmt.Errorf("%d files have the type %s: name one of them, as in %s/%s (%s)", len(found), wanted, n.Repo, found[0].open, opened(found))
	case len(ggufs) == 0:
		return model{}, fmt.Errorf("a GGUF file %w", errMissing)
	case n.Type == "":
		return model{}, fmt.Errorf("there are several GGUF files and none of the type %s: name one by its type, as in %s:TYPE, or as %s/FILE (%s)", wanted, n.Repo, n.Repo, opened(ggufs))
	}
	return model{}, fmt.Errorf("a GGUF file of the type %s %w (%s)", wanted, errMissing, opened(ggufs))
}

// opened lists models for an error, up to a limit.
func opened(models []model) string {
	const most = 24
	var names []string
	for _, m := range models[:min(len(models), most)] {
		names = append(names, m.open)
	}
	if len(models) > most {
		names = append(names, fmt.Sprintf("and %d more", len(models)-most))
	}
	return strings.Join(names, ", ")
}

var (
	// beside matches GGUF files that are no language model: projectors and importance matrices.
	beside = regexp.MustCompile(`(?i)^mmproj|[-_.]mmproj|imatrix`)
	part   = regexp.MustCompile(`^(.+)-(\d{5})-of-(\d{5})\.gguf$`)
)

// group returns the models among GGUF files; the parts of a split file are one model.
func group(files []string) []model {
	grouped := map[string]model{}
	for _, file := range slices.Sorted(slices.Values(files)) {
		if !strings.EqualFold(path.Ext(file), ".gguf") {
			continue
		}
		key := file
		if m := part.FindStringSubmatch(file); m != nil {
			key = m[1] + "-of-" + m[3]
		}
		g := grouped[key]
		if g.open == "" {
			g.open = file
		}
		g.files = append(g.files, file)
		grouped[key] = g
	}
	return slices.SortedFunc(maps.Values(grouped), func(a, b model) int { return strings.Compare(a.open, b.open) })
}

// whole returns an error if parts of a split file are missing.
func (m model) whole() (model, error) {
	at := part.FindStringSubmatch(m.open)
	if at == nil {
		return m, nil
	}
	parts, err := strconv.Atoi(at[3])
	if err != nil || parts != len(m.files) {
		return model{}, fmt.Errorf("%s-*-of-%s.gguf: a part %w: %d present", at[1], at[3], errMissing, len(m.files))
	}
	return m, nil
}

// ofType reports whether a GGUF file has a type of weights, by its name: the type must stand
// between dots or dashes, or at either end, so that Q4_K does not match Q4_K_M, nor F16 BF16.
func ofType(file, of string) bool {
	stem := strings.ToLower(strings.TrimSuffix(path.Base(file), path.Ext(file)))
	if m := part.FindStringSubmatch(path.Base(file)); m != nil {
		stem = strings.ToLower(m[1])
	}
	of = strings.ToLower(of)
	for at := 0; ; {
		i := strings.Index(stem[at:], of)
		if i < 0 {
			return false
		}
		before, after := at+i-1, at+i+len(of)
		if (before < 0 || strings.IndexByte(".-_", stem[before]) >= 0) && (after == len(stem) || strings.IndexByte(".-", stem[after]) >= 0) {
			return true
		}
		at += i + 1
	}
}

// Files of a model's folder.
const (
	configFile  = "config.json"
	singleFile  = "model.safetensors"
	indexFile   = "model.safetensors.index.json"
	weightsType = ".safetensors"
	longestJSON = 64 << 20
)

// settings matches the files that smelt or other tools read a model, its tokenizer and its
// templates from; modules matches the layers behind an embedding model.
var (
	settings = regexp.MustCompile(`^(?:(?:config|generation_config|tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab|chat_template|modules|config_sentence_transformers|sentence_[a-z]+_config)\.json|chat_template\.jinja|additional_chat_templates/[^/]+\.jinja|merges\.txt|vocab\.txt|tokenizer\.model)$`)
	modules  = regexp.MustCompile(`^[0-9]+_[A-Za-z]+/(?:config\.json|model\.safetensors)$`)
)

// folder returns the files of a safetensors model.
func folder(files []string, read func(file string) ([]byte, error)) (m model, err error) {
	has := func(file string) bool { return slices.Contains(files, file) }
	if !has(configFile) {
		return m, fmt.Errorf("neither a GGUF file nor %s: %s %w", weightsType, configFile, errMissing)
	}
	for _, file := range files {
		if settings.MatchString(file) || has("modules.json") && modules.MatchString(file) {
			m.files = append(m.files, file)
		}
	}
	switch {
	case has(singleFile):
		m.files = append(m.files, singleFile)
	case has(indexFile):
		shards, err := indexed(read)
		if err != nil {
			return m, fmt.Errorf("%s: %w", indexFile, err)
		}
		for _, shard := range shards {
			if !has(shard) {
				return m, fmt.Errorf("%s, which %s names, %w", shard, indexFile, errMissing)
			}
		}
		m.files = append(append(m.files, indexFile), shards...)
	default:
		before := len(m.files)
		for _, file := range files {
			if path.Ext(file) == weightsType && !strings.Contains(file, "/") {
				m.files = append(m.files, file)
			}
		}
		if len(m.files) == before {
			return m, fmt.Errorf("a file of weights, *.gguf or *%s, %w", weightsType, errMissing)
		}
	}
	slices.Sort(m.files)
	return m, nil
}

// indexed returns the files that model.safetensors.index.json lists.
func indexed(read func(file string) ([]byte, error)) ([]string, error) {
	data, err := read(indexFile)
	if err != nil {
		return nil, err
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(data, &index); err != nil {
		return nil, err
	}
	shards := map[string]bool{}
	for _, tensor := range slices.Sorted(maps.Keys(index.WeightMap)) {
		shard := index.WeightMap[tensor]
		if err := checkFile(shard); err != nil {
			return nil, err
		}
		shards[shard] = true
	}
	if len(shards) == 0 {
		return nil, errors.New("weight_map is empty")
	}
	return slices.Sorted(maps.Keys(shards)), nil
}
