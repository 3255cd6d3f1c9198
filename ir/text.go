package ir

import (
	"encoding/base64"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// String returns the text form of the graph, which Parse reads:
//
//	func tiny source {
//	  v1 = input {name="tokens"} : i32[T]
//	  v2 = weight {name="token_embd.weight"} : q8_0[1024,256]
//	  v3 = embed v1 v2 : f32[T,256] @0
//	  return "x" v3
//	}
//
// A value's line holds its operands, its attribute in braces, its type, and @ with its
// layer unless that is NoLayer.
func (f *Func) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "func %s %s {\n", f.Name, f.Stage)
	for _, v := range f.Values {
		b.WriteString("  ")
		writeValue(&b, v)
		b.WriteByte('\n')
	}
	for _, r := range f.Results {
		fmt.Fprintf(&b, "  return %q %s\n", r.Name, r.Value)
	}
	b.WriteString("}\n")
	return b.String()
}

func writeValue(b *strings.Builder, v *Value) {
	fmt.Fprintf(b, "%s = %s", v, v.Op)
	for _, a := range v.Args {
		if a == nil {
			b.WriteString(" nil")
			continue
		}
		b.WriteByte(' ')
		b.WriteString(a.String())
	}
	if v.Attr != nil {
		b.WriteString(" {")
		writeFields(b, reflect.ValueOf(v.Attr), true)
		b.WriteByte('}')
	}
	fmt.Fprintf(b, " : %s", v.Type)
	if v.Layer != NoLayer {
		fmt.Fprintf(b, " @%d", v.Layer)
	}
}

// writeFields prints the fields of an attribute struct as name=value, structs
// inside it flattened. Fields that are zero are left out: Parse starts from zero.
func writeFields(b *strings.Builder, s reflect.Value, first bool) bool {
	for i := range s.NumField() {
		field := s.Field(i)
		if field.Kind() == reflect.Struct {
			first = writeFields(b, field, first)
			continue
		}
		if field.IsZero() {
			continue
		}
		if !first {
			b.WriteByte(' ')
		}
		first = false
		fmt.Fprintf(b, "%s=%s", fieldName(s.Type().Field(i)), formatField(s.Type().Field(i), field))
	}
	return first
}

func fieldName(f reflect.StructField) string { return strings.ToLower(f.Name) }

// isBytes reports whether a string field holds bytes: the data of a constant.
func isBytes(f reflect.StructField) bool { return f.Name == "Data" }

func formatField(f reflect.StructField, v reflect.Value) string {
	switch v.Kind() {
	case reflect.String:
		if isBytes(f) {
			return strconv.Quote(base64.StdEncoding.EncodeToString([]byte(v.String())))
		}
		return strconv.Quote(v.String())
	case reflect.Float64:
		return strconv.FormatFloat(v.Float(), 'g', -1, 64)
	default:
		return fmt.Sprint(v.Interface())
	}
}
