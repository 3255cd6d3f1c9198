package hub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// Pull fetches the files of a model that are missing in the cache, and returns its path, like
// [Hub.Find]. A branch is resolved anew at each call. After an error, or when ctx is done, partial
// files are kept and the next call continues them. progress may be nil.
func (h *Hub) Pull(ctx context.Context, name string, progress Progress) (path string, err error) {
	n, err := h.Parse(name)
	if err != nil {
		return "", err
	}
	if h.Offline {
		if path, err = h.find(n); errors.Is(err, ErrNotCached) {
			err = fmt.Errorf("%w, and HF_HUB_OFFLINE is set", err)
		}
		return path, err
	}
	if h.tokenError != nil && n.URL == "" {
		return "", h.tokenError
	}
	if progress == nil {
		progress = func(string, int64, int64) {}
	}
	p := &puller{h.prepared(), n, progress}
	if n.URL != "" {
		return p.file(ctx)
	}
	return p.model(ctx)
}

// puller is one call of Pull.
type puller struct {
	*Hub
	name     Name
	progress Progress
}

// cacheTag tells backup programs to skip the cache.
const cacheTag = "Signature: 8a477f597d28d172789f06886806bc55\n# A cache of models: see https://bford.info/cachedir/\n"

func (p *puller) model(ctx context.Context) (path string, err error) {
	commit, entries, err := p.list(ctx, p.name)
	if err != nil {
		return "", err
	}
	r := p.repo(p.name)
	known := map[string]entry{}
	var names []string
	for _, e := range entries {
		known[e.file] = e
		names = append(names, e.file)
	}
	m, err := p.name.choose(names, func(file string) ([]byte, error) {
		if known[file].size > longestJSON {
			return nil, fmt.Errorf("file too large: %d bytes", known[file].size)
		}
		if err := p.entry(ctx, r, commit, known[file]); err != nil {
			return nil, err
		}
		return readSmall(r.file(commit, file))
	})
	if err != nil {
		return "", fmt.Errorf("%s: %w", p.name, err)
	}
	if err := os.MkdirAll(p.Cache, 0o777); err != nil {
		return "", err
	}
	if tag := filepath.Join(p.Cache, "CACHEDIR.TAG"); !exists(tag) {
		_ = writeWhole(tag, cacheTag) // failure is harmless
	}
	need := int64(0)
	for i, file := range m.files {
		e := known[file]
		if e.etag == "" {
			if e, err = p.head(ctx, p.name, commit, e); err != nil {
				return "", err
			}
			known[m.files[i]] = e
		}
		if need += r.missing(commit, e); need < 0 {
			need = math.MaxInt64 // sizes are the hub's, and their sum may exceed the type
		}
	}
	if free, err := p.free(p.Cache); err == nil && need > free {
		return "", fmt.Errorf("%s: %w", p.name, noRoom(need, free, p.Cache))
	}
	for _, file := range m.files {
		if err := p.entry(ctx, r, commit, known[file]); err != nil {
			return "", err
		}
	}
	// Last, so that until now the revision leads to the previous complete snapshot.
	if err := r.setCommit(p.name.revision(), commit); err != nil {
		return "", err
	}
	return r.file(commit, m.open), nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// has reports whether a regular file of that size exists; a negative size matches any.
func has(path string, size int64) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && (size < 0 || info.Size() == size)
}

// missing returns the number of bytes of a file that are still to be fetched.
func (r repo) missing(commit string, e entry) int64 {
	if has(r.file(commit, e.file), e.size) || has(r.blob(e.etag), e.size) {
		return 0
	}
	if info, err := os.Stat(r.blob(e.etag) + incomplete); err == nil {
		return max(e.size-info.Size(), 0)
	}
	return max(e.size, 0)
}

// incomplete is the suffix of partial files.
const incomplete = ".incomplete"

// entry fetches a file of the repository and links it into its snapshot.
func (p *puller) entry(ctx context.Context, r repo, commit string, e entry) (err error) {
	if e.etag == "" {
		if e, err = p.head(ctx, p.name, commit, e); err != nil {
			return err
		}
	}
	if has(r.file(commit, e.file), e.size) {
		return nil
	}
	blob := r.blob(e.etag)
	if err := os.MkdirAll(filepath.Dir(blob), 0o777); err != nil {
		return err
	}
	release, err := lock(ctx, r.lock(e.etag))
	if err != nil {
		return err
	}
	defer release()
	if has(r.file(commit, e.file), e.size) { // fetched while this process waited
		return nil
	}
	if !has(blob, e.size) {
		from := source{url: p.fileURL(p.name.Repo, commit, e.file), what: p.name.Repo + "/" + e.file, token: p.Token,
			size: e.size, hash: hashOf(e.etag, e.size), want: e.etag}
		partial := blob + incomplete
		if err := p.fetch(ctx, from, partial, "", nil, func(done, total int64) { p.progress(e.file, done, total) }); err != nil {
			return err
		}
		if err := os.Rename(partial, blob); err != nil {
			return err
		}
	}
	return r.link(p.Hub, e.etag, commit, e.file)
}

// file fetches the file of a URL. The validator of the complete file is kept beside it, to fetch it
// again only after a change; that of the partial file, to continue it.
func (p *puller) file(ctx context.Context) (path string, err error) {
	if path, err = p.fileAt(p.name.URL); err != nil {
		return "", err
	}
	release, err := lock(ctx, path+".lock")
	if err != nil {
		return "", err
	}
	defer release()
	partial := path + incomplete
	from := source{url: p.name.URL, what: filepath.Base(path), size: -1}
	if u, err := url.Parse(p.name.URL); err == nil {
		from.what = u.Redacted()
	}
	if info, err := os.Stat(path); err == nil {
		from.copy.size = info.Size()
		if from.copy.validator, err = readValidator(path); err != nil {
			return "", err
		}
	}
	begun, err := readValidator(partial)
	if err != nil {
		return "", err
	}
	keep := func(validator string) error { return writeWhole(validatorFile(partial), validator) }
	err = p.fetch(ctx, from, partial, begun, keep, func(done, total int64) { p.progress(filepath.Base(path), done, total) })
	if errors.Is(err, errUnchanged) {
		err = errors.Join(os.Remove(partial), removeIfThere(validatorFile(partial)))
		return path, err
	}
	if err != nil {
		return "", err
	}
	// The file is renamed first: an old validator beside a new file only costs another fetch.
	if err := errors.Join(os.Rename(partial, path), os.Rename(validatorFile(partial), validatorFile(path))); err != nil {
		return "", err
	}
	return path, nil
}

func validatorFile(path string) string { return path + ".etag" }

func readValidator(path string) (string, error) {
	data, err := readSmall(validatorFile(path))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(data)), err
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
