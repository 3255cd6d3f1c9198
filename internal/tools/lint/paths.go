package lint

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
)

var (
	derived  = regexp.MustCompile(`(?m)^constant (?:uint|bool) (\w+) =\s*([^;]*is_function_constant_defined[^;]*);`)
	declared = regexp.MustCompile(`(?m)^constant (uint|bool) (\w+) \[\[\s*function_constant\(\d+\)\s*\]\]\s*;`)
	asked    = regexp.MustCompile(`is_function_constant_defined\(\w+\)`)

	definition = regexp.MustCompile(`^define .*@"?([\w.$]+)"?\(`)
	call       = regexp.MustCompile(`\bcall .*@"?([\w.$]+)"?\(`)
)

// Paths returns the number of call paths from a source's kernels to functions whose mangled
// names match leaf. A compiler that inlines everything, as Metal's does, makes as many copies of
// them, loops not counted. Branches on compile-time constants are removed first; function
// constants are not known then.
func Paths(name, source string, leaf *regexp.Regexp, macros ...string) (int, error) {
	source, err := preprocess(source, macros)
	if err != nil {
		return 0, err
	}
	source = derived.ReplaceAllStringFunc(source, func(s string) string {
		m := derived.FindStringSubmatch(s)
		return "#define " + m[1] + " (" + strings.Join(strings.Fields(m[2]), " ") + ")"
	})
	source = declared.ReplaceAllString(source, "#define $2 some_$1()")
	source = asked.ReplaceAllString(source, "some_bool()")
	text, err := prepare(name, "uint some_uint(); bool some_bool();\n"+source)
	if err != nil {
		return 0, err
	}
	var code []byte
	err = with(text, func(files []string) error {
		var complaints []string
		code, complaints, err = run(append(append([]string{"-O0", "-S", "-emit-llvm", "-o", "-"}, flags...), files...), "")
		if err == nil && len(complaints) > 0 {
			err = fmt.Errorf("%s: %s", name, complaints[0])
		}
		return err
	})
	return paths(code, leaf), err
}

// paths parses LLVM assembly.
func paths(code []byte, leaf *regexp.Regexp) int {
	calls := map[string][]string{}
	var kernels []string
	at := ""
	for line := range bytes.Lines(code) {
		if m := definition.FindSubmatch(line); m != nil {
			at = string(m[1])
			if bytes.Contains(line, []byte("spir_kernel")) {
				kernels = append(kernels, at)
			}
		} else if m := call.FindSubmatch(line); m != nil {
			calls[at] = append(calls[at], string(m[1]))
		}
	}
	known := map[string]int{}
	var count func(f string) int
	count = func(f string) int {
		if leaf.MatchString(f) {
			return 1
		}
		n, ok := known[f]
		for _, callee := range calls[f] {
			if !ok {
				n += count(callee)
			}
		}
		known[f] = n
		return n
	}
	total := 0
	for _, k := range kernels {
		total += count(k)
	}
	return total
}
