package checkpoint_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/samber/lo"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/models/checkpoint"
)

// writeModules lists the modules of a folder, each as "kind:path".
func writeModules(t testing.TB, dir string, modules ...string) {
	text, err := json.Marshal(lo.Map(modules, func(m string, i int) map[string]any {
		kind, path, _ := strings.Cut(m, ":")
		return map[string]any{"idx": i, "name": kind, "path": path, "type": "sentence_transformers.models." + kind}
	}))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "modules.json"), text, 0o644))
}

// writeModule writes the config.json of a module.
func writeModule(t testing.TB, dir, module, config string) {
	require.NoError(t, os.MkdirAll(filepath.Join(dir, module), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, module, "config.json"), []byte(config), 0o644))
}

// TestModules reads what sentence-transformers put behind a model.
func TestModules(t *testing.T) {
	c := small("bert")
	weights := randomWeights(synthetic(t, c, "f32"))
	for config, want := range map[string]string{
		`{"pooling_mode_cls_token":true,"pooling_mode_mean_tokens":false}`: "cls",
		`{"pooling_mode_mean_tokens":true,"word_embedding_dimension":32}`:  "mean",
		`{"pooling_mode_lasttoken":true}`:                                  "last",
		`{"pooling_mode":"lasttoken"}`:                                     "last",
	} {
		dir := folder(t, c, weights, nil)
		writeModules(t, dir, "Transformer:", "Pooling:1_Pooling", "Normalize:2_Normalize")
		writeModule(t, dir, "1_Pooling", config)
		require.Equal(t, want, open(t, dir).Config.Pooling, config)
	}
	for name, want := range map[string]struct {
		modules []string
		config  string
		fails   string
	}{
		"maximum":      {[]string{"Pooling:m"}, `{"pooling_mode_max_tokens":true}`, "config.json: pooling_mode_max_tokens: only one of the mean, the first and the last token"},
		"two":          {[]string{"Pooling:m"}, `{"pooling_mode_cls_token":true,"pooling_mode_mean_tokens":true}`, "config.json: pooling_mode_cls_token: only one"},
		"none":         {[]string{"Pooling:m"}, `{}`, "config.json: pooling_mode: missing"},
		"outside":      {[]string{"Pooling:../m"}, `{}`, `modules.json: the path "../m" leaves the folder`},
		"unknown":      {[]string{"WeightedLayerPooling:m"}, `{}`, `modules.json has a module of the unsupported kind "WeightedLayerPooling"`},
		"activated":    {[]string{"Dense:m"}, `{"in_features":48,"out_features":8,"activation_function":"torch.nn.modules.activation.Tanh"}`, `activation_function: "torch.nn.modules.activation.Tanh" is not supported`},
		"biased":       {[]string{"Dense:m"}, `{"in_features":48,"out_features":8,"bias":true}`, "bias: true; biases are not supported"},
		"one product":  {[]string{"Dense:m"}, `{"in_features":48,"out_features":8}`, "modules.json has dense layers of widths [48 8]"},
		"other widths": {[]string{"Dense:m"}, `{"in_features":31,"out_features":8}`, "m takes 31 elements, the module before it returns 48"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t, c, weights, nil)
			writeModules(t, dir, append([]string{"Transformer:"}, want.modules...)...)
			writeModule(t, dir, "m", want.config)
			_, err := checkpoint.Open(dir)
			require.ErrorContains(t, err, dir)
			require.ErrorContains(t, err, want.fails)
		})
	}
}
