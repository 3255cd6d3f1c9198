package hub

import (
	"context"
	"crypto/sha1" // git's object name, not a defence
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Progress is called with the number of bytes of a file that are present, and the total, or -1 if
// the server does not give it.
type Progress func(file string, done, total int64)

// Bounds on retries.
const (
	tries    = 5                // consecutive tries without progress
	firstGap = time.Second      // before the second try, then doubled
	longGap  = 60 * time.Second // maximum, also of the server's Retry-After
)

// source is a file on a server.
type source struct {
	url   string
	what  string // name in errors
	token string
	size  int64 // -1 if unknown
	hash  hash.Hash
	want  string // expected hash in hexadecimal; hash is nil if it is unknown
	copy  present
}

// present describes a complete copy in the cache; its size is 0 if there is none.
type present struct {
	validator string
	size      int64
}

// errUnchanged reports that the copy in the cache is current.
var errUnchanged = errors.New("unchanged")

// permanent is an error that a retry would not resolve.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// later is an error with the server's Retry-After.
type later struct {
	error
	after time.Duration
}

func (l later) Unwrap() error { return l.error }

// transfer downloads a source into a file.
type transfer struct {
	*Hub
	source
	f         *os.File
	have      int64  // bytes in f
	most      int64  // maximum of have so far
	joined    bool   // f holds bytes of more than one response
	wrong     int    // hash mismatches so far
	validator string // ETag or date of the version that f holds a part of
	keep      func(validator string) error
	progress  func(done, total int64)
}

// fetch downloads a source into the file at path, continues one that a previous run began, and
// checks its hash.
func (h *Hub) fetch(ctx context.Context, from source, path, validator string, keep func(string) error, progress func(done, total int64)) (err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		if closed := f.Close(); err == nil {
			err = closed
		}
	}()
	t := &transfer{Hub: h, source: from, f: f, validator: validator, keep: keep, progress: progress}
	if err := t.begin(); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for {
		if t.size < 0 || t.have < t.size {
			if err := h.persist(ctx, func() int64 { return t.most }, func() error { return t.try(ctx) }); err != nil {
				return fmt.Errorf("%s: %w", from.what, err)
			}
		}
		if t.hash == nil || hex.EncodeToString(t.hash.Sum(nil)) == t.want {
			return f.Sync()
		}
		got := hex.EncodeToString(t.hash.Sum(nil))
		t.wrong++
		again := t.joined && t.wrong == 1 // its pieces may come from different versions
		if err := t.restart(); err != nil {
			return err
		}
		if !again {
			return fmt.Errorf("%s: the hash is %s, but the hub gives %s", from.what, got, t.want)
		}
	}
}

// begin hashes what the file holds already, or empties it if it cannot be continued.
func (t *transfer) begin() error {
	info, err := t.f.Stat()
	if err != nil {
		return err
	}
	t.have = info.Size()
	if t.size >= 0 && t.have > t.size || t.hash == nil && t.validator == "" {
		return t.restart()
	}
	if t.hash != nil {
		if _, err := io.Copy(t.hash, t.f); err != nil {
			return err
		}
	}
	t.joined, t.most = t.have > 0, t.have
	_, err = t.f.Seek(t.have, io.SeekStart)
	return err
}

// restart empties the file.
func (t *transfer) restart() error {
	t.have, t.joined = 0, false
	t.validator = ""
	if t.hash != nil {
		t.hash.Reset()
		if h, ok := t.hash.(*gitHash); ok {
			h.begin()
		}
	}
	if err := t.f.Truncate(0); err != nil {
		return err
	}
	_, err := t.f.Seek(0, io.SeekStart)
	return err
}

// persist calls try until it succeeds, fails permanently, or fails too often without progress.
func (h *Hub) persist(ctx context.Context, progress func() int64, try func() error) error {
	gap, failures, before := firstGap, 0, progress()
	for {
		err := try()
		var forGood permanent
		if err == nil || errors.As(err, &forGood) || errors.Is(err, errUnchanged) {
			return err
		}
		if stopped := ctx.Err(); stopped != nil {
			return stopped
		}
		if now := progress(); now > before {
			gap, failures, before = firstGap, 0, now
		}
		if failures++; failures == tries {
			return fmt.Errorf("%w (after %d tries)", err, failures)
		}
		wait := gap/2 + rand.N(gap/2) // jitter, so that clients that were cut off together do not return together
		var asked later
		if errors.As(err, &asked) {
			wait = max(wait, min(asked.after, longGap))
		}
		if err := h.pause(ctx, wait); err != nil {
			return err
		}
		gap = min(2*gap, longGap)
	}
}

var errStalled = errors.New("the connection stalled")

// try requests the missing bytes and appends them to the file.
func (t *transfer) try(ctx context.Context) error {
	if t.have > 0 && t.hash == nil && t.validator == "" {
		if err := t.restart(); err != nil { // nothing could detect that the rest belongs to another version
			return permanent{err}
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	alive := time.AfterFunc(t.stall+headerTime, func() { cancel(errStalled) })
	defer alive.Stop()
	r, err := t.request(ctx, http.MethodGet, t.url, t.token)
	if err != nil {
		return permanent{err}
	}
	if t.have > 0 {
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-", t.have))
		if t.validator != "" {
			r.Header.Set("If-Range", t.validator)
		}
	}
	if v := t.copy.validator; strings.HasPrefix(v, `"`) {
		r.Header.Set("If-None-Match", v)
	} else if v != "" {
		r.Header.Set("If-Modified-Since", v)
	}
	answer, err := t.client.Do(r)
	if err != nil {
		return reason(ctx, err)
	}
	defer answer.Body.Close()
	total, err := t.accept(answer)
	if err != nil {
		return err
	}
	end := t.size
	if end < 0 {
		end = total
	}
	t.progress(t.have, end)
	buffer := make([]byte, 256<<10)
	for {
		alive.Reset(t.stall)
		n, failed := answer.Body.Read(buffer)
		if end >= 0 && t.have+int64(n) > end {
			return permanent{errors.Join(fmt.Errorf("the server sends more than the %d bytes of the file", end), t.restart())}
		}
		if err := t.write(buffer[:n]); err != nil {
			return permanent{err}
		}
		if n > 0 {
			t.progress(t.have, end)
		}
		switch {
		case failed == nil:
		case failed != io.EOF:
			return reason(ctx, failed)
		case end >= 0 && t.have < end:
			return fmt.Errorf("the connection ended after %d of %d bytes", t.have, end)
		default:
			return nil
		}
	}
}

func (t *transfer) write(p []byte) error {
	n, err := t.f.Write(p)
	t.have += int64(n)
	t.most = max(t.most, t.have)
	if t.hash != nil {
		t.hash.Write(p[:n])
	}
	if err != nil && isFull(err) {
		err = fmt.Errorf("%w; the downloaded part is kept, and the next pull continues it", err)
	}
	return err
}

// accept prepares the file for the body of a response, and returns the size that the file will
// have, or -1.
func (t *transfer) accept(answer *http.Response) (total int64, err error) {
	switch answer.StatusCode {
	case http.StatusPartialContent:
		at, total, ok := contentRange(answer.Header.Get("Content-Range"))
		etag := validatorOf(answer.Header)
		other := strings.HasPrefix(t.validator, `"`) && strings.HasPrefix(etag, `"`) && etag != t.validator
		if !ok || at != t.have || other || t.size >= 0 && total >= 0 && total != t.size {
			if err := t.restart(); err != nil {
				return 0, permanent{err}
			}
			return 0, fmt.Errorf("the server sends the range %q, which does not continue the file", answer.Header.Get("Content-Range"))
		}
		t.joined = t.have > 0
		return total, t.fits(total)
	case http.StatusOK:
		total := answer.ContentLength
		if t.size >= 0 && total >= 0 && total != t.size {
			return 0, permanent{fmt.Errorf("the server has %d bytes, but the hub gives %d", total, t.size)}
		}
		if t.copy.validator == "" && t.copy.size > 0 && t.copy.size == total {
			return 0, errUnchanged
		}
		if err := t.restart(); err != nil {
			return 0, permanent{err}
		}
		t.validator = validatorOf(answer.Header)
		if t.keep != nil {
			if err := t.keep(t.validator); err != nil {
				return 0, permanent{err}
			}
		}
		return total, t.fits(total)
	case http.StatusNotModified:
		if t.copy.validator != "" {
			return 0, errUnchanged
		}
	case http.StatusRequestedRangeNotSatisfiable:
		if t.have > 0 {
			if err := t.restart(); err != nil {
				return 0, permanent{err}
			}
			return 0, errors.New("the server has fewer bytes than the partial file")
		}
	}
	return 0, t.refusal(answer, t.token != "")
}

// fits returns an error if the disk has no room for a file. The hub's files have a known size and
// are checked before they are requested.
func (t *transfer) fits(total int64) error {
	if t.size >= 0 || total < 0 {
		return nil
	}
	dir := filepath.Dir(t.f.Name())
	if free, err := t.free(dir); err == nil && total-t.have > free {
		return permanent{noRoom(total-t.have, free, dir)}
	}
	return nil
}

func noRoom(need, free int64, dir string) error {
	return fmt.Errorf("%d bytes are missing, but the disk of %s has only %d free", need, dir, free)
}

// validatorOf returns what distinguishes versions of a file: a strong ETag, or the date of the last
// change.
func validatorOf(header http.Header) string {
	if etag := header.Get("ETag"); strings.HasPrefix(etag, `"`) {
		return etag
	}
	return header.Get("Last-Modified")
}

var rangeForm = regexp.MustCompile(`^bytes (\d{1,18})-\d{1,18}/(\d{1,18}|\*)$`)

func contentRange(text string) (at, total int64, ok bool) {
	m := rangeForm.FindStringSubmatch(text)
	if m == nil {
		return 0, 0, false
	}
	at, _ = strconv.ParseInt(m[1], 10, 64) // cannot fail: the pattern bounds the digits
	total = -1
	if m[2] != "*" {
		total, _ = strconv.ParseInt(m[2], 10, 64)
	}
	return at, total, true
}

// request returns a request with the headers that all requests have.
func (h *Hub) request(ctx context.Context, method, address, token string) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("User-Agent", "smelt")
	r.Header.Set("Accept-Encoding", "identity")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r, nil
}

// reason returns why a request failed, without the URL of a redirect, whose signature is a secret.
func reason(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, errStalled) {
		return cause
	}
	var (
		at   *url.Error
		cert *tls.CertificateVerificationError
		dns  *net.DNSError
	)
	if errors.As(err, &at) {
		err = at.Err
		if u, bad := url.Parse(at.URL); bad == nil {
			err = fmt.Errorf("%s: %w", u.Host, err)
		}
	}
	if errors.As(err, &cert) || errors.As(err, &dns) && dns.IsNotFound {
		return permanent{err}
	}
	return err
}

// hashOf returns the hash that an ETag holds: SHA-256 for large files, git's object name for
// others. It is nil if the ETag is no hash.
func hashOf(etag string, size int64) hash.Hash {
	switch {
	case isHash(etag, sha256Digits):
		return sha256.New()
	case isHash(etag, gitDigits) && size >= 0:
		h := &gitHash{sha1.New(), size} // git's object name
		h.begin()
		return h
	}
	return nil
}

// gitHash is the hash of git's object names: SHA-1 of a header with the size, and the contents.
type gitHash struct {
	hash.Hash
	size int64
}

func (h *gitHash) begin() { fmt.Fprintf(h.Hash, "blob %d\x00", h.size) }
