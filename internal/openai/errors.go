package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/chat"
	"github.com/smelt-ml/smelt/models/checkpoint"
)

// Error is what a client is told: https://platform.openai.com/docs/guides/error-codes.
type Error struct {
	Status     int
	Message    string
	Type       string
	Param      string // of the request; "" where none is to blame
	Code       string // for programs; "" where the type says enough
	RetryAfter time.Duration
}

// Types of errors.
const (
	invalidRequest = "invalid_request_error"
	authentication = "authentication_error"
	overloaded     = "overloaded_error"
	timedOut       = "timeout_error"
	serverError    = "server_error"
)

func (e *Error) Error() string { return e.Message }

// MarshalJSON writes all four members, null where there is nothing to say: clients read them
// without asking.
func (e *Error) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	}{e.Message, e.Type, orNull(e.Param), orNull(e.Code)})
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// invalid is a request that cannot be served as it is.
func invalid(param, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Type: invalidRequest, Param: param, Message: fmt.Sprintf(format, args...)}
}

// refused is a parameter that would change the answer, and has no meaning here.
func refused(param, why string) *Error {
	e := invalid(param, "%s: %s", param, why)
	e.Code = "unsupported_parameter"
	return e
}

// Overloaded is the answer while more wait than may.
func Overloaded(after time.Duration) *Error {
	return &Error{Status: http.StatusTooManyRequests, Type: overloaded, Code: "queue_full",
		Message: "too many requests wait; try again later", RetryAfter: after}
}

// Unloaded is the answer where a model's files could not be loaded when it was asked for.
func Unloaded(name string) *Error {
	return &Error{Status: http.StatusServiceUnavailable, Type: serverError, Param: "model", Code: "model_not_loaded",
		Message: fmt.Sprintf("%s could not be loaded", name), RetryAfter: 10 * time.Second}
}

// Stopping is the answer while the server comes to its end.
func Stopping() *Error {
	return &Error{Status: http.StatusServiceUnavailable, Type: overloaded, Code: "shutting_down",
		Message: "the server is stopping", RetryAfter: time.Second}
}

// Unauthorized is the answer where no known key comes with a request.
func Unauthorized() *Error {
	return &Error{Status: http.StatusUnauthorized, Type: authentication, Code: "invalid_api_key",
		Message: "the request has no API key that this server knows: Authorization: Bearer KEY"}
}

// NotFound is the answer where no model has a name.
func NotFound(name string) *Error {
	return &Error{Status: http.StatusNotFound, Type: invalidRequest, Param: "model", Code: "model_not_found",
		Message: fmt.Sprintf("no model is called %q here", name)}
}

// causes are errors of smelt that a request is to blame for, or that say how it ended.
var causes = []struct {
	is     error
	status int
	typ    string
	param  string
	code   string
}{
	{smelt.ErrContext, http.StatusBadRequest, invalidRequest, "messages", "context_length_exceeded"},
	{smelt.ErrNoTokens, http.StatusBadRequest, invalidRequest, "", "empty_prompt"},
	{chat.ErrNoTemplate, http.StatusBadRequest, invalidRequest, "model", "no_chat_template"},
	{chat.ErrContent, http.StatusBadRequest, invalidRequest, "messages", "unsupported_content"},
	{checkpoint.ErrNoTokenizer, http.StatusBadRequest, invalidRequest, "model", "no_tokenizer"},
	{context.DeadlineExceeded, http.StatusGatewayTimeout, timedOut, "", "deadline_exceeded"},
	{context.Canceled, 499, timedOut, "", "canceled"},
	{smelt.ErrClosed, http.StatusServiceUnavailable, overloaded, "", "shutting_down"},
}

// errorOf returns what a client is told of an error.
func errorOf(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return &Error{Status: http.StatusRequestEntityTooLarge, Type: invalidRequest, Code: "request_too_large",
			Message: fmt.Sprintf("the request has more than %d bytes", large.Limit)}
	}
	for _, c := range causes {
		if errors.Is(err, c.is) {
			return &Error{Status: c.status, Type: c.typ, Param: c.param, Code: c.code, Message: err.Error()}
		}
	}
	return &Error{Status: http.StatusInternalServerError, Type: serverError, Message: err.Error()}
}

// headers sets what an error says outside its text.
func (e *Error) headers(h http.Header) {
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int((e.RetryAfter+time.Second-1)/time.Second)))
	}
	if e.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
}
