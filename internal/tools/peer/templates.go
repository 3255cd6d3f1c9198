//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

//go:embed templates/render.mjs
var renderNode []byte

//go:embed templates/render.py
var renderPython []byte

// jinjaVersion pins the npm package @huggingface/jinja, jinja2Version the reference.
const (
	jinjaVersion  = "0.5.11"
	jinja2Version = "3.1.6"
)

// templateMoment is the time that strftime_now returns: 26 July 2024, 12:30 UTC.
const templateMoment = 1721997000000

// writeTemplates writes digests of how others render chat templates: one line per template, one
// word per conversation. A word is the digest of the text on which both agree, or the digest of
// @huggingface/jinja's, a slash and that of Jinja2's; - is an error. The texts in expressions.json
// become Jinja2's.
func writeTemplates(ctx context.Context, args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet("peer templates", flag.ContinueOnError)
	flags.SetOutput(stderr)
	dir := flags.String("dir", "build/peer", "folder of the npm package, which is fetched if missing")
	root := flags.String("data", "../shared/data/chat", "folder of the templates in references.txt")
	testdata := flags.String("testdata", "chat/jinja/testdata", "folder of the conversations and the digests")
	python := flags.String("python", "python3", "Python interpreter with Jinja2 "+jinja2Version)
	if err := flags.Parse(args); err != nil {
		return err
	}
	bundle := filepath.Join(*dir, "src/models") // where llama.cpp's sources are
	sets := []struct{ root, file string }{{*root, "references.txt"}, {bundle, "references-llama.cpp.txt"}}
	conversations := filepath.Join(*testdata, "conversations.json")
	names, err := conversationNames(conversations)
	if err != nil {
		return err
	}
	script, err := installScript(ctx, *dir, "@huggingface/jinja", jinjaVersion, "render.mjs", renderNode)
	if err != nil {
		return err
	}
	if version, err := exec.CommandContext(ctx, *python, "-c", "import jinja2; print(jinja2.__version__)").Output(); err != nil || strings.TrimSpace(string(version)) != jinja2Version {
		return fmt.Errorf("%s has no Jinja2 %s (pip install jinja2==%s); --python names another", *python, jinja2Version, jinja2Version)
	}
	expressions := filepath.Join(*testdata, "expressions.json")
	known := map[string]int{} // the set that has a source first
	for i, set := range sets {
		templates, err := templatesIn(set.root, known, i)
		if err != nil {
			return err
		}
		rest := slices.Concat([]string{strconv.Itoa(templateMoment)}, templates)
		node, err := rendered(ctx, nil, "node", append([]string{script, set.root, conversations}, rest...)...)
		if err != nil {
			return err
		}
		reference, err := rendered(ctx, renderPython, *python, append([]string{"-", set.root, conversations, expressions}, rest...)...)
		if err != nil {
			return err
		}
		var b bytes.Buffer
		fmt.Fprintf(&b, "# @huggingface/jinja %s/Jinja2 %s: go run ./internal/tools/peer templates\n", jinjaVersion, jinja2Version)
		for _, t := range templates {
			fmt.Fprint(&b, t)
			for _, c := range names {
				word, other := node[t][c].digest(), reference[t][c].digest()
				if word != other {
					word += "/" + other
				}
				fmt.Fprint(&b, " ", word)
			}
			fmt.Fprintln(&b)
		}
		if err := os.WriteFile(filepath.Join(*testdata, set.file), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// rendering is the result of rendering a conversation.
type rendering struct {
	Text  *string
	Error string
}

func (r rendering) digest() string {
	if r.Text == nil {
		return "-"
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(*r.Text)))[:10]
}

// templatesIn returns the paths, relative to a folder, of the templates below it whose sources no
// earlier set has, and records the set of those.
func templatesIn(root string, known map[string]int, set int) ([]string, error) {
	var list []string
	for _, pattern := range []string{"templates/*.jinja", "mistral-common/chat_templates/*.jinja"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			source, err := os.ReadFile(f)
			if err != nil {
				return nil, err
			}
			if first, ok := known[string(source)]; ok && first != set {
				continue
			}
			known[string(source)] = set
			name, err := filepath.Rel(root, f)
			if err != nil {
				return nil, err
			}
			list = append(list, filepath.ToSlash(name))
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s has no templates", root)
	}
	return list, nil
}

func conversationNames(file string) ([]string, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var list []struct{ Name string }
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	names := make([]string, len(list))
	for i, c := range list {
		names[i] = c.Name
	}
	return names, nil
}

// installScript fetches an npm package unless it is there, and writes a script that uses it
// beside it, where node finds the package.
func installScript(ctx context.Context, dir, name, want, script string, source []byte) (file string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	version, err := versionIn(filepath.Join(dir, "node_modules", name, "package.json"))
	if err != nil || version != want {
		if err := command(ctx, "npm", "install", "--ignore-scripts", "--omit=optional", "--no-audit", "--no-fund", "--no-package-lock", "--no-save",
			"--prefix", dir, name+"@"+want); err != nil {
			return "", err
		}
	}
	file = filepath.Join(dir, script)
	return file, os.WriteFile(file, source, 0o644)
}

// rendered runs one of the scripts.
func rendered(ctx context.Context, stdin []byte, name string, args ...string) (map[string]map[string]rendering, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = bytes.NewReader(stdin)
	cmd.Stderr = os.Stderr
	raw, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var all map[string]map[string]rendering
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, errors.Join(fmt.Errorf("%s printed no JSON", name), err)
	}
	return all, nil
}
