package smelt_test

import "github.com/smelt-ml/smelt/device"

// Where there is a GPU, or a stand-in for one, the models run on it too. Its halves are
// the emulator's.
func init() {
	if d, err := device.Open("metal", device.Options{}); err == nil {
		d.Close()
		bounds["metal"], engineBounds["metal"] = bounds["emu"], engineBounds["emu"]
	}
}
