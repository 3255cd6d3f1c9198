//go:build !(cgo && ((darwin && arm64) || (fakemetal && linux)))

package metal

import "fmt"

func newAppleDriver(Options, suppliers) (driver, error) {
	return nil, fmt.Errorf("%w: this build of smelt has no bridge to Apple's GPUs", ErrNoMetal)
}
