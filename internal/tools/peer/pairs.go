//go:build linux

package main

import (
	"context"
	"strconv"
	"time"
)

// pair is one sample of each engine, taken in immediate succession. Peer is 0 without a rival.
type pair struct {
	Smelt  float64 `json:"smelt"`          // tokens per second
	Peer   float64 `json:"peer,omitempty"` // tokens per second
	Read   float64 `json:"read"`           // GB/s read by all threads together, between the two samples
	Others float64 `json:"others"`         // share of the processors used by other processes, the larger of the two samples'
	Order  string  `json:"order"`          // "smelt first" or "peer first"
}

// brief rounds a figure to five digits, because the rest is noise and samples are kept in the
// repository.
func brief(v float64) float64 {
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 5, 64), 64)
	return v
}

// disturbed is the share of the processors used by others above which a sample is repeated.
const disturbed = 0.025

func (p *pair) clean() bool { return p.Others <= disturbed }

// prober measures the bandwidth that is left on the machine, in GB/s.
type prober interface{ GBs(sweeps int) float64 }

// A probe is the best of a few sweeps over its buffer. Other load only lowers it, so a disturbed
// probe is repeated and the best of all counts.
const (
	sweeps       = 3
	probes       = 3
	probeTrouble = 0.05 // share of the processors; a probe is too short to resolve less
)

// bout takes the pairs of one model.
type bout struct {
	smelt, peer engine // peer is nil without a rival
	machine     machine
	read        prober        // nil: the bandwidth is not probed
	patience    time.Duration // maximum wait of a sample for other load to end
	// repeats is the time left for repeating disturbed samples. All cells share it, and a cell
	// repeats at most as many pairs as it wants.
	repeats *time.Duration
}

// pairs takes n pairs of a cell, and further pairs for disturbed ones.
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

// readied prepares an engine's cache for a cell. For several sequences the engine process makes
// an engine whose caches each sample fills again, so one uncounted sample warms it up.
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
		if b.read != nil && (i == 1 || b.peer == nil) { // the machine is as silent as before afterwards
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

// engines returns the engines that take part, in the requested order.
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

// sample returns the speed in tokens per second, and the share of the processors used by other
// processes, which include the other engine if it does not sleep.
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

// attention holds the rival's speeds with and without flash attention, in tokens per second,
// measured before the pairs of a cell to choose the faster.
type attention struct {
	On  float64 `json:"on"`
	Off float64 `json:"off"`
}

func (a *attention) flash() bool { return a.On >= a.Off }

// triedTokens is the maximum number of tokens that choose generates at a time.
const triedTokens = 16

// choose measures a shortened cell with flash attention and without it, in both orders, and
// selects the faster for the rival; it returns nil for an engine without the choice.
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
