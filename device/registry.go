package device

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Row is a device as it is registered: what is known of it before it is opened.
type Row struct {
	Name   string
	Target string // of the Plans that are compiled for it; Load takes others as well
	// Auto is the place of the device among those that "auto" tries, the lowest first; it
	// does not try one of 0.
	Auto int
	// Options are those of this device alone, which come in [Options.Own].
	Options []Option
	// Open opens the device with options that the row takes. Its error is [ErrAbsent] where
	// the machine has no such device, and [ErrUnavailable] where the build has none.
	Open func(Options) (Driver, error)
	// Check, where there is one, has an opened device prove itself before it is used.
	Check func(launch func(Launch) error) error
}

// Option is an option of one device.
type Option struct {
	Key    string
	Values []string // that it may have; any if nil
	Doc    string   // what it does, and what it is without
}

// rows are all devices, those that "auto" tries first.
var rows []Row

// Register adds a device, for the program's life. Packages of devices call it when they are
// initialised, so that a program has the devices whose packages it imports.
func Register(r Row) {
	if slices.ContainsFunc(rows, func(o Row) bool { return o.Name == r.Name }) || r.Name == auto {
		panic("device: " + r.Name + " is registered twice")
	}
	rows = append(rows, r)
	slices.SortStableFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(min(1, b.Auto), min(1, a.Auto)), cmp.Compare(a.Auto, b.Auto), strings.Compare(a.Name, b.Name))
	})
}

// Rows lists the registered devices, those that "auto" tries first.
func Rows() []Row { return slices.Clone(rows) }

// Names lists what Open takes.
func Names() []string {
	names := []string{auto}
	for _, r := range rows {
		names = append(names, r.Name)
	}
	return names
}

const auto = "auto"

// Resolve returns the device that a name of any case stands for here: for "auto" that
// is the first of its devices that there is. Any other stands for itself, whether there
// is such a device or not. It returns ErrDevice for an unknown name.
func Resolve(name string) (string, error) {
	r, _, err := resolve(name)
	return r.Name, err
}

// Fallback returns why the GPU of this machine is not what a name of any case stands for:
// nil for other names than "auto", where "auto" is its first choice, and where the build
// knows of no GPU. Who resolves "auto" for a person tells it.
func Fallback(name string) error {
	_, why, err := resolve(name)
	if err != nil || errors.Is(why, ErrUnavailable) {
		return nil
	}
	return why
}

// resolve is Resolve, and why "auto" is not its first choice. The last choice is not tried.
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
				return is, why, nil // what else is wrong with it, opening it will tell
			}
			why = err
		}
		is = r
	}
	return is, why, nil
}

// TargetOf returns the target of the Plans that are made for a device: "metal" or
// "cpu". It returns ErrDevice for an unknown name.
func TargetOf(name string) (string, error) {
	r, _, err := resolve(name)
	return r.Target, err
}

// accepts returns an error about an option that the device does not have, or a value that it
// does not take.
func (r Row) accepts(own map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(own)) {
		i := slices.IndexFunc(r.Options, func(o Option) bool { return o.Key == key })
		if i < 0 {
			var keys []string
			for _, o := range r.Options {
				keys = append(keys, o.Key)
			}
			return fmt.Errorf("%w: %s has no option %q; it takes %s", ErrOption, r.Name, key, cmp.Or(strings.Join(keys, ", "), "none"))
		}
		if values := r.Options[i].Values; values != nil && !slices.Contains(values, own[key]) {
			return fmt.Errorf("%w: %s of %s is %q, not %s", ErrOption, key, r.Name, own[key], strings.Join(values, " or "))
		}
	}
	return nil
}
