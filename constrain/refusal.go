package constrain

import "fmt"

// refusal is why a schema cannot be kept: the keyword's path as a JSON pointer, and what
// about it.
type refusal struct {
	path, keyword, why string
}

func (r refusal) Error() string {
	return fmt.Sprintf("schema at %s: %s", r.path, r.why)
}

// Keyword is the keyword that a schema is refused for, "" for an error of another kind.
func Keyword(err error) string {
	if r, ok := err.(refusal); ok {
		return r.keyword
	}
	return ""
}
