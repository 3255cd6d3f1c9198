// Where recurrent states lie, of which each block of the KV cache has one.
#ifndef SMELT_KERNELS_RECURRENT_H
#define SMELT_KERNELS_RECURRENT_H

// Step is where a head's matrix lies in the states before a token and after it.
struct Step {
    ulong from, to;
    bool begins; // a sequence, which has no state before
};

// step_of returns the step of head h, of `heads` whose matrices have so many elements. P has the
// cache's block.
template <typename P> inline Step step_of(uint position, uint h, device const int *table, ulong matrix, constant P &p) {
    const ulong own = h * matrix;
    Step step;
    step.begins = position == 0;
    step.from = step.begins ? 0 : ulong(uint(table[(position - 1) / p.block])) * p.heads * matrix + own;
    step.to = ulong(uint(table[position / p.block])) * p.heads * matrix + own;
    return step;
}

#endif
