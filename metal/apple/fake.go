//go:build fakemetal && linux

package apple

import (
	"os"

	"github.com/smelt-ml/smelt/kernels/emulated"
	"github.com/smelt-ml/smelt/metal/internal/fakemetal"
)

// DefaultArchives keeps nothing: what a test finds must not depend on tests before it.
func DefaultArchives() string { return "off" }

// SystemBuild is that of the fake's system.
func SystemBuild() string { return "fake" }

// A build with the fake has it as its device "metal"; with SMELT_FAKE_METAL=hosted it is
// what the virtual machines of hosted runners have.
func init() {
	fakemetal.AddLibraries()
	o := fakemetal.Options{Emulator: emulated.Provider()}
	if os.Getenv("SMELT_FAKE_METAL") == "hosted" {
		o.Family, o.Zeros = 5, true
	}
	fakemetal.Configure(o)
}
