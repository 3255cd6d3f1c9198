package native

// static int has_avx2(void) {
//     return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
//            __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("lzcnt");
// }
// static int has_avx512(void) {
//     return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
//            __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
//            __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
// }
import "C"

import (
	"unsafe"

	"github.com/smelt-ml/smelt/kernels/native/avx2"
	"github.com/smelt-ml/smelt/kernels/native/avx512"
	"github.com/smelt-ml/smelt/kernels/native/portable"
)

// sets lists what the processor has, and the system saves the registers of.
func sets() []unsafe.Pointer {
	var out []unsafe.Pointer
	if C.has_avx512() != 0 {
		out = append(out, avx512.Set())
	}
	if C.has_avx2() != 0 {
		out = append(out, avx2.Set())
	}
	return append(out, portable.Set())
}
