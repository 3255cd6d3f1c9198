//go:build !amd64 || asan

package emulated

func levels() []Library { return nil }
