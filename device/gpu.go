package device

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/smelt-ml/smelt/device/apple"
)

// answerWithin is how long a command buffer may take unless told otherwise. The
// system's own watchdog is quicker.
const answerWithin = time.Minute

// errNoBridge is ErrNoMetal where a build could not find one.
var errNoBridge = fmt.Errorf("%w: this build of smelt has no bridge to Apple's GPUs", ErrNoMetal)

// fromEnvironment fills in what was not asked for: SMELT_METALLIB, a compiled library,
// SMELT_ARCHIVES, where compiled kernels are kept, SMELT_CAPTURE, the number of the step to
// capture, and SMELT_BLAS=off.
func (o *Options) fromEnvironment() error {
	o.NoBLAS = o.NoBLAS || os.Getenv("SMELT_BLAS") == "off"
	if o.Library == "" {
		o.Library = os.Getenv("SMELT_METALLIB")
	}
	o.Archives = cmp.Or(o.Archives, os.Getenv("SMELT_ARCHIVES"), apple.DefaultArchives())
	if n := os.Getenv("SMELT_CAPTURE"); n != "" && o.Capture == 0 {
		step, err := strconv.ParseUint(n, 10, 31)
		if err != nil || step == 0 {
			return fmt.Errorf("SMELT_CAPTURE=%s is not the number of a step, counted from 1", n)
		}
		o.Capture, o.CaptureFile = int(step), fmt.Sprintf("smelt-%d.gputrace", step)
	}
	return nil
}
