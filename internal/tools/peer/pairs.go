//go:build linux

package main

import (
	"context"
	"strconv"
	"time"
)

// pair is a sample of each engine, taken one right after the other. Peer is 0 where
// smelt is measured alone.
type pair struct {
	Smelt  float64 `json:"smelt"`          // tokens a second
	Peer   float64 `json:"peer,omitempty"` // tokens a second
	Read   float64 `json:"read"`           // GB/s that all threads together read, between the two
	Others float64 `json:"others"`         // share of the processors that other processes had, in the worse of the two
	Order  string  `json:"order"`          // "smelt first" or "peer first"
}

// brief leaves five digits of a figure: what lies below is noise, and samples are kept in
// the repository.
func brief(v float64) float64 {
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 5, 64), 64)
	return v
}

// disturbed is the share of the processors above which a sample is repeated.
const disturbed = 0.025

func (p *pair) clean() bool { return p.Others <= disturbed }

// prober measures what the machine has left of its bandwidth, in GB/s.
type prober interface{ GBs(sweeps int) float64 }

// A probe is the best of a few sweeps over its buffer. Others can only make it lower, so
// where they ran it is done again and the best of all counts.
const (
	sweeps       = 3
	probes       = 3
	probeTrouble = 0.05 // share of the processors; a probe is too short to see less
)

// bout takes the pairs of one model.
type bout struct {
	smelt, peer engine // peer is nil where smelt is measured alone
	machine     machine
	read        prober        // nil where the bandwidth does not matter
	patience    time.Duration // how long a sample waits for others to fall silent
	// repeats is the time left for repeating what was disturbed. It is shared by all
	// cells, and a cell repeats at most as many pairs as it wants.
	repeats *time.Duration
}

// pairs takes n pairs of a cell, and then others for those that were disturbed.
func (b *bout) pairs(ctx context.Context, c cell, n int) ([]pair, error) {
	for _, e := range b.engines(false) {
		if err := readied(ctx, e, c); err != nil {
			return nil, err
		}
	}
	var taken []pair
	for clean := 0; clean < n && len(taken) < 2*n; {
		repeating := len(taken) >= n
		if repeating && *b.repeats <= 0 {
			break
		}
		began := time.Now()
		p, err := b.pair(ctx, c, len(taken)%2 == 1)
		if err != nil {
			return nil, err
		}
		if repeating {
			*b.repeats -= time.Since(began)
		}
		if taken = append(taken, p); p.clean() {
			clean++
		}
	}
	return taken, nil
}

// readied fills an engine's cache for a cell. For sequences at once an engine is made of its own,
// whose caches each sample fills anew: a sample that does not count warms it up.
func readied(ctx context.Context, e engine, c cell) error {
	if c.Parallel > 0 {
		_, err := e.sample(ctx, c)
		return err
	}
	return e.fill(ctx, c.Depth)
}

func (b *bout) pair(ctx context.Context, c cell, peerFirst bool) (pair, error) {
	p := pair{Order: "smelt first"}
	if peerFirst {
		p.Order = "peer first"
	}
	for i, e := range b.engines(peerFirst) {
		if err := b.machine.silence(ctx, b.patience); err != nil {
			return p, err
		}
		if b.read != nil && (i == 1 || b.peer == nil) { // which leaves the machine as silent as before
			if err := b.probe(&p); err != nil {
				return p, err
			}
		}
		speed, others, err := b.sample(ctx, e, c)
		if err != nil {
			return p, err
		}
		p.Others = max(p.Others, brief(others))
		if e == b.smelt {
			p.Smelt = brief(speed)
		} else {
			p.Peer = brief(speed)
		}
	}
	return p, nil
}

// engines lists who takes part, in an order.
func (b *bout) engines(peerFirst bool) []engine {
	switch {
	case b.peer == nil:
		return []engine{b.smelt}
	case peerFirst:
		return []engine{b.peer, b.smelt}
	}
	return []engine{b.smelt, b.peer}
}

func (b *bout) probe(p *pair) error {
	for range probes {
		others, err := b.machine.othersWhile(func() (float64, error) {
			cpu := processorSeconds()
			p.Read = max(p.Read, brief(b.read.GBs(sweeps)))
			return processorSeconds() - cpu, nil
		})
		if err != nil || others < probeTrouble {
			return err
		}
	}
	return nil
}

// sample returns tokens a second, and what others had of the processors: the other
// engine too, if it did not sleep.
func (b *bout) sample(ctx context.Context, e engine, c cell) (speed, others float64, err error) {
	others, err = b.machine.othersWhile(func() (float64, error) {
		a, err := e.sample(ctx, c)
		if err == nil {
			speed = float64(c.all()) / a.Seconds
		}
		return a.CPU, err
	})
	return speed, others, err
}

// attention is what the rival reached with flash attention and without it, in tokens a
// second, before the pairs of a cell were taken with the better of the two.
type attention struct {
	On  float64 `json:"on"`
	Off float64 `json:"off"`
}

func (a *attention) flash() bool { return a.On >= a.Off }

// triedTokens is the most tokens that a choice generates at a time.
const triedTokens = 16

// choose measures a cell, shortened, with flash attention and without it, there and back, and
// leaves the rival with the better; nil where it has no choice.
func (b *bout) choose(ctx context.Context, c cell) (*attention, error) {
	f, ok := b.peer.(flasher)
	if !ok {
		return nil, nil
	}
	if c.Test == generating {
		c.Tokens = min(c.Tokens, triedTokens)
	}
	var a attention
	for i, on := range []bool{true, false, false, true} {
		if err := f.flash(ctx, on); err != nil {
			return nil, err
		}
		if i < 2 { // the first of each also warms up
			if err := readied(ctx, b.peer, c); err != nil {
				return nil, err
			}
			if c.Parallel == 0 {
				warm := c
				warm.Tokens = min(warm.Tokens, triedTokens)
				if _, err := b.peer.sample(ctx, warm); err != nil {
					return nil, err
				}
			}
		}
		if err := b.machine.silence(ctx, b.patience); err != nil {
			return nil, err
		}
		speed, _, err := b.sample(ctx, b.peer, c)
		if err != nil {
			return nil, err
		}
		of := &a.Off
		if on {
			of = &a.On
		}
		*of = max(*of, brief(speed))
	}
	return &a, f.flash(ctx, a.flash())
}
