package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/samber/lo"
	"github.com/spf13/cobra"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/cacheevents"
	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/internal/engine"
	"github.com/smelt-ml/smelt/internal/openai"
	"github.com/smelt-ml/smelt/serve"
)

// serveFlags are the flags of the verb serve.
type serveFlags struct {
	compile compileFlags
	device  deviceFlags

	address     string
	names       []string
	parallel    int
	cacheBytes  int64
	speculate   string
	keyFile     string
	drain       time.Duration
	connections int
	log         bool
	embeddings  bool
	cacheEvents string
	tools       string
	generation  smelt.Generation // its sampling is the default of requests
	options     serve.Options
}

func serveVerb() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve MODEL…",
		Short: "Serve models over OpenAI's HTTP API",
		Long: `Serves models over HTTP. Once ready, it prints its address, the only line on standard
output; port 0 selects a free port. A model's name is that of its file, or --name. Endpoints:

` + endpointList() + `
A model with bidirectional attention serves embeddings; with --embeddings every model does.

On SIGTERM or Ctrl-C it rejects new requests and finishes running ones, within --drain.`,
		Example: `  smelt serve model.gguf
  smelt serve model.gguf --addr 127.0.0.1:0 --name story --parallel 32 --api-key-file keys.txt`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && !(f.compile.debug == "help") {
				return usagef("serve takes one MODEL or more")
			}
			return nil
		},
	}
	flags := cmd.Flags()
	f.compile.add(flags)
	f.device.add(flags)
	flags.StringVar(&f.address, "addr", "127.0.0.1:8080", "address to listen on")
	flags.StringArrayVar(&f.names, "name", nil, "name of a model; once for each MODEL, in order")
	flags.IntVar(&f.parallel, "parallel", compiler.DefaultSequences, "maximum number of concurrent sequences of a model")
	flags.Int64Var(&f.cacheBytes, "cache-bytes", 0, "size of each model's KV cache (default: --parallel full contexts, at most half of the free memory)")
	flags.Int64Var(&f.options.Memory, "memory", 0, "bytes for weights, caches and arenas of all models, which are then loaded on demand and evicted least recently used first (default: load all, evict none)")
	flags.StringVar(&f.speculate, "speculate", engine.SpeculateOff, "speculative decoding: ngram or off")
	flags.IntVar(&f.options.MaxQueue, "max-queue", serve.DefaultMaxQueue, "maximum number of queued sequences per model; further requests get 429")
	flags.DurationVar(&f.drain, "drain", 30*time.Second, "time for running requests to finish when the server stops")
	flags.StringVar(&f.keyFile, "api-key-file", "", "file of API keys, one per line; requests must carry one")
	flags.DurationVar(&f.options.Timeout, "timeout", 0, "timeout of a request, queueing included; 0: none")
	flags.IntVar(&f.connections, "max-connections", 1024, "maximum number of open connections; a further one replaces an idle one, or gets 503")
	flags.BoolVar(&f.options.SaltByUser, "salt-by-user", false, `share cached prefixes only among requests with the same "user"`)
	addToolsFlag(flags, &f.tools)
	addSampling(flags, &f.generation, "default of requests: ", lo.Without(openai.Parameters(), openai.Seed)...)
	f.generation.Sampling.Temperature, flags.Lookup("temp").DefValue = 1, "1" // as in OpenAI's API
	flags.BoolVar(&f.log, "log", false, "log each request on standard error, without texts")
	flags.BoolVar(&f.options.Page, "page", true, "serve a chat page at /, which also shows the models' graphs and schedules")
	flags.StringVar(&f.cacheEvents, "cache-events", "", "address at which to publish KV cache events for routers, such as tcp://127.0.0.1:5557: ZeroMQ, in vLLM's format, with prompts' token ids")
	flags.BoolVar(&f.embeddings, "embeddings", false, "serve embeddings only, with every model")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if f.compile.help(cmd) {
			return nil
		}
		return f.run(cmd, args)
	}
	return cmd
}

// endpointList returns one line for each endpoint.
func endpointList() string {
	var b strings.Builder
	for _, e := range serve.Endpoints() {
		fmt.Fprintf(&b, "  %-4s %s\n", e.Method, e.Shown())
	}
	return b.String()
}

func (f *serveFlags) check(models []string) error {
	switch {
	case f.parallel < 1 || f.parallel > maxSequences:
		return usagef("--parallel %d: want 1 to %d", f.parallel, maxSequences)
	case f.cacheBytes < 0:
		return usagef("--cache-bytes %d: want 0 or more", f.cacheBytes)
	case f.options.Memory < 0:
		return usagef("--memory %d: want 0 or more", f.options.Memory)
	case f.speculate != engine.SpeculateOff && f.speculate != engine.SpeculateNgram:
		return usagef("--speculate %s: want ngram or off", f.speculate)
	case f.options.MaxQueue < 0:
		return usagef("--max-queue %d: want 0 or more", f.options.MaxQueue)
	case f.connections < 1:
		return usagef("--max-connections %d: want 1 or more", f.connections)
	case f.drain < 0 || f.options.Timeout < 0:
		return usagef("--drain %v --timeout %v: want no less than 0", f.drain, f.options.Timeout)
	case f.cacheEvents != "" && (f.embeddings || len(models) > 1):
		return usagef("--cache-events takes one MODEL, without --embeddings")
	case len(f.names) > 0 && len(f.names) != len(models):
		return usagef("--name is given %d times for %d models", len(f.names), len(models))
	}
	if err := checkTools(f.tools); err != nil {
		return err
	}
	f.options.Sampling = &f.generation.Sampling
	for i, model := range models {
		if isPlan(model) {
			return usagef("%s: serve needs the model itself, not a plan made from it", model)
		}
		if len(f.names) < len(models) {
			f.names = append(f.names, strings.TrimSuffix(filepath.Base(model), ".gguf"))
		}
		if slices.Contains(f.names[:i], f.names[i]) {
			return usagef("two models have the name %q: --name sets others", f.names[i])
		}
	}
	return nil
}

func (f *serveFlags) run(cmd *cobra.Command, models []string) error {
	if err := f.check(models); err != nil {
		return err
	}
	var err error
	if f.keyFile != "" {
		if f.options.Keys, err = readKeys(f.keyFile); err != nil {
			return fmt.Errorf("--api-key-file: %w", err)
		}
	}
	if f.log {
		f.options.Log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	}
	if f.options.MaxQueue == 0 {
		f.options.MaxQueue = -1 // no queue; 0 would select the default
	}
	// Listen first: an address in use must fail before the models load.
	listener, err := net.Listen("tcp", f.address)
	if err != nil {
		return fmt.Errorf("--addr: %w", err)
	}
	defer listener.Close()
	f.options.ToolsInPrompt = f.tools == toolsPrompt
	server := serve.New(f.options)
	defer server.Close()
	for i, path := range models {
		end, err := f.add(cmd, server, path, f.names[i])
		if err != nil {
			return err
		}
		defer end()
	}
	h := &http.Server{ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(slog.NewTextHandler(cmd.ErrOrStderr(), nil), slog.LevelWarn)}
	// The first signal drains requests; a second one exits at once.
	signal.Reset(os.Interrupt, syscall.SIGTERM)
	ctx, stop := signal.NotifyContext(context.WithoutCancel(cmd.Context()), os.Interrupt, syscall.SIGTERM)
	defer stop()
	listener = server.Connect(h, listener, f.connections)
	failed := make(chan error, 1)
	go func() { failed <- h.Serve(listener) }()
	fmt.Fprintf(cmd.OutOrStdout(), "http://%s\n", listener.Addr())
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	case <-cmd.Context().Done():
	}
	stop()
	fmt.Fprintf(cmd.ErrOrStderr(), "smelt: stopping; requests under way have %v\n", f.drain)
	broken, err := f.stop(context.WithoutCancel(cmd.Context()), server, h, listener, failed)
	if broken {
		fmt.Fprintln(cmd.ErrOrStderr(), "smelt: some requests were broken off")
	}
	return err
}

// stop ends a server whose Serve reports its end to served, and reports whether requests were
// broken off.
func (f *serveFlags) stop(ctx context.Context, server *serve.Server, h *http.Server, listener net.Listener, served <-chan error) (broken bool, err error) {
	listener.Close() // reject new connections, and free the address for another process
	<-served         // else Shutdown would close the listener again, which fails
	ended := time.Now().Add(f.drain)
	last, cancel := context.WithDeadline(ctx, ended)
	defer cancel()
	err = server.Drain(last)
	// The last responses may be still unwritten.
	if soon := time.Now().Add(lastWords); soon.After(ended) {
		ended = soon
	}
	last, cancel = context.WithDeadline(ctx, ended)
	defer cancel()
	if shut := h.Shutdown(last); shut != nil {
		err = errors.Join(err, shut, h.Close())
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return true, nil
	}
	return false, err
}

// lastWords is the minimum time for clients to read the last responses.
const lastWords = time.Second

// add adds a model to a server until end is called. With --memory, the server loads it on demand.
func (f *serveFlags) add(cmd *cobra.Command, server *serve.Server, path, name string) (end func() error, err error) {
	metrics := server.Metrics(name)
	if f.options.Memory > 0 {
		err := server.AddOnDemand(name, func() (serve.Resident, error) { return f.load(cmd, path, name, metrics) })
		return func() error { return nil }, err
	}
	r, err := f.load(cmd, path, name, metrics)
	if err != nil {
		return nil, err
	}
	if r.Embedder != nil {
		err = server.AddEmbedder(name, r.Embedder)
	} else {
		err = server.Add(name, r.Engine)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), r.Close())
	}
	return r.Close, nil
}

// load loads a model and starts its engine or embedder.
func (f *serveFlags) load(cmd *cobra.Command, path, name string, metrics smelt.Metrics) (r serve.Resident, err error) {
	compile, device := f.compile, f.device
	m, err := compile.open(path)
	if err != nil {
		return r, err
	}
	closers := []io.Closer{m}
	r.Close = func() (err error) {
		for _, c := range slices.Backward(closers) {
			err = errors.Join(err, c.Close())
		}
		return err
	}
	defer func() {
		if err == nil {
			return
		}
		if usage := (usageError{}); !errors.As(err, &usage) { // a usage error concerns all models
			err = fmt.Errorf("%s: %w", path, err)
		}
		err = errors.Join(err, r.Close())
	}()
	if !m.HasWeights() {
		return r, fmt.Errorf("%w; smelt synth writes a file with random ones", smelt.ErrNoWeights)
	}
	embeds := f.embeddings
	if file := m.File(); file != nil {
		embeds = embeds || file.Config.Both || file.Config.Classifier.Classes > 0
	}
	if !embeds {
		compile.sequences, compile.paged, compile.guesses = f.parallel, true, f.speculate != engine.SpeculateOff
	}
	opts, err := executionOptions(cmd, path, &compile, &device)
	if err != nil {
		return r, err
	}
	if embeds {
		opts.Embeddings, opts.Prefill, opts.Block = true, 0, 0
	}
	useTuning(cmd.ErrOrStderr(), smelt.Device{Name: device.device, Threads: device.threads}, &opts)
	p, err := m.Compile(opts)
	if err != nil {
		return r, err
	}
	closers = append(closers, p)
	l, err := load(cmd, p, &device)
	if err != nil {
		return r, err
	}
	closers = append(closers, l)
	if embeds {
		if r.Embedder, err = l.NewEmbedder(""); err != nil {
			return r, err
		}
		closers = append(closers, r.Embedder)
		if ranks(r.Embedder) {
			return r, errors.New("the model scores pairs of texts, which no endpoint does; smelt embed does")
		}
		mem := l.Memory()
		r.Memory = mem.Weights + mem.Cache + mem.Arena + mem.Inputs + mem.Outputs
		return r, nil
	}
	cache, err := f.cache(l)
	if err != nil {
		return r, err
	}
	o := smelt.EngineOptions{Sequences: f.parallel, CacheBytes: cache, Speculate: f.speculate, Metrics: metrics}
	if f.cacheEvents != "" {
		host, _ := os.Hostname() // "" on an error
		events, err := cacheevents.Listen(f.cacheEvents, fmt.Sprintf("kv@%s@%s", host, name))
		if err != nil {
			return r, fmt.Errorf("--cache-events: %w", err)
		}
		closers = append(closers, events)
		o.Cache = events
	}
	if r.Engine, err = l.NewEngine(o); err != nil {
		return r, err
	}
	closers = append(closers, r.Engine)
	mem, weights, on := r.Engine.OnDevice().Memory(), l.Memory().Weights, l.Info()
	r.Memory = weights + mem.Cache + mem.Arena + mem.Inputs + mem.Outputs
	fmt.Fprintf(cmd.ErrOrStderr(), "smelt: %s: weights %d bytes, cache %d bytes, arena %d bytes, on %s with %s\n",
		name, weights, mem.Cache, mem.Arena, on.Name, on.Workers())
	return r, nil
}

// cache returns the size of a model's cache; 0 selects the engine's default. With --memory the
// size does not depend on free memory, so that each load takes equally much: --parallel full
// contexts, at most half of the memory that the weights leave.
func (f *serveFlags) cache(l *smelt.Loaded) (int64, error) {
	if f.cacheBytes > 0 || f.options.Memory == 0 {
		return f.cacheBytes, nil
	}
	one, err := engine.ContextMemory(l.Program().Plan, l.OnDevice())
	if err != nil {
		return 0, err
	}
	return max(min(int64(f.parallel)*one.Cache, (f.options.Memory-l.Memory().Weights)/2), one.Cache), nil
}

// readKeys reads a file of keys, one per line; it skips empty lines and lines that begin with #.
func readKeys(path string) (keys []string, err error) {
	text, err := readNamed(path, maxRules)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		if key := strings.TrimSpace(line); key != "" && !strings.HasPrefix(key, "#") {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s has no key", path)
	}
	return keys, nil
}
