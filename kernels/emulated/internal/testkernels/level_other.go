//go:build !amd64 || asan

package testkernels

import "github.com/smelt-ml/smelt/kernels/emulated/internal/host"

func levels() []host.Library { return nil }
