package openai

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRoom: large bodies that are read and encoded at one time share the room of one; small ones
// need none, and what is too large is refused before it is read.
func TestRoom(t *testing.T) {
	held, release := make(chan bool, 1), make(chan bool)
	a := &API{MaxBody: 32 * small, Patience: 100 * time.Millisecond, Find: func(_ context.Context, name string) (*Model, error) {
		if name == "slow" {
			held <- true
			<-release
		}
		return nil, NotFound(name)
	}}
	mux := http.NewServeMux()
	a.Register(mux)
	askAt := func(path, name string, bytes int, chunked bool) int {
		r := httptest.NewRequest("POST", path, strings.NewReader(`{"model": "`+name+`", "prompt": "`+strings.Repeat("x", bytes)+`"}`))
		r.Header.Set("Content-Type", "application/json")
		if chunked {
			r.ContentLength = -1
		}
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		return w.Code
	}
	ask := func(name string, bytes int, chunked bool) int { return askAt("/v1/completions", name, bytes, chunked) }
	first := make(chan int)
	go func() { first <- ask("slow", 24*small, false) }()
	<-held
	require.Equal(t, 404, ask("other", small/2, false))
	require.Equal(t, 429, ask("other", 16*small, false))
	require.Equal(t, 429, ask("other", 16*small, true), "of unknown length")
	require.Equal(t, 413, ask("other", 40*small, false))
	close(release)
	require.Equal(t, 404, <-first)
	for range 3 {
		require.Equal(t, 404, ask("other", 16*small, true))
		require.Equal(t, 413, ask("other", 40*small, true))
	}
	release = make(chan bool)
	go func() { first <- askAt("/tokenize", "slow", 3*small, false) }()
	<-held
	require.Equal(t, 429, ask("other", 16*small, false), "a text of any length counts eight times")
	require.Equal(t, 404, ask("other", 3*small, false))
	close(release)
	require.Equal(t, 404, <-first)
	require.Equal(t, 413, askAt("/tokenize", "other", 5*small, false))
	require.Equal(t, 413, askAt("/v1/messages/count_tokens", "other", 5*small, true))
}
