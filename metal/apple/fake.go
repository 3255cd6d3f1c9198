//go:build fakemetal && linux

package apple

import (
	"github.com/smelt-ml/smelt/kernels/emulated"
	"github.com/smelt-ml/smelt/metal/internal/fakemetal"
)

// A build with the fake has it as its device "metal".
func init() {
	fakemetal.AddLibraries()
	fakemetal.Configure(fakemetal.Options{Emulator: emulated.Provider()})
}
