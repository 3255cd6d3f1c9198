// Package draft guesses tokens before a model computes them, and says how many guesses are
// worth a model's time. What was guessed is verified by the model itself, as further rows of
// a step: so a wrong guess costs time, and never changes a text.
//
// A [Lookup] guesses by what stands elsewhere: it finds the longest run of tokens that ends
// a sequence in the sequence itself and in what was generated before, and proposes what
// followed there. Texts are kept apart by salts, as the blocks of a cache are:
//
//	lookup := draft.NewLookup(4096)
//	text := lookup.Begin("tenant", prompt)
//	text.Append(id)                      // each token, as it is chosen
//	ids, agreed := text.Propose(buf, 16) // and how many tokens speak for it
//	text.End()
//
// A [Budget] decides. A guess is right the more often the longer the texts agree before it, or
// the surer a model is of it, so it counts by these, of each sequence and of all, and from that
// has the probability that a row's guesses survive. It measures what steps of so many tokens
// take. Of the guesses of all sequences it takes those that bring most tokens a second, and
// none where plain decoding brings as many.
//
// A model's guesses cost its own time. It makes a token of each sequence at once, and only as
// long as the next is worth that: [Budget.Choose] is asked before each.
//
// Laws:
//
//   - A text is never guessed from those of another salt.
//   - What is remembered is bounded: a sequence by its context, each salt by [Remembered]
//     tokens, salts by [Salts]; the oldest goes.
//   - What guessing loses against plain decoding, by the budget's own measure, is never more
//     than [Allowance] of the time, and two steps of plain decoding to begin with.
//   - What a model has made is verified, and so decided upon before it is made.
//   - In the steady state nothing is allocated.
package draft
