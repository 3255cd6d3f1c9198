package device

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Row describes a registered device before it is opened.
type Row struct {
	Name   string
	Target string // of the Plans that are compiled for it; Load takes others as well
	// Auto is the device's rank among those that "auto" tries, lowest first; 0 excludes it.
	Auto int
	// Options are the device's own options, the keys of [Options.Own].
	Options []Option
	// Open opens the device; the keys of Options.Own are checked already. Its error is
	// [ErrAbsent] where the machine has no such device, and [ErrUnavailable] where the build
	// has none.
	Open func(Options) (Driver, error)
	// Check, if not nil, tests a device after it is opened, with a first launch; its error
	// makes [Open] fail.
	Check func(launch func(Launch) error) error
}

// Option is an option of one device.
type Option struct {
	Key    string
	Values []string // the valid ones; any if nil
	Doc    string   // its effect and its default
}

// rows holds all devices, those that "auto" tries first.
var rows []Row

// Register adds a device. Packages of devices call it when they are initialised, so that a
// program has the devices whose packages it imports. It panics if the name is taken.
func Register(r Row) {
	if slices.ContainsFunc(rows, func(o Row) bool { return o.Name == r.Name }) || r.Name == auto {
		panic("device: " + r.Name + " is registered twice")
	}
	rows = append(rows, r)
	slices.SortStableFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(min(1, b.Auto), min(1, a.Auto)), cmp.Compare(a.Auto, b.Auto), strings.Compare(a.Name, b.Name))
	})
}

// Names returns the names that [Open] accepts.
func Names() []string {
	names := []string{auto}
	for _, r := range rows {
		names = append(names, r.Name)
	}
	return names
}

const auto = "auto"

// Resolve returns the name of the device that a name, in any case, stands for on this machine. For
// "auto" that is the first available device; another name stands for itself, available or not. It
// returns ErrDevice for an unknown name.
func Resolve(name string) (string, error) {
	r, _, err := resolve(name)
	return r.Name, err
}

// Fallback returns the reason why "auto" stands for another device than its first choice, the GPU.
// It returns nil for other names, where "auto" is the GPU, and where the build has no GPU. A user
// interface that resolves "auto" should show it.
func Fallback(name string) error {
	_, why, err := resolve(name)
	if err != nil || errors.Is(why, ErrUnavailable) {
		return nil
	}
	return why
}

// resolve returns the row of a device and, for "auto", why it is not the first choice. The last
// choice is not tried.
func resolve(name string) (is Row, why, err error) {
	name = strings.ToLower(name)
	if i := slices.IndexFunc(rows, func(r Row) bool { return r.Name == name }); i >= 0 {
		return rows[i], nil, nil
	}
	if name != auto || len(rows) == 0 || rows[0].Auto == 0 {
		return Row{}, nil, fmt.Errorf("device: %w: %q is none of %s", ErrDevice, name, strings.Join(Names(), ", "))
	}
	for _, r := range rows {
		if r.Auto == 0 {
			break
		}
		if is.Name != "" {
			d, err := is.open(Options{Threads: 1}, is.Check)
			if err == nil {
				_ = d.Close()
			}
			if !errors.Is(err, ErrAbsent) {
				return is, why, nil // Open returns any other error
			}
			why = err
		}
		is = r
	}
	return is, why, nil
}

// TargetOf returns the target of a device's Plans: "metal" or "cpu". It returns ErrDevice for an
// unknown name.
func TargetOf(name string) (string, error) {
	r, _, err := resolve(name)
	return r.Target, err
}

// accepts returns ErrOption for an unknown key, or for a value that its option does not accept.
func (r Row) accepts(own map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(own)) {
		i := slices.IndexFunc(r.Options, func(o Option) bool { return o.Key == key })
		if i < 0 {
			var keys []string
			for _, o := range r.Options {
				keys = append(keys, o.Key)
			}
			return fmt.Errorf("%w: no option %q; it takes %s", ErrOption, key, cmp.Or(strings.Join(keys, ", "), "none"))
		}
		if values := r.Options[i].Values; values != nil && !slices.Contains(values, own[key]) {
			return fmt.Errorf("%w: %s is %q, not %s", ErrOption, key, own[key], strings.Join(values, " or "))
		}
	}
	return nil
}
