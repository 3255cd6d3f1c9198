package smelt

import "time"

// Metrics is told what an engine does, as it does it, for whoever exports that: a server's
// gauges, counters and histograms. Its methods are called by several goroutines at once, and
// requests wait for them: they should note what they are told, and return.
//
// What has a rate is counted: tokens a second are the calls of NextToken, and of FirstToken,
// in that time; the share of prompts that came from the cache is EngineStats.Cached of Asked.
// What is waiting, running and free between steps is in [Engine.Stats] at any time.
type Metrics interface {
	// Stepped is called after each step.
	Stepped(EngineStep)
	// FirstToken is called with the time that a request took to its first token, and
	// NextToken with the time between each token of it and the next.
	FirstToken(time.Duration)
	NextToken(time.Duration)
	// Ended is called for each request that the engine took, with the error that ended it.
	Ended(Usage, error)
}

// EngineStep is one step of an engine.
type EngineStep struct {
	Took      time.Duration // on the device
	Guessing  time.Duration // before it: what it took to guess tokens, a draft's steps included
	Sequences int           // in it: the size of the batch
	Tokens    int           // that were computed, those of prompts and guesses included
	Drafted   int           // of these, those that were guessed
	Rows      int           // of logits: one for each sequence that a token was chosen for, and one for each guess
	Stats     EngineStats   // after it
}
