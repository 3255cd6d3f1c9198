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
	"github.com/smelt-ml/smelt/constrain"
	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/models/mapped"
)

// Error is an error for the client: https://platform.openai.com/docs/guides/error-codes.
type Error struct {
	Status     int
	Message    string
	Type       string
	Param      string // the parameter at fault; "" for none
	Code       string // machine-readable; "" if Type suffices
	RetryAfter time.Duration
}

// Values of Error.Type.
const (
	invalidRequest = "invalid_request_error"
	authentication = "authentication_error"
	overloaded     = "overloaded_error"
	timedOut       = "timeout_error"
	serverError    = "server_error"
)

func (e *Error) Error() string { return e.Message }

// MarshalJSON writes all four members, null if empty, since clients read them without a check.
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

// invalid returns the error of a malformed request, with status 400.
func invalid(param, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Type: invalidRequest, Param: param, Message: fmt.Sprintf(format, args...)}
}

// refused returns the error of a parameter that would change the answer and is not supported.
func refused(param, why string) *Error {
	e := invalid(param, "%s: %s", param, why)
	e.Code = "unsupported_parameter"
	return e
}

// Overloaded returns the error of a request beyond the queue's limit.
func Overloaded(after time.Duration) *Error {
	return &Error{Status: http.StatusTooManyRequests, Type: overloaded, Code: "queue_full",
		Message: "too many requests wait; try again later", RetryAfter: after}
}

// Crowded returns the error of a request on a connection beyond their limit.
func Crowded() *Error {
	return &Error{Status: http.StatusServiceUnavailable, Type: overloaded, Code: "too_many_connections",
		Message: "too many connections are in use; try again later", RetryAfter: time.Second}
}

// TwoLengths returns the error of a request whose length can be read in two ways.
func TwoLengths() *Error {
	return invalid("", "the request has both Transfer-Encoding and Content-Length")
}

// Unloaded returns the error of a request whose model could not be loaded.
func Unloaded(name string) *Error {
	return &Error{Status: http.StatusServiceUnavailable, Type: serverError, Param: "model", Code: "model_not_loaded",
		Message: fmt.Sprintf("%s could not be loaded", name), RetryAfter: 10 * time.Second}
}

// Stopping returns the error of a request that arrives while the server shuts down.
func Stopping() *Error {
	return &Error{Status: http.StatusServiceUnavailable, Type: overloaded, Code: "shutting_down",
		Message: "the server is stopping", RetryAfter: time.Second}
}

// Unauthorized returns the error of a request without a valid key.
func Unauthorized() *Error {
	return &Error{Status: http.StatusUnauthorized, Type: authentication, Code: "invalid_api_key",
		Message: "the request has no API key that this server knows: Authorization: Bearer KEY"}
}

// NotFound returns the error of a request for an unknown model.
func NotFound(name string) *Error {
	return &Error{Status: http.StatusNotFound, Type: invalidRequest, Param: "model", Code: "model_not_found",
		Message: fmt.Sprintf("no model is called %q here", name)}
}

// causes maps smelt's errors to the status and code that the client gets.
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
	{constrain.ErrLimit, http.StatusBadRequest, invalidRequest, "", "constraint_too_large"},
	{checkpoint.ErrNoTokenizer, http.StatusBadRequest, invalidRequest, "model", "no_tokenizer"},
	{context.DeadlineExceeded, http.StatusGatewayTimeout, timedOut, "", "deadline_exceeded"},
	{context.Canceled, 499, timedOut, "", "canceled"},
	{mapped.ErrCut, http.StatusInternalServerError, serverError, "model", "weights_cut"},
	{smelt.ErrClosed, http.StatusServiceUnavailable, overloaded, "", "shutting_down"},
}

// errorOf returns err as an error for the client, with status 500 if its cause is unknown.
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

// headers sets the response headers that belong to the error.
func (e *Error) headers(h http.Header) {
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int((e.RetryAfter+time.Second-1)/time.Second)))
	}
	if e.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
}
