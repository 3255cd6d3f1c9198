// Package runtime holds what the C++ of emulated kernels includes, and what runs it: msl/
// stands in for Metal's standard library, runtime.h and runtime.cc run the threads, trace/
// counts what they do. Packages of kernels compile it and import it blank, as package abi says.
package runtime

import (
	"embed"

	_ "github.com/smelt-ml/smelt/kernels/abi" // whose headers these include
)

// Files are the sources, by paths from this folder.
//
//go:embed runtime.h runtime.cc msl trace
var Files embed.FS
