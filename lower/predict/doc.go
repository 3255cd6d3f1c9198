// Package predict reckons what a Plan takes on a chip before it runs: predictions, which no one has
// measured.
//
// chip.go is the table of Apple's chips. cost.go counts the bytes and operations of a dispatch
// from the kernel's rule, and timeline.go turns them into a simulated step on a chip:
//
//	chip, err := predict.FindChip("m4-max")
//	t, err := predict.Simulate(p, phase, &sizes, chip)
//	ms := t.Predict().MS
//
// costs.go answers for ops that are no dispatches yet: [Costs] is what a target's rules ask to
// know whether they pay.
package predict
