// Lines prints the number of lines of each room of the product, and their sum:
//
//	go run ./internal/tools/lines
//
// It counts the lines of .go, .h, .cc, .c, .m and .metal files, with comments and blank lines,
// and without tests, testdata folders and generated files (*.gen.*). A room is a top-level
// folder with everything below it, or a folder of internal/; kernels/published is a room of its
// own. The test beside it keeps the sum below [most].
package main

import (
	"bytes"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/samber/lo"
)

// most is the number of lines of the product that the sum must be below: a fence, which a commit
// that moves it gives a reason for. The product had 115,459 before constraints, templates and the
// server took in what others reported, and 121,985 after; each further family takes some 60, gates of
// attention and of shared experts in fused products took 700, caches that differ by layer 700,
// Gemma 4 800, and Mamba-2 with its families 1,950.
const most = 131_490

var counted = []string{".go", ".h", ".cc", ".c", ".m", ".metal"}

func main() {
	log.SetFlags(0)
	rooms, err := count(".")
	if err != nil {
		log.Fatal("lines: ", err)
	}
	names := lo.Keys(rooms)
	slices.SortFunc(names, func(a, b string) int { return rooms[b] - rooms[a] })
	for _, name := range names {
		fmt.Printf("%7d  %s\n", rooms[name], name)
	}
	fmt.Printf("%7d  in all, of at most %d\n", lo.Sum(lo.Values(rooms)), most-1)
}

// count returns the lines of each room of the repository in a folder.
func count(root string) (map[string]int, error) {
	list := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	rooms := map[string]int{}
	for file := range strings.SplitSeq(strings.TrimSpace(string(out)), "\n") {
		if !isProduct(file) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, file))
		if os.IsNotExist(err) { // deleted and not yet committed
			continue
		}
		if err != nil {
			return nil, err
		}
		rooms[room(file)] += bytes.Count(text, []byte("\n"))
	}
	return rooms, nil
}

// isProduct reports whether a file is counted.
func isProduct(file string) bool {
	name := path.Base(file)
	return slices.Contains(counted, path.Ext(name)) && !strings.HasSuffix(name, "_test.go") &&
		!strings.Contains(name, ".gen.") && !slices.Contains(strings.Split(file, "/"), "testdata")
}

// room returns the room of a file.
func room(file string) string {
	folders := strings.Split(path.Dir(file), "/")
	switch {
	case folders[0] == ".":
		return "smelt"
	case len(folders) > 1 && (folders[0] == "internal" || folders[0] == "kernels" && folders[1] == "published"):
		return folders[0] + "/" + folders[1]
	}
	return folders[0]
}
