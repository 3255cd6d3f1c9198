package kernels

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// Metal's front end compiles a whole source, every decoder in every instance, before
// function constants remove anything. A device therefore compiles each kernel by itself,
// from a text that macros specialise:
//
//   - SMELT_KERNEL_<host name> keeps that instance and removes the others;
//   - SMELT_FC_TYPE0 and the like hold the values of the function constants that are set;
//   - SMELT_SINGLE is defined: function constants are compile-time constants, which may be
//     template arguments.

var (
	declaration = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?m)^constant (uint|bool) (fc_\w+) \[\[function_constant\(\d+\)\]\];`)
	})
	definedness = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`is_function_constant_defined\((fc_\w+)\)`) })
	instance    = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?m)^template\s+\[\[host_name\(\s*"(\w+)"\s*\)\]\][^;]*;`)
	})
)

// Single returns [Source] of a .metal file for libraries of one kernel: macros, which
// [Kernel.Macros] returns, replace function constants and select the instance.
func Single(file string) string {
	text := declaration().ReplaceAllStringFunc(Source(file), func(line string) string {
		m := declaration().FindStringSubmatch(line)
		value := fmt.Sprintf("constant constexpr %s %s = ", m[1], m[2])
		known := fmt.Sprintf("constant constexpr bool %s_defined = ", m[2])
		zero := map[string]string{"uint": "0", "bool": "false"}[m[1]]
		return fmt.Sprintf("#ifdef %s\n%s%s;\n%strue;\n#else\n%s%s;\n%sfalse;\n#endif", macro(m[2]), value, macro(m[2]), known, value, zero, known)
	})
	text = definedness().ReplaceAllString(text, "${1}_defined")
	return "#define SMELT_SINGLE\n" + instance().ReplaceAllString(text, "#ifdef "+instancePrefix+"$1\n$0\n#endif")
}

const instancePrefix = "SMELT_KERNEL_"

func macro(constant string) string { return "SMELT_" + strings.ToUpper(constant) }

// Macro returns the name of the macro that holds the constant's value in [Single].
func (c *Constant) Macro() string { return macro(c.Name) }

// InstanceMacro returns the name of the macro that selects the kernel in [Single]: "" for a
// kernel that is not an instance of a template.
func (k *Kernel) InstanceMacro() string {
	if k.Name == k.Family {
		return ""
	}
	return instancePrefix + k.Name
}

// Macros returns the macros, as NAME=VALUE, that specialise [Single] to the kernel with these
// function constants, bits by index. It ignores constants that the kernel does not have.
func (k *Kernel) Macros(constants map[uint32]uint32) []string {
	var out []string
	if m := k.InstanceMacro(); m != "" {
		out = append(out, m+"=1")
	}
	for i := range k.Constants {
		c := &k.Constants[i]
		bits, ok := constants[uint32(c.Index)]
		switch {
		case !ok:
		case c.Type == "bool":
			out = append(out, fmt.Sprintf("%s=%t", c.Macro(), bits != 0))
		default:
			out = append(out, fmt.Sprintf("%s=%du", c.Macro(), bits))
		}
	}
	return out
}
