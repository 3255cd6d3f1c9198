// Where recurrent states lie.
#ifndef SMELT_KERNELS_RECURRENT_H
#define SMELT_KERNELS_RECURRENT_H

// Step is where a head's matrix lies in the states before some tokens of a sequence and after them.
struct Step {
    ulong from, to;
    bool begins; // the sequence, which has no state before
};

// step_of returns the step of head h, of `heads` whose matrices have `matrix` elements. states,
// [seqs, 2], names the state that each sequence reads, negative where it begins, and the one that it
// writes: its first tokens follow the former, all others the latter.
template <typename P>
inline Step step_of(bool first, uint seq, uint h, device const int *states, ulong matrix, constant P &p) {
    const int read = states[2 * seq];
    const ulong own = h * matrix;
    Step step;
    step.begins = first && read < 0;
    step.to = ulong(uint(states[2 * seq + 1])) * p.heads * matrix + own;
    step.from = first ? ulong(uint(max(read, 0))) * p.heads * matrix + own : step.to;
    return step;
}

#endif
