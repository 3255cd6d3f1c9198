package stops

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func ExampleFinder() {
	f := New("\n\n", "User:")
	for i, piece := range []string{"one\nUs", "e two Us", "er: three"} {
		out, stop := f.Next(piece, i == 2)
		fmt.Printf("%q %q\n", out, stop)
	}
	// Output:
	// "one\n" ""
	// "Use two " ""
	// "" "User:"
}

func TestNext(t *testing.T) {
	for _, test := range []struct {
		stops, pieces []string
		out, stop     string
	}{
		{nil, []string{"a", "b"}, "ab", ""},
		{[]string{""}, []string{"ab"}, "ab", ""},
		{[]string{"bc"}, []string{"ab", "cd"}, "a", "bc"},
		{[]string{"bc"}, []string{"ab", "d"}, "abd", ""},
		{[]string{"bc"}, []string{"ab"}, "ab", ""},
		{[]string{"cd", "bcd"}, []string{"a", "b", "c", "d"}, "a", "bcd"},
		{[]string{"b", "bc"}, []string{"abc"}, "a", "b"},
		{[]string{"aab"}, []string{"aa", "ab"}, "a", "aab"},
		{[]string{"é"}, []string{"x\xc3", "\xa9y"}, "x", "é"},
	} {
		f, all := New(test.stops...), ""
		var stop string
		for i, piece := range test.pieces {
			var out string
			out, stop = f.Next(piece, i == len(test.pieces)-1)
			all += out
			if stop != "" {
				break
			}
		}
		require.Equal(t, test.out, all, "%q in %q", test.stops, test.pieces)
		require.Equal(t, test.stop, stop, "%q in %q", test.stops, test.pieces)
	}
}

// For any split of a text, the output ends where its first complete stop begins, and no byte is
// held back longer than it may belong to a stop.
func TestCuts(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	letters := func(n int) string {
		var b strings.Builder
		for range n {
			b.WriteByte("ab"[rng.IntN(2)])
		}
		return b.String()
	}
	for range 5000 {
		text, stop := letters(rng.IntN(30)), letters(1+rng.IntN(5))
		want, _, found := strings.Cut(text, stop)
		f, out := New(stop), ""
		for rest := text; ; {
			n := rng.IntN(len(rest) + 1)
			piece, last := rest[:n], n == len(rest)
			rest = rest[n:]
			part, hit := f.Next(piece, last)
			out += part
			if hit != "" || last {
				require.Equal(t, found, hit != "", "%q in %q", stop, text)
				break
			}
			require.Less(t, len(f.held), len(stop))
		}
		require.Equal(t, want, out, "%q in %q", stop, text)
	}
}
