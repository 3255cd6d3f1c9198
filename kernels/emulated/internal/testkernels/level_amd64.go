//go:build !asan

package testkernels

import (
	"github.com/smelt-ml/smelt/kernels/emulated/internal/host"
	"github.com/smelt-ml/smelt/kernels/emulated/internal/testkernels/v3"
)

func levels() []host.Library {
	if !v3.Supported() {
		return nil
	}
	return []host.Library{host.Open(v3.Library())}
}
