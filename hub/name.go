package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// ErrName is wrapped where a text is not a model's name.
var ErrName = errors.New("not a model's name")

// Name identifies a model: in a repository of the hub, or as the file at a URL.
type Name struct {
	Repo     string // org/name
	Revision string // branch, tag or commit; "" for main
	Type     string // of a GGUF file's weights, such as Q4_K_M; "" for any
	File     string // path in the repository, with slashes; "" for the whole model
	URL      string // of a file outside the hub; all other fields are then empty
}

// mainRevision is the revision of a name without one.
const mainRevision = "main"

func (n Name) revision() string {
	if n.Revision == "" {
		return mainRevision
	}
	return n.Revision
}

// String returns the name in the form that Parse reads.
func (n Name) String() string {
	if n.URL != "" {
		return n.URL
	}
	text := n.Repo
	if n.Revision != "" {
		text += "@" + n.Revision
		if !pullRequest.MatchString(n.Revision) {
			text = n.Repo + "@" + strings.ReplaceAll(n.Revision, "/", "%2F")
		}
	}
	if n.Type != "" {
		text += ":" + n.Type
	}
	if n.File != "" {
		text += "/" + n.File
	}
	return text
}

// Forms of the parts of names. The hub is stricter; these are safe in file names and URLs.
var (
	partForm     = regexp.MustCompile(`^[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?$`)
	typeForm     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	revisionForm = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._/+-]*$`)
	pullRequest  = regexp.MustCompile(`^refs/pr/[0-9]+$`)
)

// Maximum lengths: of repositories as on the hub, of other parts as file systems allow.
const (
	longestRepo = 96
	longestPart = 255
)

// hosts are the hub's hosts, in names and URLs.
var hosts = []string{"huggingface.co", "hf.co"}

// Parse parses a name. It does not check whether the text is a local path; see [Hub.Local].
func (h *Hub) Parse(text string) (Name, error) {
	n, err := h.parse(text)
	if err != nil {
		return Name{}, fmt.Errorf("%q: %w: %w", text, ErrName, err)
	}
	return n, nil
}

// explicit reports whether a text can be nothing but a name.
func explicit(text string) bool {
	for _, prefix := range append([]string{"hf:", "http://", "https://"}, hosts...) {
		if rest, ok := strings.CutPrefix(text, prefix); ok && (strings.HasSuffix(prefix, ":") || strings.HasSuffix(prefix, "/") || strings.HasPrefix(rest, "/")) {
			return true
		}
	}
	return false
}

func (h *Hub) parse(text string) (Name, error) {
	if strings.ContainsFunc(text, unicode.IsControl) {
		return Name{}, errors.New("it contains control characters")
	}
	if scheme, _, ok := strings.Cut(text, "://"); ok && (scheme == "http" || scheme == "https") {
		return h.parseURL(text)
	}
	for _, host := range hosts {
		if rest, ok := strings.CutPrefix(text, host+"/"); ok {
			return parsePage(rest)
		}
	}
	rest, isURI := strings.CutPrefix(text, "hf://")
	if isURI {
		rest = strings.TrimPrefix(rest, "models/")
	}
	rest, short := strings.CutPrefix(rest, "hf:")
	n, err := parseName(rest)
	if err == nil && !isURI && !short && n.File == "" && n.Type == "" && n.Revision == "" && isFileName(n.Repo) {
		return Name{}, errors.New("it ends like a file name; a file of a repository is org/name/file")
	}
	return n, err
}

// isFileName reports whether org/name looks like folder/file.
func isFileName(repo string) bool {
	return slices.Contains([]string{".gguf", ".plan", ".safetensors", ".json"}, strings.ToLower(path.Ext(repo)))
}

// parseName parses org/name[@REV][:TYPE] and org/name[@REV]/file.
func parseName(text string) (n Name, err error) {
	org, rest, ok := strings.Cut(text, "/")
	if !ok {
		return n, errors.New("want org/name")
	}
	end := strings.IndexAny(rest, "@:/")
	if end < 0 {
		end = len(rest)
	}
	if n.Repo, err = repository(org, rest[:end]); err != nil {
		return n, err
	}
	rest = rest[end:]
	if after, ok := strings.CutPrefix(rest, "@"); ok {
		end := len(after)
		if i := strings.IndexAny(after, ":/"); i >= 0 {
			end = i
		}
		if refs := strings.SplitN(after, "/", 4); len(refs) >= 3 && refs[0] == "refs" && refs[1] == "pr" { // the slashes of refs/pr/N belong to the revision
			number, _, _ := strings.Cut(refs[2], ":")
			end = len("refs/pr/") + len(number)
		}
		if n.Revision, err = url.PathUnescape(after[:end]); err != nil {
			return n, err
		}
		if err := checkRevision(n.Revision); err != nil {
			return n, err
		}
		rest = after[end:]
	}
	switch {
	case rest == "":
	case rest[0] == ':':
		n.Type = rest[1:]
		if !typeForm.MatchString(n.Type) || len(n.Type) > longestPart {
			return n, fmt.Errorf("%q is not a type of weights; a revision precedes the type: org/name@REV:TYPE", n.Type)
		}
	default:
		n.File = rest[1:]
		return n, checkFile(n.File)
	}
	return n, nil
}

// parseURL parses the URL of a page or a file of the hub, or of a file elsewhere.
func (h *Hub) parseURL(text string) (Name, error) {
	u, err := url.Parse(text)
	if err != nil {
		return Name{}, err
	}
	for _, host := range hosts {
		if strings.EqualFold(u.Host, host) || strings.EqualFold(u.Host, "www."+host) {
			return parsePage(strings.TrimPrefix(u.EscapedPath(), "/"))
		}
	}
	if hub, err := url.Parse(h.Endpoint); err == nil && h.Endpoint != "" && strings.EqualFold(u.Host, hub.Host) {
		if rest, ok := strings.CutPrefix(u.EscapedPath(), strings.TrimSuffix(hub.EscapedPath(), "/")+"/"); ok {
			if n, err := parsePage(rest); err == nil && (n.File != "" || !isFileName(n.Repo)) {
				return n, nil
			} // a mirror may also serve other files
		}
	}
	if u.Host == "" {
		return Name{}, errors.New("it has no host")
	}
	if _, err := fileOf(u); err != nil {
		return Name{}, err
	}
	u.Fragment, u.RawFragment = "", ""
	return Name{URL: u.String()}, nil
}

// fileOf returns the file name of a URL.
func fileOf(u *url.URL) (string, error) {
	name := path.Base(u.Path)
	if u.Path == "" || strings.HasSuffix(u.Path, "/") || checkFile(name) != nil {
		return "", errors.New("it does not end with a file name")
	}
	return name, nil
}

// parsePage parses the path of a page of the hub, or a name behind the hub's host.
func parsePage(escaped string) (n Name, err error) {
	parts := strings.Split(strings.TrimSuffix(escaped, "/"), "/")
	page := len(parts) >= 4 && slices.Contains([]string{"resolve", "blob", "raw", "tree"}, parts[2])
	for i := range parts {
		if i < 2 || page && i == 3 { // unescape the parts that contain no further slash
			continue
		}
		if parts[i], err = url.PathUnescape(parts[i]); err != nil {
			return n, err
		}
	}
	if !page {
		return parseName(strings.Join(parts, "/"))
	}
	if n.Repo, err = repository(parts[0], parts[1]); err != nil {
		return n, err
	}
	if parts[3] == "refs" && len(parts) >= 6 && parts[4] == "pr" {
		parts = slices.Replace(parts, 3, 6, "refs/pr/"+parts[5])
	}
	if n.Revision, err = url.PathUnescape(parts[3]); err != nil {
		return n, err
	}
	if err := checkRevision(n.Revision); err != nil {
		return n, err
	}
	if n.Revision == mainRevision {
		n.Revision = ""
	}
	if parts[2] == "tree" && len(parts) > 4 {
		return n, errors.New("a folder of a repository is not a model")
	}
	if n.File = strings.Join(parts[4:], "/"); n.File != "" {
		return n, checkFile(n.File)
	}
	return n, nil
}

func repository(org, name string) (string, error) {
	repo := org + "/" + name
	switch {
	case slices.Contains([]string{"datasets", "spaces", "kernels", "buckets"}, org):
		return "", fmt.Errorf("%s are not models", org)
	case !partForm.MatchString(org) || !partForm.MatchString(name):
		return "", fmt.Errorf("%q is not org/name: letters, digits, and dots, dashes and underscores between them", repo)
	case strings.Contains(repo, "--") || strings.Contains(repo, "..") || strings.HasSuffix(repo, ".git"):
		return "", fmt.Errorf("%q: no repository has --, .. or a .git at its end", repo)
	case len(repo) > longestRepo:
		return "", fmt.Errorf("%q is longer than %d characters", repo, longestRepo)
	}
	return repo, nil
}

func checkRevision(revision string) error {
	if !revisionForm.MatchString(revision) || len(revision) > longestPart || strings.Contains(revision, "..") || !fs.ValidPath(revision) {
		return fmt.Errorf("%q is not a branch, tag or commit", revision)
	}
	return nil
}

// checkFile returns an error for a path that could leave the repository's folder on any system.
func checkFile(file string) error {
	if !fs.ValidPath(file) || file == "." || strings.ContainsFunc(file, func(r rune) bool { return unicode.IsControl(r) || strings.ContainsRune(`\:`, r) }) {
		return fmt.Errorf("%q is not the path of a file in a repository", file)
	}
	for part := range strings.SplitSeq(file, "/") {
		if len(part) > longestPart {
			return fmt.Errorf("%q is longer than %d characters", part, longestPart)
		}
	}
	return nil
}
