package passes

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
)

// Debug holds the settings of single passes. The zero value changes nothing.
type Debug struct {
	Help bool // the list contains help, see WriteHelp
	GPU  bool // label dispatches, so that a GPU fault names its dispatch; for the executor
	// XSplit selects the cache layout of vLLM and Aphrodite; for the code that makes the target.
	XSplit bool
	flags  map[string]flags
}

type flags uint8

const (
	offFlag flags = 1 << iota
	dumpFlag
	timeFlag
	statsFlag
)

type flagRow struct {
	name string
	flag flags
	doc  string
}

var flagNames = []flagRow{
	{"off", offFlag, "skip the pass"},
	{"dump", dumpFlag, "print the graph after the pass"},
	{"time", timeFlag, "print the time of the pass and of the check after it"},
	{"stats", statsFlag, "print the number of changes and of values"},
}

// all names every pass; gpuName and xsplitName are settings and name no pass.
const (
	all        = "all"
	gpuName    = "gpu"
	xsplitName = "layout/xsplit"
)

var (
	// ErrUnknown is wrapped by errors about an unknown pass or rule.
	ErrUnknown = errors.New("unknown pass")
	// ErrRequired is wrapped by errors about a pass that cannot be switched off.
	ErrRequired = errors.New("the pass is required")
)

// ParseDebug parses a list of NAME/FLAG, separated by commas, or "help". NAME is a
// pass, a fusion rule or "all"; FLAG is off, dump, time or stats. "all/off" skips every
// pass that is not required. "gpu" in the list sets GPU, and "layout/xsplit" XSplit.
func ParseDebug(text string) (Debug, error) {
	d := Debug{flags: make(map[string]flags)}
	for _, item := range strings.Split(text, ",") {
		item = strings.TrimSpace(item)
		switch item {
		case "":
			continue
		case "help":
			d.Help = true
			continue
		case gpuName:
			d.GPU = true
			continue
		case xsplitName:
			d.XSplit = true
			continue
		}
		name, flagName, ok := strings.Cut(item, "/")
		i := slices.IndexFunc(flagNames, func(f flagRow) bool { return f.name == flagName })
		if !ok || i < 0 {
			return Debug{}, fmt.Errorf("%q: want NAME/off, NAME/dump, NAME/time, NAME/stats, gpu, layout/xsplit or help", item)
		}
		f := flagNames[i].flag
		if name != all {
			if err := checkName(name, f == offFlag); err != nil {
				return Debug{}, err
			}
			d.flags[name] |= f
			continue
		}
		for _, p := range pipeline {
			if f != offFlag || !p.Required {
				d.flags[p.Name] |= f
			}
		}
	}
	return d, nil
}

func (d Debug) has(name string, f flags) bool { return d.flags[name]&f != 0 }

// print writes the dump, times and statistics that the flags of a pass request.
func (d Debug) print(w io.Writer, row Row, f *ir.Func) error {
	var text strings.Builder
	if d.has(row.Name, statsFlag) {
		fmt.Fprintf(&text, "%s: %d changes, %d values\n", row.Name, row.Changes, row.Values)
	}
	if d.has(row.Name, timeFlag) {
		fmt.Fprintf(&text, "%s: %v, verify %v\n", row.Name, row.Elapsed, row.Verify)
	}
	if d.has(row.Name, dumpFlag) {
		fmt.Fprintf(&text, "# after %s\n%s", row.Name, f)
	}
	if text.Len() == 0 {
		return nil
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// WriteHelp writes one line for each pass, rule and flag.
func WriteHelp(w io.Writer) error {
	var text strings.Builder
	section := func(title string, rules bool) {
		fmt.Fprintf(&text, "%s:\n", title)
		for _, p := range pipeline {
			if p.Rule != rules {
				continue
			}
			doc := p.Doc
			if p.Required {
				doc += " (required)"
			}
			fmt.Fprintf(&text, "  %-28s %s\n", p.Name, doc)
		}
	}
	section("Passes", false)
	section("Fusion rules", true)
	text.WriteString("Flags, as NAME/FLAG[,…]; NAME may be all:\n")
	for _, f := range flagNames {
		fmt.Fprintf(&text, "  %-28s %s\n", f.name, f.doc)
	}
	fmt.Fprintf(&text, "Settings, without a flag:\n  %-28s %s\n  %-28s %s\n",
		gpuName, "make an error of the GPU name the dispatch that failed",
		xsplitName, "use the KV cache layout and the kernels of vLLM and Aphrodite")
	_, err := io.WriteString(w, text.String())
	return err
}

func checkNames(off []string) error {
	for _, name := range off {
		if err := checkName(name, true); err != nil {
			return err
		}
	}
	return nil
}

// checkName returns an error for an unknown name, with the nearest known one, and for a
// required pass that is to be switched off.
func checkName(name string, off bool) error {
	for _, p := range pipeline {
		if p.Name == name {
			if off && p.Required {
				return fmt.Errorf("%s/off: %w", name, ErrRequired)
			}
			return nil
		}
	}
	nearest, ok := lo.Find(pipeline, func(p Pass) bool { return len(name) > 3 && strings.Contains(p.Name, name) })
	if !ok {
		away := func(p Pass) int { return levenshtein.ComputeDistance(name, p.Name) }
		nearest = lo.MinBy(pipeline, func(a, b Pass) bool { return away(a) < away(b) })
	}
	return fmt.Errorf("%w %q; did you mean %s? (help lists all)", ErrUnknown, name, nearest.Name)
}
