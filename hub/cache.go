package hub

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// ErrNotCached is wrapped where a model, or a part of it, is not in the cache.
var ErrNotCached = errors.New("is not in the cache")

// repo is the folders of one repository in the cache.
type repo struct{ folder, locks string }

func (h *Hub) repo(n Name) repo {
	name := "models--" + strings.ReplaceAll(n.Repo, "/", "--")
	return repo{filepath.Join(h.Cache, name), filepath.Join(h.Cache, ".locks", name)}
}

func (r repo) blob(etag string) string       { return filepath.Join(r.folder, "blobs", etag) }
func (r repo) lock(etag string) string       { return filepath.Join(r.locks, etag+".lock") }
func (r repo) snapshot(commit string) string { return filepath.Join(r.folder, "snapshots", commit) }
func (r repo) ref(revision string) string {
	return filepath.Join(r.folder, "refs", filepath.FromSlash(revision))
}

func (r repo) file(commit, file string) string {
	return filepath.Join(r.snapshot(commit), filepath.FromSlash(file))
}

// isHash reports whether text is a hash of that many hexadecimal digits.
func isHash(text string, digits int) bool {
	return len(text) == digits && strings.Trim(text, "0123456789abcdef") == ""
}

// Digits of the hub's hashes: of commits and of objects in git, and of large files.
const (
	gitDigits    = 40
	sha256Digits = 64
)

// commit returns the commit to which a revision was resolved at the last Pull.
func (r repo) commit(revision string) (string, error) {
	if isHash(revision, gitDigits) {
		return revision, nil
	}
	data, err := readSmall(r.ref(revision))
	if err != nil {
		return "", err
	}
	commit := strings.TrimSpace(string(data))
	if !isHash(commit, gitDigits) {
		return "", fmt.Errorf("%s does not hold a commit", r.ref(revision))
	}
	return commit, nil
}

// setCommit stores the commit of a revision atomically.
func (r repo) setCommit(revision, commit string) error {
	if revision == commit {
		return nil
	}
	path := r.ref(revision)
	if old, err := readSmall(path); err == nil && string(old) == commit {
		return nil
	}
	return writeWhole(path, commit)
}

// writeWhole writes a small file atomically.
func writeWhole(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// files lists the files of a snapshot whose contents are present.
func (r repo) files(commit string) (files []string, err error) {
	root := r.snapshot(commit)
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() {
			return nil // a dangling link: the blob was removed, or not yet fetched
		}
		file, err := filepath.Rel(root, path)
		files = append(files, filepath.ToSlash(file))
		return err
	})
	return files, err
}

// link links a blob into a snapshot.
func (r repo) link(h *Hub, etag, commit, file string) error {
	at := r.file(commit, file)
	if err := os.MkdirAll(filepath.Dir(at), 0o777); err != nil {
		return err
	}
	to, err := filepath.Rel(filepath.Dir(at), r.blob(etag))
	if err != nil {
		return err
	}
	if now, err := os.Readlink(at); err == nil && now == to {
		return nil
	}
	if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if !h.Copies {
		err := os.Symlink(to, at)
		if err == nil || errors.Is(err, fs.ErrExist) { // another process was faster
			return nil
		}
	}
	return os.Rename(r.blob(etag), at) // as Hugging Face's tools do without symbolic links
}

// Find returns the path of a model in the cache; it never uses the network. The error of a model
// that was not fetched, or only in part, wraps ErrNotCached.
func (h *Hub) Find(name string) (path string, err error) {
	n, err := h.Parse(name)
	if err != nil {
		return "", err
	}
	return h.find(n)
}

func (h *Hub) find(n Name) (path string, err error) {
	if n.URL != "" {
		path, err := h.fileAt(n.URL)
		if err != nil {
			return "", err
		}
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("%s %w", n, ErrNotCached)
		}
		return path, nil
	}
	r := h.repo(n)
	commit, err := r.commit(n.revision())
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s %w", n, ErrNotCached)
	} else if err != nil {
		return "", err
	}
	files, err := r.files(commit)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s %w", n, ErrNotCached)
	} else if err != nil {
		return "", err
	}
	m, err := n.choose(files, func(file string) ([]byte, error) { return readSmall(r.file(commit, file)) })
	if errors.Is(err, errMissing) {
		return "", fmt.Errorf("%s %w: %w", n, ErrNotCached, err)
	} else if err != nil {
		return "", fmt.Errorf("%s: %w", n, err)
	}
	return r.file(commit, m.open), nil
}

func readSmall(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // opening a FIFO waits for a writer
		return nil, fmt.Errorf("open %s: not a regular file", path)
	}
	if info.Size() > longestJSON {
		return nil, fmt.Errorf("file too large: %d bytes", info.Size())
	}
	return os.ReadFile(path)
}

// fileAt returns the path at which the file of a URL is cached.
func (h *Hub) fileAt(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	name, err := fileOf(u)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(address))
	return filepath.Join(h.Files, hex.EncodeToString(sum[:8]), name), nil
}

// Local returns the path of a model: an existing path unchanged, or for a name the file or folder
// in the cache. Any other text is returned unchanged, so that opening it gives the error; for the
// name of a model that was not fetched the error wraps [ErrNotCached].
func (h *Hub) Local(model string) (path string, err error) {
	if _, err := os.Lstat(model); err == nil {
		return model, nil
	}
	n, err := h.Parse(model)
	if err != nil {
		if explicit(model) {
			return "", err
		}
		return model, nil
	}
	return h.find(n)
}
