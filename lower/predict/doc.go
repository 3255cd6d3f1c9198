// Package predict predicts the time that a Plan takes on a chip before it runs. No prediction was
// measured on the chip.
//
// chip.go is the table of Apple's chips. cost.go counts the bytes and operations of a dispatch
// from the kernel's rule, and timeline.go turns them into a simulated step on a chip:
//
//	chip, err := predict.FindChip("m4-max")
//	t, err := predict.Simulate(p, phase, &sizes, chip)
//	ms := t.Predict().MS
//
// costs.go predicts the costs of ops that are not dispatches yet: fusion rules ask [Costs] whether
// they save time on a target.
package predict
