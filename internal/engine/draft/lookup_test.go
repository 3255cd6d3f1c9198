package draft

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func ExampleLookup() {
	lookup := NewLookup(4096)
	first := lookup.Begin("", []int32{1, 2, 3})
	for _, id := range []int32{4, 5, 6, 7, 2, 3, 4} {
		first.Append(id)
	}
	fmt.Println(first.Propose(nil, 4))
	first.End()
	second := lookup.Begin("", []int32{5, 6, 7})
	fmt.Println(second.Propose(nil, 2))
	stranger := lookup.Begin("a salt", []int32{5, 6, 7})
	fmt.Println(stranger.Propose(nil, 2))
	// Output:
	// [5 6 7 2] 3
	// [2 3] 3
	// [] 0
}

// propose is what a Text should propose where it follows nothing yet, from all texts in full.
func propose(own []int32, past []int32, most int) (ids []int32, agreed int) {
	agree := func(text []int32, end int) (m int) {
		for m < min(reach, end, len(own)) && text[end-1-m] == own[len(own)-1-m] {
			m++
		}
		return m
	}
	best := func(text []int32, ends int) (at, agreed int) {
		for end := ends; end > 0; end-- {
			if m := agree(text, end); m >= Least && m > agreed {
				at, agreed = end, m
			}
		}
		return at, agreed
	}
	at, agreed := best(own, len(own)-1)
	text := own
	if p, m := best(past, len(past)); m > agreed {
		text, at, agreed = past, p, m
	}
	if agreed == 0 {
		return nil, 0
	}
	repeats := &text[0] == &own[0]
	for i := at; len(ids) < most && (i < len(text) || repeats); i++ {
		if i >= len(text) {
			ids = append(ids, ids[i-len(text)])
		} else if text[i] == border {
			break
		} else {
			ids = append(ids, text[i])
		}
	}
	return ids, agreed
}

// TestLookup holds what is proposed to a search through all texts, for random ones in which
// few places stand in a chain.
func TestLookup(t *testing.T) {
	proposed, borrowed := 0, 0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 7))
		l := NewLookup(100 + r.IntN(200))
		past := map[string][]int32{}
		letters := 4 + r.IntN(8)
		for range 4 {
			salt := string(rune('a' + r.IntN(2)))
			n := 1 + r.IntN(20)
			own := make([]int32, n)
			for i := range own {
				own[i] = int32(r.IntN(letters))
			}
			text := l.Begin(salt, own)
			for range r.IntN(80) {
				text.along = nil
				want, agreed := propose(own, past[salt], 6)
				got, m := text.Propose(nil, 6)
				require.Equal(t, agreed, m, "seed %d: %v", seed, own)
				require.Equal(t, want, got, "seed %d: %v", seed, own)
				if proposed += len(got); m > 0 && text.along != &text.own {
					borrowed++
				}
				id := int32(r.IntN(letters))
				own = append(own, id)
				text.Append(id)
			}
			text.End()
			if len(own) > n {
				past[salt] = append(append(past[salt], border), own[max(0, n-reach):]...)
			}
		}
	}
	require.Positive(t, borrowed)
	require.Greater(t, proposed, 1000)
}

// TestEdits: after one wrong token the text is followed as if it were replaced; after
// several it is left until it is found again.
func TestEdits(t *testing.T) {
	source := make([]int32, 60)
	for i := range source {
		source[i] = int32(i)
	}
	text := NewLookup(1000).Begin("", source)
	say := func(ids ...int32) {
		for _, id := range ids {
			text.Append(id)
		}
	}
	says := func(agreed int, want ...int32) {
		t.Helper()
		got, n := text.Propose(nil, 3)
		require.Equal(t, want, got)
		require.Equal(t, agreed, n)
	}
	says(0)
	say(10, 11, 12)
	says(3, 13, 14, 15)
	say(13, 14)
	says(5, 15, 16, 17)
	say(99) // in place of 15
	says(0, 16, 17, 18)
	say(16)
	says(1, 17, 18, 19)
	say(97, 98)
	says(0, 19, 20, 21)
	say(96)
	says(0)
	say(50, 51)
	says(0)
	say(52)
	says(3, 53, 54, 55)
	say(53, 54, 55, 56, 57, 58, 59)
	says(10, 10, 11, 12) // the copy goes on where the source did, with itself
}

// TestRepeats: what has a short period is proposed further than it stands there.
func TestRepeats(t *testing.T) {
	text := NewLookup(100).Begin("", []int32{1, 2, 1, 2, 1})
	ids, agreed := text.Propose([]int32{7}, 6)
	require.Equal(t, []int32{7, 2, 1, 2, 1, 2, 1}, ids)
	require.Equal(t, 3, agreed)
}

// TestForgets: rings forget their oldest tokens, and salts go, the one that was used least
// recently first.
func TestForgets(t *testing.T) {
	l := NewLookup(64)
	say := func(salt string, ids ...int32) {
		text := l.Begin(salt, []int32{1000})
		for _, id := range ids {
			text.Append(id)
		}
		text.End()
	}
	guess := func(salt string) []int32 {
		text := l.Begin(salt, []int32{1, 2, 3})
		ids, _ := text.Propose(nil, 2)
		text.End()
		return ids
	}
	say("a", 1, 2, 3, 4)
	require.Equal(t, []int32{4}, guess("a"), "and no further than the text")
	for i := range Remembered / 64 {
		many := make([]int32, 62)
		for k := range many {
			many[k] = int32(5 + i*62 + k)
		}
		say("a", many...)
		require.LessOrEqual(t, len(l.past["a"].ids), Remembered)
	}
	require.Empty(t, guess("a"))
	say("a", 1, 2, 3, 6)
	for i := range Salts - 1 {
		say(fmt.Sprint(i), 1, 2, 3, 5)
	}
	require.Equal(t, []int32{6}, guess("a"))
	say("one more", 1, 2, 3, 5)
	require.Len(t, l.past, Salts)
	require.Equal(t, []int32{6}, guess("a"))
	require.Empty(t, guess("0"), "it is new")
}

// TestLookupAllocates nothing once it has its room.
func TestLookupAllocates(t *testing.T) {
	l := NewLookup(512)
	r := rand.New(rand.NewPCG(1, 1))
	prompt := []int32{1, 2, 3, 4}
	buffer := make([]int32, 0, 16)
	turn := func() {
		text := l.Begin("", prompt)
		for range 300 {
			buffer, _ = text.Propose(buffer[:0], 16)
			text.Append(int32(r.IntN(5)))
		}
		text.End()
	}
	for range 2 * Remembered / 300 {
		turn()
	}
	require.Zero(t, testing.AllocsPerRun(20, turn))
}

func BenchmarkLookup(b *testing.B) {
	l := NewLookup(4096)
	r := rand.New(rand.NewPCG(1, 1))
	prompt := make([]int32, 3000)
	for i := range prompt {
		prompt[i] = int32(r.IntN(9))
	}
	text := l.Begin("", prompt)
	var buffer []int32
	for b.Loop() {
		if len(text.tokens) == 4000 {
			text.End()
			text = l.Begin("", prompt)
		}
		buffer, _ = text.Propose(buffer[:0], 16)
		text.Append(int32(slices.Max(prompt[:1+r.IntN(8)])))
	}
}
