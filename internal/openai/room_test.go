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
	a := &API{MaxBody: 4 * small, Patience: 100 * time.Millisecond, Find: func(_ context.Context, name string) (*Model, error) {
		if name == "slow" {
			held <- true
			<-release
		}
		return nil, NotFound(name)
	}}
	mux := http.NewServeMux()
	a.Register(mux)
	ask := func(name string, bytes int, chunked bool) int {
		r := httptest.NewRequest("POST", "/v1/completions", strings.NewReader(`{"model": "`+name+`", "prompt": "`+strings.Repeat("x", bytes)+`"}`))
		r.Header.Set("Content-Type", "application/json")
		if chunked {
			r.ContentLength = -1
		}
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		return w.Code
	}
	first := make(chan int)
	go func() { first <- ask("slow", 3*small, false) }()
	<-held
	require.Equal(t, 404, ask("other", small/2, false))
	require.Equal(t, 429, ask("other", 2*small, false))
	require.Equal(t, 429, ask("other", 2*small, true), "of unknown length")
	require.Equal(t, 413, ask("other", 5*small, false))
	close(release)
	require.Equal(t, 404, <-first)
	for range 3 {
		require.Equal(t, 404, ask("other", 2*small, true))
		require.Equal(t, 413, ask("other", 5*small, true))
	}
}
