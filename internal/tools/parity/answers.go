package parity

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/samber/lo"
)

// Answer is what llama.cpp makes of a changed file.
type Answer struct {
	Refused bool // or its results are no numbers, or of another width
	// Sample is two numbers of every sixth token's logits or hidden state, and Deviation the standard deviation of all.
	Sample    []float32
	Deviation float64
}

// Answers are llama.cpp's for the files of a case, by the name of the change; "" is the unchanged file.
// Where nothing changes there is no answer.
type Answers map[string]Answer

// Sample returns an answer of results, [Tokens, n].
func Sample(results []float32) Answer {
	n := len(results) / Tokens
	a := Answer{Deviation: deviation(results)}
	for t := 5; t < Tokens; t += 6 {
		row := results[t*n:][:n]
		a.Sample = append(a.Sample, row[(37*t+11)%n], row[(101*t+53)%n])
	}
	return a
}

// WriteAnswers writes one line per answer, in the order of the changes, behind their number and hash.
func WriteAnswers(path string, changes []Change, answers Answers) error {
	var out bytes.Buffer
	fmt.Fprintln(&out, len(changes), hashOf(changes))
	for _, c := range append([]Change{{}}, changes...) {
		a, ok := answers[c.Name]
		switch {
		case !ok:
			continue
		case a.Refused:
			fmt.Fprintf(&out, "refused\t%s\n", c.Name)
			continue
		}
		fmt.Fprintf(&out, "%.5g\t%s\t", a.Deviation, c.Name)
		fmt.Fprintln(&out, strings.Join(lo.Map(a.Sample, func(x float32, _ int) string { return strconv.FormatFloat(float64(x), 'g', 5, 32) }), " "))
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}

// ReadAnswers reads the output of WriteAnswers, which must be of these changes.
func ReadAnswers(path string, changes []Change) (Answers, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	first, rest, _ := strings.Cut(string(text), "\n")
	if want := fmt.Sprint(len(changes), " ", hashOf(changes)); first != want {
		return nil, fmt.Errorf("%s: the answers are to changes %q, not %q: make parity", path, first, want)
	}
	all := Answers{}
	for line := range strings.Lines(rest) {
		words := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if words[0] == "refused" && len(words) == 2 {
			all[words[1]] = Answer{Refused: true}
			continue
		}
		var a Answer
		if len(words) != 3 {
			return nil, fmt.Errorf("%s: %q: %d columns, not 3", path, line, len(words))
		}
		if a.Deviation, err = strconv.ParseFloat(words[0], 64); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", path, line, err)
		}
		for _, word := range strings.Fields(words[2]) {
			x, err := strconv.ParseFloat(word, 32)
			if err != nil {
				return nil, fmt.Errorf("%s: %q: %w", path, line, err)
			}
			a.Sample = append(a.Sample, float32(x))
		}
		all[words[1]] = a
	}
	return all, nil
}

func hashOf(changes []Change) string {
	return Hash([]byte(strings.Join(lo.Map(changes, func(c Change, _ int) string { return c.Name }), "\n")))
}
