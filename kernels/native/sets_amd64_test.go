//go:build cgo && !loaded

package native

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/cpu"
)

// Processors by the features that they lack, and the sets that they can still run.
func TestSetsOfProcessors(t *testing.T) {
	x := &cpu.X86
	here := *x
	t.Cleanup(func() { *x = here })
	everything := reflect.ValueOf(x).Elem() // the test runs no set of this processor
	for i := range everything.NumField() {
		if f := everything.Field(i); f.Kind() == reflect.Bool && f.CanSet() {
			f.SetBool(true)
		}
	}
	for name, c := range map[string]struct {
		lacks []*bool
		want  []string
	}{
		"Sapphire Rapids": {nil, []string{"avx512", "avxvnni", "avx2", "portable"}},
		"Ice Lake":        {[]*bool{&x.HasAVXVNNI}, []string{"avx512", "avx2", "portable"}},
		"Skylake-X":       {[]*bool{&x.HasAVXVNNI, &x.HasAVX512VNNI}, []string{"avx2", "portable"}},
		"Knights Mill":    {[]*bool{&x.HasAVXVNNI, &x.HasAVX512BW, &x.HasAVX512DQ, &x.HasAVX512VL}, []string{"avx2", "portable"}},
		"Alder Lake":      {[]*bool{&x.HasAVX512F, &x.HasAVX512VNNI}, []string{"avxvnni", "avx2", "portable"}},
		"Haswell":         {[]*bool{&x.HasAVXVNNI, &x.HasAVX512F}, []string{"avx2", "portable"}},
		"Piledriver":      {[]*bool{&x.HasAVX2, &x.HasAVXVNNI, &x.HasAVX512F, &x.HasBMI2}, []string{"portable"}},
		"no AVX state":    {[]*bool{&x.HasAVX, &x.HasAVX2, &x.HasAVXVNNI, &x.HasAVX512F}, []string{"portable"}},
	} {
		t.Run(name, func(t *testing.T) {
			all := cpu.X86
			t.Cleanup(func() { cpu.X86 = all })
			for _, feature := range c.lacks {
				*feature = false
			}
			var names []string
			for _, l := range Libraries() {
				names = append(names, l.ISA())
			}
			require.Equal(t, c.want, names)
		})
	}
}
