package kernels

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"iter"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/smelt-ml/smelt/kernels/abi"
)

//go:embed *.metal *.h published/*.metal
var sources embed.FS

// ReadFile returns a .metal file or a header unchanged, by its path from the package's folder.
func ReadFile(name string) ([]byte, error) {
	if header, ok := strings.CutPrefix(name, "abi/"); ok {
		return abi.Headers.ReadFile(header)
	}
	return sources.ReadFile(name)
}

var quotedInclude = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\s*#\s*include\s+"([^"]+)"`) })

// Files returns the paths of the .metal files from the package's folder, sorted.
func Files() []string {
	var out []string
	for _, pattern := range []string{"*.metal", "published/*.metal"} {
		files, err := fs.Glob(sources, pattern)
		if err != nil {
			panic(err)
		}
		out = append(out, files...)
	}
	slices.Sort(out)
	return out
}

// Source returns a .metal file as one text: each quoted include is replaced by the header,
// the first time it is included, and removed later. [Files] lists the valid names; others
// panic.
func Source(file string) string {
	var b strings.Builder
	for l := range lines(file, &[]string{}) {
		b.WriteString(l.text)
	}
	return b.String()
}

// Place returns the file and line of line n of [Source], both counted from 1. It panics if
// there is no such line.
func Place(file string, n int) (string, int) {
	for p := range lines(file, &[]string{}) {
		if n--; n == 0 {
			return p.file, p.line
		}
	}
	panic(fmt.Sprintf("kernels: %s has no such line", file))
}

// Hash returns the SHA-256 of [Source] in hexadecimal digits. Callers compare it with the
// hash of a kernel compiled ahead of time.
func Hash(file string) string {
	sum := sha256.Sum256([]byte(Source(file)))
	return hex.EncodeToString(sum[:])
}

// sourceLine is a line of a file.
type sourceLine struct {
	file string
	line int
	text string
}

// lines yields the lines of a file, with the lines of each header in place of its first
// include.
func lines(file string, seen *[]string) iter.Seq[sourceLine] {
	text, err := ReadFile(file)
	if err != nil {
		panic(fmt.Sprintf("kernels: no source is called %q", file))
	}
	*seen = append(*seen, file)
	return func(yield func(sourceLine) bool) {
		n := 0
		for line := range strings.Lines(string(text)) {
			n++
			m := quotedInclude().FindStringSubmatch(line)
			if m == nil {
				if !yield(sourceLine{file, n, line}) {
					return
				}
				continue
			}
			header := path.Join(path.Dir(file), m[1])
			if slices.Contains(*seen, header) {
				continue
			}
			for l := range lines(header, seen) {
				if !yield(l) {
					return
				}
			}
		}
	}
}
