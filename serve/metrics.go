package serve

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/smelt-ml/smelt"
)

// Metrics returns the [smelt.EngineOptions] field by which an engine reports to this server's
// /metrics; the engine is then added under the same name. Metrics have vLLM's names where vLLM has
// them, since routers look for those; see docs/serve.md.
func (s *Server) Metrics(name string) smelt.Metrics {
	of := func(metric string) string { return fmt.Sprintf("%s{model_name=%q}", metric, name) }
	return &told{
		step:      s.metrics.GetOrCreatePrometheusHistogramExt(of("smelt_step_seconds"), latencies),
		batch:     s.metrics.GetOrCreatePrometheusHistogramExt(of("smelt_step_sequences"), powers),
		first:     s.metrics.GetOrCreatePrometheusHistogramExt(of("vllm:time_to_first_token_seconds"), latencies),
		next:      s.metrics.GetOrCreatePrometheusHistogramExt(of("vllm:inter_token_latency_seconds"), latencies),
		prompts:   s.metrics.GetOrCreateCounter(of("vllm:prompt_tokens_total")),
		generated: s.metrics.GetOrCreateCounter(of("vllm:generation_tokens_total")),
		finished:  s.metrics.GetOrCreateCounter(of("vllm:request_success_total")),
		failed:    s.metrics.GetOrCreateCounter(of("smelt_requests_broken_total")),
	}
}

// Buckets of histograms.
var (
	latencies = []float64{0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100}
	powers    = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}
)

type told struct {
	step, batch, first, next             *metrics.PrometheusHistogram
	prompts, generated, finished, failed *metrics.Counter
}

func (t *told) Stepped(step smelt.EngineStep) {
	t.step.Update(step.Took.Seconds())
	t.batch.Update(float64(step.Sequences))
}

func (t *told) FirstToken(took time.Duration) {
	t.first.Update(took.Seconds())
	t.generated.Inc()
}

func (t *told) NextToken(took time.Duration) {
	t.next.Update(took.Seconds())
	t.generated.Inc()
}

func (t *told) Ended(u smelt.Usage, err error) {
	t.prompts.Add(u.PromptTokens)
	if err != nil {
		t.failed.Inc()
	} else {
		t.finished.Inc()
	}
}

// Some parsers ignore a metric without a type: the endpoint picker of the Gateway API's inference
// extension reads 0. The library's switch is global to the program.
func init() { metrics.ExposeMetadata(true) }

// observe exports the gauges and counters of a model's engine. stats also covers earlier engines of
// the model; e is nil if the model has none.
func (s *Server) observe(name string, e *smelt.Engine, stats func() smelt.EngineStats) {
	if e == nil {
		return
	}
	of := func(metric string) string { return fmt.Sprintf("%s{model_name=%q}", metric, name) }
	for metric, value := range map[string]func(smelt.EngineStats) float64{
		"vllm:num_requests_running": func(s smelt.EngineStats) float64 { return float64(s.Running) },
		"vllm:num_requests_waiting": func(s smelt.EngineStats) float64 { return float64(s.Waiting) },
		"vllm:kv_cache_usage_perc":  func(s smelt.EngineStats) float64 { return 1 - float64(s.Free)/float64(max(s.Blocks, 1)) },
	} {
		s.metrics.GetOrCreateGauge(of(metric), func() float64 { return value(stats()) })
	}
	s.metrics.GetOrCreateGauge(fmt.Sprintf(`vllm:cache_config_info{block_size="%d",model_name=%q,num_gpu_blocks="%d"}`, e.BlockSize(), name, e.Stats().Blocks),
		func() float64 { return 1 })
	counters := map[*metrics.Counter]func(smelt.EngineStats) int64{}
	for metric, value := range map[string]func(smelt.EngineStats) int64{
		"vllm:num_preemptions_total":      func(s smelt.EngineStats) int64 { return s.Preempted },
		"vllm:prefix_cache_queries_total": func(s smelt.EngineStats) int64 { return s.Asked },
		"vllm:prefix_cache_hits_total":    func(s smelt.EngineStats) int64 { return s.Cached },
		"smelt_drafted_tokens_total":      func(s smelt.EngineStats) int64 { return s.Drafted },
		"smelt_accepted_tokens_total":     func(s smelt.EngineStats) int64 { return s.Accepted },
		"smelt_evicted_blocks_total":      func(s smelt.EngineStats) int64 { return s.Evicted },
	} {
		counters[s.metrics.GetOrCreateCounter(of(metric))] = value
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refresh = append(s.refresh, func() {
		now := stats()
		for c, value := range counters {
			c.Set(uint64(value(now)))
		}
	})
}

// writeMetrics writes the current values of all metrics.
func (s *Server) writeMetrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	s.mu.RLock()
	refresh := slices.Clone(s.refresh)
	s.mu.RUnlock()
	for _, f := range refresh {
		f()
	}
	s.metrics.WritePrometheus(w)
}

// observeEntry exports the state and the counters of a model that is loaded on demand.
func (s *Server) observeEntry(p *entry) {
	of := func(metric string) string { return fmt.Sprintf("%s{model_name=%q}", metric, p.name) }
	for metric, value := range map[string]func() float64{
		"smelt_model_waiting": func() float64 { return float64(s.shelf.waiting(p)) },
		"smelt_model_memory_bytes": func() float64 {
			if p.state == away {
				return 0
			}
			return float64(p.bytes)
		},
	} {
		s.metrics.GetOrCreateGauge(of(metric), func() float64 {
			s.shelf.mu.Lock()
			defer s.shelf.mu.Unlock()
			return value()
		})
	}
	loads, evictions := s.metrics.GetOrCreateCounter(of("smelt_model_loads_total")), s.metrics.GetOrCreateCounter(of("smelt_model_evictions_total"))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refresh = append(s.refresh, func() {
		s.shelf.mu.Lock()
		defer s.shelf.mu.Unlock()
		loads.Set(uint64(p.loads))
		evictions.Set(uint64(p.evictions))
	})
}
