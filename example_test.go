package smelt_test

import (
	"context"
	"fmt"
	"log"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/sym"
)

func Example() {
	l, err := smelt.Load("testdata/models/tiny-qwen3/gguf/tiny-qwen3-F16.gguf", smelt.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	s, err := l.NewSession()
	if err != nil {
		log.Fatal(err)
	}
	for token, err := range s.Generate(context.Background(), "Leo was afraid of the dark.", smelt.Generation{N: 10}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(token.Text)
	}
	// Output: "I was scared once, too," said Coco
}

// load loads one of the models that lie beside the tests.
func load(model string) (l *smelt.Loaded, release func()) {
	l, err := smelt.Load("testdata/models/"+model+"/gguf/"+model+"-F16.gguf", smelt.Options{})
	if err != nil {
		log.Fatal(err)
	}
	return l, func() { l.Close() }
}

// An engine takes requests from any goroutine, and runs them in the same steps.
func ExampleEngine() {
	l, err := smelt.Load("testdata/models/tiny-qwen3/gguf/tiny-qwen3-F16.gguf", smelt.Options{Sequences: 4, Block: 32})
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	e, err := l.NewEngine(smelt.EngineOptions{CacheBytes: 64 << 20})
	if err != nil {
		log.Fatal(err)
	}
	prompts := []string{"Leo was afraid of the dark.", "Once upon"}
	texts := make([]string, len(prompts))
	var wait sync.WaitGroup
	for i, prompt := range prompts {
		wait.Go(func() {
			for token, err := range e.Generate(context.Background(), smelt.Request{Prompt: prompt, Generation: smelt.Generation{N: 5}}) {
				if err != nil {
					log.Fatal(err)
				}
				texts[i] += token.Text
			}
		})
	}
	wait.Wait()
	fmt.Printf("%q\n", texts)
	// Output: [" \"I was scared once" " a time, there was"]
}

// The steps of [Load], one by one. A program is compiled for a device, and runs on those of its
// target alone.
func ExampleModel_Compile() {
	d, err := smelt.Resolve(smelt.Device{Name: "emu"})
	if err != nil {
		log.Fatal(err)
	}
	m, err := smelt.Open("testdata/models/tiny-llama/gguf/tiny-llama-F16.gguf", "")
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	p, err := m.Compile(smelt.Options{Device: d, Context: 64})
	if err != nil {
		log.Fatal(err)
	}
	l, err := p.Load(d)
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	fmt.Println(l.Info().Name, "runs plans for", p.Plan.Target)
	_, err = p.Load(smelt.Device{Name: "cpu"})
	fmt.Println(err)
	// Output:
	// emu runs plans for metal
	// loading tiny-llama-F16: it was compiled for metal, and the device cpu runs plans for cpu
}

// A sequence goes on, with more text or without.
func ExampleSession_Generate() {
	l, release := load("tiny-llama")
	defer release()
	s, err := l.NewSession()
	if err != nil {
		log.Fatal(err)
	}
	for _, prompt := range []string{"Leo was afraid of the dark.", ""} {
		text := ""
		for token, err := range s.Generate(context.Background(), prompt, smelt.Generation{N: 6}) {
			if err != nil {
				log.Fatal(err)
			}
			text += token.Text
		}
		fmt.Printf("%q %q\n", prompt, text)
	}
	// Output:
	// "Leo was afraid of the dark." "\nOne ev"
	// "" "ening, his sis"
}

// gauges are what a server might export: here, sums.
type gauges struct {
	requests, failed, tokens, steps, cached atomic.Int64
	drafted, accepted                       atomic.Int64 // tokens
	first, between, guessing                atomic.Int64 // nanoseconds
	batch, waiting, running, free           atomic.Int64 // as of the last step
}

func (g *gauges) FirstToken(t time.Duration) { g.tokens.Add(1); g.first.Add(int64(t)) }
func (g *gauges) NextToken(t time.Duration)  { g.tokens.Add(1); g.between.Add(int64(t)) }

func (g *gauges) Stepped(s smelt.EngineStep) {
	g.steps.Add(1)
	g.drafted.Add(int64(s.Drafted))
	g.guessing.Add(int64(s.Guessing))
	g.batch.Store(int64(s.Sequences))
	g.waiting.Store(int64(s.Stats.Waiting))
	g.running.Store(int64(s.Stats.Running))
	g.free.Store(int64(s.Stats.Free))
}

func (g *gauges) Ended(u smelt.Usage, err error) {
	g.requests.Add(1)
	g.cached.Add(int64(u.CachedTokens))
	g.accepted.Add(int64(u.Accepted))
	if err != nil {
		g.failed.Add(1)
	}
}

// A server exports what an engine does through an interface of its own.
func ExampleMetrics() {
	l, release := load("tiny-llama")
	defer release()
	var g gauges
	e, err := l.NewEngine(smelt.EngineOptions{BlockSize: 4, Metrics: &g})
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		r := smelt.Request{Prompt: "Leo was afraid of the dark.", Generation: smelt.Generation{N: 6}}
		for _, err := range e.Generate(context.Background(), r) {
			if err != nil {
				log.Fatal(err)
			}
		}
	}
	if err := e.Close(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(g.requests.Load(), "requests,", g.failed.Load(), "failed,", g.tokens.Load(), "tokens in", g.steps.Load(), "steps")
	fmt.Println("from the cache:", g.cached.Load() > 0, "times:", g.first.Load() > 0 && g.between.Load() > 0)
	// Output:
	// 2 requests, 0 failed, 12 tokens in 12 steps
	// from the cache: true times: true
}

// A model can be defined in Go: this one says what comes after a token, the next one.
func ExampleDefine() {
	const vocab = 8
	shift := func(n int) smelt.Tensor {
		w := make([]float32, vocab*vocab)
		for row := range vocab {
			w[row*vocab+(row-n+vocab)%vocab] = 1
		}
		return smelt.Float32(w, vocab, vocab)
	}
	m := smelt.Define("counter", smelt.Tensors{
		"embedding": shift(0), "head": shift(1), "norm": smelt.Float32(slices.Repeat([]float32{1}, vocab), vocab),
	}, func(b *ir.Builder) {
		x := b.Embed(b.Input(sym.Tokens), b.Weight("embedding", vocab, vocab))
		x = b.RMSNorm(x, b.Weight("norm", vocab), 1e-6)
		b.Return("logits", b.Linear(b.GatherRows(x), b.Weight("head", vocab, vocab)))
	})
	p, err := m.Compile(smelt.DefaultOptions())
	if err != nil {
		log.Fatal(err)
	}
	l, err := p.Load(smelt.Device{})
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	s, err := l.NewSession()
	if err != nil {
		log.Fatal(err)
	}
	next, err := s.Next(context.Background(), []int32{3, 4, 5})
	fmt.Println(next, err)
	// Output: 6 <nil>
}
