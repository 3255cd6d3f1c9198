//go:build !race

package tokenizer

const underRace = 1
