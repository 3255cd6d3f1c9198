// Package draft guesses tokens before a model computes them, and decides how many guesses are
// worth the model's time. The model verifies guesses as additional rows of a step, so a wrong
// guess costs time and never changes a text.
//
// A [Lookup] guesses from earlier text: it finds the longest match of a sequence's last tokens
// in the sequence itself and in what was generated before, and proposes the tokens that followed
// there. Salts separate texts, as they separate the blocks of a cache:
//
//	lookup := draft.NewLookup(4096)
//	text := lookup.Begin("tenant", prompt)
//	text.Append(id)                      // each token, as it is chosen
//	ids, agreed := text.Propose(buf, 16) // and the length of the match
//	text.End()
//
// A [Policy] decides how many guesses to verify. Guesses are right more often after a longer
// match, or with a more confident draft model, so it counts right guesses by these classes, per
// sequence and over all, and estimates the probability that the first n guesses are right. It
// also measures the time of steps by tokens. From both it chooses the guesses that maximize
// tokens per second, and none where plain decoding is as fast.
//
// A draft model's guesses cost time of their own. The model makes one token of each sequence at
// a time, only while the next is worth it: [Policy.Choose] is called before each.
//
// Laws:
//
//   - A text is never guessed from those of another salt.
//   - Memory is bounded: a sequence by its context, each salt by [Remembered] tokens, the number
//     of salts by [Salts]; the oldest is dropped first.
//   - What guessing loses against plain decoding, as the policy measures it, is never more
//     than [Allowance] of the time, and two steps of plain decoding to begin with.
//   - Every token that a draft model has made is verified: the policy decides before it is made.
//   - In the steady state nothing is allocated.
package draft
