// Outside defines a model from outside of smelt's module, compiles it, prints its
// fused graph as DOT and runs a step. Its weights make each token follow the last.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"slices"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/sym"
)

const vocab = 32

func counter(b *ir.Builder) {
	x := b.Embed(b.Input(sym.Tokens), b.Weight("embedding", vocab, vocab))
	b.Layer(0, func() {
		h := b.RMSNorm(x, b.Weight("norm", vocab), 1e-6)
		gate := b.SiLU(b.Linear(h, b.Weight("gate", vocab, vocab)))
		up := b.Linear(h, b.Weight("up", vocab, vocab))
		x = b.Add(x, b.Linear(b.Mul(gate, up), b.Weight("down", vocab, vocab)))
	})
	b.Return("logits", b.Linear(b.GatherRows(x), b.Weight("head", vocab, vocab)))
}

// shift returns a matrix that moves each element by n places.
func shift(n int) smelt.Tensor {
	w := make([]float32, vocab*vocab)
	for row := range vocab {
		w[row*vocab+(row-n+vocab)%vocab] = 1
	}
	return smelt.Float32(w, vocab, vocab)
}

func main() {
	m := smelt.Define("counter", smelt.Tensors{
		"embedding": shift(0), "norm": smelt.Float32(slices.Repeat([]float32{1}, vocab), vocab),
		"gate": shift(0), "up": shift(0), "down": shift(0), "head": shift(1),
	}, counter)
	p, err := m.Compile(smelt.DefaultOptions())
	check(err)
	check(p.WriteDOT(os.Stdout, "fused", "decode", nil))
	l, err := p.Load(smelt.Device{})
	check(err)
	defer l.Close()
	s, err := l.NewSession()
	check(err)
	logits, err := s.Feed(context.Background(), []int32{3, 4, 5})
	check(err)
	next, err := smelt.Greedy(logits)
	check(err)
	fmt.Fprintln(os.Stderr, "after 3, 4, 5 comes", next)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
