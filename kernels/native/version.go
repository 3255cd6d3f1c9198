package native

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"sync"
)

//go:embed src/*.h
var sources embed.FS

// Version identifies the sources of the kernels: what was measured of some is no news of
// others.
var Version = sync.OnceValue(func() string {
	h := sha256.New()
	files, err := fs.Glob(sources, "src/*")
	if err != nil {
		panic(err) // the pattern is ours
	}
	for _, name := range files {
		text, err := sources.ReadFile(name)
		if err != nil {
			panic(err) // it is embedded
		}
		fmt.Fprintf(h, "%s %d\n%s", name, len(text), text)
	}
	return hex.EncodeToString(h.Sum(nil))
})
