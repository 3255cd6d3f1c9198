package kernels

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// Metal's front end compiles a source whole, every decoder in every instance, before
// function constants leave anything out. So a device compiles each kernel that it needs
// by itself, from a text in which macros say what it is to hold:
//
//   - SMELT_KERNEL_ and a host name: that instance, and no other;
//   - SMELT_FC_TYPE0 and the like, for every function constant that is set: its value;
//   - SMELT_SINGLE: that constants have values, so that a template's argument may be one.

var (
	declaration = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?m)^constant (uint|bool) (fc_\w+) \[\[function_constant\(\d+\)\]\];`)
	})
	definedness = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`is_function_constant_defined\((fc_\w+)\)`) })
	instance    = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?m)^template\s+\[\[host_name\(\s*"(\w+)"\s*\)\]\][^;]*;`)
	})
)

// Single returns a .metal file as [Source] does, for libraries of one kernel each: macros
// take the place of function constants and choose the instance. [Kernel.Macros] lists them.
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

// Macro is the name of the macro that holds the constant's value where [Single] is compiled.
func (c *Constant) Macro() string { return macro(c.Name) }

// InstanceMacro is the name of the macro that chooses the kernel where [Single] is compiled:
// "" of one that is no instance of a template.
func (k *Kernel) InstanceMacro() string {
	if k.Name == k.Family {
		return ""
	}
	return instancePrefix + k.Name
}

// Macros lists, as NAME=VALUE, what makes [Single] the kernel with these function constants,
// bits by index. Those that it does not have are left out.
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
