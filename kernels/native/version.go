package native

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync"
)

// Version identifies the build of the kernels, because measurements of one build do not hold
// for another. It is a hash of Go's build information for a build of a commit or a published
// module, else of the executable, which takes a tenth of a second.
var Version = sync.OnceValue(func() string {
	h := sha256.New()
	info, ok := debug.ReadBuildInfo()
	if ok {
		fmt.Fprint(h, info)
	}
	if !ok || !committed(info) {
		hashExecutable(h)
	}
	return hex.EncodeToString(h.Sum(nil))
})

const module = "github.com/smelt-ml/smelt"

// committed reports whether the build information identifies the sources of this module.
func committed(info *debug.BuildInfo) bool {
	if info.Main.Path != module {
		for _, d := range info.Deps {
			if d.Path == module {
				return d.Replace == nil && d.Sum != ""
			}
		}
		return false
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	return settings["vcs.revision"] != "" && settings["vcs.modified"] == "false" || info.Main.Sum != ""
}

// hashExecutable writes the running executable to a hash, or nothing if it cannot be read.
func hashExecutable(h io.Writer) {
	path, err := os.Executable()
	if err != nil {
		return
	}
	f, err := os.Open(path)
	if err != nil {
		return
	}
	defer f.Close()
	io.Copy(h, f)
}
