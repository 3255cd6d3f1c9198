// Package families holds the model families: a file for each, with everything that is specific to
// it, and a row in the table below.
package families

import (
	"slices"
	"strings"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/models"
)

// families lists every family.
var families = []models.Family{
	llamaFamily, qwen3Family, qwen2Family, qwen2vlFamily, qwen3vlFamily, mistral3Family, gemma2Family, gemma3Family, gemma4Family, smollm3Family, olmo2Family, graniteFamily,
	starcoder2Family, phi2Family, stablelmFamily, commandRFamily, cohere2Family, exaone4Family, ernie45Family, phi3Family, glm4Family, arceeFamily, seedossFamily, gemmaFamily, minicpmFamily, minicpm3Family, hunyuanDenseFamily, museGlimmerFamily,
	gpt2Family, gptneoxFamily, mptFamily, bertFamily, nomicBertFamily, gemmaEmbeddingFamily,
	qwen3moeFamily, qwen3vlmoeFamily, qwen2moeFamily, olmoeFamily, gptossFamily, granitemoeFamily, phimoeFamily, ernie45moeFamily, bailingmoe2Family, minimaxm2Family, afmoeFamily, cohere2moeFamily, lagunaFamily, deepseek2Family, glm4moeFamily, lfm2Family, lfm2moeFamily, qwen35Family, qwen35moeFamily, qwen3nextFamily,
	mamba2Family, graniteHybridFamily, falconH1Family, nemotronHFamily, nemotronHMoEFamily, plamo2Family,
}

// All returns every family.
func All() []models.Family { return slices.Clone(families) }

// ByName returns the family of a general.architecture; errors call the entry field.
func ByName(field, name string) (*models.Family, error) {
	return find(field, name, func(f *models.Family) string { return f.Name })
}

// refused are classes of folders that cannot be what GGUF files of the same models are: the publisher's
// and that of transformers.
var refused = map[string]string{"PhiMoEForCausalLM": sparseMixer, "PhimoeForCausalLM": sparseMixer}

const sparseMixer = "LayerNorm and the router SparseMixer are not supported, and GGUF files of these models have neither"

// ByClass returns the family of a class in config.json's architectures; errors call the entry
// field.
func ByClass(field, class string) (*models.Family, error) {
	if why, ok := refused[class]; ok {
		return nil, models.ConfigError("%s is %q: %s", field, class, why)
	}
	return find(field, class, func(f *models.Family) string { return f.HF })
}

// find returns the family of a name, or an error that lists the known names.
func find(field, name string, nameOf func(*models.Family) string) (*models.Family, error) {
	var known []string
	for i := range families {
		f := &families[i]
		if nameOf(f) == name || slices.Contains(f.Alias, name) {
			return f, nil
		}
		known = append(known, nameOf(f))
	}
	return nil, models.ConfigError("%s is %q; known are %s", field, name, strings.Join(lo.Compact(known), ", "))
}
