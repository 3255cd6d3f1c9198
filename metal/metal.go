package metal

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/device/host"
	"github.com/smelt-ml/smelt/device/provider"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/kernels/emulated"
	"github.com/smelt-ml/smelt/kernels/native"
	"github.com/smelt-ml/smelt/metal/apple"
)

func init() {
	device.Register(device.Row{Name: "metal", Target: "metal", Auto: 1, Options: options, Open: open, Check: check})
}

var options = []device.Option{
	{Key: "archives", Doc: "folder below which compiled kernels are kept, or off; default: SMELT_ARCHIVES, or the user's cache folder"},
	{Key: "blas", Values: []string{"on", "off"}, Doc: "use the system's BLAS for products that the Plan places on the CPU; default: on, unless SMELT_BLAS=off"},
	{Key: "capture", Doc: "number, from 1, of the step that Metal captures for Xcode; default: SMELT_CAPTURE, or none"},
	{Key: "capture-file", Doc: "file of the capture; default: smelt-N.gputrace"},
	{Key: "library", Doc: "compiled Metal library that replaces the kernels' sources; default: SMELT_METALLIB, or none"},
	{Key: "timeout", Doc: "maximum time of a command buffer; default: 1m"},
}

// ErrNoMetal reports that the machine has no usable Metal device. It matches device.ErrAbsent.
var ErrNoMetal error = &absent{"no Metal device", nil}

// errNoBridge is ErrNoMetal of a build without a bridge to Apple's GPUs.
var errNoBridge error = &absent{"no Metal device: this build of smelt has no bridge to Apple's GPUs", []error{ErrNoMetal, device.ErrUnavailable}}

type absent struct {
	message string
	is      []error // beside device.ErrAbsent
}

func (e *absent) Error() string { return e.message }

func (e *absent) Is(target error) bool {
	return target == device.ErrAbsent || slices.Contains(e.is, target)
}

// settings returns the options of the bridge, from those given to Open, else from the environment.
func settings(own map[string]string) (o provider.Options, err error) {
	// The default is longer than the system's own watchdog.
	if o.Timeout, err = time.ParseDuration(cmp.Or(own["timeout"], "1m")); err != nil || o.Timeout <= 0 {
		return o, fmt.Errorf("%w: timeout is %q, not a duration such as 30s", device.ErrOption, own["timeout"])
	}
	o.Library = cmp.Or(own["library"], os.Getenv("SMELT_METALLIB"))
	o.Archives = cmp.Or(own["archives"], os.Getenv("SMELT_ARCHIVES"), apple.DefaultArchives())
	step := cmp.Or(own["capture"], os.Getenv("SMELT_CAPTURE"))
	if step == "" {
		return o, nil
	}
	n, err := strconv.ParseUint(step, 10, 31)
	if err != nil || n == 0 {
		name := "SMELT_CAPTURE"
		if own["capture"] != "" {
			name = "capture"
		}
		return o, fmt.Errorf("%s=%s is not the number of a step, counted from 1", name, step)
	}
	o.Capture, o.CaptureFile = int(n), cmp.Or(own["capture-file"], fmt.Sprintf("smelt-%d.gputrace", n))
	return o, nil
}

func open(given device.Options) (device.Driver, error) {
	if apple.Provider() == nil {
		return nil, errNoBridge
	}
	o, err := settings(given.Own)
	if err != nil {
		return nil, err
	}
	o.Archives = archiveFolder(o.Archives)
	if o.Capture > 0 {
		o.Capture++ // check runs a step first
	}
	o.Threads, o.Rearrange, o.Mapped = given.Threads, given.Rearrange, given.Mapped
	o.Debug, o.Seed, o.Poison = given.Debug, given.Seed, given.Poison
	o.Host, o.Emulator, o.Native, o.UseNative = host.Half(), emulated.Provider(), native.Provider(), true
	if blas := cmp.Or(given.Own["blas"], os.Getenv("SMELT_BLAS")); blas != "off" {
		if library, ok := native.BLAS(); ok {
			o.BLAS = library.Provider()
		}
	}
	all := apple.Kernels()
	o.Sources, o.SourceCount = all.Files, all.FileCount
	o.Functions, o.FunctionCount = all.Functions, all.FunctionCount
	d, err := provider.Open(apple.Provider(), o)
	var e *device.DriverError
	if !errors.As(err, &e) {
		return d, err
	}
	kind := e.Unwrap()
	if e.Code == device.CodeLost {
		kind = ErrNoMetal
	}
	if kind == nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w: %w", kind, err)
}

// check runs a first kernel. It returns ErrNoMetal for a GPU that fails, and device.ErrKernel where
// the kernel does not compile.
func check(launch func(device.Launch) error) error {
	t := kernels.NewTrial()
	err := launch(device.Launch{Kernel: t.Kernel, Buffers: t.Buffers, Grid: t.Grid, Group: t.Group})
	if errors.Is(err, device.ErrKernel) {
		return err
	}
	if err == nil {
		err = t.Verify()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoMetal, err)
	}
	return nil
}

// archiveFolder makes and returns the folder of this system's compiled pipelines; "" if below is
// "off" or the folder cannot be made.
func archiveFolder(below string) string {
	if below == "off" {
		return ""
	}
	folder := filepath.Join(below, apple.SystemBuild())
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return ""
	}
	return folder
}
