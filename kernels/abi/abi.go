// Package abi holds what the C++ of the kernels and of whoever launches them includes: a
// launch and the suppliers of kernels (abi.h, and library.h of emulated ones), parameter
// structs and types of weights (params.h, params.gen.h and types.gen.h, which the Metal sources
// include too), and the numbers of the kernel table's buffers and function constants
// (arguments.gen.h) and of attributes (attributes.gen.h).
//
// Go's build cache does not see a header outside of the folder of the package that includes
// it. A package that embeds the header, imported blank, makes it seen: the embedded text is
// part of the import's archive, whose hash is part of the importer's key. The linker leaves
// the text out of a program that does not read it.
//
//	import _ "github.com/smelt-ml/smelt/kernels/abi" // whose headers the sources include
package abi

import "embed"

// Headers are the package's headers, by name.
//
//go:embed *.h
var Headers embed.FS
