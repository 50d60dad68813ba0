/* One function of lockstep.h, for registers of STEP_BYTES; STEP_TREES trees at a time fit into sixteen of them.

`tile` has LANES values a column, `splits` are `steps` times ABREAST, `starts` ABREAST, `leaves` LANES a tree; `tile` and
`leaves` lie on multiples of 64 bytes. */
#define STEP_VECTORS ((int)(LANES * sizeof(float) / STEP_BYTES))

STEP_TARGET static void STEP_NAME(
    const float *tile, const Split *splits, int32_t steps, const int32_t *starts, int32_t *leaves
) {
    typedef float Values __attribute__((vector_size(STEP_BYTES)));
    typedef int32_t Places __attribute__((vector_size(STEP_BYTES)));
    for (int first = 0; first < ABREAST; first += STEP_TREES) {
        Places places[STEP_TREES][STEP_VECTORS];
        for (int tree = 0; tree < STEP_TREES; tree++)
            for (int part = 0; part < STEP_VECTORS; part++)
                places[tree][part] = (Places){0} + starts[first + tree];
        for (const Split *split = splits + first; split < splits + (ptrdiff_t)steps * ABREAST; split += ABREAST) {
#pragma GCC unroll 4
            for (int tree = 0; tree < STEP_TREES; tree++) {
                const Values *values = (const Values *)tile + (ptrdiff_t)split[tree].column * STEP_VECTORS;
                const Values threshold = (Values){0} + split[tree].threshold;
                const Places at = (Places){0} + split[tree].at, step = (Places){0} + split[tree].step;
#pragma GCC unroll 4
                for (int part = 0; part < STEP_VECTORS; part++)
                    places[tree][part] += ((values[part] > threshold) & step) & (places[tree][part] == at);
            }
        }
        for (int tree = 0; tree < STEP_TREES; tree++)
            for (int part = 0; part < STEP_VECTORS; part++)
                ((Places *)leaves)[(first + tree) * STEP_VECTORS + part] = places[tree][part];
    }
}

#undef STEP_VECTORS
#undef STEP_NAME
#undef STEP_TARGET
#undef STEP_BYTES
#undef STEP_TREES
