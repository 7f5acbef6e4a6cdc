#include "sim/offload/torch_entries.h"

#include <assert.h>

/* Fates of the saved tensors packed so far. Numbers count every packed tensor, from 1. */
typedef struct packed_entries {
  const chunk_shape *chunk;
  uint32_t *number; /* by entry, 0: not packed */
  bool *copied;     /* to the host */
  bool *duplicate;  /* stays because of another tensor */
  uint32_t count;
  uint32_t last_copied; /* number of the last tensor copied */
  uint32_t stash;
} packed_entries;

/* Whether the engine has dropped the tensor's device copy: it does so when it copies a tensor
 * whose number is higher by `stash` or more. */
static bool is_let_go(const packed_entries *p, uint32_t entry)
{
  assert(p->number[entry] > 0 && p->last_copied <= p->count);
  return p->last_copied >= p->number[entry] + p->stash;
}

/* The engine remembers the last tensor with the same key as long as it keeps it on the device: in
 * the stash or, if it is itself a duplicate, until backward. */
static bool is_duplicate(const packed_entries *p, uint32_t entry)
{
  assert(!p->copied[entry] && !p->duplicate[entry]);
  const saved_entry *entries = p->chunk->entries;

  for (uint32_t e = entry; e-- > 1;)
    if ((p->copied[e] || p->duplicate[e]) && is_same_start(&entries[e], &entries[entry]))
      return p->duplicate[e] || !is_let_go(p, e);
  return false;
}

static void pack(packed_entries *p, const settings *s, uint32_t entry)
{
  bool leaves = trl_entry_leaves(&p->chunk->entries[entry], s->offload.trl_params_registered);

  assert(p->number[entry] == 0 && "packed once");
  p->number[entry] = ++p->count;
  p->duplicate[entry] = is_duplicate(p, entry);
  p->copied[entry] = leaves && !p->duplicate[entry];
  if (p->copied[entry]) p->last_copied = p->count;
}

const bool *trl_copied(const chunk_shape *c, const settings *s, arena *a)
{
  packed_entries p = { .chunk = c, .stash = (uint32_t)s->offload.max_fwd_stash_size };

  assert(p.stash > 0);
  p.number = ARENA_ARRAY(a, uint32_t, c->entry_count);
  p.copied = ARENA_ARRAY(a, bool, c->entry_count);
  p.duplicate = ARENA_ARRAY(a, bool, c->entry_count);
  for (uint32_t e = 1; e < c->entry_count; e++)
    if (c->entries[e].group != 0) pack(&p, s, e);
  return p.copied;
}
