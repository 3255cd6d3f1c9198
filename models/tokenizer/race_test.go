//go:build race

package tokenizer

// underRace is how much longer things take.
const underRace = 10
