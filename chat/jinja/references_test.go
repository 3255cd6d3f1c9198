package jinja_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/chat/jinja"
	"github.com/smelt-ml/smelt/internal/golden"
	"github.com/smelt-ml/smelt/internal/testfiles"
)

// moment is what strftime_now told those who made testdata/references.txt.
var moment = time.Date(2024, 7, 26, 12, 30, 0, 0, time.UTC)

type conversation struct {
	Name      string
	Variables json.RawMessage
}

func conversations(t testing.TB) []conversation {
	raw, err := os.ReadFile("testdata/conversations.json")
	require.NoError(t, err)
	var list []conversation
	require.NoError(t, json.Unmarshal(raw, &list))
	return list
}

// publicTemplate returns the source of a template that references.txt has a line of.
func publicTemplate(t testing.TB, name string) string {
	return templateIn(t, testfiles.Shared(t, "data/chat"), name)
}

func templateIn(t testing.TB, folder, name string) string {
	source, err := os.ReadFile(filepath.Join(folder, name))
	require.NoError(t, err)
	return string(source)
}

// publicTemplates are those that references.txt has lines of.
func publicTemplates(t testing.TB) []string {
	references, err := os.ReadFile("testdata/references.txt")
	require.NoError(t, err)
	var names []string
	for line := range strings.Lines(string(references)) {
		if name := strings.Fields(line)[0]; name != "#" {
			names = append(names, name)
		}
	}
	return names
}

func variables(t testing.TB, raw []byte, text func(string) jinja.Text) *jinja.Dict {
	v, err := jinja.FromJSON(raw, text)
	require.NoError(t, err)
	return v.(*jinja.Dict)
}

// TestReferences renders every public template for every conversation beside what
// @huggingface/jinja and Jinja2 make of it. Where the former renders, its text is ours, or else
// Jinja2 says what we say; testdata/differences.txt lists where, docs/chat.md says why.
func TestReferences(t *testing.T) {
	compare(t, testfiles.Shared(t, "data/chat"), "testdata/references.txt", "testdata/differences.txt")
}

// TestBundledReferences does so for templates that llama.cpp brings and TestReferences has not.
func TestBundledReferences(t *testing.T) {
	compare(t, testfiles.LlamaCpp(t, "models"), "testdata/references-llama.cpp.txt", "testdata/differences-llama.cpp.txt")
}

func compare(t *testing.T, folder, digests, differences string) {
	references, err := os.ReadFile(digests)
	require.NoError(t, err)
	list := conversations(t)
	groups := map[string]map[string][]string{} // whom we follow: template: conversations
	cells := map[string]int{}
	for line := range strings.Lines(string(references)) {
		words := strings.Fields(line)
		if words[0] == "#" {
			continue
		}
		require.Len(t, words, 1+len(list), "run go run ./internal/tools/peer templates")
		template, err := jinja.Parse(templateIn(t, folder, words[0]))
		require.NoError(t, err, words[0])
		for i, c := range list {
			got, problem := "-", ""
			text, err := template.Render(variables(t, c.Variables, jinja.Marked), jinja.Options{Now: moment})
			if err == nil {
				got = fmt.Sprintf("%x", sha256.Sum256([]byte(text.String())))[:10]
			} else {
				problem = err.Error()
			}
			node, reference, differ := strings.Cut(words[1+i], "/")
			if !differ {
				reference = node
			}
			var whom string
			switch got {
			case node:
				cells["as @huggingface/jinja"]++
				continue
			case reference:
				whom = "as Jinja2, where @huggingface/jinja fails"
				if node != "-" {
					whom = "as Jinja2, where @huggingface/jinja has another text"
				}
				if got == "-" {
					whom = "an error as in Jinja2, where @huggingface/jinja has a text"
				}
			default:
				require.Equal(t, "-", node, "%s, %s: @huggingface/jinja has another text, and so has Jinja2 %s", words[0], c.Name, problem)
				whom = "as neither, where both fail"
				if reference != "-" {
					whom = "as neither, where @huggingface/jinja fails"
				}
			}
			cells[whom]++
			if groups[whom] == nil {
				groups[whom] = map[string][]string{}
			}
			groups[whom][words[0]] = append(groups[whom][words[0]], c.Name)
		}
	}
	var b strings.Builder
	fmt.Fprintln(&b, "Which conversations of which templates differ from @huggingface/jinja; docs/chat.md says why.")
	for _, whom := range slices.Sorted(maps.Keys(cells)) {
		fmt.Fprintf(&b, "\n%s: %d\n", whom, cells[whom])
		for _, template := range slices.Sorted(maps.Keys(groups[whom])) {
			fmt.Fprintf(&b, "  %s: %s\n", template, strings.Join(groups[whom][template], "; "))
		}
	}
	golden.Check(t, differences, b.String())
}

// TestExpressions renders what Jinja2 renders: testdata/expressions.json has its texts, and none
// where it fails.
func TestExpressions(t *testing.T) {
	raw, err := os.ReadFile("testdata/expressions.json")
	require.NoError(t, err)
	var list struct {
		Variables json.RawMessage
		Cases     []struct {
			Source string
			Text   *string
		}
	}
	require.NoError(t, json.Unmarshal(raw, &list))
	require.Greater(t, len(list.Cases), 300)
	for _, c := range list.Cases {
		template, err := jinja.Parse(c.Source)
		var text jinja.Text
		if err == nil {
			text, err = template.Render(variables(t, list.Variables, jinja.Marked), jinja.Options{Now: moment})
		}
		if c.Text == nil {
			assert.Error(t, err, c.Source)
			continue
		}
		if assert.NoError(t, err, c.Source) {
			assert.Equal(t, *c.Text, text.String(), c.Source)
		}
	}
}
