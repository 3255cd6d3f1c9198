// Package schedule chooses the next step of an engine: which tokens of which sequences it
// computes, over a cache of blocks that may be too small for all of them.
//
// A [Scheduler] holds waiting and running sequences. Each step has one budget of tokens.
// Sequences that decode get one token each first, then guesses of the tokens after them, then
// prompts of running sequences in chunks (chunked prefill), then waiting sequences while there
// are blocks for their tokens:
//
//	s := schedule.New(pool, schedule.Options{Sequences: 16, Tokens: 512, Context: 4096})
//	q, err := s.Add(prompt, 0, "")
//	for pieces := s.Step(); len(pieces) > 0; pieces = s.Step() {
//		...             // run them
//		s.Done()        // they are computed
//		s.Append(q, id) // the token chosen after q's last one; or s.Remove(q)
//	}
//
// A step can be chosen while the one before it runs and its tokens are not known:
// [Scheduler.Expect] adds a placeholder for each, and Append replaces it. [Scheduler.Late]
// excludes a sequence from the next steps until its token is known.
//
// [Scheduler.Draft] adds guesses before a step; they are tokens of it with a row of logits each.
// While the chosen token equals the guess, the next token is chosen from the guess's row.
//
// Laws:
//
//   - Sequences are ordered by priority, the highest first, and then by arrival. The order
//     decides about prompts and admission. When blocks run out, the last running sequence is
//     preempted: it loses its blocks and waits again at its place in the order. It loses no
//     token, and blocks that the cache still knows are not computed again.
//   - Every sequence that decodes and keeps its blocks has its token in every step. A long prompt
//     delays it by no more than the budget of one step.
//   - A waiting sequence that later ones have passed [Patience] times goes before all that were
//     passed less often. So no sequence starves, whatever the priorities of others.
//   - Blocks that a running sequence is about to compute are not computed twice: a sequence with
//     the same first tokens waits for them.
//   - Guesses delay no sequence: they take no block that a sequence waits for, and leave to
//     prompts half of what decoding leaves of a step. Wrong guesses never become part of their
//     sequence: their blocks get no identity, and are freed where no token needs them.
//   - No step allocates memory, but for what a longer history needs.
package schedule
