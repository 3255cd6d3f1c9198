package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// entry is a file of a repository. etag is the hub's hash of its contents; "" until known.
type entry struct {
	file string
	size int64 // -1 if unknown
	etag string
}

// safeETag reports whether an ETag is safe as a file name.
func safeETag(etag string) bool { return len(etag) <= 128 && typeForm.MatchString(etag) }

// list returns the commit of a revision and its files.
func (h *Hub) list(ctx context.Context, n Name) (commit string, files []entry, err error) {
	address := fmt.Sprintf("%s/api/models/%s/revision/%s?blobs=true", h.Endpoint, n.Repo, url.PathEscape(n.revision()))
	var body []byte
	err = h.persist(ctx, func() int64 { return 0 }, func() error {
		ctx, cancel := context.WithTimeout(ctx, headerTime+h.stall)
		defer cancel()
		r, err := h.request(ctx, http.MethodGet, address, h.Token)
		if err != nil {
			return permanent{err}
		}
		answer, err := h.client.Do(r)
		if err != nil {
			return reason(ctx, err)
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return h.explain(n, answer)
		}
		if body, err = io.ReadAll(io.LimitReader(answer.Body, longestJSON+1)); err != nil {
			return reason(ctx, err)
		}
		if len(body) > longestJSON {
			return permanent{fmt.Errorf("the list of files is longer than %d bytes", longestJSON)}
		}
		return nil
	})
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", n, err)
	}
	if commit, files, err = parseList(body); err != nil {
		return "", nil, fmt.Errorf("%s: the response of %s is not a list of files: %w", n, h.Endpoint, err)
	}
	return commit, files, nil
}

// parseList parses the hub's description of a repository.
func parseList(body []byte) (commit string, files []entry, err error) {
	var said struct {
		SHA      string `json:"sha"`
		Siblings []struct {
			File string `json:"rfilename"`
			Size *int64 `json:"size"`
			Blob string `json:"blobId"`
			LFS  *struct {
				SHA256 string `json:"sha256"`
				Size   int64  `json:"size"`
			} `json:"lfs"`
		} `json:"siblings"`
	}
	if err := json.Unmarshal(body, &said); err != nil {
		return "", nil, err
	}
	if !isHash(said.SHA, gitDigits) {
		return "", nil, fmt.Errorf("%q is not a commit", said.SHA)
	}
	for _, s := range said.Siblings {
		e := entry{s.File, -1, s.Blob}
		if s.Size != nil {
			e.size = *s.Size
		}
		if s.LFS != nil {
			e.etag, e.size = s.LFS.SHA256, s.LFS.Size
		}
		if err := checkFile(e.file); err != nil {
			return "", nil, err
		}
		if e.etag != "" && !safeETag(e.etag) || e.size < -1 || e.etag == "" && e.size < 0 && s.LFS != nil {
			return "", nil, fmt.Errorf("%s: hash %q, %d bytes", e.file, e.etag, e.size)
		}
		files = append(files, e)
	}
	return said.SHA, files, nil
}

// fileURL returns the hub's URL of a file of a commit.
func (h *Hub) fileURL(repo, commit, file string) string {
	parts := strings.Split(file, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return fmt.Sprintf("%s/%s/resolve/%s/%s", h.Endpoint, repo, commit, strings.Join(parts, "/"))
}

// head completes an entry with a HEAD request for its file, since mirrors list no sizes and hashes.
func (h *Hub) head(ctx context.Context, n Name, commit string, e entry) (entry, error) {
	client := *h.client
	client.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		if r.URL.Host != via[0].URL.Host || r.URL.Scheme != via[0].URL.Scheme {
			return http.ErrUseLastResponse // the hub's own headers describe the file, those of the storage host do not
		}
		return checkRedirect(r, via)
	}
	err := h.persist(ctx, func() int64 { return 0 }, func() error {
		ctx, cancel := context.WithTimeout(ctx, headerTime)
		defer cancel()
		r, err := h.request(ctx, http.MethodHead, h.fileURL(n.Repo, commit, e.file), h.Token)
		if err != nil {
			return permanent{err}
		}
		answer, err := client.Do(r)
		if err != nil {
			return reason(ctx, err)
		}
		answer.Body.Close()
		if answer.StatusCode >= 400 {
			return h.explain(n, answer)
		}
		header := answer.Header
		e.etag = header.Get("X-Linked-Etag")
		if e.etag == "" {
			e.etag = header.Get("ETag")
		}
		e.etag = strings.Trim(strings.TrimPrefix(e.etag, "W/"), `"`)
		e.size = -1
		if text := header.Get("X-Linked-Size"); text != "" {
			if e.size, err = strconv.ParseInt(text, 10, 64); err != nil {
				return permanent{fmt.Errorf("X-Linked-Size: %w", err)}
			}
		} else if answer.StatusCode == http.StatusOK {
			e.size = answer.ContentLength
		}
		if !safeETag(e.etag) || e.size < -1 {
			return permanent{fmt.Errorf("the server gives the ETag %q and %d bytes", e.etag, e.size)}
		}
		return nil
	})
	if err != nil {
		return e, fmt.Errorf("%s: %s: %w", n, e.file, err)
	}
	return e, nil
}

// explain returns the reason why the hub does not show a repository, and what the user can do.
func (h *Hub) explain(n Name, answer *http.Response) error {
	said := answer.Header.Get("X-Error-Code")
	page := h.Endpoint + "/" + n.Repo
	switch answer.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		switch {
		case said == "GatedRepo" && h.Token == "":
			return permanent{fmt.Errorf("the repository is gated (%d): accept its terms at %s, create a token in the settings of that account, and set HF_TOKEN to it", answer.StatusCode, page)}
		case said == "GatedRepo":
			return permanent{fmt.Errorf("the repository is gated (%d), and the account of this token has no access: accept its terms at %s with that account", answer.StatusCode, page)}
		case h.Token == "":
			return permanent{fmt.Errorf("the hub has no such model (%d), or it is private or gated: then set HF_TOKEN to the token of an account that may read it", answer.StatusCode)}
		}
		return permanent{fmt.Errorf("the hub has no such model for the account of this token, or rejects the token (%d%s)", answer.StatusCode, quoted(answer))}
	case http.StatusNotFound:
		switch said {
		case "RevisionNotFound":
			return permanent{fmt.Errorf("there is no revision %s", n.revision())}
		case "EntryNotFound":
			return permanent{errors.New("there is no such file")}
		}
		return permanent{fmt.Errorf("the hub has no such model, or this account may not see it (404)")}
	}
	return h.refusal(answer, h.Token != "")
}

// refusal returns the error of a response that holds no file.
func (h *Hub) refusal(answer *http.Response, token bool) error {
	err := fmt.Errorf("%s answers %d %s%s", answer.Request.URL.Host, answer.StatusCode, http.StatusText(answer.StatusCode), quoted(answer))
	switch status := answer.StatusCode; {
	case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests, status >= 500 && status != http.StatusNotImplemented:
		if seconds, bad := strconv.Atoi(answer.Header.Get("Retry-After")); bad == nil && seconds >= 0 {
			return later{err, time.Duration(min(seconds, 3600)) * time.Second}
		}
		return err
	case (status == http.StatusUnauthorized || status == http.StatusForbidden) && !token:
		return permanent{fmt.Errorf("%w: it requires a token", err)}
	}
	return permanent{err}
}

// quoted returns the hub's error message on one printable line.
func quoted(answer *http.Response) string {
	said := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, answer.Header.Get("X-Error-Message"))
	if said == "" {
		return ""
	}
	return fmt.Sprintf(": %.200s", said)
}
