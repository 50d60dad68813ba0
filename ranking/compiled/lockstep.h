/* Scores of sixteen rows by several trees at once, all in step.

Every row of every tree goes through all of the tree's splits, parents before children, and stands meanwhile
at the leftmost leaf below the node that it has reached. A split moves the rows that stand at its own leftmost leaf and lie
past its threshold to the leftmost leaf of its right side. So no row is ever looked up in memory: a split is a comparison
for a whole register of rows, the trees hide one another's waiting, and the time depends on the number of splits alone. */
#ifndef LISTWRIGHT_LOCKSTEP_H
#define LISTWRIGHT_LOCKSTEP_H

#include <stddef.h>
#include <stdint.h>

enum { LANES = 16, ABREAST = 4 };

typedef struct {
    float threshold;
    int32_t column;
    int32_t at;
    int32_t step;
} Split;

#define STEP_NAME step_any
#define STEP_TARGET
#define STEP_BYTES 16
#define STEP_TREES 2
#include "lockstep_kernel.h"

#if defined(__x86_64__)
#define STEP_NAME step_avx2
#define STEP_TARGET __attribute__((target("avx2")))
#define STEP_BYTES 32
#define STEP_TREES 4
#include "lockstep_kernel.h"
#endif

/* Writes where the rows of ABREAST trees end up, places counted as `starts` are. */
typedef void (*InStep)(const float *tile, const Split *splits, int32_t steps, const int32_t *starts, int32_t *leaves);

/* How this processor does it fastest, or as every processor can. */
static inline InStep in_step(int fastest) {
#if defined(__x86_64__)
    if (fastest && __builtin_cpu_supports("avx2")) return step_avx2;
#endif
    (void)fastest;
    return step_any;
}

#endif
