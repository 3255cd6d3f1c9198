//go:build cgo && (linux || darwin)

#include "faults.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct smelt_view {
    _Atomic uintptr_t begin; // 0 where the view is free for reuse
    _Atomic size_t bytes;
    atomic_int faulted;
    smelt_view *next;
};

// Views are never freed, so that the handler can walk the list without a lock.
static smelt_view *_Atomic views;
static struct sigaction before;
static uintptr_t page;

// on_fault replaces the rest of a view by pages of zeros: what is behind a page that a shortened
// file lacks is lacking too. All other faults are those of the handler before, which is Go's.
static void on_fault(int number, siginfo_t *info, void *context) {
    uintptr_t at = (uintptr_t)info->si_addr;
    for (smelt_view *v = atomic_load(&views); v != NULL && info->si_code > 0; v = v->next) {
        uintptr_t begin = atomic_load(&v->begin);
        size_t bytes = atomic_load(&v->bytes);
        if (begin == 0 || at - begin >= bytes) {
            continue;
        }
        int saved = errno;
        atomic_store(&v->faulted, 1); // before another thread can read zeros
        uintptr_t from = at / page * page;
        void *zeros = mmap((void *)from, begin + bytes - from, PROT_READ, MAP_PRIVATE | MAP_ANON | MAP_FIXED, -1, 0);
        errno = saved;
        if (zeros != MAP_FAILED) {
            return;
        }
    }
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(number, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(number);
    } else {
        sigaction(number, &before, NULL); // the instruction faults again
    }
}

// install makes on_fault the handler, with the mask and the alternate stack of Go's.
static int install(void) {
    static int installed;
    if (installed) {
        return 1;
    }
    page = (uintptr_t)sysconf(_SC_PAGESIZE);
    if (sigaction(SIGBUS, NULL, &before) != 0) {
        return 0;
    }
    struct sigaction ours = before;
    ours.sa_sigaction = on_fault;
    ours.sa_flags |= SA_SIGINFO | SA_ONSTACK;
    installed = sigaction(SIGBUS, &ours, NULL) == 0;
    return installed;
}

smelt_view *smelt_watch(const void *memory, size_t bytes) {
    if (!install()) {
        return NULL;
    }
    smelt_view *v = atomic_load(&views);
    while (v != NULL && atomic_load(&v->begin) != 0) {
        v = v->next;
    }
    if (v == NULL) {
        v = calloc(1, sizeof *v);
        if (v == NULL) {
            return NULL;
        }
        v->next = atomic_load(&views);
        atomic_store(&views, v);
    }
    atomic_store(&v->faulted, 0);
    atomic_store(&v->bytes, bytes);
    atomic_store(&v->begin, (uintptr_t)memory);
    return v;
}

void smelt_unwatch(smelt_view *view) { atomic_store(&view->begin, 0); }

int smelt_faulted(const smelt_view *view) { return atomic_load(&view->faulted); }
