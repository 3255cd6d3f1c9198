package graphviz

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRender(t *testing.T) {
	dot := []byte(`digraph { a [label="x < y"]; a -> b; a -> c; c -> d; b -> d }`)
	svg, err := Render(t.Context(), dot, "svg")
	require.NoError(t, err)
	require.Equal(t, 4, strings.Count(string(svg), `class="node"`))
	require.Equal(t, 4, strings.Count(string(svg), `class="edge"`))
	require.Contains(t, string(svg), "x &lt; y")
	require.True(t, strings.HasSuffix(string(svg), "</svg>\n"))
	again, err := Render(t.Context(), dot, "svg")
	require.NoError(t, err)
	require.Equal(t, string(svg), string(again))

	plain, err := Render(t.Context(), dot, "plain")
	require.NoError(t, err)
	require.Regexp(t, `^graph 1 `, string(plain))
}

// ladder is a graph of so many rungs, whose layout takes long.
func ladder(rungs int) []byte {
	var b bytes.Buffer
	b.WriteString("digraph {\n")
	for i := range rungs {
		fmt.Fprintf(&b, "a%d -> a%d; b%d -> b%d; a%d -> b%d; a0 -> b%d\n", i, i+1, i, i+1, i, (i*7)%rungs, i)
	}
	b.WriteString("}\n")
	return b.Bytes()
}

// The interpreter and compiled code draw the same.
func TestSmallAndLarge(t *testing.T) {
	small := ladder(6)
	require.Less(t, len(small), largeGraph)
	large := append(small, bytes.Repeat([]byte("# no more\n"), largeGraph/10)...)
	want, err := Render(t.Context(), small, "svg")
	require.NoError(t, err)
	got, err := Render(t.Context(), large, "svg")
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

func TestRefused(t *testing.T) {
	for name, c := range map[string]struct{ dot, format, why string }{
		"syntax":  {"digraph { a -> ", "svg", "syntax error"},
		"nothing": {"", "svg", ""},
		"zero":    {"digraph { a\x00 }", "svg", "zero byte"},
		"format":  {"digraph { a }", "no such", "not recognized"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Render(t.Context(), []byte(c.dot), c.format)
			require.ErrorIs(t, err, ErrGraph)
			require.ErrorContains(t, err, c.why)
		})
	}
}

// What is stopped returns at once, whichever way it is run. Compiled code goes on behind it,
// and a garbage collection waits for that, so that it comes last.
func TestStopped(t *testing.T) {
	// The interpreter really stops: it leaves nothing behind that takes time.
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	done := make(chan error)
	go func() {
		_, err := renderHere(ctx, ladder(300), "svg")
		done <- err
	}()
	select {
	case err := <-done:
		require.Error(t, err)
	case <-time.After(10 * time.Second):
		t.Fatal("it goes on")
	}
	for _, rungs := range []int{300, 4000} {
		t.Run(fmt.Sprint(rungs), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			start := time.Now()
			_, err := Render(ctx, ladder(rungs), "svg")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Less(t, time.Since(start), 3*time.Second)
		})
	}
}
