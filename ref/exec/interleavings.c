#include "ref/exec/interleavings.h"

#include <assert.h>
#include <string.h>

#include "ref/exec/state.h"

/* The results of program order. */
typedef struct baseline {
  uint32_t (*sequence)[2]; /* (rank, op) in the order in which they ran */
  uint64_t done;
  struct {
    exec_fingerprint *prints; /* by op */
    uint64_t *last_contents;  /* by buffer */
    uint64_t spares;          /* hash of the final contents of the pools of page-locked buffers */
  } * ranks;
} baseline;

static void *copied(arena *a, const void *items, size_t count, size_t item_bytes)
{
  assert(count == 0 || items != NULL);
  void *copy = arena_alloc(a, count, item_bytes);
  if (count > 0) memcpy(copy, items, count * item_bytes);
  return copy;
}

static uint64_t count_ops(const plan *p)
{
  uint64_t count = 0;
  for (uint32_t r = 0; r < p->rank_count; r++)
    count += p->ranks[r].ops.count;
  return count;
}

static void run(ref_exec *e, const plan *p, const exec_order *order)
{
  static const exec_step step = { 0 };
  diag d = { 0 };
  assert(e->options.arithmetic == REF_OPAQUE);
  ref_exec_iteration(e, p, order, &step, &d);
}

/* Spares are in the order in which the host has returned them. */
static uint64_t contents_of_spares(const rank_state *r)
{
  uint64_t hash = 0;
  assert(r->pool_count == 0 || r->pools[0].count == 0);
  for (uint32_t k = 0; k < r->pool_count; k++)
    for (uint32_t i = r->pools[k].first; i < r->pools[k].count; i++)
      hash =
          hash * UINT64_C(0x9E3779B97F4A7C15) + contents_hash_all(&r->pools[k].items[i]->contents);
  return hash;
}

static baseline baseline_of(ref_exec *e, const plan *p, arena *a)
{
  baseline b = { .sequence = arena_alloc(a, count_ops(p), sizeof *b.sequence),
                 .ranks = arena_alloc(a, p->rank_count, sizeof *b.ranks) };
  e->sequence = b.sequence;
  assert(e->sequence != NULL || count_ops(p) == 0);
  run(e, p, &(exec_order){ 0 });
  e->sequence = NULL;
  assert(e->done <= count_ops(p));
  b.done = e->done;
  for (uint32_t r = 0; r < p->rank_count; r++) {
    const rank_state *s = &e->ranks[r];
    b.ranks[r].prints = copied(a, s->prints, p->ranks[r].ops.count, sizeof *s->prints);
    b.ranks[r].last_contents =
        copied(a, s->last_contents, p->ranks[r].buffers.count, sizeof *s->last_contents);
    b.ranks[r].spares = contents_of_spares(s);
  }
  return b;
}

/* The first differing op in program order: it reads only what equal ops have written. */
static const char *differing_op(const ref_exec *e, const baseline *b, arena *a)
{
  for (uint64_t i = 0; i < b->done; i++) {
    uint32_t rank = b->sequence[i][0], op = b->sequence[i][1];
    assert(rank < e->layout->rank_count && e->ranks[rank].stage != NULL);
    if (memcmp(&e->ranks[rank].prints[op], &b->ranks[rank].prints[op], sizeof(exec_fingerprint)) !=
        0)
      return arena_printf(a, "rank %u: %s does not write what it writes in program order", rank,
                          stage_op_text(e->ranks[rank].stage, op, a));
  }
  return NULL;
}

static const char *differing_buffer(const ref_exec *e, const baseline *b, arena *a)
{
  for (uint32_t r = 0; r < e->layout->rank_count; r++) {
    const rank_state *s = &e->ranks[r];
    assert(e->layout->ranks[r].stage == r && "exec_layout_of_stages: a rank for each stage");
    for (uint32_t k = 0; k < s->stage->ops_of->buffers.count; k++)
      if (s->last_contents[k] != b->ranks[r].last_contents[k])
        return arena_printf(
            a, "rank %u: %s does not end with the contents that it has in program order", r,
            stage_buffer_text(s->stage, k, a));
    if (contents_of_spares(s) != b->ranks[r].spares)
      return arena_printf(a,
                          "rank %u: a spare page-locked buffer does not end with the contents that "
                          "it has in program order",
                          r);
  }
  return NULL;
}

static const char *difference(const ref_exec *e, const baseline *b, arena *a)
{
  if (e->finding != NULL) return arena_strdup(a, e->finding);
  assert(e->outcome == EXEC_DONE && e->done == b->done && "the same ops have run");
  const char *op = differing_op(e, b, a);
  return op != NULL ? op : differing_buffer(e, b, a);
}

static interleavings_result run_seeds(ref_exec *e, const plan *p, uint64_t first, uint64_t count,
                                      arena *a)
{
  interleavings_result found = { .in_program_order = true };
  baseline b = baseline_of(e, p, a);
  found.finding = e->finding == NULL ? NULL : arena_strdup(a, e->finding);
  for (; found.finding == NULL && found.run < count; found.run++) {
    found.in_program_order = false;
    found.seed = first + found.run;
    run(e, p, &(exec_order){ .interleaved = true, .seed = found.seed });
    found.finding = difference(e, &b, a);
  }
  found.agree = found.finding == NULL;
  found.in_program_order = found.in_program_order && !found.agree;
  assert(found.run <= count && (!found.agree || found.run == count));
  return found;
}

interleavings_result ref_interleavings(const plan *p, const plan *before, uint64_t first,
                                       uint64_t count, arena *a)
{
  arena scratch = { 0 };
  assert(before == NULL || before->rank_count == p->rank_count);
  exec_layout layout = exec_layout_of_stages(p, &scratch);
  ref_exec *e = ref_exec_new(&layout, &(ref_options){ .arithmetic = REF_OPAQUE }, NULL);
  assert(layout.rank_count == p->rank_count);
  e->before = before;
  interleavings_result found = run_seeds(e, p, first, count, a);
  ref_exec_release(e);
  arena_release(&scratch);
  return found;
}
