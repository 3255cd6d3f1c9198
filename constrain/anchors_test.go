package constrain_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/constrain"
)

// node is a regular expression of the test, with its own way to match by backtracking.
type node struct {
	op     string // a class, "^", "$", `\b`, `\B`, "(?=", "(?!", "cat", "|" or "{"
	kids   []*node
	lo, hi int // of "{"; hi -1: without an end
}

func (n *node) String() string {
	switch n.op {
	case "(?=", "(?!":
		return n.op + n.kids[0].String() + ")"
	case "{":
		quantity := fmt.Sprintf("{%d,%d}", n.lo, n.hi)
		switch {
		case n.lo == 0 && n.hi == 1:
			quantity = "?"
		case n.hi < 0 && n.lo < 2:
			quantity = "*+"[n.lo : n.lo+1]
		case n.hi < 0:
			quantity = fmt.Sprintf("{%d,}", n.lo)
		}
		return "(?:" + n.kids[0].String() + ")" + quantity
	case "cat", "|":
		parts := make([]string, len(n.kids))
		for i, k := range n.kids {
			parts[i] = k.String()
		}
		if n.op == "cat" {
			return strings.Join(parts, "")
		}
		return "(?:" + strings.Join(parts, "|") + ")"
	}
	return n.op
}

var members = map[string]string{"a": "a", "b": "b", "é": "é", "-": "-", "[ab]": "ab", "[^a]": "bé- ", ".": "abé- ", `\w`: "ab", `\W`: "é- "}

// match calls then with each end of a match of n in text from i on, until then returns true.
func (n *node) match(text []rune, i int, then func(int) bool) bool {
	word := func(i int) bool { return i >= 0 && i < len(text) && (text[i] == 'a' || text[i] == 'b') }
	any := func(int) bool { return true }
	switch n.op {
	case "^":
		return i == 0 && then(i)
	case "$":
		return i == len(text) && then(i)
	case `\b`:
		return word(i-1) != word(i) && then(i)
	case `\B`:
		return word(i-1) == word(i) && then(i)
	case "(?=":
		return n.kids[0].match(text, i, any) && then(i)
	case "(?!":
		return !n.kids[0].match(text, i, any) && then(i)
	case "|":
		for _, k := range n.kids {
			if k.match(text, i, then) {
				return true
			}
		}
		return false
	case "cat":
		if len(n.kids) == 0 {
			return then(i)
		}
		rest := &node{op: "cat", kids: n.kids[1:]}
		return n.kids[0].match(text, i, func(j int) bool { return rest.match(text, j, then) })
	case "{":
		var turn func(i, done int) bool
		turn = func(i, done int) bool {
			if (n.hi < 0 || done < n.hi) && n.kids[0].match(text, i, func(j int) bool {
				return (done < n.lo || j > i) && turn(j, done+1) // as ECMA-262 ends a repetition that reads nothing
			}) {
				return true
			}
			return done >= n.lo && then(i)
		}
		return turn(i, 0)
	}
	return i < len(text) && strings.ContainsRune(members[n.op], text[i]) && then(i+1)
}

func randomNode(r *rand.Rand, depth int) *node {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	kids := func(n int) (all []*node) {
		for range n {
			all = append(all, randomNode(r, depth-1))
		}
		return all
	}
	if depth == 0 {
		return &node{op: pick("a", "b", "a", "b", "é", "-", "[ab]", "[^a]", ".", `\w`, `\W`, "^", "$", "^", `\b`, `\B`)}
	}
	switch op := pick("cat", "cat", "cat", "cat", "|", "|", "{", "{", "(?=", "(?!", "(?!", "leaf"); op {
	case "cat":
		return &node{op: op, kids: kids(r.IntN(4))}
	case "|":
		return &node{op: op, kids: kids(2 + r.IntN(2))}
	case "{":
		n := &node{op: op, kids: kids(1), lo: r.IntN(3)}
		if n.hi = n.lo + r.IntN(3); n.hi == 0 || r.IntN(2) == 0 {
			n.hi = -1
		}
		return n
	case "leaf":
		return randomNode(r, 0)
	default:
		return &node{op: op, kids: kids(1)}
	}
}

// TestAnchors compares expressions of anchors, boundaries, lookaheads and parts that may be empty, made
// at random, with a matcher that backtracks.
func TestAnchors(t *testing.T) {
	v := bytewise(t)
	letters := []rune("aabbé- ")
	r := rand.New(rand.NewPCG(7, 8))
	const texts = 40
	pairs, matched := 0, 0
	for pairs < 100_000 {
		e := randomNode(r, 2+r.IntN(3))
		schema, err := json.Marshal(map[string]any{"type": "string", "pattern": e.String()})
		require.NoError(t, err)
		c, err := v.JSONSchema(schema, constrain.Options{})
		if err != nil {
			require.ErrorContains(t, err, "no value matches", "%s", e)
		}
		for range texts {
			text := make([]rune, r.IntN(6))
			for i := range text {
				text[i] = letters[r.IntN(len(letters))]
			}
			ok := false
			for i := 0; i <= len(text) && !ok; i++ {
				ok = e.match(text, i, func(int) bool { return true })
			}
			got := false
			if c != nil {
				quoted, _ := json.Marshal(string(text))
				got = reads(t, c, string(quoted))
			}
			require.Equal(t, ok, got, "%s on %q", e, string(text))
			pairs++
			if ok {
				matched++
			}
		}
	}
	t.Logf("%d pairs, %d match", pairs, matched)
	require.Greater(t, matched, pairs/10)
	require.Less(t, matched, pairs*9/10)
}
