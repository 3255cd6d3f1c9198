// Package schedule decides what the next step of an engine computes: which tokens of which
// sequences, over a cache of blocks that may be too small for all of them.
//
// A [Scheduler] holds sequences that wait and sequences that run. Each step has one budget
// of tokens. It goes to sequences that decode first, one token each, then to guesses of what
// follows them, then to the prompts of those that run, in pieces, then to those that wait,
// as long as there are blocks for their tokens:
//
//	s := schedule.New(pool, schedule.Options{Sequences: 16, Tokens: 512, Context: 4096})
//	q, err := s.Add(prompt, 0, "")
//	for pieces := s.Step(); len(pieces) > 0; pieces = s.Step() {
//		...             // run them
//		s.Done()        // they are computed
//		s.Append(q, id) // what was chosen after q's last token; or s.Remove(q)
//	}
//
// A step can be chosen while the one before it is computed, whose tokens are not known
// then: [Scheduler.Expect] makes room for each, and Append says later which it is. One that
// takes long is [Scheduler.Late], and others go on without it.
//
// Guesses are given before a step, by [Scheduler.Draft], and are tokens of it with a row of
// logits each. As long as what is chosen is what was guessed, the row after it is there and
// the next token is chosen from that.
//
// Laws:
//
//   - Sequences have an order: higher priority first, of one priority who came first. It
//     decides about prompts and admission; where blocks run out, the last of those that run
//     gives up its own and waits again, in its place of the order. It loses no token, and
//     what the cache still knows of it is not computed again.
//   - Every sequence that decodes, and keeps its blocks, has its token in every step. A long
//     prompt delays it by no more than the budget of one step.
//   - Whoever waits is passed by later ones a number of times, [Patience], then goes before
//     all who were not. So nobody waits for ever, whatever the priorities of others.
//   - What a sequence that runs is about to compute is not computed twice: one that begins
//     with the same tokens waits for the blocks.
//   - Guesses delay nobody: they take no block that anybody waits for, and leave half of what
//     decoding leaves of a step to prompts. What was guessed wrong was never part of its
//     sequence: its blocks are known by nobody, and go back where no token needs them.
//   - No step allocates memory, but for what a longer history needs.
package schedule
