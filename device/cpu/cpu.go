// Package cpu registers the device "cpu": native SIMD kernels on a thread pool, and emulated kernels
// for launches that no native one covers. Its Plans are of target "cpu".
//
//	import _ "github.com/smelt-ml/smelt/device/cpu"
//
//	d, err := device.Open("cpu", device.Options{})
package cpu

import (
	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/device/host"
	"github.com/smelt-ml/smelt/kernels/emulated"
	"github.com/smelt-ml/smelt/kernels/native"
)

func init() {
	device.Register(device.Row{Name: "cpu", Target: "cpu", Auto: 2, Options: host.Options(),
		Open: func(o device.Options) (device.Driver, error) {
			return host.Open(o, emulated.Provider(), native.Provider())
		}})
}
