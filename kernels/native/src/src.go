// Package src holds the headers of the native kernels. The package of each instruction set
// compiles them and imports this one blank; see package abi.
package src

import (
	"embed"

	_ "github.com/smelt-ml/smelt/kernels/abi" // the headers that these include
)

// Headers are the package's headers, by name.
//
//go:embed *.h
var Headers embed.FS
