package openai

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// encode encodes JSON without escaping <, > and &, and without a line end.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// stream writes server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html.
// The header is sent with the first event, so that an earlier failure can still set the status.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	patient time.Duration // write timeout; 0: none
	begun   bool
	err     error // the first error; nothing is written after it
}

func newStream(w http.ResponseWriter, patient time.Duration) *stream {
	return &stream{w: w, control: http.NewResponseController(w), patient: patient}
}

// send writes an event, with an event name unless that is "".
func (s *stream) send(name string, v any) {
	data, err := encode(v)
	if err != nil {
		s.err = err
		return
	}
	var b bytes.Buffer
	if name != "" {
		b.WriteString("event: " + name + "\n")
	}
	b.WriteString("data: ")
	b.Write(data)
	b.WriteString("\n\n")
	s.write(b.Bytes())
}

func (s *stream) write(text []byte) {
	if s.err != nil {
		return
	}
	if !s.begun {
		s.begun = true
		h := s.w.Header()
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no") // proxies must not buffer the stream
		s.w.WriteHeader(http.StatusOK)
	}
	if s.patient > 0 {
		_ = s.control.SetWriteDeadline(time.Now().Add(s.patient)) // ignored by writers without deadlines
	}
	if _, s.err = s.w.Write(text); s.err == nil {
		s.err = s.control.Flush()
	}
}

// reply writes a whole JSON answer.
func reply(w http.ResponseWriter, status int, v any) {
	data, err := encode(v)
	if err != nil { // no answer has values that fail to encode
		status, data = http.StatusInternalServerError, []byte(`{"error":{"message":"the answer cannot be written","type":"server_error","param":null,"code":null}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n')) // the client may have disconnected
}

// Fail writes an error to the client, in the form of the request's protocol.
func Fail(w http.ResponseWriter, r *http.Request, err error) {
	e := errorOf(err)
	e.headers(w.Header())
	if strings.HasPrefix(r.URL.Path, messagesPath) {
		reply(w, e.Status, anthropicError(e))
		return
	}
	reply(w, e.Status, struct {
		Error *Error `json:"error"`
	}{e})
}
