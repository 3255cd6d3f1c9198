// Package metal registers the device "metal": Apple's GPUs.
//
// The bridge to Apple's API is package apple, in Objective-C, a provider of device.h. Beside
// it runs a device of package host, for the dispatches that a Plan places on the CPU. There the
// system's BLAS (kernels/native/blas) computes products of float weights and several tokens, with
// scratch memory in the Plan's arena. If a GPU does not respond within the option timeout, that
// step and later ones return device.ErrLost.
//
//	import _ "github.com/smelt-ml/smelt/metal"
//
//	d, err := device.Open("metal", device.Options{Own: map[string]string{"timeout": "30s"}})
//
// On Linux, under the tag fakemetal, the same Objective-C runs over internal/fakemetal, which
// executes emulated kernels, so that the bridge is tested without a Mac. Other builds register
// "metal" without a bridge; opening it returns [ErrNoMetal], as it does on a machine whose GPU
// fails at a first small kernel.
package metal
