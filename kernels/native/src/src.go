// Package src holds the headers of the native kernels. The package of each instruction set
// compiles them, and imports this one and abi blank; see package abi.
package src

import "embed"

// Headers are the package's headers, by name.
//
//go:embed *.h
var Headers embed.FS
