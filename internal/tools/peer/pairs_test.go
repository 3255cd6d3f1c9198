//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// stage is a machine of two processors whose time the test decides.
type stage struct {
	t    *testing.T
	stat string
	used float64
}

func newStage(t *testing.T) *stage {
	s := &stage{t: t, stat: filepath.Join(t.TempDir(), "stat")}
	s.spend(0)
	return s
}

func (s *stage) spend(seconds float64) {
	s.used += seconds
	// A file that appears whole, as the machine's own does.
	require.NoError(s.t, os.WriteFile(s.stat+".part", fmt.Appendf(nil, "cpu %d 0 0 999 999 0 0 0\n", int64(100*s.used)), 0o644))
	require.NoError(s.t, os.Rename(s.stat+".part", s.stat))
}

// actor takes a second for each sample, and notes who was asked what.
type actor struct {
	*stage
	name    string
	log     *[]string
	speed   float64
	disturb func(sample int) float64 // processor time that others have meanwhile
	samples int
}

func (a *actor) hello() hello                        { return hello{Name: a.name} }
func (a *actor) peak(context.Context) (int64, error) { return 1, nil }
func (a *actor) close()                              {}
func (a *actor) fill(_ context.Context, depth int) error {
	*a.log = append(*a.log, fmt.Sprintf("%s fill %d", a.name, depth))
	return nil
}

var errActor = errors.New("the actor left")

func (a *actor) sample(_ context.Context, c cell) (answer, error) {
	*a.log = append(*a.log, a.name)
	if a.speed == 0 {
		return answer{}, errActor
	}
	seconds := float64(c.Tokens) / a.speed
	time.Sleep(time.Duration(seconds * 1e9))
	others := 0.0
	if a.disturb != nil {
		others = a.disturb(a.samples)
	}
	a.samples++
	a.spend(2*seconds + others)
	return answer{Seconds: seconds, CPU: 2 * seconds}, nil
}

const patience = 2 * time.Second

type constant float64

func (c constant) GBs(int) float64 {
	time.Sleep(time.Second)
	return float64(c)
}

func TestPairs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		var log []string
		repeats := time.Minute
		b := &bout{
			smelt: &actor{stage: s, name: "smelt", log: &log, speed: 128},
			peer: &actor{stage: s, name: "peer", log: &log, speed: 64, disturb: func(sample int) float64 {
				if sample == 1 {
					return 0.2 // of two seconds that two processors have in one
				}
				return 0
			}},
			machine: machine{stat: s.stat, cpus: 2}, read: constant(40), patience: patience, repeats: &repeats,
		}
		pairs, err := b.pairs(t.Context(), cell{Test: generating, Tokens: 64, Depth: 4096}, 3)
		require.NoError(t, err)
		require.Equal(t, []string{"smelt fill 4096", "peer fill 4096", "smelt", "peer", "peer", "smelt", "smelt", "peer", "peer", "smelt"}, log)
		require.Len(t, pairs, 4, "one was disturbed and is repeated")
		require.Less(t, repeats, time.Minute, "which takes from the time for it")
		for i, p := range pairs {
			require.Equal(t, i != 1, p.clean(), "%+v", p)
			require.InDelta(t, 128, p.Smelt, 1e-6)
			require.InDelta(t, 64, p.Peer, 1e-6)
			require.EqualValues(t, 40, p.Read)
		}
		require.InDelta(t, 0.1, pairs[1].Others, 1e-6)
	})
}

// The first sample of sequences at once finds an engine that has just been made.
func TestPairsOfSequences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		var log []string
		repeats := time.Minute
		b := &bout{
			smelt:   &actor{stage: s, name: "smelt", log: &log, speed: 64},
			peer:    &player{&actor{stage: s, name: "peer", log: &log}, true},
			machine: machine{stat: s.stat, cpus: 2}, patience: patience, repeats: &repeats,
		}
		c := cell{Test: generating, Tokens: 64, Depth: 128, Parallel: 4}
		pairs, err := b.pairs(t.Context(), c, 2)
		require.NoError(t, err)
		require.Len(t, pairs, 2)
		require.Equal(t, []string{"smelt", "peer", "smelt", "peer", "peer", "smelt"}, log)
		log = nil
		_, err = b.choose(t.Context(), c)
		require.NoError(t, err)
		require.Equal(t, []string{
			"peer flash true", "peer", "peer", "peer flash false", "peer", "peer", "peer flash false", "peer", "peer flash true", "peer",
		}, log[:len(log)-1])
	})
}

// Where everything is disturbed, repeating ends.
func TestRepeatsEnd(t *testing.T) {
	for _, test := range []struct {
		repeats time.Duration
		want    int
	}{{time.Hour, 6}, {time.Second, 4}, {0, 3}} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t)
			var log []string
			b := &bout{
				smelt:   &actor{stage: s, name: "smelt", log: &log, speed: 64, disturb: func(int) float64 { return 1 }},
				machine: machine{stat: s.stat, cpus: 2}, read: constant(40), patience: patience, repeats: &test.repeats,
			}
			pairs, err := b.pairs(t.Context(), cell{Test: generating, Tokens: 64}, 3)
			require.NoError(t, err)
			require.Len(t, pairs, test.want)
		})
	}
}

// player is an actor that is faster without flash attention where there is depth.
type player struct {
	*actor
	on bool
}

func (p *player) flash(_ context.Context, on bool) error {
	*p.log = append(*p.log, fmt.Sprintf("%s flash %v", p.name, on))
	p.on = on
	return nil
}

func (p *player) sample(ctx context.Context, c cell) (answer, error) {
	p.speed = 64
	if (c.Depth > 0) != p.on {
		p.speed = 80
	}
	return p.actor.sample(ctx, c)
}

// The rival's pairs are taken with the better attention of each cell.
func TestChoose(t *testing.T) {
	for _, test := range []struct {
		cell cell
		want attention
	}{
		{cell{Test: generating, Tokens: 64, Depth: 4096}, attention{On: 64, Off: 80}},
		{cell{Test: prompting, Tokens: 512}, attention{On: 80, Off: 64}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t)
			var log []string
			rival := &player{&actor{stage: s, name: "peer", log: &log}, true}
			b := &bout{peer: rival, machine: machine{stat: s.stat, cpus: 2}, patience: patience}
			a, err := b.choose(t.Context(), test.cell)
			require.NoError(t, err)
			require.Equal(t, test.want, *a)
			require.Equal(t, test.want.On > test.want.Off, rival.on)
			fill := fmt.Sprintf("peer fill %d", test.cell.Depth)
			require.Equal(t, []string{
				"peer flash true", fill, "peer", "peer", "peer flash false", fill, "peer", "peer", "peer flash false", "peer", "peer flash true", "peer",
			}, log[:len(log)-1])
			b.peer = rival.actor
			a, err = b.choose(t.Context(), test.cell)
			require.NoError(t, err)
			require.Nil(t, a, "an engine without the choice")
		})
	}
}

func TestPairsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		var log []string
		repeats := time.Minute
		b := &bout{
			smelt: &actor{stage: s, name: "smelt", log: &log, speed: 64}, peer: &actor{stage: s, name: "peer", log: &log},
			machine: machine{stat: s.stat, cpus: 2}, read: constant(40), patience: patience, repeats: &repeats,
		}
		_, err := b.pairs(t.Context(), cell{Test: generating, Tokens: 64}, 3)
		require.ErrorIs(t, err, errActor)
	})
}

// An engine whose threads do not sleep counts among the others while its rival is
// measured; before that, patience ends.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		m := machine{stat: s.stat, cpus: 2}
		began := time.Now()
		require.NoError(t, m.silence(t.Context(), patience))
		require.Equal(t, silenceWindow, time.Since(began))

		ctx, cancel := context.WithCancel(t.Context())
		var others sync.WaitGroup
		others.Go(func() {
			for ctx.Err() == nil {
				time.Sleep(10 * time.Millisecond)
				s.spend(0.01)
			}
		})
		began = time.Now()
		require.NoError(t, m.silence(t.Context(), patience))
		require.GreaterOrEqual(t, time.Since(began), patience)
		cancel()
		others.Wait() // or it would write into a folder that is being removed
	})
}

// ramp is a bandwidth that is higher each time it is probed.
type ramp struct {
	*stage
	reads  float64
	others float64
}

func (r *ramp) GBs(int) float64 {
	time.Sleep(time.Second)
	r.spend(r.others)
	r.reads++
	return r.reads
}

func TestProbesAgain(t *testing.T) {
	for _, test := range []struct{ others, want float64 }{{0, 1}, {0.05, 1}, {0.5, probes}} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t)
			var p pair
			b := &bout{machine: machine{stat: s.stat, cpus: 2}, read: &ramp{stage: s, others: test.others}}
			require.NoError(t, b.probe(&p))
			require.Equal(t, test.want, p.Read, test)
		})
	}
}

func TestParseBusy(t *testing.T) {
	busy, err := parseBusy("cpu  100 20 3 9999 999 4 5 6 77 88\ncpu0 1 2 3\n")
	require.NoError(t, err)
	require.InDelta(t, 1.38, busy, 1e-9)
	for _, broken := range []string{"", "cpu", "cpu 1 2 3", "cpu0 1 2 3 4 5 6 7 8", "cpu a 2 3 4 5 6 7 8"} {
		_, err := parseBusy(broken)
		require.ErrorContains(t, err, "/proc/stat", "%q", broken)
	}
}
