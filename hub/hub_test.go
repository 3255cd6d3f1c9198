package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// tree lists the files in a folder, and links with their targets.
func tree(t *testing.T, root string) (list []string) {
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, path)
		if to, no := os.Readlink(path); no == nil {
			name += " -> " + to
		}
		list = append(list, name)
		return err
	}))
	return list
}

// TestPull pulls a GGUF file and a folder: the layout is that of Hugging Face's tools, cached files
// are not fetched again, and Find uses no network.
func TestPull(t *testing.T) {
	big, small := random(5000), []byte(`{"small": true}`)
	server := newTestHub(t, map[string]map[string][]byte{
		"org/quants": {"m-Q4_K_M.gguf": big, "sub/m-Q8_0.gguf": small, "README.md": small},
		"org/folder": {"config.json": small, "model.safetensors.index.json": []byte(`{"weight_map": {"x": "w-1.safetensors"}}`), "w-1.safetensors": big, "w-2.safetensors": big, "README.md": big},
	})
	h := server.client(t)
	ctx := t.Context()
	_, err := h.Find("org/quants")
	require.ErrorIs(t, err, ErrNotCached)

	seen := map[string]int64{}
	path, err := h.Pull(ctx, "org/quants", func(file string, done, total int64) {
		require.LessOrEqual(t, seen[file], done)
		require.Equal(t, int64(len(big)), total)
		seen[file] = done
	})
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"m-Q4_K_M.gguf": int64(len(big))}, seen)
	require.Equal(t, filepath.Join(h.Cache, "models--org--quants/snapshots", testCommit, "m-Q4_K_M.gguf"), path)
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, big, got)
	found, err := h.Find("hf.co/org/quants:q4_k_m")
	require.NoError(t, err)
	require.Equal(t, path, found)
	_, err = h.Find("org/quants:Q8_0")
	require.ErrorIs(t, err, ErrNotCached)
	require.Equal(t, []string{
		"GET /api/models/org/quants/revision/main", "GET /org/quants/resolve/" + testCommit + "/m-Q4_K_M.gguf", "GET /org/quants/m-Q4_K_M.gguf",
	}, server.requests())

	_, err = h.Pull(ctx, "org/quants@refs/pr/3/sub/m-Q8_0.gguf", nil)
	require.NoError(t, err)
	server.requests()
	_, err = h.Pull(ctx, "org/quants@v1", nil)
	require.NoError(t, err)
	require.Equal(t, []string{"GET /api/models/org/quants/revision/v1"}, server.requests(), "it was there")
	require.Equal(t, sorted([]string{
		".locks/models--org--quants/" + etagOf(big) + ".lock",
		".locks/models--org--quants/" + etagOf(small) + ".lock",
		"CACHEDIR.TAG",
		"models--org--quants/blobs/" + etagOf(big),
		"models--org--quants/blobs/" + etagOf(small),
		"models--org--quants/refs/main",
		"models--org--quants/refs/refs/pr/3",
		"models--org--quants/refs/v1",
		"models--org--quants/snapshots/" + testCommit + "/m-Q4_K_M.gguf -> ../../blobs/" + etagOf(big),
		"models--org--quants/snapshots/" + testCommit + "/sub/m-Q8_0.gguf -> ../../../blobs/" + etagOf(small),
	}), sorted(tree(t, h.Cache)))
	ref, err := os.ReadFile(filepath.Join(h.Cache, "models--org--quants/refs/main"))
	require.NoError(t, err)
	require.Equal(t, testCommit, string(ref), "as others write it: nothing behind")

	path, err = h.Pull(ctx, "org/folder", nil)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(h.Cache, "models--org--folder/snapshots", testCommit), filepath.Clean(path))
	require.Equal(t, []string{"config.json -> ../../blobs/" + etagOf(small),
		"model.safetensors.index.json -> ../../blobs/" + etagOf(server.repos["org/folder"]["model.safetensors.index.json"]),
		"w-1.safetensors -> ../../blobs/" + etagOf(big)}, sorted(tree(t, path)))
	found, err = h.Find("org/folder")
	require.NoError(t, err)
	require.Equal(t, path, found)
	require.NoError(t, os.Remove(filepath.Join(h.Cache, "models--org--folder/blobs", etagOf(big))))
	_, err = h.Find("org/folder")
	require.ErrorIs(t, err, ErrNotCached, "a link that leads nowhere")
	require.ErrorContains(t, err, "w-1.safetensors, which model.safetensors.index.json names, is missing")

	h.Offline = true
	server.requests()
	path, err = h.Pull(ctx, "org/quants", nil)
	require.NoError(t, err)
	require.FileExists(t, path)
	_, err = h.Pull(ctx, "org/folder", nil)
	require.ErrorIs(t, err, ErrNotCached)
	require.ErrorContains(t, err, "HF_HUB_OFFLINE")
	require.Empty(t, server.requests())
}

func sorted(s []string) []string { slices.Sort(s); return s }

// TestPullMirror pulls from a server that lists neither sizes nor hashes, with a HEAD for each
// file; without links, files are moved into the snapshot.
func TestPullMirror(t *testing.T) {
	big, small := random(5000), []byte(`{}`)
	server := newTestHub(t, map[string]map[string][]byte{"org/name": {"config.json": small, "model.safetensors": big}})
	server.hide = true
	h := server.client(t)
	h.Copies = true
	for range 2 {
		path, err := h.Pull(t.Context(), "org/name", nil)
		require.NoError(t, err)
		require.Equal(t, []string{"config.json", "model.safetensors"}, tree(t, path))
		got, err := os.ReadFile(filepath.Join(path, "model.safetensors"))
		require.NoError(t, err)
		require.Equal(t, big, got)
	}
	require.Equal(t, 1, strings.Count(strings.Join(server.requests(), "\n"), "GET /org/name/model.safetensors"))
}

// TestLocal: an existing path precedes a name, and a text that is neither is returned unchanged.
func TestLocal(t *testing.T) {
	data := random(2000)
	server := newTestHub(t, map[string]map[string][]byte{"org/name": {"a.gguf": data}})
	h := server.client(t)
	t.Chdir(t.TempDir())
	cached, err := h.Pull(t.Context(), "org/name", nil)
	require.NoError(t, err)
	for model, want := range map[string]string{
		"org/name": cached, "hf:org/name": cached, "org/name/a.gguf": cached, "a.gguf": "a.gguf", "folder/a.gguf": "folder/a.gguf", "/a/b": "/a/b", "": "",
	} {
		path, err := h.Local(model)
		require.NoError(t, err, model)
		require.Equal(t, want, path, model)
	}
	for _, model := range []string{"org/other", "org/name:Q8_0", "org/name@v2", "https://example.com/a.gguf"} {
		_, err = h.Local(model)
		require.ErrorIs(t, err, ErrNotCached, model)
	}
	for _, model := range []string{"hf:x", "hf.co/x", "https://x/"} {
		_, err = h.Local(model)
		require.ErrorIs(t, err, ErrName, model)
	}
	require.NoError(t, os.MkdirAll("org/name", 0o755))
	path, err := h.Local("org/name")
	require.NoError(t, err)
	require.Equal(t, "org/name", path)
}

// cutting serves a file whose connections end after a number of bytes each.
func cutting(cuts func() int) func(http.ResponseWriter, *http.Request, []byte) {
	return func(w http.ResponseWriter, r *http.Request, data []byte) {
		http.ServeContent(&cutWriter{w, cuts()}, r, "", time.Time{}, bytes.NewReader(data))
	}
}

type cutWriter struct {
	http.ResponseWriter
	left int
}

func (w *cutWriter) Write(p []byte) (int, error) {
	n := min(len(p), w.left)
	w.left -= n
	if _, err := w.ResponseWriter.Write(p[:n]); err != nil {
		return 0, err
	}
	if n < len(p) {
		_ = http.NewResponseController(w.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	return n, nil
}

// Unwrap keeps io.Copy from going around Write.
func (w *cutWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// TestCuts interrupts connections at any position, any number of times and across processes; the
// file is correct in the end.
func TestCuts(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 30 {
		data := make([]byte, 1000+random.IntN(300_000))
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		server := newTestHub(t, map[string]map[string][]byte{"org/name": {"a.gguf": data}})
		server.serve = cutting(func() int {
			n := random.IntN(len(data) / (1 + random.IntN(8)))
			if random.IntN(4) == 0 {
				n = 0
			}
			return n
		})
		h := server.client(t)
		var path string
		var err error
		for range 1000 {
			ctx, stop := context.WithCancel(t.Context())
			limit := random.Int64N(int64(len(data)) * 2)
			path, err = h.Pull(ctx, "org/name", func(_ string, done, _ int64) {
				if done > limit { // the process ends
					stop()
				}
			})
			stop()
			if err == nil {
				break
			}
			if !errors.Is(err, context.Canceled) {
				require.ErrorContains(t, err, "after 5 tries", "round %d", round)
			}
		}
		require.NoError(t, err)
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, got))
		require.NotContains(t, strings.Join(tree(t, h.Cache), "\n"), incomplete)
		server.Close()
		server.store.Close()
	}
}

// TestResume checks the requests after an interruption, for servers of all kinds.
func TestResume(t *testing.T) {
	data := random(100_000)
	half := data[:40_000]
	for _, c := range []struct {
		name    string
		partial []byte // of a run before
		serve   func(w http.ResponseWriter, r *http.Request, data []byte)
		asked   []string // Range and If-Range of each request
		err     string
		left    int // bytes of what is not whole, after an error
	}{
		{name: "goes on", partial: half, asked: []string{"bytes=40000- "}},
		{name: "is whole but for its name", partial: data},
		{name: "is longer than the file", partial: append(slices.Clone(data), 1), asked: []string{" "}},
		{name: "is of another file", partial: random(50_000), asked: []string{"bytes=50000- ", " "}},
		{
			name: "ignores ranges", partial: half, asked: []string{"bytes=40000- "},
			serve: func(w http.ResponseWriter, r *http.Request, data []byte) { _, _ = w.Write(data) },
		},
		{
			name: "sends another range", partial: half, asked: []string{"bytes=40000- ", " "},
			serve: func(w http.ResponseWriter, r *http.Request, data []byte) {
				if r.Header.Get("Range") != "" {
					r.Header.Set("Range", "bytes=39999-")
				}
				http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
			},
		},
		{
			name: "has less than it did", partial: half, asked: []string{"bytes=40000- ", " "},
			serve: func(w http.ResponseWriter, r *http.Request, data []byte) {
				if r.Header.Get("Range") != "" {
					w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
					return
				}
				_, _ = w.Write(data)
			},
		},
		{name: "cuts, then goes on with the same", asked: []string{" ", `bytes=1000- "of-the-store"`}, serve: once(cutting(func() int { return 1000 }))},
		{
			name: "changes in between", asked: []string{" ", `bytes=1000- "one"`}, serve: changing("one", "two"),
		},
		{
			name: "changes and does not say so", asked: []string{" ", `bytes=1000- "one"`, " "}, serve: changing("one", "two", "If-Range"),
		},
		{
			name: "sends something else", asked: []string{" "}, left: 0, err: "hash",
			serve: func(w http.ResponseWriter, r *http.Request, data []byte) { _, _ = w.Write(random(len(data))) },
		},
		{
			name: "always sends something else behind", partial: half, asked: []string{"bytes=40000- ", " "}, err: "hash",
			serve: func(w http.ResponseWriter, r *http.Request, data []byte) {
				http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(random(len(data))))
			},
		},
		{
			name: "says that there is more", asked: []string{" "}, err: "the server has 100001 bytes, but the hub gives 100000",
			serve: func(w http.ResponseWriter, r *http.Request, data []byte) {
				http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(append(data[:len(data):len(data)], 1)))
			},
		},
		{
			name: "says an absurd length", asked: []string{" "}, err: "the server has 9000000000000000000 bytes",
			serve: func(w http.ResponseWriter, r *http.Request, data []byte) {
				w.Header().Set("Content-Length", "9000000000000000000")
				_, _ = w.Write(data)
			},
		},
		{
			name: "sends more and more", asked: []string{" "}, err: "the server sends more than the 100000 bytes",
			serve: func(w http.ResponseWriter, r *http.Request, data []byte) {
				for range 1000 {
					if _, err := w.Write(data); err != nil {
						return
					}
				}
			},
		},
		{
			name: "is short, and ends in order", asked: []string{" ", `bytes=50000- "of-the-store"`, `bytes=50000- "of-the-store"`, `bytes=50000- "of-the-store"`, `bytes=50000- "of-the-store"`},
			err: "the connection ended after 50000 of 100000 bytes (after 5 tries)", left: 50_000,
			serve: func(w http.ResponseWriter, r *http.Request, data []byte) {
				if r.Header.Get("Range") != "" {
					w.Header().Set("Content-Range", "bytes 50000-99999/100000")
					w.WriteHeader(http.StatusPartialContent)
				} else {
					_, _ = w.Write(data[:len(data)/2])
				}
				_ = http.NewResponseController(w).Flush() // so that no length is said
			},
		},
		{
			name: "is busy", asked: []string{" ", " "},
			serve: once(func(w http.ResponseWriter, r *http.Request, _ []byte) {
				w.Header().Set("Retry-After", "3")
				w.WriteHeader(http.StatusTooManyRequests)
			}),
		},
		{
			name: "is broken", asked: []string{" ", " ", " ", " ", " "}, err: "answers 503 Service Unavailable (after 5 tries)",
			serve: func(w http.ResponseWriter, r *http.Request, _ []byte) { w.WriteHeader(http.StatusServiceUnavailable) },
		},
		{
			name: "forbids it", partial: half, asked: []string{"bytes=40000- "}, err: "answers 403 Forbidden", left: len(half),
			serve: func(w http.ResponseWriter, r *http.Request, _ []byte) { w.WriteHeader(http.StatusForbidden) },
		},
		{
			name: "says nothing more", asked: []string{" ", `bytes=1000- "of-the-store"`},
			serve: once(func(w http.ResponseWriter, r *http.Request, data []byte) {
				w.Header().Set("Content-Length", fmt.Sprint(len(data)))
				_, _ = w.Write(data[:1000])
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}),
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := newTestHub(t, map[string]map[string][]byte{"org/name": {"a.gguf": data}})
			var mu sync.Mutex
			var asked []string
			server.serve = func(w http.ResponseWriter, r *http.Request, data []byte) {
				mu.Lock()
				asked = append(asked, r.Header.Get("Range")+" "+r.Header.Get("If-Range"))
				mu.Unlock()
				if c.serve == nil {
					http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
				} else {
					c.serve(w, r, data)
				}
			}
			h := server.client(t)
			h.stall = 200 * time.Millisecond
			blob := h.repo(Name{Repo: "org/name"}).blob(etagOf(data))
			require.NoError(t, os.MkdirAll(filepath.Dir(blob), 0o755))
			if c.partial != nil {
				require.NoError(t, os.WriteFile(blob+incomplete, c.partial, 0o644))
			}
			path, err := h.Pull(t.Context(), "org/name", nil)
			require.Equal(t, c.asked, asked)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				require.ErrorContains(t, err, "org/name/a.gguf: ")
				info, err := os.Stat(blob + incomplete)
				require.NoError(t, err)
				require.Equal(t, int64(c.left), info.Size())
				_, err = h.Find("org/name")
				require.ErrorIs(t, err, ErrNotCached)
				return
			}
			require.NoError(t, err)
			got, err := os.ReadFile(path)
			require.NoError(t, err)
			require.True(t, bytes.Equal(data, got))
		})
	}
}

// once serves otherwise the first time only.
func once(first func(http.ResponseWriter, *http.Request, []byte)) func(http.ResponseWriter, *http.Request, []byte) {
	var served atomic.Bool
	return func(w http.ResponseWriter, r *http.Request, data []byte) {
		if served.CompareAndSwap(false, true) {
			first(w, r, data)
			return
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	}
}

// changing cuts a first file, and has the right one from then on, under another ETag; headers
// are those of requests that it does not look at.
func changing(first, then string, ignored ...string) func(http.ResponseWriter, *http.Request, []byte) {
	var served atomic.Bool
	return func(w http.ResponseWriter, r *http.Request, data []byte) {
		if served.CompareAndSwap(false, true) {
			w.Header().Set("ETag", `"`+first+`"`)
			cutting(func() int { return 1000 })(w, r, random(len(data)))
			return
		}
		w.Header().Set("ETag", `"`+then+`"`)
		for _, header := range ignored {
			r.Header.Del(header)
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	}
}

// TestTwoAtOnce: concurrent pulls of the same files fetch each file once.
func TestTwoAtOnce(t *testing.T) {
	files := map[string][]byte{"a.gguf": random(200_000)}
	server := newTestHub(t, map[string]map[string][]byte{"org/name": files})
	server.serve = func(w http.ResponseWriter, r *http.Request, data []byte) {
		time.Sleep(2 * lockPoll) // all others wait by then
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	}
	h := server.client(t)
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			path, err := h.Pull(t.Context(), "org/name", nil)
			if err != nil {
				t.Error(err)
				return
			}
			if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, files["a.gguf"]) {
				t.Errorf("%v, or not what it should be", err)
			}
		})
	}
	all.Wait()
	require.Equal(t, 1, strings.Count(strings.Join(server.requests(), "\n"), "GET /org/name/a.gguf"))
}

// TestLock waits for a lock that is held, and locks a new file if the holder removed the old one.
func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d", "x.lock")
	release, err := lock(t.Context(), path)
	require.NoError(t, err)
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	_, err = lock(ctx, path)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	got := make(chan func())
	go func() {
		release, err := lock(t.Context(), path)
		if err != nil {
			t.Error(err)
		}
		got <- release
	}()
	time.Sleep(2 * lockPoll)
	require.NoError(t, os.Remove(path), "as some tools do when they are done")
	release()
	release = <-got
	require.FileExists(t, path)
	release()

	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	require.True(t, isAt(f, path))
	require.NoError(t, os.Remove(path))
	require.False(t, isAt(f, path), "a lock of it keeps nobody out")
	require.NoError(t, os.WriteFile(path, nil, 0o644))
	require.False(t, isAt(f, path))
}

// TestToken: the token is sent to the hub only.
func TestToken(t *testing.T) {
	files := map[string]map[string][]byte{"org/name": {"a.gguf": random(2000), "b-Q8_0.gguf": []byte("small")}}
	server := newTestHub(t, files)
	server.token = "hf_secret"
	h := server.client(t)
	_, err := h.Pull(t.Context(), "org/name/a.gguf", nil)
	require.ErrorContains(t, err, "accept its terms at "+server.URL+"/org/name, create a token")
	h.Token = "hf_wrong"
	_, err = h.Pull(t.Context(), "org/name/a.gguf", nil)
	require.ErrorContains(t, err, "the account of this token has no access")
	require.NotContains(t, err.Error(), "hf_wrong")
	server.requests()
	h.Token = "hf_secret"
	for _, hide := range []bool{false, true} {
		server.hide = hide
		for _, file := range []string{"a.gguf", "b-Q8_0.gguf"} {
			_, err = h.Pull(t.Context(), "org/name/"+file, nil)
			require.NoError(t, err)
		}
		require.NoError(t, os.RemoveAll(h.Cache))
	}
	for _, r := range server.asked {
		require.Equal(t, "identity", r.Header.Get("Accept-Encoding"), "else its size and ranges are those of what is packed")
		want := "Bearer hf_secret"
		if "http://"+r.Host == server.store.URL {
			want = ""
		}
		require.Equal(t, want, r.Header.Get("Authorization"), r.URL.Path)
	}

	// Nor if the other host redirects back to the hub.
	back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, server.URL+"/back", http.StatusFound)
	}))
	defer back.Close()
	server.listing = func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.URL.Path == "/back":
			w.WriteHeader(http.StatusTeapot)
		case strings.Contains(r.URL.Path, "/resolve/"):
			http.Redirect(w, r, back.URL, http.StatusFound)
		default:
			return false
		}
		return true
	}
	server.token = ""
	server.requests()
	server.hide = false
	_, err = h.Pull(t.Context(), "org/name/a.gguf", nil)
	require.ErrorContains(t, err, "418")
	// A name of the file system's, and of no hub.
	server.requests()
	_, err = h.Pull(t.Context(), back.URL+"/x/a.gguf", nil)
	require.Error(t, err)
	for _, r := range server.asked {
		require.Empty(t, r.Header.Get("Authorization"))
	}
}

func TestRedirectsBack(t *testing.T) {
	request := func(address string) *http.Request {
		r, err := http.NewRequest(http.MethodGet, address, nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer x")
		return r
	}
	for _, c := range []struct {
		way  []string
		kept bool
		err  string
	}{
		{[]string{"https://hub/a", "https://hub/b"}, true, ""},
		{[]string{"https://hub/a", "https://cdn.hub/b"}, false, ""},
		{[]string{"https://hub/a", "https://hub:444/b"}, false, ""},
		{[]string{"https://hub/a", "https://evil/b", "https://hub/c"}, false, ""},
		{[]string{"https://hub/a", "http://hub/b"}, false, "a redirect from https to http://hub"},
		{[]string{"http://hub/a", "https://hub/b"}, false, ""},
		{slices.Repeat([]string{"https://hub/a"}, redirects+2), false, "10 redirects"},
	} {
		var via []*http.Request
		for _, address := range c.way[:len(c.way)-1] {
			via = append(via, request(address))
		}
		r := request(c.way[len(c.way)-1])
		err := checkRedirect(r, via)
		if c.err != "" {
			require.ErrorContains(t, err, c.err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.kept, r.Header.Get("Authorization") != "", "%v", c.way)
	}
}

// TestRefused: errors for what the hub lacks, and for malformed responses.
func TestRefused(t *testing.T) {
	server := newTestHub(t, map[string]map[string][]byte{"org/name": {"a.gguf": random(2000)}})
	h := server.client(t)
	for name, why := range map[string]string{
		"org/other":        "the hub has no such model",
		"org/name@v9":      "there is no revision v9",
		"org/name/b.gguf":  "b.gguf is missing",
		"org/name:Q2_K":    "a GGUF file of the type Q2_K is missing (a.gguf)",
		"name":             "want org/name",
		"org/name/../evil": "is not the path",
	} {
		_, err := h.Pull(t.Context(), name, nil)
		require.ErrorContains(t, err, why, name)
	}
	hash := strings.Repeat("a", 64)
	for body, why := range map[string]string{
		`{`:                                "not a list of files",
		`{"sha": "../../../../etc"}`:       "not a commit",
		`{"sha": "` + testCommit + `"}`:    "org/name: neither a GGUF file nor",
		listed("../a.gguf", hash, 5):       "is not the path",
		listed("/etc/passwd", hash, 5):     "is not the path",
		listed("a.gguf", "../../../x", 5):  `hash "../../../x"`,
		listed("a.gguf", hash, -5):         "-5 bytes",
		listed("a.gguf", hash, 1<<62):      "the disk of " + h.Cache + " has only",
		strings.Repeat(" ", longestJSON+1): "longer than",
	} {
		server.listing = func(w http.ResponseWriter, r *http.Request) bool { _, _ = io.WriteString(w, body); return true }
		_, err := h.Pull(t.Context(), "org/name", nil)
		require.ErrorContains(t, err, why, "%.80s", body)
	}
	for _, dir := range []string{"models--org--name/blobs", "models--org--name/snapshots"} {
		require.NoDirExists(t, filepath.Join(h.Cache, dir), "nothing was begun")
	}
	for code, why := range map[int]string{
		http.StatusUnauthorized: "private or gated: then set HF_TOKEN", http.StatusForbidden: "HF_TOKEN",
		http.StatusTeapot: "answers 418", http.StatusBadGateway: "after 5 tries", http.StatusMovedPermanently: "answers 301",
	} {
		server.listing = func(w http.ResponseWriter, r *http.Request) bool { w.WriteHeader(code); return true }
		_, err := h.Pull(t.Context(), "org/name", nil)
		require.ErrorContains(t, err, why)
		require.ErrorContains(t, err, "org/name: ")
	}
	server.listing = func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("X-Error-Message", "gone\u202e[31m")
		w.WriteHeader(http.StatusGone)
		return true
	}
	_, err := h.Pull(t.Context(), "org/name", nil)
	require.ErrorContains(t, err, "answers 410 Gone: gone[31m")
	server.Close()
	_, err = h.Pull(t.Context(), "org/name", nil)
	require.ErrorContains(t, err, "connection refused (after 5 tries)")
}

func listed(file, hash string, size int64) string {
	return fmt.Sprintf(`{"sha": %q, "siblings": [{"rfilename": %q, "lfs": {"sha256": %q, "size": %d}}]}`, testCommit, file, hash, size)
}

// TestURL: a file of any server is fetched again only after a change, and a partial file is
// continued only while the file is unchanged.
func TestURL(t *testing.T) {
	var (
		data     = random(50_000)
		etag     = `"one"`
		modified time.Time
		cut      int
		deaf     bool // to If-Range
		asked    []string
	)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Header.Get("Range")+"|"+r.Header.Get("If-Range")+"|"+r.Header.Get("If-None-Match")+"|"+r.Header.Get("If-Modified-Since"))
		if etag != "" {
			w.Header().Set("ETag", etag)
		}
		if deaf {
			r.Header.Del("If-Range")
		}
		if cut > 0 {
			w = &cutWriter{w, cut}
		}
		http.ServeContent(w, r, "", modified, bytes.NewReader(data))
	}))
	defer server.Close()
	dir := t.TempDir()
	h := &Hub{Endpoint: "https://huggingface.co", Token: "hf_secret", Cache: filepath.Join(dir, "hub"), Files: filepath.Join(dir, "files")}
	h.pause = func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
	address := server.URL + "/d/a.gguf?x=1"
	pull := func(want ...string) {
		t.Helper()
		asked = nil
		path, err := h.Pull(t.Context(), address, nil)
		require.NoError(t, err)
		require.Equal(t, want, asked)
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, got))
		require.Equal(t, "a.gguf", filepath.Base(path))
		found, err := h.Local(address)
		require.NoError(t, err)
		require.Equal(t, path, found)
	}
	broken := func(want int) {
		t.Helper()
		asked = nil
		_, err := h.Pull(t.Context(), address, nil)
		require.ErrorContains(t, err, "unexpected EOF")
		partial, err := filepath.Glob(filepath.Join(h.Files, "*", "*"+incomplete))
		require.NoError(t, err)
		require.Len(t, partial, 1)
		info, err := os.Stat(partial[0])
		require.NoError(t, err)
		require.Equal(t, int64(want), info.Size())
	}
	_, err := h.Local(address)
	require.ErrorIs(t, err, ErrNotCached)
	pull("|||")
	pull(`||"one"|`)
	data, etag = random(60_000), `"two"`
	pull(`||"one"|`)
	pull(`||"two"|`)

	data, etag, cut = random(60_000), `"three"`, 10_000 // and it breaks, in more than one try
	ctx, stop := context.WithCancel(t.Context())
	_, err = h.Pull(ctx, address, func(_ string, done, _ int64) {
		if done >= 25_000 {
			stop()
		}
	})
	require.ErrorIs(t, err, context.Canceled)
	cut = 0
	found, err := h.Find(address)
	require.NoError(t, err)
	info, err := os.Stat(found)
	require.NoError(t, err)
	require.Equal(t, int64(60_000), info.Size(), "the old one, until the new one is whole")
	asked = nil
	_, err = h.Pull(t.Context(), address, nil)
	require.NoError(t, err)
	require.Len(t, asked, 1)
	require.Regexp(t, `^bytes=\d+-\|"three"\|"two"\|$`, asked[0])
	pull(`||"three"|`)

	// It changes while a try waits for the next, at a server that does not look at If-Range.
	data, etag, cut, deaf = random(60_000), `"four"`, 10_000, true
	h.pause = func(context.Context, time.Duration) error {
		if etag == `"four"` {
			data, etag, cut = random(60_000), `"five"`, 0
		}
		return nil
	}
	pull(`||"three"|`, `bytes=10000-|"four"|"three"|`, `||"three"|`)
	deaf = false
	pull(`||"five"|`)

	// Weak tags tell nothing of bytes; dates do.
	data, etag, modified = random(70_000), `W/"weak"`, time.Date(2024, 5, 1, 0, 0, 0, 0, time.UTC)
	pull(`||"five"|`)
	pull("|||Wed, 01 May 2024 00:00:00 GMT")
	// Without either, only the size does, and nothing is gone on with.
	data, etag, modified = random(30_000), "", time.Time{}
	pull("|||Wed, 01 May 2024 00:00:00 GMT")
	pull("|||")
	data, cut = random(31_000), 10_000
	broken(10_000)
	require.Equal(t, slices.Repeat([]string{"|||"}, tries), asked)
	cut = 0
	pull("|||")

	h.Offline = true
	path, err := h.Pull(t.Context(), address, nil)
	require.NoError(t, err)
	require.FileExists(t, path)
	left := tree(t, h.Files)
	require.Len(t, left, 3, "the file, its validator and its lock: %v", left)
}

// TestURLRoom: a download that exceeds the free space is not started.
func TestURLRoom(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "9000000000000000000")
		_, _ = w.Write([]byte("x"))
	}))
	defer server.Close()
	h := &Hub{Cache: t.TempDir(), Files: t.TempDir()}
	_, err := h.Pull(t.Context(), strings.Replace(server.URL, "http://", "http://user:word@", 1)+"/a.gguf", nil)
	require.ErrorContains(t, err, "9000000000000000000 bytes are missing, but the disk")
	require.NotContains(t, err.Error(), "word")
}

// TestEnvironment: the variables have the meaning of Hugging Face's tools.
func TestEnvironment(t *testing.T) {
	home := t.TempDir()
	for _, c := range []struct {
		env  map[string]string
		want Hub
		err  string
	}{
		{want: Hub{Endpoint: "https://huggingface.co", Cache: home + "/.cache/huggingface/hub", Token: "in the home"}},
		{env: map[string]string{"XDG_CACHE_HOME": "/xdg"}, want: Hub{Endpoint: "https://huggingface.co", Cache: "/xdg/huggingface/hub"}},
		{env: map[string]string{"HF_HOME": "~/hf$X", "X": "1"}, want: Hub{Endpoint: "https://huggingface.co", Cache: home + "/hf1/hub"}},
		{env: map[string]string{"HUGGINGFACE_HUB_CACHE": "/old"}, want: Hub{Endpoint: "https://huggingface.co", Cache: "/old", Token: "in the home"}},
		{env: map[string]string{"HF_HUB_CACHE": "/new", "HUGGINGFACE_HUB_CACHE": "/old", "HF_TOKEN": " hf_x\r\n"}, want: Hub{Endpoint: "https://huggingface.co", Cache: "/new", Token: "hf_x"}},
		{env: map[string]string{"HF_TOKEN_PATH": "~/other", "HF_ENDPOINT": "http://mirror/hf/"}, want: Hub{Endpoint: "http://mirror/hf", Cache: home + "/.cache/huggingface/hub", Token: "of a file"}},
		{env: map[string]string{"HF_TOKEN": "hf_x", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1", "HF_HUB_OFFLINE": "yes", "HF_HUB_DISABLE_SYMLINKS": "ON"},
			want: Hub{Endpoint: "https://huggingface.co", Cache: home + "/.cache/huggingface/hub", Offline: true, Copies: true}},
		{env: map[string]string{"HF_ENDPOINT": "mirror"}, err: "HF_ENDPOINT=mirror"},
	} {
		t.Run(strings.Join(sorted(slices.Collect(maps.Keys(c.env))), " "), func(t *testing.T) {
			for _, name := range []string{"HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_ENDPOINT", "HF_HUB_OFFLINE", "HF_HUB_DISABLE_IMPLICIT_TOKEN", "HF_HUB_DISABLE_SYMLINKS"} {
				t.Setenv(name, c.env[name])
			}
			t.Setenv("X", c.env["X"])
			t.Setenv("HOME", home)
			require.NoError(t, os.MkdirAll(home+"/.cache/huggingface", 0o755))
			require.NoError(t, os.WriteFile(home+"/.cache/huggingface/token", []byte("in the home\n"), 0o600))
			require.NoError(t, os.WriteFile(home+"/other", []byte("of a file"), 0o600))
			h, err := FromEnvironment()
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			h.Files = ""
			require.Equal(t, c.want, *h)
		})
	}
}

// TestHugeSizes: sizes whose sum exceeds the type exceed the disk.
func TestHugeSizes(t *testing.T) {
	server := newTestHub(t, nil)
	server.listing = func(w http.ResponseWriter, r *http.Request) bool {
		var files []string
		for i := range 2 {
			files = append(files, fmt.Sprintf(`{"rfilename": "m-%05d-of-00002.gguf", "lfs": {"sha256": "%064d", "size": 6000000000000000000}}`, i+1, i))
		}
		_, err := fmt.Fprintf(w, `{"sha": %q, "siblings": [%s]}`, testCommit, strings.Join(files, ","))
		return err == nil
	}
	h := &Hub{Endpoint: server.URL, Cache: t.TempDir()}
	_, err := h.Pull(t.Context(), "org/huge", nil)
	require.ErrorContains(t, err, "9223372036854775807 bytes are missing, but the disk")
}
