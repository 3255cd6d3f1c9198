//go:build !amd64

package emulated

func levels() []Library { return nil }
