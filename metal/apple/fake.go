//go:build fakemetal && linux

package apple

import (
	"os"
	"strconv"
	"strings"

	"github.com/smelt-ml/smelt/kernels/emulated"
	"github.com/smelt-ml/smelt/metal/internal/fakemetal"
)

// DefaultArchives keeps nothing: what a test finds must not depend on tests before it.
func DefaultArchives() string { return "off" }

// SystemBuild is that of the fake's system.
func SystemBuild() string { return "fake" }

// A build with the fake has it as its device "metal". With SMELT_FAKE_METAL=hosted it is
// what the virtual machines of hosted runners have, with SMELT_FAKE_METAL="Apple M5 Max,10,32"
// a GPU of that name, family and number of cores.
func init() {
	fakemetal.AddLibraries()
	o := fakemetal.Options{Emulator: emulated.Provider()}
	of := os.Getenv("SMELT_FAKE_METAL")
	if of == "hosted" {
		o.Family, o.Zeros = 5, true
	}
	if fields := strings.Split(of, ","); len(fields) == 3 {
		o.Name = fields[0]
		o.Family, _ = strconv.Atoi(fields[1])
		o.Cores, _ = strconv.Atoi(fields[2])
	}
	fakemetal.Configure(o)
}
