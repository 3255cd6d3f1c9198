//go:build linux

package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"unicode/utf8"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/internal/vocabs"
)

// huggingFaceVersion pins the npm package with Hugging Face's Rust library tokenizers 0.22.2 for
// node.
const huggingFaceVersion = "0.6.0"

const huggingFacePackage = "@anush008/tokenizers"

//go:embed huggingface/ids.js
var idsScript []byte

// writePipelines writes the ids of texts by Hugging Face's library, for each tokenizer.json of a
// folder.
func writePipelines(ctx context.Context, args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet("peer pipelines", flag.ContinueOnError)
	flags.SetOutput(stderr)
	dir := flags.String("dir", "build/peer", "folder of the library, which is fetched if missing")
	out := flags.String("out", "models/tokenizer/testdata", "folder of huggingface/pipelines.json and of the texts")
	if err := flags.Parse(args); err != nil {
		return err
	}
	dirPath, err := filepath.Abs(*dir)
	if err != nil {
		return err
	}
	library := filepath.Join(dirPath, "node_modules", huggingFacePackage)
	if version, err := versionIn(filepath.Join(library, "package.json")); err != nil || version != huggingFaceVersion {
		platform := map[string]string{"amd64": "linux-x64-gnu", "arm64": "linux-arm64-gnu"}[runtime.GOARCH]
		fmt.Fprintf(stderr, "fetching %s %s into %s\n", huggingFacePackage, huggingFaceVersion, dirPath)
		if err := command(ctx, "npm", "install", "--ignore-scripts", "--omit=optional", "--no-audit", "--no-fund", "--no-package-lock", "--prefix", dirPath,
			huggingFacePackage+"@"+huggingFaceVersion, huggingFacePackage+"-"+platform+"@"+huggingFaceVersion); err != nil {
			return err
		}
	}
	scratch, err := os.MkdirTemp("", "smelt-pipelines-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	script := filepath.Join(scratch, "ids.js")
	if err := os.WriteFile(script, idsScript, 0o644); err != nil {
		return err
	}
	var texts []string
	for _, folder := range []string{"huggingface", "llamacpp"} {
		more, err := vocabs.Texts(filepath.Join(*out, folder, "texts.txt"))
		if err != nil {
			return err
		}
		texts = append(texts, lo.Filter(more, func(text string, _ int) bool { return utf8.ValidString(text) })...) // JSON cannot hold others
	}
	input, err := json.Marshal(texts)
	if err != nil {
		return err
	}
	pipelines, err := vocabs.Pipelines(filepath.Join(*out, "huggingface"))
	if err != nil {
		return err
	}
	var answers vocabs.Answers
	for _, p := range pipelines {
		file := filepath.Join(scratch, "tokenizer.json")
		if err := os.WriteFile(file, p.File, 0o644); err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, "node", script, library, file)
		var said bytes.Buffer
		cmd.Stdin, cmd.Stderr = bytes.NewReader(input), &said
		output, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", p.Name, err, strings.TrimSpace(said.String()))
		}
		var ids [][]int32
		if err := json.Unmarshal(output, &ids); err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
		for i, text := range texts {
			answers.Add(text, p.Name, lo.Map(ids[i], func(id int32, _ int) string { return p.Token(id) }))
		}
	}
	return answers.Write(filepath.Join(*out, "huggingface", "answers.txt"), texts)
}
