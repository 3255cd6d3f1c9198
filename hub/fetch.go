package hub

import (
	"context"
	"crypto/sha1" //nolint:gosec // git's name of a file, not a defence
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

// Progress is told how much of a file is there, of total bytes, or of -1 where the server does
// not say.
type Progress func(file string, done, total int64)

// Bounds of trying again.
const (
	tries    = 5                // that bring nothing, one after the other
	firstGap = time.Second      // before the second try; each further one has twice as long
	longGap  = 60 * time.Second // at most, also where the server asks for more
)

// source is a file at a server.
type source struct {
	url   string
	what  string // as errors call it
	token string
	size  int64 // -1: not known
	hash  hash.Hash
	want  string // what hash gives, in hexadecimal digits; hash is nil where that is not known
	copy  present
}

// present is a whole copy that is there; its size is 0 where there is none.
type present struct {
	validator string
	size      int64
}

// errUnchanged is what a server answers where the copy that is there is good.
var errUnchanged = errors.New("unchanged")

// permanent is an error that the next try would have too.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// later is an error with the time after which a server wants to be asked again.
type later struct {
	error
	after time.Duration
}

func (l later) Unwrap() error { return l.error }

// transfer brings a source into a file.
type transfer struct {
	*Hub
	source
	f         *os.File
	have      int64  // bytes that are in f
	most      int64  // that have been
	joined    bool   // f was written by more than one answer
	wrong     int    // times that the hash was not the one
	validator string // of the file that f is the beginning of: an ETag, or a date
	keep      func(validator string) error
	progress  func(done, total int64)
}

// fetch completes the file at path, which a run before may have begun, and checks it.
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
		again := t.joined && t.wrong == 1 // a piece of it may be of another file
		if err := t.restart(); err != nil {
			return err
		}
		if !again {
			return fmt.Errorf("%s: what came has the hash %s, where the hub says %s", from.what, got, t.want)
		}
	}
}

// begin takes over what is in the file.
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

// restart forgets what is in the file.
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

// persist tries until it succeeds, fails for good, or fails too often without progress.
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
		wait := gap/2 + rand.N(gap/2) // so that many who were cut off do not all come again at once
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

var errStalled = errors.New("nothing came for too long")

// try asks for what is missing and adds what comes to the file.
func (t *transfer) try(ctx context.Context) error {
	if t.have > 0 && t.hash == nil && t.validator == "" {
		if err := t.restart(); err != nil { // nothing would show that the rest is of another file
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
			return permanent{errors.Join(fmt.Errorf("the server sends more than the %d bytes that the file has", end), t.restart())}
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
		err = fmt.Errorf("%w; what has come is kept, and the next pull goes on with it", err)
	}
	return err
}

// accept makes the file ready for what an answer holds, and returns how many bytes it will have
// then, or -1.
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
			return 0, fmt.Errorf("the server sends bytes %q, which do not go on with what is here", answer.Header.Get("Content-Range"))
		}
		t.joined = t.have > 0
		return total, t.fits(total)
	case http.StatusOK:
		total := answer.ContentLength
		if t.size >= 0 && total >= 0 && total != t.size {
			return 0, permanent{fmt.Errorf("the server has %d bytes, where the hub says %d", total, t.size)}
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
			return 0, errors.New("the server has less than what is here")
		}
	}
	return 0, t.refusal(answer, t.token != "")
}

// fits reports a file for which there is no room; of the hub's files that was asked before.
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
	return fmt.Errorf("%d bytes are to come, and the disk of %s has room for %d", need, dir, free)
}

// validatorOf returns what tells an answer's file from another one that may come to its place: a
// strong ETag, or the date of its last change.
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
	at, _ = strconv.ParseInt(m[1], 10, 64) // the form bounds them
	total = -1
	if m[2] != "*" {
		total, _ = strconv.ParseInt(m[2], 10, 64)
	}
	return at, total, true
}

// request makes a request as all that we send.
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

// reason says why a request failed, without the address that a redirect led to, whose signature
// is a key.
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

// Hashes by the length of what the hub calls a file.
var (
	sha256Form = regexp.MustCompile(`^[0-9a-f]{64}$`)
	gitForm    = regexp.MustCompile(`^[0-9a-f]{40}$`)
)

// hashOf returns what checks a file that the hub calls so: large ones by their SHA-256, others as
// git names what it stores. nil: the name is no hash.
func hashOf(etag string, size int64) hash.Hash {
	switch {
	case sha256Form.MatchString(etag):
		return sha256.New()
	case gitForm.MatchString(etag) && size >= 0:
		h := &gitHash{sha1.New(), size} //nolint:gosec // git's
		h.begin()
		return h
	}
	return nil
}

// gitHash is git's name of a file: the SHA-1 of a header with its size and what it holds.
type gitHash struct {
	hash.Hash
	size int64
}

func (h *gitHash) begin() { fmt.Fprintf(h.Hash, "blob %d\x00", h.size) }
