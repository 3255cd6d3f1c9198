package hub

import (
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // git's
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// testCommit is the commit of all repositories of a testHub.
const testCommit = "0123456789abcdef0123456789abcdef01234567"

// testHub is a hub with repositories in memory. Large files lie at another host, to which it
// redirects, as on the real one.
type testHub struct {
	*httptest.Server
	store *httptest.Server // of large files
	repos map[string]map[string][]byte

	mu      sync.Mutex
	asked   []*http.Request
	token   string                                                    // that has to be known, if any
	hide    bool                                                      // list neither sizes nor hashes, as mirrors do
	serve   func(w http.ResponseWriter, r *http.Request, data []byte) // large files; nil: as they are
	listing func(w http.ResponseWriter, r *http.Request) bool         // true: it has answered
	etag    string                                                    // of the store's answers
}

// large is from how many bytes on files lie in the store.
const large = 1000

func newTestHub(t testing.TB, repos map[string]map[string][]byte) *testHub {
	h := &testHub{repos: repos, etag: `"of-the-store"`}
	h.Server = httptest.NewServer(http.HandlerFunc(h.api))
	h.store = httptest.NewServer(http.HandlerFunc(h.contents))
	t.Cleanup(func() { h.Close(); h.store.Close() })
	return h
}

func etagOf(data []byte) string {
	if len(data) >= large {
		sum := sha256.Sum256(data)
		return hex.EncodeToString(sum[:])
	}
	sum := sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(data), data)) //nolint:gosec // git's
	return hex.EncodeToString(sum[:])
}

func (h *testHub) note(r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = append(h.asked, r)
}

// requests returns what was asked for, as METHOD PATH.
func (h *testHub) requests() (list []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.asked {
		list = append(list, r.Method+" "+r.URL.Path)
	}
	h.asked = nil
	return list
}

func (h *testHub) api(w http.ResponseWriter, r *http.Request) {
	h.note(r)
	if h.token != "" && r.Header.Get("Authorization") != "Bearer "+h.token {
		w.Header().Set("X-Error-Code", "GatedRepo")
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if h.listing != nil && h.listing(w, r) {
		return
	}
	if repo, revision, ok := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/api/models/"), "/revision/"); ok {
		h.list(w, repo, revision)
		return
	}
	for name, files := range h.repos {
		rest, ok := strings.CutPrefix(r.URL.Path, "/"+name+"/resolve/"+testCommit+"/")
		if !ok {
			continue
		}
		data, ok := files[rest]
		if !ok {
			break
		}
		if len(data) >= large {
			w.Header().Set("X-Linked-Etag", `"`+etagOf(data)+`"`)
			w.Header().Set("X-Linked-Size", fmt.Sprint(len(data)))
			http.Redirect(w, r, h.store.URL+"/"+name+"/"+url.PathEscape(rest)+"?signature=secret", http.StatusFound)
			return
		}
		w.Header().Set("ETag", `"`+etagOf(data)+`"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
		return
	}
	w.Header().Set("X-Error-Code", "RepoNotFound")
	w.WriteHeader(http.StatusNotFound)
}

func (h *testHub) list(w http.ResponseWriter, repo, revision string) {
	files, ok := h.repos[repo]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if !slices.Contains([]string{"main", "v1", "refs%2Fpr%2F3", testCommit}, revision) {
		w.Header().Set("X-Error-Code", "RevisionNotFound")
		w.WriteHeader(http.StatusNotFound)
		return
	}
	type lfs struct {
		SHA256 string `json:"sha256"`
		Size   int    `json:"size"`
	}
	type sibling struct {
		File string `json:"rfilename"`
		Size *int   `json:"size,omitempty"`
		Blob string `json:"blobId,omitempty"`
		LFS  *lfs   `json:"lfs,omitempty"`
	}
	var siblings []sibling
	for _, file := range slices.Sorted(maps.Keys(files)) {
		data := files[file]
		n := len(data)
		s := sibling{File: file}
		if !h.hide {
			s.Size = &n
			if s.Blob = etagOf(data); n >= large {
				s.Blob, s.LFS = etagOf([]byte("a pointer")), &lfs{etagOf(data), n}
			}
		}
		siblings = append(siblings, s)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"sha": testCommit, "siblings": siblings})
}

// contents is the other host.
func (h *testHub) contents(w http.ResponseWriter, r *http.Request) {
	h.note(r)
	repo, file := r.URL.Path[1:], ""
	for name := range h.repos {
		if rest, ok := strings.CutPrefix(repo, name+"/"); ok {
			repo, file = name, rest
		}
	}
	data, ok := h.repos[repo][file]
	if !ok || r.URL.Query().Get("signature") != "secret" {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	w.Header().Set("ETag", h.etag)
	if h.serve != nil {
		h.serve(w, r, data)
		return
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
}

// client returns a hub that asks this one, with a cache of its own, and never waits.
func (h *testHub) client(t testing.TB) *Hub {
	dir := t.TempDir()
	return &Hub{Endpoint: h.URL, Cache: filepath.Join(dir, "hub"), Files: filepath.Join(dir, "files"),
		pause: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }}
}

// random returns bytes that no other call returns.
func random(n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(rand.Uint32())
	}
	return data
}
