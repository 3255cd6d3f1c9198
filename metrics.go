package smelt

import "time"

// Metrics receives an engine's events, for export as counters, gauges and histograms. Several
// goroutines call its methods concurrently, and requests wait for them, so they must return
// quickly.
//
// Token throughput is the number of calls of FirstToken and NextToken per second, and the
// prefix cache's hit rate EngineStats.Cached / EngineStats.Asked. [Engine.Stats] returns queue
// lengths and free blocks at any time.
type Metrics interface {
	// Stepped is called after each step.
	Stepped(EngineStep)
	// FirstToken is called with the time to first token of each request, and NextToken
	// with the time between consecutive tokens of a request.
	FirstToken(time.Duration)
	NextToken(time.Duration)
	// Ended is called at the end of each submitted request, with its error or nil.
	Ended(Usage, error)
}

// EngineStep is one step of an engine.
type EngineStep struct {
	Took      time.Duration // time of the step on the device
	Guessing  time.Duration // time of drafting before the step, a draft model's steps included
	Sequences int           // batch size
	Tokens    int           // computed tokens, those of prompts and drafts included
	Drafted   int           // draft tokens among Tokens
	Rows      int           // rows of logits: one for each sampled sequence and each draft token
	Stats     EngineStats   // statistics after the step
}
