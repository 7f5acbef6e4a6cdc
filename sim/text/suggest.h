/*
 * "Did you mean ...?": the known name that is nearest to a mistyped one.
 *
 * Distance is the number of characters put in, left out, replaced, or swapped with their neighbour
 * (Damerau-Levenshtein, each pair swapped once); `-` and `_` are the same character, and so are
 * small and capital letters. Of names equally near, the first wins.
 */
#ifndef OFFSIM_SIM_TEXT_SUGGEST_H
#define OFFSIM_SIM_TEXT_SUGGEST_H

#include <stddef.h>
#include <stdint.h>

uint32_t suggest_distance(const char *a, const char *b);

/* NULL when none is near: it begins with another letter, or more would have to change than two
 * characters, a fifth of a longer word, a third of a shorter one. */
const char *suggest_nearest(const char *word, const char *const *names, size_t count);

#endif
