package main

import (
	"os"
	"regexp"
	"runtime"
)

var modelName = regexp.MustCompile(`(?m)^model name\s*: (.*)$`)

// processor returns the name of the machine's processor, if the system reports it.
func processor() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if name := modelName.FindSubmatch(info); err == nil && name != nil {
		return string(name[1])
	}
	return runtime.GOARCH
}
