package checkpoint_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/families"
	"github.com/smelt-ml/smelt/models/gguf"
)

// templates are those of some families' models, by their names in ../shared/data/chat/templates.
var templates = map[string]string{
	"qwen3": "Qwen-Qwen3-0.6B", "qwen2": "Qwen-Qwen2.5-7B-Instruct", "llama": "meta-llama-Llama-3.2-3B-Instruct", "gemma2": "google-gemma-2-2b-it",
	"smollm3": "HuggingFaceTB-SmolLM3-3B", "granite": "ibm-granite-granite-3.3-2B-Instruct", "phi3": "microsoft-Phi-3.5-mini-instruct", "seed_oss": "ByteDance-Seed-OSS",
	"mistral3": "mistralai-Ministral-3-14B-Reasoning-2512", "cohere2": "CohereForAI-c4ai-command-r7b-12-2024-tool_use", "command-r": "CohereForAI-c4ai-command-r-plus-tool_use",
	"cohere2moe": "Cohere2MoE", "glm4moe": "GLM-4.6", "deepseek2": "deepseek-ai-DeepSeek-V3.1", "gpt-oss": "openai-gpt-oss-120b", "lfm2moe": "LFM2-8B-A1B", "lfm2": "LFM2.5-Instruct",
	"qwen35": "Qwen3.5-4B", "qwen3next": "Qwen3-Coder",
}

// plainTemplate is that of the others.
const plainTemplate = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"

// verbModels writes a model of a family as a file and, where there are such, as a folder, with the
// vocabulary of tiny-llama and a template.
func verbModels(t *testing.T, dir string, family *models.Family) (names []string) {
	vocabulary, err := gguf.Open(testfiles.Model(t, "tiny-llama/gguf/tiny-llama-F16.gguf"))
	require.NoError(t, err)
	defer vocabulary.Close()
	template := plainTemplate
	own := filepath.Join(testfiles.Root(t), "../shared/data/chat/templates", templates[family.Name]+".jinja")
	if text, err := os.ReadFile(own); err == nil {
		template = string(text)
	}
	c := small(family.Name)
	c.Vocab, c.Context = 512, 4096 // templates are long
	shape := synthetic(t, c, "f32")
	weights := randomWeights(shape)
	f := inFile(shape, family, weights)
	for _, kv := range vocabulary.Metadata {
		if strings.HasPrefix(kv.Key, "tokenizer.") {
			f.set(kv.Key, kv.Value)
		}
	}
	f.set("tokenizer.chat_template", gguf.String(template))
	names = []string{family.Name + "-file"}
	require.NoError(t, gguf.WriteFile(filepath.Join(dir, names[0]+".gguf"), f.metadata, f.tensors))
	if family.HF == "" {
		return names
	}
	names = append(names, family.Name+"-folder")
	to := filepath.Join(dir, names[1])
	require.NoError(t, os.Rename(folder(t, c, weights, nil), to))
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		text, err := os.ReadFile(testfiles.Model(t, "tiny-llama/hf/"+name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(to, name), text, 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(to, "chat_template.jinja"), []byte(template), 0o600))
	return names
}

// TestVerbs: a file and a folder of each family run, chat and are served, by the family's template
// where that is known, and both forms answer the same; encoders embed. In a slice a sixth of them.
func TestVerbs(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "smelt")
	out, err := exec.Command("go", "build", "-o", binary, "../../cmd/smelt").CombinedOutput()
	require.NoError(t, err, "%s", out)
	dir := t.TempDir()
	tool := func(stdin string, args ...string) *exec.Cmd {
		cmd := exec.Command(binary, args...)
		cmd.Dir, cmd.Stdin, cmd.Env, cmd.Stderr = dir, strings.NewReader(stdin), append(os.Environ(), "SMELT_TUNED=off"), new(bytes.Buffer)
		return cmd
	}
	said := func(stdin string, args ...string) string {
		cmd := tool(stdin, args...)
		out, err := cmd.Output()
		require.NoError(t, err, "%v: %s", args, cmd.Stderr)
		return string(out)
	}
	args := []string{"serve", "--addr", "127.0.0.1:0", "--device", "cpu", "--parallel", "1", "--ctx", "2048"}
	var served []string
	for i, family := range families.All() {
		if i%6 != 1 && !testfiles.Full("models") {
			continue
		}
		names := verbModels(t, dir, &family)
		t.Run(family.Name, func(t *testing.T) {
			var answers [2][]string
			for k, name := range names {
				if k == 0 {
					name += ".gguf"
				}
				if family.Encodes {
					answers[k] = []string{said("Once upon a time\n", "embed", name, "--device", "cpu")}
					continue
				}
				answers[k] = []string{
					said("", "run", name, "-p", "Once", "-n", "4", "--ctx", "64", "--device", "cpu"),
					said(`[{"role": "user", "content": "Hi"}]`, "chat", name, "--json", "-n", "2", "--ctx", "2048", "--device", "cpu"),
				}
				require.Contains(t, answers[k][1], `"role":"assistant"`)
				args, served = append(args, name), append(served, names[k])
			}
			if len(names) > 1 && !family.Encodes {
				require.Equal(t, answers[0][0], answers[1][0])
			}
		})
	}
	server := tool("", args...)
	stdout, err := server.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, server.Start())
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() }) // as it was told to
	url, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err, "%s", server.Stderr)
	for _, name := range served {
		answer, err := http.Post(strings.TrimSpace(url)+"/v1/chat/completions", "application/json",
			strings.NewReader(fmt.Sprintf(`{"model": %q, "max_tokens": 2, "messages": [{"role": "user", "content": "Hi"}]}`, name)))
		require.NoError(t, err)
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusOK, answer.StatusCode, "%s: %s", name, text)
	}
}
