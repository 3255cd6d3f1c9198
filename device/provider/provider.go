// Package provider is the C interface between Go and whatever executes a Plan: device.h.
//
// A provider is a table of functions, so that one process can hold several: package host
// runs a Plan on the CPU, package apple on an Apple GPU with the host as its other half,
// and package device calls them, all through the same structs. Packages that only Go links
// cannot see each other's symbols, so a table travels as an address, which each side
// takes for the same type of C:
//
//	options.host = (*C.smelt_host)(host.Half())
//
// A header in one package that C of another includes is nothing the go command knows of.
// So every package with such C imports this one, which embeds the header: when a struct
// changes, all of them are compiled anew.
package provider

import _ "embed"

// Header is device.h.
//
//go:embed device.h
var Header string
