//go:build fakemetal && linux

package apple

import (
	"os"
	"strconv"
	"strings"

	"github.com/smelt-ml/smelt/kernels/emulated"
	"github.com/smelt-ml/smelt/metal/internal/fakemetal"
)

// DefaultArchives returns "off", so that no test depends on an earlier one.
func DefaultArchives() string { return "off" }

// SystemBuild returns "fake".
func SystemBuild() string { return "fake" }

// init configures the fake as the device "metal". SMELT_FAKE_METAL=hosted gives it the properties of
// hosted runners' virtual machines, SMELT_FAKE_METAL="Apple M5 Max,10,32" a name, family and number
// of cores.
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
