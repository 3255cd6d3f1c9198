//go:build ignore

// Fetch builds graphviz.wasm.gz from the npm package of Graphviz as a WebAssembly module: it
// extracts the module from the script that contains it.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
)

const (
	source    = "https://registry.npmjs.org/@viz-js/viz/-/viz-3.31.0.tgz"
	integrity = "r7zlQdRvcwvIpjHGgs+KNWHeE/P5/Dq7k8ZAKaMCbZqomxCBJV78gVuQYaHzFVca+kB0mX0fMW9UFevCOBG50A==" // sha512
	script    = "package/lib/backend.js"
	output    = "graphviz.wasm.gz"
)

func main() {
	log.SetFlags(0)
	if err := fetch(); err != nil {
		log.Fatalf("%s: %v", source, err)
	}
}

func fetch() error {
	answer, err := http.Get(source)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	packed, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if sum := sha512.Sum512(packed); base64.StdEncoding.EncodeToString(sum[:]) != integrity {
		return fmt.Errorf("the checksum of the package is not %s", integrity)
	}
	text, err := find(packed)
	if err != nil {
		return err
	}
	module, err := decode(text)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(module); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(output, b.Bytes(), 0o644)
}

// find returns the script of a package.
func find(packed []byte) (string, error) {
	unpacked, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return "", err
	}
	for files := tar.NewReader(unpacked); ; {
		file, err := files.Next()
		if err != nil {
			return "", fmt.Errorf("looking for %s: %w", script, err)
		}
		if file.Name == script {
			text, err := io.ReadAll(files)
			return string(text), err
		}
	}
}

// decode extracts the module from the script. Emscripten writes it as a string in which the
// character of code c, above 255, stands for the byte 0, and every other character for its code.
func decode(text string) ([]byte, error) {
	_, text, ok := strings.Cut(text, "binaryDecode('")
	if !ok {
		return nil, errors.New("the script does not contain the module")
	}
	escapes := map[rune]byte{'n': '\n', 'r': '\r', '\'': '\'', '\\': '\\'}
	var out []byte
	escaped := false
	for _, c := range text {
		switch b, known := escapes[c]; {
		case escaped && !known:
			return nil, fmt.Errorf("the module's text has an unknown escape \\%c", c)
		case escaped:
			out, escaped = append(out, b), false
		case c == '\\':
			escaped = true
		case c == '\'':
			return out, nil
		default:
			out = append(out, byte(^c>>8&c))
		}
	}
	return nil, errors.New("the module's text is not terminated")
}
