// Package metal registers the device "metal": Apple's GPUs.
//
// The bridge to Apple's API is package apple, in Objective-C, a provider of device.h. Beside
// it runs a device of package host, for the dispatches that a Plan gives to the CPU. There,
// products of float weights and several tokens are the BLAS's (kernels/native/blas), in
// scratch that the Plan's arena holds. A GPU that does not answer within the option timeout
// is given up: that step and those after it return device.ErrLost.
//
//	import _ "github.com/smelt-ml/smelt/metal"
//
//	d, err := device.Open("metal", device.Options{Own: map[string]string{"timeout": "30s"}})
//
// On Linux the same Objective-C runs over internal/fakemetal, under the tag fakemetal, whose
// device "metal" is made of emulated kernels: that is how the bridge is tested where no Mac
// is at hand. Other builds have the row and no bridge, and opening it returns [ErrNoMetal],
// as it does on a machine whose GPU fails at a first small kernel.
package metal
