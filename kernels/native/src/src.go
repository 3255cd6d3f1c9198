// Package src holds the native kernels, which the package of each instruction set compiles
// for itself and imports blank: see package abi.
package src

import (
	"embed"

	_ "github.com/smelt-ml/smelt/kernels/abi" // whose headers these include
)

// Headers are the package's headers, by name.
//
//go:embed *.h
var Headers embed.FS
