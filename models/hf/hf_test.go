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
	return []byte(`{"model_type":"llama","hidden_size":64,"num_hidden_layers":2,"num_attention_heads":8,"intermediate_size":172,"vocab_size":512` + extra + `}`)
}

func TestTrainedModels(t *testing.T) {
	for name, want := range map[string]Config{
		"tiny-llama": {
			Architectures: []string{"LlamaForCausalLM"}, ModelType: "llama", HiddenSize: 256, NumHiddenLayers: 3,
			NumAttentionHeads: 8, NumKeyValueHeads: 2, HeadDim: 32, IntermediateSize: 768, VocabSize: 512,
			MaxPositionEmbeddings: 512, RMSNormEps: 1e-5, RopeTheta: 10000, PartialRotaryFactor: 1, HiddenAct: "silu", TorchDType: "bfloat16",
			BOSTokenIDs: []int{1}, EOSTokenIDs: []int{2},
			Generation: Generation{BOSTokenIDs: []int{1}, EOSTokenIDs: []int{2}},
		},
		"tiny-qwen3": {
			Architectures: []string{"Qwen3ForCausalLM"}, ModelType: "qwen3", HiddenSize: 256, NumHiddenLayers: 4,
			NumAttentionHeads: 4, NumKeyValueHeads: 2, HeadDim: 64, IntermediateSize: 768, VocabSize: 1024,
			MaxPositionEmbeddings: 512, RMSNormEps: 1e-6, RopeTheta: 1e6, PartialRotaryFactor: 1, HiddenAct: "silu", TorchDType: "bfloat16",
			TieWordEmbeddings: true, BOSTokenIDs: []int{1021}, EOSTokenIDs: []int{1023},
			Generation: Generation{BOSTokenIDs: []int{1021}, EOSTokenIDs: []int{1023, 1021}, PadTokenIDs: []int{1021}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Load(filepath.Dir(testfiles.Model(t, name+"/hf/config.json")))
			require.NoError(t, err)
			require.Equal(t, &want, got)
			require.Equal(t, want.Generation.EOSTokenIDs, got.StopTokenIDs())
		})
	}
}

func TestDefaults(t *testing.T) {
	c, err := ParseConfig(minimal(`,"rope_scaling":null,"sliding_window":null,"head_dim":null`), "config.json")
	require.NoError(t, err)
	require.Equal(t, &Config{
		ModelType: "llama", HiddenSize: 64, NumHiddenLayers: 2, NumAttentionHeads: 8, NumKeyValueHeads: 8, HeadDim: 8,
		IntermediateSize: 172, VocabSize: 512, MaxPositionEmbeddings: 2048, RMSNormEps: 1e-6, RopeTheta: 10000, PartialRotaryFactor: 1, HiddenAct: "silu",
	}, c)
	c, err = ParseConfig([]byte(strings.Replace(string(minimal("")), "llama", "qwen3", 1)), "config.json")
	require.NoError(t, err)
	require.Equal(t, 128, c.HeadDim)
	require.Nil(t, c.StopTokenIDs())
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
		"window":            {`,"sliding_window":4096`, func(t *testing.T, c *Config) { require.True(t, c.UseSlidingWindow) }},
		"window not used": {`,"sliding_window":4096,"use_sliding_window":false`, func(t *testing.T, c *Config) {
			require.False(t, c.UseSlidingWindow)
			require.Equal(t, 4096, c.SlidingWindow)
		}},
		"linear": {`,"rope_scaling":{"type":"linear","factor":8}`, func(t *testing.T, c *Config) {
			require.Equal(t, "linear", c.RopeScaling.Kind)
			x, err := c.RopeScaling.Number("factor")
			require.NoError(t, err)
			require.Equal(t, 8.0, x)
		}},
		"llama3": {`,"rope_theta":500000.0,"rope_scaling":{"factor":32.0,"high_freq_factor":4.0,"low_freq_factor":1.0,"original_max_position_embeddings":8192,"rope_type":"llama3"}`, func(t *testing.T, c *Config) {
			require.Equal(t, 500000.0, c.RopeTheta)
			require.Equal(t, "llama3", c.RopeScaling.Kind)
			require.Equal(t, map[string]float64{"factor": 32, "high_freq_factor": 4, "low_freq_factor": 1, "original_max_position_embeddings": 8192}, c.RopeScaling.Numbers)
		}},
		"transformers 5": {`,"rope_parameters":{"rope_theta":1000000,"rope_type":"yarn","factor":4.0,"attention_factor":null}`, func(t *testing.T, c *Config) {
			require.Equal(t, 1e6, c.RopeTheta)
			require.Equal(t, "yarn", c.RopeScaling.Kind)
			require.Equal(t, map[string]float64{"factor": 4}, c.RopeScaling.Numbers)
		}},
		"transformers 5, not scaled": {`,"rope_parameters":{"rope_theta":1000000,"rope_type":"default"}`, func(t *testing.T, c *Config) {
			require.Equal(t, 1e6, c.RopeTheta)
			require.Nil(t, c.RopeScaling)
		}},
		"both forms": {`,"rope_theta":1,"rope_scaling":{"type":"linear","factor":2},"rope_parameters":{"rope_theta":5,"rope_type":"linear","factor":3}`, func(t *testing.T, c *Config) {
			require.Equal(t, 5.0, c.RopeTheta)
			require.Equal(t, 3.0, c.RopeScaling.Numbers["factor"])
		}},
		"unknown kind is kept": {`,"rope_scaling":{"rope_type":"longrope","short_factor":[1,2]}`, func(t *testing.T, c *Config) {
			require.Equal(t, "longrope", c.RopeScaling.Kind)
			require.Contains(t, string(c.RopeScaling.Raw), "short_factor")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := ParseConfig(minimal(c.extra), "config.json")
			require.NoError(t, err)
			c.check(t, config)
		})
	}
}

func TestErrors(t *testing.T) {
	drop := func(field string) []byte {
		return []byte(strings.Replace(string(minimal("")), `"`+field+`"`, `"was_`+field+`"`, 1))
	}
	for name, c := range map[string]struct {
		text        []byte
		field, want string
	}{
		"no sizes":        {[]byte(`{}`), "hidden_size", "missing"},
		"no layers":       {drop("num_hidden_layers"), "num_hidden_layers", "missing"},
		"no type":         {drop("model_type"), "model_type", "missing"},
		"string":          {minimal(`,"head_dim":"64"`), "head_dim", `"64" is not an integer`},
		"fraction":        {minimal(`,"head_dim":64.5`), "head_dim", `64.5 is not an integer`},
		"zero":            {minimal(`,"head_dim":0`), "head_dim", "0 is not a positive integer"},
		"huge":            {minimal(`,"head_dim":99999999999`), "head_dim", "not a positive integer of 32 bits"},
		"odd":             {minimal(`,"head_dim":33`), "head_dim", "33 is odd"},
		"kv heads":        {minimal(`,"num_key_value_heads":3`), "num_key_value_heads", "8 heads are not a multiple of 3"},
		"many kv heads":   {minimal(`,"num_key_value_heads":16`), "num_key_value_heads", "8 heads are not a multiple of 16"},
		"no head size":    {minimal(`,"num_attention_heads":7`), "head_dim", "hidden_size 64 is not a multiple of 7 heads"},
		"flag":            {minimal(`,"mlp_bias":1`), "mlp_bias", "1 is not true or false"},
		"eps":             {minimal(`,"rms_norm_eps":"1e-5"`), "rms_norm_eps", "not a number"},
		"negative":        {minimal(`,"rope_theta":-1`), "rope_theta", "-1 is not positive"},
		"activation":      {minimal(`,"hidden_act":7`), "hidden_act", "7 is not a string"},
		"architectures":   {minimal(`,"architectures":"x"`), "architectures", `"x" is not a list of strings`},
		"token id":        {minimal(`,"eos_token_id":"</s>"`), "eos_token_id", `"</s>" is not a token id or a list of them`},
		"token ids":       {minimal(`,"eos_token_id":[1,null]`), "eos_token_id", "is not a token id or a list of them"},
		"negative id":     {minimal(`,"bos_token_id":-1`), "bos_token_id", "-1 is not a token id"},
		"window":          {minimal(`,"use_sliding_window":true`), "sliding_window", "missing, but use_sliding_window is true"},
		"rope":            {minimal(`,"rope_scaling":[]`), "rope_scaling", "[] is not an object"},
		"rope kind":       {minimal(`,"rope_scaling":{"factor":2}`), "rope_scaling.rope_type", "missing"},
		"rope kind type":  {minimal(`,"rope_scaling":{"type":2}`), "rope_scaling.type", "2 is not a string"},
		"rope theta":      {minimal(`,"rope_parameters":{"rope_theta":"x"}`), "rope_parameters.rope_theta", "not a number"},
		"rope by layer":   {minimal(`,"rope_parameters":{"full_attention":{"rope_type":"default"}}`), "rope_parameters.full_attention", "not supported"},
		"long values cut": {minimal(`,"hidden_act":[` + strings.Repeat(`"x",`, 99) + `"x"]`), "hidden_act", "… is not a string"},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := ParseConfig(c.text, "dir/config.json")
			require.Nil(t, config)
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
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := ParseConfig(text, "fuzz.json")
		if err != nil {
			require.ErrorContains(t, err, "fuzz.json")
			return
		}
		require.Positive(t, c.HeadDim)
		require.Zero(t, c.NumAttentionHeads%c.NumKeyValueHeads)
		for _, n := range []int{c.HiddenSize, c.NumHiddenLayers, c.IntermediateSize, c.VocabSize, c.MaxPositionEmbeddings} {
			require.Positive(t, n)
		}
		require.Positive(t, c.RMSNormEps)
		require.Positive(t, c.RopeTheta)
	})
}

func ExampleParseConfig() {
	_, err := ParseConfig([]byte(`{"model_type": "qwen3", "hidden_size": "1024"}`), "config.json")
	fmt.Println(err)
	var field *FieldError
	fmt.Println(errors.As(err, &field), field.Field)
	// Output:
	// config.json: hidden_size: "1024" is not an integer
	// true hidden_size
}
