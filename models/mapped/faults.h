#pragma once

#include <stddef.h>

// smelt_view is memory of a mapped file.
typedef struct smelt_view smelt_view;

// smelt_watch makes a fault in the memory of a mapped file readable as zeros, and returns the view
// that records it, or NULL without memory. Calls must not overlap.
smelt_view *smelt_watch(const void *memory, size_t bytes);

// smelt_unwatch ends a watch before the memory is unmapped. Calls must not overlap.
void smelt_unwatch(smelt_view *view);

// smelt_faulted reports whether a page of the view could not be read.
int smelt_faulted(const smelt_view *view);
