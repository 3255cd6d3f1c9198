package kernels

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

//go:embed *.metal *.h
var sources embed.FS

var quotedInclude = regexp.MustCompile(`^\s*#\s*include\s+"([^"]+)"`)

// Files returns the names of the .metal files, sorted.
func Files() []string {
	entries, err := sources.ReadDir(".")
	if err != nil {
		panic(err)
	}
	var out []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".metal") {
			out = append(out, e.Name())
		}
	}
	return out
}

// Source returns a .metal file as one text: every header that it includes by a quoted
// name is put in place of its first include. [Files] lists the valid names; others
// panic.
func Source(file string) string {
	var b strings.Builder
	inline(&b, file, &[]string{})
	return b.String()
}

// Hash returns the SHA-256 of [Source] in hexadecimal digits. Who compiled a kernel
// ahead of time compares it with the hash it compiled.
func Hash(file string) string {
	sum := sha256.Sum256([]byte(Source(file)))
	return hex.EncodeToString(sum[:])
}

func inline(b *strings.Builder, file string, seen *[]string) {
	text, err := sources.ReadFile(file)
	if err != nil {
		panic(fmt.Sprintf("kernels: no source is called %q", file))
	}
	*seen = append(*seen, file)
	for line := range strings.Lines(string(text)) {
		m := quotedInclude.FindStringSubmatch(line)
		switch {
		case m == nil:
			b.WriteString(line)
		case !slices.Contains(*seen, m[1]):
			inline(b, m[1], seen)
		}
	}
}
