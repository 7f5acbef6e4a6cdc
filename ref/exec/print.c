#include "ref/exec/print.h"

#include <stdlib.h>

#include <xxhash.h>

#include "sim/base/diag.h"
#include "sim/exec/runs.h"

struct print_state {
  XXH3_state_t *hash;
};

print_state *print_new(void)
{
  print_state *p = malloc(sizeof *p);
  if (p == NULL || (p->hash = XXH3_createState()) == NULL)
    die_refused("ref: no memory for a fingerprint");
  return p;
}

void print_release(print_state *p)
{
  if (p != NULL) XXH3_freeState(p->hash);
  free(p);
}

void print_begin(print_state *p)
{
  XXH3_128bits_reset(p->hash);
}

void print_add(print_state *p, const exec_tensor *t)
{
  int64_t size = dtype_bytes((dtype)t->type), at;
  plan_view v = { .dtype = t->type, .rank = t->rank };
  for (int i = 0; i < t->rank; i++) {
    v.shape[i] = t->shape[i];
    v.strides[i] = t->strides[i];
  }
  for (view_runs w = runs_of(&v); runs_next(&w, &at);)
    XXH3_128bits_update(p->hash, (const unsigned char *)t->data + at * size,
                        (size_t)(w.length * size));
}

exec_fingerprint print_end(const print_state *p)
{
  XXH128_hash_t h = XXH3_128bits_digest(p->hash);
  return (exec_fingerprint){ .low = h.low64, .high = h.high64 };
}
