package constrain

import "fmt"

// refusal is the error of an unsupported schema: the keyword's path as a JSON pointer, and the
// reason.
type refusal struct {
	path, keyword, why string
}

func (r refusal) Error() string {
	return fmt.Sprintf("schema at %s: %s", r.path, r.why)
}

// Keyword returns the keyword for which a schema was refused; "" for any other error.
func Keyword(err error) string {
	if r, ok := err.(refusal); ok {
		return r.keyword
	}
	return ""
}
