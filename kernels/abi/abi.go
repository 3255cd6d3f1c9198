// Package abi holds the C headers that kernels and their callers share: launches and the
// function tables of kernel libraries (abi.h; library.h for emulated kernels), parameter
// structs and weight types (params.h, params.gen.h and types.gen.h, which the Metal sources
// include too), and the numbers of the kernel table's buffers and function constants
// (arguments.gen.h) and of attributes (attributes.gen.h).
//
// Go's build cache does not track headers outside of the folder of the package that includes
// them. A blank import of this package, which embeds its headers, adds them to the cache key:
// the embedded text is part of the import's archive, whose hash is part of the importer's key, and
// of no other: each package that compiles the headers imports this one itself.
// The linker drops the text from programs that do not read it.
//
//	import _ "github.com/smelt-ml/smelt/kernels/abi" // the headers that the sources include
package abi

import "embed"

// Headers are the package's headers, by name.
//
//go:embed *.h
var Headers embed.FS
