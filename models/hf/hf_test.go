package hf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/testfiles"
)

// minimal is a config.json with nothing but what is required, and extra members.
func minimal(extra string) []byte {
	return []byte(`{"model_type":"llama","hidden_size":64` + extra + `}`)
}

func TestTrainedModels(t *testing.T) {
	for name, want := range map[string]Config{
		"tiny-llama": {
			Architectures: []string{"LlamaForCausalLM"}, ModelType: "llama", TorchDType: "bfloat16",
			BOSTokenIDs: []int{1}, EOSTokenIDs: []int{2},
			Generation: Generation{BOSTokenIDs: []int{1}, EOSTokenIDs: []int{2}},
		},
		"tiny-qwen3": {
			Architectures: []string{"Qwen3ForCausalLM"}, ModelType: "qwen3", TorchDType: "bfloat16",
			BOSTokenIDs: []int{1021}, EOSTokenIDs: []int{1023},
			Generation: Generation{BOSTokenIDs: []int{1021}, EOSTokenIDs: []int{1023, 1021}, PadTokenIDs: []int{1021}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Load(filepath.Dir(testfiles.Model(t, name+"/hf/config.json")))
			require.NoError(t, err)
			require.Equal(t, want.Generation.EOSTokenIDs, got.StopTokenIDs())
			require.Equal(t, 256, got.Size("hidden_size", 0))
			require.Equal(t, "silu", got.Text("hidden_act"))
			require.Equal(t, name == "tiny-qwen3", got.Flag("tie_word_embeddings"))
			require.Nil(t, got.Rope().Scaling)
			require.NoError(t, got.Err())
			want.members = got.members
			require.Equal(t, &want, got)
		})
	}
}

func TestLists(t *testing.T) {
	c, err := ParseConfig(minimal(`,"layer_types":["a","b"],"no_rope_layers":[1,0]`), "config.json")
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, c.Texts("layer_types"))
	require.Equal(t, []int{1, 0}, c.Sizes("no_rope_layers"))
	require.Nil(t, c.Texts("absent"))
	require.Nil(t, c.Sizes("absent"))
	require.NoError(t, c.Err())
	for text, want := range map[string]string{
		`,"list":[1]`:    `config.json: list: [1] is not a list of strings`,
		`,"list":"abc"`:  `config.json: list: "abc" is not a list of strings`,
		`,"sizes":[1.5]`: `config.json: sizes: [1.5] is not a list of integers`,
		`,"sizes":[-1]`:  `config.json: sizes: [-1] has a negative element`,
	} {
		c, err := ParseConfig(minimal(text), "config.json")
		require.NoError(t, err)
		c.Texts("list")
		c.Sizes("sizes")
		require.EqualError(t, c.Err(), want)
	}
}

func TestAbsent(t *testing.T) {
	c, err := ParseConfig(minimal(`,"rope_scaling":null,"sliding_window":null,"head_dim":null`), "config.json")
	require.NoError(t, err)
	require.False(t, c.Has("head_dim"))
	require.True(t, c.Has("hidden_size"))
	require.Equal(t, 128, c.Size("head_dim", 128))
	require.InDelta(t, 1e-6, c.Number("rms_norm_eps", 1e-6), 0)
	require.False(t, c.Flag("attention_bias"))
	require.Empty(t, c.Text("hidden_act"))
	require.Equal(t, Rope{Theta: 10000, PartialRotaryFactor: 1}, c.Rope())
	require.Nil(t, c.StopTokenIDs())
	require.NoError(t, c.Err())
	c.Size("head_dim", 0)
	c.Number("rms_norm_eps", 0) // the first error stays
	require.ErrorIs(t, c.Err(), ErrMissing)
	require.EqualError(t, c.Err(), "config.json: head_dim: missing")
}

func TestVariants(t *testing.T) {
	for name, c := range map[string]struct {
		extra string
		check func(*testing.T, *Config)
	}{
		"several ends": {`,"eos_token_id":[128001,128008]`, func(t *testing.T, c *Config) {
			require.Equal(t, []int{128001, 128008}, c.StopTokenIDs())
		}},
		"new name of dtype": {`,"dtype":"float16"`, func(t *testing.T, c *Config) { require.Equal(t, "float16", c.TorchDType) }},
		"linear": {`,"rope_scaling":{"type":"linear","factor":8}`, func(t *testing.T, c *Config) {
			require.Equal(t, "linear", c.Rope().Scaling.Kind)
			x, err := c.Rope().Scaling.Number("factor")
			require.NoError(t, err)
			require.Equal(t, 8.0, x)
		}},
		"llama3": {`,"rope_theta":500000.0,"rope_scaling":{"factor":32.0,"high_freq_factor":4.0,"low_freq_factor":1.0,"original_max_position_embeddings":8192,"rope_type":"llama3"}`, func(t *testing.T, c *Config) {
			require.Equal(t, 500000.0, c.Rope().Theta)
			require.Equal(t, "llama3", c.Rope().Scaling.Kind)
			require.Equal(t, map[string]float64{"factor": 32, "high_freq_factor": 4, "low_freq_factor": 1, "original_max_position_embeddings": 8192}, c.Rope().Scaling.Numbers)
		}},
		"transformers 5": {`,"rope_parameters":{"rope_theta":1000000,"rope_type":"yarn","factor":4.0,"attention_factor":null}`, func(t *testing.T, c *Config) {
			require.Equal(t, 1e6, c.Rope().Theta)
			require.Equal(t, "yarn", c.Rope().Scaling.Kind)
			require.Equal(t, map[string]float64{"factor": 4}, c.Rope().Scaling.Numbers)
		}},
		"transformers 5, not scaled": {`,"rope_parameters":{"rope_theta":1000000,"rope_type":"default"}`, func(t *testing.T, c *Config) {
			require.Equal(t, 1e6, c.Rope().Theta)
			require.Nil(t, c.Rope().Scaling)
		}},
		"sections": {`,"rope_scaling":{"mrope_interleaved":true,"mrope_section":[24,20,20],"rope_type":"default"}`, func(t *testing.T, c *Config) {
			require.Equal(t, []int{24, 20, 20}, c.Rope().Sections)
			require.Nil(t, c.Rope().Scaling)
		}},
		"both forms": {`,"rope_theta":1,"rope_scaling":{"type":"linear","factor":2},"rope_parameters":{"rope_theta":5,"rope_type":"linear","factor":3}`, func(t *testing.T, c *Config) {
			require.Equal(t, 5.0, c.Rope().Theta)
			require.Equal(t, 3.0, c.Rope().Scaling.Numbers["factor"])
		}},
		"no JSON": {`,"time_step_limit":[0.0, Infinity],"more":[-Infinity,NaN],"hidden_act":"NaN \" Infinity","initializer_range":NaN`, func(t *testing.T, c *Config) {
			require.Equal(t, `NaN " Infinity`, c.Text("hidden_act"))
			require.Equal(t, []string{"-Infinity", "NaN"}, c.Texts("more"))
			require.True(t, c.Has("time_step_limit"))
		}},
		"unknown kind is kept": {`,"rope_scaling":{"rope_type":"longrope","short_factor":[1,2]}`, func(t *testing.T, c *Config) {
			require.Equal(t, "longrope", c.Rope().Scaling.Kind)
			require.Contains(t, string(c.Rope().Scaling.Raw), "short_factor")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := ParseConfig(minimal(c.extra), "config.json")
			require.NoError(t, err)
			c.check(t, config)
			require.NoError(t, config.Err())
		})
	}
}

// readAll asks for a member of each kind.
func readAll(c *Config) {
	c.Size("hidden_size", 0)
	c.Size("head_dim", 1)
	c.Number("rms_norm_eps", 1e-6)
	c.Flag("mlp_bias")
	c.Text("hidden_act")
	c.Rope()
}

func TestErrors(t *testing.T) {
	for name, c := range map[string]struct {
		text        []byte
		field, want string
	}{
		"no type":         {[]byte(`{}`), "model_type", "missing"},
		"no size":         {[]byte(`{"model_type":"llama"}`), "hidden_size", "missing"},
		"string":          {minimal(`,"head_dim":"64"`), "head_dim", `"64" is not an integer`},
		"fraction":        {minimal(`,"head_dim":64.5`), "head_dim", `64.5 is not an integer`},
		"zero":            {minimal(`,"head_dim":0`), "head_dim", "0 is not a positive integer"},
		"huge":            {minimal(`,"head_dim":99999999999`), "head_dim", "not a positive integer of 32 bits"},
		"flag":            {minimal(`,"mlp_bias":1`), "mlp_bias", "1 is not true or false"},
		"eps":             {minimal(`,"rms_norm_eps":"1e-5"`), "rms_norm_eps", "not a number"},
		"negative":        {minimal(`,"rope_theta":-1`), "rope_theta", "-1 is not positive"},
		"text":            {minimal(`,"hidden_act":7`), "hidden_act", "7 is not a string"},
		"architectures":   {minimal(`,"architectures":"x"`), "architectures", `"x" is not a list of strings`},
		"token id":        {minimal(`,"eos_token_id":"</s>"`), "eos_token_id", `"</s>" is not a token id or a list of them`},
		"token ids":       {minimal(`,"eos_token_id":[1,null]`), "eos_token_id", "is not a token id or a list of them"},
		"negative id":     {minimal(`,"bos_token_id":-1`), "bos_token_id", "-1 is not a token id"},
		"rope":            {minimal(`,"rope_scaling":[]`), "rope_scaling", "[] is not an object"},
		"rope kind":       {minimal(`,"rope_scaling":{"factor":2}`), "rope_scaling.rope_type", "missing"},
		"rope kind type":  {minimal(`,"rope_scaling":{"type":2}`), "rope_scaling.type", "2 is not a string"},
		"rope theta":      {minimal(`,"rope_parameters":{"rope_theta":"x"}`), "rope_parameters.rope_theta", "not a number"},
		"rope by layer":   {minimal(`,"rope_parameters":{"full_attention":{"rope_type":"default"}}`), "rope_parameters.full_attention", "not supported"},
		"infinity":        {minimal(`,"rms_norm_eps":-Infinity`), "rms_norm_eps", "is not a number"},
		"infinite rope":   {minimal(`,"rope_scaling":{"type":"yarn","factor":2,"attention_factor":NaN}`), "rope_scaling.attention_factor", "is not a number"},
		"long values cut": {minimal(`,"hidden_act":[` + strings.Repeat(`"x",`, 99) + `"x"]`), "hidden_act", "… is not a string"},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := ParseConfig(c.text, "dir/config.json")
			if err == nil {
				readAll(config)
				err = config.Err()
			}
			var field *FieldError
			require.ErrorAs(t, err, &field)
			require.Equal(t, "dir/config.json", field.File)
			require.Equal(t, c.field, field.Field)
			require.ErrorContains(t, err, c.want)
		})
	}
	for _, text := range []string{"", "null", "[]", "{", "7"} {
		_, err := ParseConfig([]byte(text), "config.json")
		require.ErrorContains(t, err, "config.json: not a JSON object", "%q", text)
		_, err = ParseGeneration([]byte(text), "generation_config.json")
		require.ErrorContains(t, err, "generation_config.json: not a JSON object", "%q", text)
	}
	_, err := ParseGeneration([]byte(`{"eos_token_id":{}}`), "g.json")
	require.ErrorContains(t, err, "g.json: eos_token_id: {} is not a token id")

	r := &RopeScaling{Kind: "linear", Numbers: map[string]float64{"low": -1}, file: "c.json", field: "rope_scaling"}
	_, err = r.Number("factor")
	require.ErrorIs(t, err, ErrMissing)
	require.EqualError(t, err, `c.json: rope_scaling.factor: missing; kind "linear" needs it`)
	_, err = r.Number("low")
	require.EqualError(t, err, "c.json: rope_scaling.low: -1 is not positive")
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	_, err := Load(dir)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(filepath.Join(dir, configName), minimal(`,"eos_token_id":7`), 0o600))
	c, err := Load(dir)
	require.NoError(t, err)
	require.Equal(t, []int{7}, c.StopTokenIDs())
	require.NoError(t, os.WriteFile(filepath.Join(dir, generationName), []byte(`{"eos_token_id":[8,9]}`), 0o600))
	c, err = Load(dir)
	require.NoError(t, err)
	require.Equal(t, []int{8, 9}, c.StopTokenIDs())
	require.NoError(t, os.WriteFile(filepath.Join(dir, generationName), []byte(`{"eos_token_id":[8,"9"]}`), 0o600))
	_, err = Load(dir)
	require.ErrorContains(t, err, generationName+": eos_token_id")
	require.NoError(t, os.Truncate(filepath.Join(dir, configName), maxFile+1))
	_, err = Load(dir)
	require.ErrorContains(t, err, "more than")
}

func FuzzParseConfig(f *testing.F) {
	f.Add(minimal(""))
	f.Add(minimal(`,"eos_token_id":[1,2],"rope_scaling":{"type":"linear","factor":2}`))
	f.Add(minimal(`,"rope_parameters":{"rope_theta":5,"rope_type":"llama3","factor":3},"sliding_window":4`))
	f.Add([]byte(`{"hidden_size":1,"num_attention_heads":0}`))
	f.Add(minimal(`,"quantization":{"group_size":64,"bits":4,"lm_head":false,"x":{"group_size":32,"bits":8},"y":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := ParseConfig(text, "fuzz.json")
		if err != nil {
			require.ErrorContains(t, err, "fuzz.json")
			return
		}
		readAll(c)
		if c.Err() != nil {
			require.ErrorContains(t, c.Err(), "fuzz.json")
			return
		}
		if q, err := c.Quantization(); err != nil {
			require.ErrorContains(t, err, "fuzz.json")
		} else if q != nil {
			require.Positive(t, q.Bits)
			require.Same(t, q, q.Of("no such module"))
		}
		require.Positive(t, c.Size("hidden_size", 0))
		require.Positive(t, c.Number("rms_norm_eps", 1e-6))
		require.Positive(t, c.Rope().Theta)
	})
}

func ExampleParseConfig() {
	c, err := ParseConfig([]byte(`{"model_type": "qwen3", "hidden_size": "1024"}`), "config.json")
	fmt.Println(err)
	c.Size("hidden_size", 0)
	fmt.Println(c.Err())
	var field *FieldError
	fmt.Println(errors.As(c.Err(), &field), field.Field)
	// Output:
	// <nil>
	// config.json: hidden_size: "1024" is not an integer
	// true hidden_size
}

// FuzzModules reads damaged lists of modules and what a module says of itself: no path leaves the
// folder, and what is not refused has a kind and its extents.
func FuzzModules(f *testing.F) {
	list := `[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
		{"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
		{"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"}]`
	f.Add([]byte(list), []byte(`{"word_embedding_dimension": 8, "pooling_mode_mean_tokens": true}`))
	f.Add([]byte(list), []byte(`{"in_features": 8, "out_features": 4, "bias": false, "activation_function": "torch.nn.modules.linear.Identity"}`))
	f.Add([]byte(`[{"type": "Pooling", "path": "../other"}]`), []byte(`{"pooling_mode": "lasttoken", "pooling_mode_cls_token": true}`))
	f.Fuzz(func(t *testing.T, text, config []byte) {
		modules, err := parseModules(text, "fuzz.json")
		if err != nil {
			require.ErrorContains(t, err, "fuzz.json")
			return
		}
		for _, m := range modules {
			require.True(t, m.Path == "" || filepath.IsLocal(m.Path), m.Path)
			require.NotContains(t, m.Kind, ".")
			for _, kind := range []string{m.Kind, "Dense", "Pooling"} {
				own := Module{Kind: kind}
				if err := own.describe(config, "config.json"); err != nil {
					require.ErrorContains(t, err, "config.json")
				} else if kind == "Dense" {
					require.Positive(t, own.In)
					require.Positive(t, own.Out)
				} else if kind == "Pooling" {
					require.Contains(t, []string{"mean", "cls", "last"}, own.Pooling)
				}
			}
		}
	})
}
