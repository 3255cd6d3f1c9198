package lower

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"

	"github.com/smelt-ml/smelt/lower/plan"
)

// Winner is the fastest setting of a choice at a site, as measured on a device.
type Winner struct {
	Choice  string       `json:"choice"`
	Kernel  string       `json:"kernel"` // host name, or the family's
	Shape   string       `json:"shape"`
	Setting plan.Setting `json:"setting"`
	Micros  float64      `json:"us"` // of all such dispatches of a step
	Default float64      `json:"default_us"`
}

// Key returns the key of the winner's sites, as [plan.Site.Key] does.
func (w *Winner) Key() string { return w.Choice + "|" + w.Kernel + "|" + w.Shape }

// Tuning holds the measurements of a device: the winner at each site, including winners that are
// the default. Plans compiled with the same Tuning are the same. The compiler ignores a winner
// whose setting the site does not list, so that a Tuning of another version of smelt does no harm.
type Tuning struct {
	Device  string   `json:"device"`
	Version string   `json:"version"` // of the kernels that were measured
	Winners []Winner `json:"winners"` // by key
}

// Hash returns the hash by which Plans identify the tuning they were compiled with; "" for none.
func (t *Tuning) Hash() string {
	if t == nil || len(t.Winners) == 0 {
		return ""
	}
	h := sha256.New()
	if err := t.Write(h); err != nil {
		panic(err) // writing to a hash never fails, nor does encoding checked numbers
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Find returns the winner with a site's key, or nil.
func (t *Tuning) Find(key string) *Winner {
	if t == nil {
		return nil
	}
	i, ok := slices.BinarySearchFunc(t.Winners, key, func(w Winner, key string) int { return cmp.Compare(w.Key(), key) })
	if !ok {
		return nil
	}
	return &t.Winners[i]
}

// Keep adds winners and replaces those with the same keys.
func (t *Tuning) Keep(winners ...Winner) {
	all := make(map[string]Winner, len(t.Winners)+len(winners))
	for _, w := range append(slices.Clone(t.Winners), winners...) {
		all[w.Key()] = w
	}
	t.Winners = t.Winners[:0:0]
	for _, key := range slices.Sorted(maps.Keys(all)) {
		t.Winners = append(t.Winners, all[key])
	}
}

// The format of tunings as files: JSON of tuningFile.
const (
	tuningFormat  = "smelt tuning"
	tuningVersion = 1
	maxTuning     = 16 << 20
)

type tuningFile struct {
	Format        string `json:"format"`
	FormatVersion int    `json:"format_version"`
	Tuning
}

// ErrTuning is wrapped by errors about files that hold no tuning.
var ErrTuning = errors.New("no tuning")

// Write writes a tuning as JSON. The same tuning gives the same bytes.
func (t *Tuning) Write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(tuningFile{tuningFormat, tuningVersion, *t})
}

// ReadTuning reads what Write wrote. Anything else is an error that wraps ErrTuning.
func ReadTuning(r io.Reader) (*Tuning, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxTuning+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxTuning {
		return nil, fmt.Errorf("%w: more than %d MiB", ErrTuning, maxTuning>>20)
	}
	var f tuningFile
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTuning, err)
	}
	if f.Format != tuningFormat || f.FormatVersion != tuningVersion {
		return nil, fmt.Errorf("%w: format %q of version %d; this smelt reads %q of version %d", ErrTuning, f.Format, f.FormatVersion, tuningFormat, tuningVersion)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: something follows it", ErrTuning)
	}
	for i := range f.Winners {
		if err := f.Winners[i].validate(); err != nil {
			return nil, fmt.Errorf("%w: winner %d: %w", ErrTuning, i, err)
		}
		if i > 0 && f.Winners[i-1].Key() >= f.Winners[i].Key() {
			return nil, fmt.Errorf("%w: winner %d is out of order", ErrTuning, i)
		}
	}
	return &f.Tuning, nil
}

func (w *Winner) validate() error {
	c := choiceNamed(w.Choice)
	if c == nil || !c.exact {
		return fmt.Errorf("no choice that may be kept is called %q", w.Choice)
	}
	if len(w.Setting) != len(c.fields) {
		return fmt.Errorf("%s is set to %v; it has %v", w.Choice, w.Setting, c.fields)
	}
	for _, name := range c.fields {
		if _, ok := w.Setting[name]; !ok {
			return fmt.Errorf("%s has no %s", w.Choice, name)
		}
	}
	for _, us := range []float64{w.Micros, w.Default} {
		if !(us >= 0) || math.IsInf(us, 0) {
			return fmt.Errorf("%s took %g µs", w.Choice, us)
		}
	}
	return nil
}
