//go:build !linux

package meter

const noReserve = 0
