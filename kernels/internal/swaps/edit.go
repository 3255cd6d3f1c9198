package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"

	"github.com/smelt-ml/smelt/kernels"
)

var (
	bufferEntry   = regexp.MustCompile(`(\d+)( [\w%]+ (?:read|write) )`)
	constantEntry = regexp.MustCompile(`(\d+)( (fc_\w+) (?:bool|uint))`)
)

// swapTable exchanges numbers in the lists of the families. It returns those of function
// constants that have changed, by the file of the families: a .metal file gives each name
// one number.
func swapTable(dir string) (map[string]map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "families_*.go"))
	if err != nil {
		return nil, err
	}
	changed := map[string]map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		changed[file] = map[string]string{}
		out, err := eachString(file, string(text), func(s string) (string, error) {
			s = swapEnds(s, bufferEntry)
			swapped := swapEnds(s, constantEntry)
			if swapped != s {
				for _, m := range constantEntry.FindAllStringSubmatch(swapped, -1) {
					if before, ok := changed[file][m[3]]; ok && before != m[1] {
						return "", fmt.Errorf("%s: %s becomes %s and %s", file, m[3], before, m[1])
					}
					changed[file][m[3]] = m[1]
				}
			}
			return swapped, nil
		})
		if err != nil {
			return nil, err
		}
		out, err = eachString(file, out, func(s string) (string, error) {
			return constantEntry.ReplaceAllStringFunc(s, func(entry string) string {
				m := constantEntry.FindStringSubmatch(entry)
				if number, ok := changed[file][m[3]]; ok {
					return number + m[2]
				}
				return entry
			}), nil
		})
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(file, []byte(out), 0o644); err != nil {
			return nil, err
		}
	}
	return changed, nil
}

// eachString rewrites the string literals of a Go file.
func eachString(name, text string, f func(string) (string, error)) (string, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, 0)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	at := 0
	var failed error
	ast.Inspect(file, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING || failed != nil {
			return failed == nil
		}
		start, end := set.Position(lit.Pos()).Offset, set.Position(lit.End()).Offset
		s, err := f(text[start:end])
		if err != nil {
			failed = err
		}
		out.WriteString(text[at:start] + s)
		at = end
		return true
	})
	return out.String() + text[at:], failed
}

// swapEnds exchanges the numbers of the first and the last entry of a list.
func swapEnds(list string, entry *regexp.Regexp) string {
	all := entry.FindAllStringSubmatchIndex(list, -1)
	if len(all) < 2 {
		return list
	}
	first, last := all[0], all[len(all)-1]
	return list[:first[2]] + list[last[2]:last[3]] + list[first[3]:last[2]] + list[first[2]:first[3]] + list[last[3]:]
}

var (
	cStruct  = regexp.MustCompile(`(?s)struct (\w+) \{\n(.*?)\n\};`)
	cField   = regexp.MustCompile(`(\w+)(?:\[\d+\])?[,;]`)
	goStruct = `(?s)type %s struct \{\n(.*?)\n\}`
)

// swapParams exchanges the first two lines of every struct of params.h, and their fields
// in params.go.
func swapParams(dir string) error {
	header, source := filepath.Join(dir, "params.h"), filepath.Join(dir, "params.go")
	text, err := os.ReadFile(header)
	if err != nil {
		return err
	}
	mirror, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	out, goText := string(text), string(mirror)
	for _, m := range cStruct.FindAllStringSubmatch(out, -1) {
		lines := strings.Split(m[2], "\n")
		if len(lines) < 2 {
			return fmt.Errorf("params.h: %s has one line", m[1])
		}
		lines[0], lines[1] = lines[1], lines[0]
		out = strings.Replace(out, m[0], "struct "+m[1]+" {\n"+strings.Join(lines, "\n")+"\n};", 1)

		body := regexp.MustCompile(fmt.Sprintf(goStruct, m[1])).FindStringSubmatch(goText)
		if body == nil {
			return fmt.Errorf("params.go has no %s", m[1])
		}
		fields := map[string]string{}
		for _, line := range strings.Split(body[1], "\n") {
			fields[snake(strings.Fields(line)[0])] = line
		}
		var order []string
		for _, line := range lines {
			declaration, _, _ := strings.Cut(line, "//")
			for _, f := range cField.FindAllStringSubmatch(declaration, -1) {
				order = append(order, fields[f[1]])
			}
		}
		if len(order) != len(fields) {
			return fmt.Errorf("%s has %d fields in params.h and %d in params.go", m[1], len(order), len(fields))
		}
		goText = strings.Replace(goText, body[0], "type "+m[1]+" struct {\n"+strings.Join(order, "\n")+"\n}", 1)
	}
	if err := os.WriteFile(header, []byte(out), 0o644); err != nil {
		return err
	}
	return os.WriteFile(source, []byte(goText), 0o644)
}

func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

var (
	headerEntry      = regexp.MustCompile(`(SMELT_\w+) = (\d+),`)
	instantiation    = regexp.MustCompile(`host_name\("(\w+)"\)\]\]\s*kernel decltype\((\w+)<`)
	plainKernel      = regexp.MustCompile(`\nkernel void\s+(\w+)\(`)
	signatureBuffer  = regexp.MustCompile(`(\w+) \[\[buffer\((\d+)\)\]\]`)
	constantNumbered = regexp.MustCompile(`(fc_\w+) \[\[function_constant\((\d+)\)\]\]`)
)

// followTable gives the sources the table's numbers, which the header has.
func followTable(dir string, constants map[string]map[string]string) error {
	text, err := os.ReadFile(filepath.Join(dir, "arguments.gen.h"))
	if err != nil {
		return err
	}
	numbers := map[string]string{}
	for _, m := range headerEntry.FindAllStringSubmatch(string(text), -1) {
		numbers[m[1]] = m[2]
	}
	for _, file := range kernels.Files() {
		path := filepath.Join(dir, file)
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		source := string(text)
		families := map[string]string{}
		for _, m := range plainKernel.FindAllStringSubmatch(source, -1) {
			families[m[1]] = m[1]
		}
		for _, m := range instantiation.FindAllStringSubmatch(source, -1) {
			k, ok := kernels.Lookup(m[1])
			if !ok {
				return fmt.Errorf("%s: no kernel is called %s", file, m[1])
			}
			families[m[2]] = k.Family
		}
		for function, family := range families {
			signature := regexp.MustCompile(`(?s)\bvoid\s+` + function + `\(device.*?\) \{`)
			source = signature.ReplaceAllStringFunc(source, func(s string) string {
				return signatureBuffer.ReplaceAllStringFunc(s, func(buffer string) string {
					m := signatureBuffer.FindStringSubmatch(buffer)
					name := m[1]
					if name == "p" {
						name = "params"
					}
					return fmt.Sprintf("%s [[buffer(%s)]]", m[1], numbers["SMELT_"+strings.ToUpper(family+"_"+name)])
				})
			})
		}
		source, err = followConstants(dir, file, source, constants)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(source), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// followConstants gives function constants the numbers of the families of a file.
func followConstants(dir, file, source string, constants map[string]map[string]string) (string, error) {
	for families, changed := range constants {
		text, err := os.ReadFile(families)
		if err != nil {
			return "", err
		}
		if !strings.Contains(string(text), `"`+file+`"`) {
			continue
		}
		source = constantNumbered.ReplaceAllStringFunc(source, func(entry string) string {
			m := constantNumbered.FindStringSubmatch(entry)
			if number, ok := changed[m[1]]; ok {
				return fmt.Sprintf("%s [[function_constant(%s)]]", m[1], number)
			}
			return entry
		})
	}
	return source, nil
}
