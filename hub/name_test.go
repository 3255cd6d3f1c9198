package hub

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	h := &Hub{Endpoint: "http://127.0.0.1:9/hf"}
	for text, want := range map[string]Name{
		"org/name":                                   {Repo: "org/name"},
		"Qwen/Qwen3-0.6B":                            {Repo: "Qwen/Qwen3-0.6B"},
		"org/name:Q4_K_M":                            {Repo: "org/name", Type: "Q4_K_M"},
		"org/name:UD-Q4_K_XL":                        {Repo: "org/name", Type: "UD-Q4_K_XL"},
		"org/name@v1":                                {Repo: "org/name", Revision: "v1"},
		"org/name@v1:q8_0":                           {Repo: "org/name", Revision: "v1", Type: "q8_0"},
		"org/name@refs/pr/12":                        {Repo: "org/name", Revision: "refs/pr/12"},
		"org/name@refs/pr/12:q8_0":                   {Repo: "org/name", Revision: "refs/pr/12", Type: "q8_0"},
		"org/name@refs/pr/12/a.gguf":                 {Repo: "org/name", Revision: "refs/pr/12", File: "a.gguf"},
		"org/name@feature%2Fx/d/a.gguf":              {Repo: "org/name", Revision: "feature/x", File: "d/a.gguf"},
		"org/name/a b.gguf":                          {Repo: "org/name", File: "a b.gguf"},
		"hf:org/name":                                {Repo: "org/name"},
		"hf:org/name.gguf":                           {Repo: "org/name.gguf"},
		"hf://org/name@v1/a.gguf":                    {Repo: "org/name", Revision: "v1", File: "a.gguf"},
		"hf://models/org/name":                       {Repo: "org/name"},
		"hf.co/org/name:Q4_0":                        {Repo: "org/name", Type: "Q4_0"},
		"huggingface.co/org/name":                    {Repo: "org/name"},
		"https://huggingface.co/org/name":            {Repo: "org/name"},
		"https://huggingface.co/org/name/":           {Repo: "org/name"},
		"https://hf.co/org/name/tree/v1":             {Repo: "org/name", Revision: "v1"},
		"https://hf.co/org/name/tree/refs%2Fpr%2F3":  {Repo: "org/name", Revision: "refs/pr/3"},
		"https://hf.co/org/name/blob/refs/pr/3/a.gg": {Repo: "org/name", Revision: "refs/pr/3", File: "a.gg"},
		"https://huggingface.co/org/name/resolve/main/d/a%20b.gguf?download=true": {Repo: "org/name", File: "d/a b.gguf"},
		"http://127.0.0.1:9/hf/org/name/blob/v2/a.gguf#L1":                        {Repo: "org/name", Revision: "v2", File: "a.gguf"},
		"http://127.0.0.1:9/hf/other/a.gguf":                                      {URL: "http://127.0.0.1:9/hf/other/a.gguf"},
		"http://127.0.0.1:9/elsewhere/a.gguf":                                     {URL: "http://127.0.0.1:9/elsewhere/a.gguf"},
		"https://example.com/models/a.gguf?x=1#frag":                              {URL: "https://example.com/models/a.gguf?x=1"},
	} {
		got, err := h.Parse(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
		again, err := h.Parse(prefixed(got))
		require.NoError(t, err, text)
		require.Equal(t, got, again, text)
	}
	for text, why := range map[string]string{
		"":                                "org/name",
		"name":                            "org/name",
		"org/":                            "is not org/name",
		"/etc/passwd":                     "is not org/name",
		"../a/b":                          "is not org/name",
		"./a/b":                           "is not org/name",
		"~/a":                             "is not org/name",
		"org/na me":                       "is not org/name",
		"org/..":                          "is not org/name",
		"or..g/name":                      "no repository has",
		"org/na--me":                      "no repository has",
		"org/name.git":                    "no repository has",
		"models/a.gguf":                   "ends like a file",
		"plans/a.plan":                    "ends like a file",
		"org/name/../../x.gguf":           "is not the path",
		"org/name//x.gguf":                "is not the path",
		"org/name/":                       "is not the path",
		"org/name/a\\b.gguf":              "is not the path",
		"org/name@":                       "is not a branch",
		"org/name@../x":                   "is not a branch",
		"org/name@a%2F..%2Fb":             "is not a branch",
		"org/name@%zz":                    "invalid URL escape",
		"org/name:":                       "is not a type",
		"org/name:Q4/x":                   "is not a type",
		"org/name:Q4@v1":                  "precedes the type",
		"org/name\n":                      "control",
		"hf://datasets/org/name":          "datasets are not models",
		"o/n/" + strings.Repeat("n", 256): "longer than 255",
		"org/" + strings.Repeat("n", 100): "longer than 96",
		"https://hf.co/org/name/resolve/main/..%2F..%2Fx": "is not the path",
		"https://hf.co/org/name/tree/main/dir":            "folder",
		"https://example.com":                             "does not end with a file name",
		"https://example.com/":                            "does not end with a file name",
		"https://example.com/..":                          "does not end with a file name",
		"https:///a.gguf":                                 "no host",
		"http://[::1/a.gguf":                              "missing ']'",
	} {
		_, err := h.Parse(text)
		require.ErrorIs(t, err, ErrName, text)
		require.ErrorContains(t, err, why, text)
	}
}

// prefixed is a name in a form that cannot be taken for that of a file.
func prefixed(n Name) string {
	if n.URL != "" {
		return n.URL
	}
	return "hf:" + n.String()
}

// FuzzParse: what is read is safe as the name of files and is written as it is read.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"org/name", "org/name@v1:Q4_K_M", "org/name@refs/pr/1/d/a.gguf", "hf://models/o/n", "hf.co/o/n:x", "https://hf.co/o/n/resolve/m%2Fx/a%20b",
		"https://example.com/a.gguf?x#y", "o/n@a%2Fb", "../o/n", "o/n/../x", "http://127.0.0.1:9/hf/o/n/blob/v/a", "o/n@%2e%2e/x", "hf:o/n/C:/x", "https://u:p@h/%2e%2e%2fx"} {
		f.Add(seed)
	}
	h := &Hub{Endpoint: "http://127.0.0.1:9/hf", Cache: "/cache/hub", Files: "/cache/files"}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := h.Parse(text)
		if err != nil {
			require.ErrorIs(t, err, ErrName)
			return
		}
		again, err := h.Parse(prefixed(n))
		require.NoError(t, err)
		require.Equal(t, n, again)
		if n.URL != "" {
			path, err := h.fileAt(n.URL)
			require.NoError(t, err)
			require.Regexp(t, `^/cache/files/[0-9a-f]{16}/[^/]+$`, path)
			return
		}
		r := h.repo(n)
		require.Regexp(t, `^/cache/hub/models--[\w.-]+--[\w.-]+$`, r.folder)
		require.True(t, strings.HasPrefix(r.ref(n.revision()), r.folder+"/refs/"), r.ref(n.revision()))
		if n.File != "" {
			require.True(t, strings.HasPrefix(r.file(testCommit, n.File), r.snapshot(testCommit)+"/"), n.File)
		}
	})
}

func TestChoose(t *testing.T) {
	index := func(file string) ([]byte, error) {
		return []byte(`{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors", "c": "model-00001-of-00002.safetensors"}}`), nil
	}
	ggufs := []string{"README.md", "m-BF16.gguf", "m-F16.gguf", "m-Q4_K_M.gguf", "m-Q4_K_S.gguf", "m-UD-Q4_K_XL.gguf", "mmproj-F16.gguf", "imatrix.gguf"}
	parts := []string{"Q8_0/m-Q8_0-00001-of-00002.gguf", "Q8_0/m-Q8_0-00002-of-00002.gguf", "m-q4_0.gguf"}
	folder := []string{"README.md", "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "onnx/model.onnx", "original/config.json", "pytorch_model.bin", "pytorch_model.bin.index.json"}
	for _, c := range []struct {
		name  string
		files []string
		open  string
		want  []string
		err   string
	}{
		{name: "o/n", files: ggufs, open: "m-Q4_K_M.gguf"},
		{name: "o/n:q4_k_s", files: ggufs, open: "m-Q4_K_S.gguf"},
		{name: "o/n:f16", files: ggufs, open: "m-F16.gguf"},
		{name: "o/n:UD-Q4_K_XL", files: ggufs, open: "m-UD-Q4_K_XL.gguf"},
		{name: "o/n:Q4_K_XL", files: ggufs, open: "m-UD-Q4_K_XL.gguf"},
		{name: "o/n:Q4_K", files: ggufs, err: "of the type Q4_K is missing (m-BF16.gguf, m-F16.gguf, m-Q4_K_M.gguf, m-Q4_K_S.gguf, m-UD-Q4_K_XL.gguf)"},
		{name: "o/n/mmproj-F16.gguf", files: ggufs, open: "mmproj-F16.gguf"},
		{name: "o/n/x.gguf", files: ggufs, err: "x.gguf is missing"},
		{name: "o/n", files: []string{"a-Q8_0.gguf"}, open: "a-Q8_0.gguf"},
		{name: "o/n", files: []string{"a-Q8_0.gguf", "a-Q2_K.gguf"}, err: "none of the type Q4_K_M: name one by its type, as in o/n:TYPE, or as o/n/FILE (a-Q2_K.gguf, a-Q8_0.gguf)"},
		{name: "o/n:Q8_0", files: []string{"a-Q8_0.gguf", "b-Q8_0.gguf"}, err: "2 files have the type Q8_0: name one of them, as in o/n/a-Q8_0.gguf"},
		{name: "o/n:Q8_0", files: parts, open: parts[0], want: parts[:2]},
		{name: "o/n/" + parts[1], files: parts, open: parts[0], want: parts[:2]},
		{name: "o/n:Q8_0", files: parts[1:], err: "a part is missing: 1 present"},
		{name: "o/n:Q8_0", files: folder, err: "a GGUF file is missing"},
		{name: "o/n", files: folder[:1], err: "config.json is missing"},
		{name: "o/n", files: folder, err: "a file of weights, *.gguf or *.safetensors, is missing"},
		{name: "o/n", files: append([]string{"model.safetensors", "consolidated.safetensors"}, folder...),
			want: []string{"chat_template.jinja", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}},
		{name: "o/n", files: []string{"config.json", "a.safetensors", "b.safetensors", "d/c.safetensors"}, want: []string{"a.safetensors", "b.safetensors", "config.json"}},
		{name: "o/n", files: []string{"config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "other.safetensors"},
			want: []string{"config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"}},
		{name: "o/n", files: []string{"config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors"},
			err: "model-00002-of-00002.safetensors, which model.safetensors.index.json names, is missing"},
		{name: "o/n", files: []string{"config.json", "model.safetensors", "modules.json", "1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors", "2_Dense/pytorch_model.bin"},
			want: []string{"1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors", "config.json", "model.safetensors", "modules.json"}},
	} {
		n, err := (&Hub{}).Parse(c.name)
		require.NoError(t, err)
		m, err := n.choose(c.files, index)
		if c.err != "" {
			require.ErrorContains(t, err, c.err, c.name)
			continue
		}
		require.NoError(t, err, c.name)
		require.Equal(t, c.open, m.open, c.name)
		if c.want == nil {
			c.want = []string{c.open}
		}
		require.Equal(t, c.want, m.files, c.name)
	}
	for text, why := range map[string]string{`{"weight_map": {"a": "../x"}}`: "is not the path", `{}`: "empty", `[`: "unexpected end"} {
		n := Name{Repo: "o/n"}
		_, err := n.choose([]string{"config.json", indexFile}, func(string) ([]byte, error) { return []byte(text), nil })
		require.ErrorContains(t, err, why)
	}
}

// FuzzList: whatever a server lists, what is taken of it stays within the cache.
func FuzzList(f *testing.F) {
	for _, seed := range []string{listed("a.gguf", strings.Repeat("a", 64), 5), listed("../x", "b", 5), listed("a/../../x", "..", -1), `{"sha": "` + testCommit + `", "siblings": [{"rfilename": "a", "blobId": "b"}]}`} {
		f.Add([]byte(seed))
	}
	r := (&Hub{Cache: "/cache"}).repo(Name{Repo: "o/n"})
	f.Fuzz(func(t *testing.T, body []byte) {
		commit, entries, err := parseList(body)
		if err != nil {
			return
		}
		for _, e := range entries {
			require.True(t, strings.HasPrefix(r.file(commit, e.file), "/cache/models--o--n/snapshots/"+commit+"/"), e.file)
			require.True(t, e.etag == "" || strings.HasPrefix(r.blob(e.etag), "/cache/models--o--n/blobs/"), e.etag)
			require.GreaterOrEqual(t, e.size, int64(-1))
		}
	})
}
