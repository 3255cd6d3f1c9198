package device

// Reserved returns the bytes that executables and instances hold.
func (d *Device) Reserved() int64 { return d.reserved }

// Executable returns what the instance runs.
func (s *Instance) Executable() *Executable { return s.executable }

// Device returns where the executable is.
func (p *Executable) Device() *Device { return p.device }

// Contents returns the memory of a buffer of the Plan.
func (s *Instance) Contents(buffer int32, bytes int64) []byte {
	return s.executable.device.driver.Contents(s.buffers[buffer], bytes)
}

const MaxThreads = maxThreads

// Stopping reports whether the end of its context has reached the step under way.
func (s *Instance) Stopping() bool {
	s.stop.mu.Lock()
	defer s.stop.mu.Unlock()
	return s.stop.raised
}
