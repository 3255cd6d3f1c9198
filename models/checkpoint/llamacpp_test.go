package checkpoint_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/models/families"
)

// sources are llama.cpp's, where `make bench-peer` or `make parity` has put them.
const sources = "../../build/peer/src"

// names are what llama.cpp calls things.
type names struct {
	archs    map[string]string              // by general.architecture: as the sources call it
	tensors  map[string]string              // by what the sources call it: "blk.#.attn_q"
	has      map[string][]string            // tensors of an architecture
	folders  map[string][]string            // by tensor: what folders call it, "model.layers.#.mlp.up_proj"
	byFamily map[string]map[string][]string // the same, of one architecture
	keys     []string                       // of metadata, after the architecture
}

// readNames reads the tables of constants.py and tensor_mapping.py, which are made of one
// entry a line.
func readNames(t *testing.T) names {
	if _, err := os.Stat(sources); os.IsNotExist(err) {
		t.Skipf("%s is not there: make parity, or make bench-peer, fetches llama.cpp's sources", sources)
	}
	read := func(file string) string {
		text, err := os.ReadFile(filepath.Join(sources, "gguf-py/gguf", file))
		require.NoError(t, err)
		return strings.ReplaceAll(string(text), "{bid}", "#")
	}
	table := func(text, name string) string {
		_, rest, ok := strings.Cut(text, name)
		require.True(t, ok, name)
		_, rest, _ = strings.Cut(rest, "{\n")
		body := regexp.MustCompile(`(?m)^ {0,4}\}`).Split(rest, 2)
		return body[0]
	}
	n := names{archs: map[string]string{}, tensors: map[string]string{}, has: map[string][]string{}, folders: map[string][]string{}, byFamily: map[string]map[string][]string{}}
	constants, mapping := read("constants.py"), read("tensor_mapping.py")
	for _, m := range regexp.MustCompile(`MODEL_ARCH\.(\w+): +"([^"]+)"`).FindAllStringSubmatch(table(constants, "MODEL_ARCH_NAMES:"), -1) {
		n.archs[m[2]] = m[1]
	}
	for _, m := range regexp.MustCompile(`MODEL_TENSOR\.(\w+): +"([^"]+)"`).FindAllStringSubmatch(table(constants, "TENSOR_NAMES:"), -1) {
		n.tensors[m[1]] = m[2]
	}
	for _, m := range regexp.MustCompile(`(?s)MODEL_ARCH\.(\w+) *: *\[(.*?)\]`).FindAllStringSubmatch(table(constants, "MODEL_TENSORS:"), -1) {
		for _, tensor := range regexp.MustCompile(`MODEL_TENSOR\.(\w+)`).FindAllStringSubmatch(m[2], -1) {
			n.has[m[1]] = append(n.has[m[1]], n.tensors[tensor[1]])
		}
	}
	entries := func(text string, into map[string][]string) {
		for _, m := range regexp.MustCompile(`(?s)MODEL_TENSOR\.(\w+): +\((.*?)\n +\)`).FindAllStringSubmatch(text, -1) {
			for _, name := range regexp.MustCompile(`(?m)^ *"([^"]+)"`).FindAllStringSubmatch(m[2], -1) {
				into[n.tensors[m[1]]] = append(into[n.tensors[m[1]]], name[1])
			}
		}
	}
	entries(table(mapping, "mappings_cfg:"), n.folders)
	entries(table(mapping, "block_mappings_cfg:"), n.folders)
	own := regexp.MustCompile(`MODEL_ARCH\.(\w+): \{`)
	text := table(mapping, "arch_block_mappings_cfg:")
	for i, at := range own.FindAllStringSubmatchIndex(text, -1) {
		end := len(text)
		if next := own.FindAllStringSubmatchIndex(text, -1); i+1 < len(next) {
			end = next[i+1][0]
		}
		arch := text[at[2]:at[3]]
		n.byFamily[arch] = map[string][]string{}
		entries(text[at[1]:end], n.byFamily[arch])
	}
	_, keys, ok := strings.Cut(constants, "class Keys:")
	require.True(t, ok)
	keys, _, ok = strings.Cut(keys, "class MODEL_ARCH(")
	require.True(t, ok)
	for _, m := range regexp.MustCompile(`= +"\{arch\}\.([^"]+)"`).FindAllStringSubmatch(keys, -1) {
		for _, part := range []string{"dense_2", "dense_3"} {
			n.keys = append(n.keys, strings.ReplaceAll(m[1], "{dense}", part))
		}
	}
	require.Greater(t, len(n.archs), 100)
	require.Greater(t, len(n.tensors), 300)
	require.Greater(t, len(n.has), 100)
	require.Greater(t, len(n.folders), 100)
	require.Greater(t, len(n.keys), 100)
	return n
}

// TestNamesOfLlamaCpp holds every family to what llama.cpp calls its tensors and keys, in both
// forms of files.
func TestNamesOfLlamaCpp(t *testing.T) {
	n := readNames(t)
	layer := regexp.MustCompile(`^blk\.\d+\.`)
	bare := func(name string) string {
		name = layer.ReplaceAllString(name, "blk.#.")
		return strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, ".weight"), ".bias"), ".scale")
	}
	// What the converter does to names before it looks them up.
	renames := strings.NewReplacer("feed_forward.experts.%.w1", "feed_forward.experts.gate_proj", "feed_forward.experts.%.w2", "feed_forward.experts.down_proj",
		"feed_forward.experts.%.w3", "feed_forward.experts.up_proj", "backbone.layers.#.mixer.experts.%.", "model.layers.#.mlp.experts.", "experts.%.", "experts.", ".norms.%", "", "e_score_correction_bias", "e_score_correction", "2_Dense.linear", "dense_2_out", "3_Dense.linear", "dense_3_out", "dt_bias", "dt_proj")
	joined := map[string]string{"blk.#.attn_q": "blk.#.attn_qkv", "blk.#.attn_k": "blk.#.attn_qkv", "blk.#.attn_v": "blk.#.attn_qkv", "blk.#.ffn_gate": "blk.#.ffn_up"}
	for _, f := range families.All() {
		t.Run(f.Name, func(t *testing.T) {
			arch, ok := n.archs[f.Name]
			require.True(t, ok, "llama.cpp knows no such architecture")
			for _, tensor := range synthetic(t, small(f.Name), "f32").Tensors() {
				if tensor.Name != "output.weight" { // which llama.cpp reads of families whose list lacks it
					require.Contains(t, n.has[arch], bare(tensor.Name))
				}
			}
			for _, name := range slices.Sorted(maps.Keys(f.Stored())) {
				tensor := bare(name)
				known := slices.Concat(n.folders[tensor], n.byFamily[arch][tensor], n.folders[joined[tensor]], n.byFamily[arch][joined[tensor]])
				for _, stored := range f.Stored()[name].Names {
					if strings.Contains(stored, ".shared_mlp.input_linear.") || strings.Contains(stored, ".in_proj_qkvz.") {
						continue // Granite's and Qwen3-Next's, which the converter splits by itself
					}
					if strings.HasSuffix(name, ".scale") {
						continue // Gemma 4's factors of experts, which the converter names by itself
					}
					if tensor != "blk.#.attn_norm" && strings.Contains(stored, ".input_layernorm.") {
						continue // folders of Muse Glimmer have no tensors for its constants
					}
					stored = renames.Replace(strings.TrimSuffix(strings.TrimSuffix(stored, ".weight"), ".bias"))
					require.Contains(t, known, stored, name)
				}
			}
			for _, field := range f.Fields {
				if field.GGUF != "" {
					require.Contains(t, n.keys, field.GGUF)
				}
			}
		})
	}
}
