package serve

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/internal/graphviz"
	"github.com/smelt-ml/smelt/internal/openai"
	"github.com/smelt-ml/smelt/internal/page"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/lower"
	"github.com/smelt-ml/smelt/lower/predict"
)

// The page is plain HTML, CSS and modules without a build step; main.js lists the modules.
//
//go:embed page
var pageFiles embed.FS

// pageTypes are the content types of the page's files. Those of the system's MIME table vary.
var pageTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// pageHeaders isolate the page: it loads only its own files and requests only its own server, text
// never becomes a script, and no other site can frame it.
var pageHeaders = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
	"X-Content-Type-Options":       "nosniff",
	"Referrer-Policy":              "no-referrer",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Cache-Control":                "no-cache", // revalidated each time by its hash
}

func (s *Server) index(w http.ResponseWriter, r *http.Request) { writePage(w, r, "index.html") }

func (s *Server) pageFile(w http.ResponseWriter, r *http.Request) {
	writePage(w, r, r.PathValue("file"))
}

// writePage serves a file of the page.
func writePage(w http.ResponseWriter, r *http.Request, name string) {
	text, err := pageFiles.ReadFile("page/" + name)
	if err != nil {
		notServed(w, r)
		return
	}
	for header, value := range pageHeaders {
		w.Header().Set(header, value)
	}
	w.Header().Set("Content-Type", pageTypes[path.Ext(name)])
	w.Header().Set("ETag", fmt.Sprintf(`"%x"`, sha256.Sum256(text)))
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(text))
}

// keptGraphs is the size of the cache of GET /graph.
const keptGraphs = 8

// graphs caches answers of GET /graph, errors included. Computing one takes seconds; it is done
// once for concurrent requests, one after the other.
type graphs struct {
	making sync.Mutex // locked by what draws

	mu   sync.Mutex
	kept []keptGraph // oldest first
}

type keptGraph struct {
	of   graphOf
	text func() ([]byte, error)
}

// get returns the answer to a question, which draw computes.
func (g *graphs) get(of graphOf, draw func() ([]byte, error)) ([]byte, error) {
	g.mu.Lock()
	i := slices.IndexFunc(g.kept, func(k keptGraph) bool { return k.of == of })
	if i < 0 {
		if len(g.kept) == keptGraphs {
			g.kept = g.kept[1:]
		}
		i = len(g.kept)
		g.kept = append(g.kept, keptGraph{of, sync.OnceValues(func() ([]byte, error) {
			g.making.Lock()
			defer g.making.Unlock()
			return draw()
		})})
	}
	text := g.kept[i].text
	g.mu.Unlock()
	return text()
}

// graphOf is the parameters of GET /graph.
type graphOf struct{ model, phase, target, chip string }

// defaultChip is the chip of predicted times if the request names none.
const defaultChip = "m4-max"

func (s *Server) graph(w http.ResponseWriter, r *http.Request) {
	text, err := s.makeGraph(r)
	if err != nil {
		openai.Fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text) // the client may have disconnected
}

// makeGraph returns page.Data of a model's phase. The query has model, phase (decode or prefill),
// target (cpu or metal; default: that of the device) and chip, for which times are predicted.
func (s *Server) makeGraph(r *http.Request) ([]byte, error) {
	q := r.URL.Query()
	ctx, release := holding(r.Context())
	defer release()
	m, err := s.find(ctx, q.Get("model"))
	if err != nil {
		return nil, err
	}
	if m.Engine == nil {
		return nil, badQuery("model", "%s makes embeddings: smelt explain draws its graph", m.ID)
	}
	p := m.Engine.Loaded().Program()
	if p.Stages == nil {
		return nil, badQuery("model", "%s was compiled ahead of time, and its graphs are not there: smelt dot draws its plan", m.ID)
	}
	of := graphOf{m.ID, q.Get("phase"), q.Get("target"), q.Get("chip")}
	for _, member := range []struct {
		name, otherwise string
		value           *string
		known           []string
	}{
		{"phase", "decode", &of.phase, []string{"decode", "prefill"}},
		{"target", p.Plan.Target, &of.target, []string{"cpu", "metal"}},
		{"chip", defaultChip, &of.chip, predict.Chips()},
	} {
		if *member.value == "" {
			*member.value = member.otherwise
		}
		if !slices.Contains(member.known, *member.value) {
			return nil, badQuery(member.name, "%s is %q: want one of %v", member.name, *member.value, member.known)
		}
	}
	return s.graphs.get(of, func() ([]byte, error) { return drawGraph(s.ending, p, of) }) // others wait for it, whoever leaves
}

// drawGraph compiles a model again and traces its passes.
func drawGraph(ctx context.Context, served *smelt.Program, of graphOf) ([]byte, error) {
	o := served.Options()
	if of.target != o.Target { // nothing is known of another device but the chip
		o = smelt.Options{Target: of.target, Level: o.Level, KV: o.KV, Context: o.Context, Prefill: o.Prefill, Sequences: o.Sequences, Block: o.Block}
		t, err := lower.NewTarget(of.target)
		if err != nil {
			return nil, err
		}
		if t.GPU {
			o.Chip = of.chip
		}
	}
	var trace page.Trace
	o.Observer = func(phase, pass string, f *ir.Func) {
		if phase == of.phase { // the last of several phases remains
			trace.Observe(pass, f)
		}
	}
	p, err := served.Model().Compile(o)
	if err != nil {
		return nil, err
	}
	ph, _, err := p.Phase(of.phase)
	if err != nil {
		return nil, err
	}
	timeline, err := compiler.Of(p).Simulate(of.phase, of.chip)
	if err != nil {
		return nil, err
	}
	data, err := page.NewData(&page.Input{
		Plan: p.Plan, Phase: ph, Trace: &trace, Timeline: timeline, Sizes: compiler.StepSizes(ph),
		Draw: func(dot []byte, format string) ([]byte, error) { return graphviz.Render(ctx, dot, format) },
	})
	if err != nil {
		return nil, err
	}
	data.Model = of.model
	return json.Marshal(data)
}

func badQuery(name, format string, args ...any) error {
	return &openai.Error{Status: http.StatusBadRequest, Type: "invalid_request_error", Param: name, Message: fmt.Sprintf(format, args...)}
}
