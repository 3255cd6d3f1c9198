// Package emu registers the device "emu", which runs every kernel from its .metal source on the
// CPU. It is the reference in tests of Plans of target "metal" where there is no Mac.
//
//	import _ "github.com/smelt-ml/smelt/device/emu"
//
//	d, err := device.Open("emu", device.Options{Own: map[string]string{"order": "descending"}})
package emu

import (
	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/device/host"
	"github.com/smelt-ml/smelt/kernels/emulated"
)

func init() {
	device.Register(device.Row{Name: "emu", Target: "metal", Options: host.Options(),
		Open: func(o device.Options) (device.Driver, error) { return host.Open(o, emulated.Provider(), nil) }})
}
