//go:build !asan

package emulated

import (
	"github.com/smelt-ml/smelt/kernels/emulated/internal/host"
	"github.com/smelt-ml/smelt/kernels/emulated/v3"
)

func levels() []Library {
	if !v3.Supported() {
		return nil
	}
	return []Library{host.Open(v3.Library())}
}
