//go:build !(cgo && (linux || darwin))

package mapped

// watch does nothing: this build handles no faults.
type watch struct{}

func watchFaults([]byte) watch { return watch{} }

func (watch) faulted() bool { return false }
func (watch) end()          {}
