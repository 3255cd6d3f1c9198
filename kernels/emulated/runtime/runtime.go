// Package runtime holds the C++ runtime of emulated kernels: msl/ stands in for Metal's
// standard library, runtime.h and runtime.cc schedule the threads, trace/ records their memory
// accesses. Packages of kernels compile it and import it blank; see package abi.
package runtime

import (
	"embed"

	_ "github.com/smelt-ml/smelt/kernels/abi" // whose headers these include
)

// Files are the sources, by paths from this folder.
//
//go:embed runtime.h runtime.cc msl trace
var Files embed.FS
