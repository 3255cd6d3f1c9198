package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Hub is a server of models and a cache for them.
type Hub struct {
	Endpoint string // URL of the hub's API, such as https://huggingface.co
	Token    string // sent to Endpoint only; "" for none
	Cache    string // folder of repositories, in the layout of Hugging Face's tools
	Files    string // folder of files from other URLs
	Offline  bool   // Pull never uses the network
	Copies   bool   // move blobs into snapshots instead of linking them

	tokenError error // error of reading Token, reported when it is needed

	client *http.Client
	pause  func(ctx context.Context, d time.Duration) error // waits between tries
	stall  time.Duration                                    // time without a byte after which a try fails
	free   func(dir string) (int64, error)                  // free bytes on a disk
}

// Network timeouts. A connection that is idle for longer is retried.
const (
	dialTime   = 15 * time.Second
	headerTime = 30 * time.Second
	stallTime  = 30 * time.Second
	redirects  = 10
)

// FromEnvironment returns the hub that the environment variables configure; see the package doc.
func FromEnvironment() (*Hub, error) {
	home := folderOf("HF_HOME")
	if home == "" {
		cache := os.Getenv("XDG_CACHE_HOME")
		if cache == "" {
			user, err := os.UserHomeDir()
			if err != nil {
				return nil, fmt.Errorf("no folder for models: HF_HUB_CACHE is not set, and %w", err)
			}
			cache = filepath.Join(user, ".cache")
		}
		home = filepath.Join(cache, "huggingface")
	}
	h := &Hub{
		Endpoint: strings.TrimRight(cmp.Or(os.Getenv("HF_ENDPOINT"), "https://"+hosts[0]), "/"),
		Cache:    cmp.Or(folderOf("HF_HUB_CACHE"), folderOf("HUGGINGFACE_HUB_CACHE"), filepath.Join(home, "hub")),
		Offline:  isTrue("HF_HUB_OFFLINE"),
		Copies:   isTrue("HF_HUB_DISABLE_SYMLINKS"),
	}
	if u, err := url.Parse(h.Endpoint); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("HF_ENDPOINT=%s is not the URL of a server", h.Endpoint)
	}
	own, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("no folder for files: %w", err)
	}
	h.Files = filepath.Join(own, "smelt", "files")
	if isTrue("HF_HUB_DISABLE_IMPLICIT_TOKEN") {
		return h, nil
	}
	if h.Token = clean(cmp.Or(os.Getenv("HF_TOKEN"), os.Getenv("HUGGING_FACE_HUB_TOKEN"))); h.Token == "" {
		file := cmp.Or(folderOf("HF_TOKEN_PATH"), filepath.Join(home, "token"))
		data, err := readSmall(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			h.tokenError = fmt.Errorf("the token of the hub: %w", err)
		}
		h.Token = clean(string(data))
	}
	return h, nil
}

// clean removes the line end of a token's file.
func clean(token string) string {
	return strings.TrimSpace(strings.NewReplacer("\r", "", "\n", "").Replace(token))
}

func isTrue(name string) bool {
	switch strings.ToUpper(os.Getenv(name)) {
	case "1", "ON", "YES", "TRUE":
		return true
	}
	return false
}

// folderOf returns the path in an environment variable, with ~ and variables expanded as in a
// shell.
func folderOf(name string) string {
	path := os.Getenv(name)
	if rest, ok := strings.CutPrefix(path, "~"); ok && (rest == "" || rest[0] == '/') {
		if user, err := os.UserHomeDir(); err == nil {
			path = user + rest
		}
	}
	return os.ExpandEnv(path)
}

// prepared returns the hub with defaults for its unexported fields.
func (h *Hub) prepared() *Hub {
	c := *h
	if c.client == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.DialContext = (&net.Dialer{Timeout: dialTime}).DialContext
		transport.ResponseHeaderTimeout = headerTime
		transport.DisableCompression = true // sizes and ranges count the bytes of the file
		c.client = &http.Client{Transport: transport, CheckRedirect: checkRedirect}
	}
	if c.pause == nil {
		c.pause = pause
	}
	if c.stall == 0 {
		c.stall = stallTime
	}
	if c.free == nil {
		c.free = freeBytes
	}
	return &c
}

// checkRedirect removes the token and other headers that are for the first host only, and refuses
// redirects from https to http.
func checkRedirect(r *http.Request, via []*http.Request) error {
	if len(via) > redirects {
		return fmt.Errorf("%d redirects", redirects)
	}
	first := via[0].URL
	if first.Scheme == "https" && r.URL.Scheme != "https" {
		return fmt.Errorf("a redirect from https to %s://%s", r.URL.Scheme, r.URL.Host)
	}
	for _, on := range append(via[1:len(via):len(via)], r) {
		if on.URL.Host != first.Host || on.URL.Scheme != first.Scheme { // also on the way back, since another host chose that URL
			r.Header.Del("Authorization")
			r.Header.Del("Referer")
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
