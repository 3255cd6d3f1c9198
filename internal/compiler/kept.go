package compiler

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/kernels/native"
	"github.com/smelt-ml/smelt/lower"
)

// tunedOff is the value of SMELT_TUNED that disables kept tunings.
const tunedOff = "off"

// LoadTuning returns the tuning that [KeepTuning], as in smelt tune, kept for a device: nil if there
// is none, or if SMELT_TUNED=off. It returns lower.ErrTuning for a file that is damaged, or of
// another device or version of the kernels; programs are then compiled without it.
func LoadTuning(name string, threads int) (*lower.Tuning, error) {
	if os.Getenv("SMELT_TUNED") == tunedOff {
		return nil, nil
	}
	// Checked first, as describing the device starts it.
	if folder, err := tunedFolder(); err != nil {
		return nil, nil
	} else if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	k, err := keeping(name, threads)
	if err != nil || k == nil {
		return nil, nil // no such device, or no folder: nothing was kept
	}
	r, err := os.Open(k.path)
	if errors.Is(err, fs.ErrNotExist) {
		if others, _ := filepath.Glob(filepath.Join(filepath.Dir(k.path), "*.json")); len(others) > 0 {
			return nil, fmt.Errorf("%s: %w: it was measured with other kernels; run smelt tune again", others[0], lower.ErrTuning)
		}
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", lower.ErrTuning, err)
	}
	defer r.Close()
	t, err := lower.ReadTuning(r)
	if err == nil && (t.Device != k.device || t.Version != k.version) {
		err = fmt.Errorf("%w: it is of %s, version %.12s", lower.ErrTuning, t.Device, t.Version)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k.path, err)
	}
	return t, nil
}

// KeepTuning adds winners to a device's tuning in the user's cache folder and returns the path of its
// file. It keeps earlier winners of other shapes, and replaces a file that cannot be read.
func KeepTuning(name string, threads int, winners ...lower.Winner) (path string, err error) {
	k, err := keeping(name, threads)
	if err != nil {
		return "", err
	}
	if k == nil {
		return "", errors.New("the system has no cache folder")
	}
	t := &lower.Tuning{Device: k.device, Version: k.version}
	if r, err := os.Open(k.path); err == nil {
		if old, err := lower.ReadTuning(r); err == nil && old.Device == k.device && old.Version == k.version {
			t = old
		}
		r.Close()
	}
	t.Keep(winners...)
	if err := os.MkdirAll(filepath.Dir(k.path), 0o755); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(filepath.Dir(k.path), ".*")
	if err != nil {
		return "", err
	}
	defer os.Remove(f.Name())
	if err := errors.Join(t.Write(f), f.Chmod(0o644), f.Close()); err != nil {
		return "", err
	}
	return k.path, os.Rename(f.Name(), k.path)
}

// kept is the path of a device's tuning, with the device and version that the file must have.
type kept struct{ path, device, version string }

// tunedFolder returns the folder of all devices' tunings.
func tunedFolder() (string, error) {
	cache, err := os.UserCacheDir()
	return filepath.Join(cache, "smelt", "tuned"), err
}

// keeping returns the place of a device's tuning; nil if the system has no cache folder.
func keeping(name string, threads int) (*kept, error) {
	folder, err := tunedFolder()
	if err != nil {
		return nil, nil
	}
	info, err := device.Describe(name, threads)
	if err != nil {
		return nil, err
	}
	measured := deviceText(info)
	k := &kept{device: measured, version: kernelVersion()}
	k.path = filepath.Join(folder, slug(measured), k.version[:12]+".json")
	return k, nil
}

// deviceText describes a device for its tuning: a GPU by chip and cores, a processor by name,
// instruction set and number of threads.
func deviceText(i device.Info) string {
	if i.GPU != "" {
		return fmt.Sprintf("%s, %d cores", i.GPU, i.Cores)
	}
	return fmt.Sprintf("%s, %s %s, %d threads", i.Processor, i.Name, i.ISA, i.Threads)
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

func slug(text string) string {
	return strings.Trim(notInNames.ReplaceAllString(strings.ToLower(text), "-"), "-")
}

// kernelVersion is a hash of all kernels, emulated and native.
var kernelVersion = sync.OnceValue(func() string {
	h := sha256.New()
	for _, file := range kernels.Files() {
		fmt.Fprintf(h, "%s %s\n", file, kernels.Hash(file))
	}
	fmt.Fprintln(h, native.Version())
	return hex.EncodeToString(h.Sum(nil))
})
