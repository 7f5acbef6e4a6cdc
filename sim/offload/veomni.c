/*
 * VeOmni's activation offload (veomni/distributed/offloading.py: custom_save_on_cpu and
 * build_activation_offloading_context, at d9774494), which verl's VeOmni engine enters around each
 * micro-batch's forward, its loss included (verl/workers/engine/veomni/transformer_impl.py).
 *
 * Every saved tensor of more than 1024 bytes leaves, Parameters too, a tensor saved twice each
 * time; only the transposed weight that a linear saves stays, if the weight is trained: VeOmni
 * recognizes it by its gradient function, which a frozen one does not have. Under FSDP the host's
 * copy of a Parameter comes back beside the gathered one.
 *
 * Both copies are synchronous, on the compute stream: the host waits for each. Host memory is not
 * page-locked and new for each tensor. `tensor.cpu()` keeps the strides of a view that fills its
 * storage, and gathers other strided views on the device.
 *
 * While less than activation_gpu_limit is on the device, a tensor stays there. With checkpoints the
 * limit is not that of forward, which has none: VeOmni enters a second context around backward, for
 * what a recomputation saves. A non-reentrant checkpoint has hooks of its own there, so this
 * context sees nothing. Reentrant checkpoints, whose recomputation it does see, are refused.
 *
 * Not modelled: the page faults of new host memory, beyond what the machine's pageable rates
 * contain.
 */
#include <assert.h>

#include "sim/base/units.h"
#include "sim/config/checks.h"
#include "sim/offload/actions.h"
#include "sim/offload/systems.h"
#include "sim/offload/torch_entries.h"

enum { LARGEST_THAT_STAYS_BYTES = 1024 }; /* min_offload_size, which is not above itself */

typedef struct engine {
  const chunk_shape *shape;
  int64_t kept_bytes;
  double limit_bytes;
} engine;

static bool is_considered(const saved_entry *e)
{
  assert(e->bytes >= 0);
  return e->bytes > LARGEST_THAT_STAYS_BYTES && !e->trained_transpose;
}

/* Upstream counts in MiB, in binary fractions that are exact. */
static double limit_bytes(const settings *s)
{
  bool of_forward = s->recompute.recompute_granularity != GRANULARITY_FULL;

  assert(s->offload.activation_gpu_limit >= 0);
  return of_forward ? s->offload.activation_gpu_limit * GIB : 0;
}

static void *begin(const rank_shape *r, iteration_kind iteration, arena *a, diag *d)
{
  engine *x = ARENA_NEW(a, engine);
  (void)iteration;
  (void)d;

  *x = (engine){ .shape = only_chunk(r), .limit_bytes = limit_bytes(r->settings) };
  return x;
}

static void wait_for_copy(walk *w)
{
  act_host_wait(w, act_record(w, STREAM_COMPUTE));
}

static copy_form form_of(const saved_entry *e)
{
  assert(e->bytes > 0);
  if (e->contiguous) return COPY_VIEW;
  return e->bytes == e->storage_bytes ? COPY_STORAGE : COPY_GATHERED;
}

static void entry_ready(void *state, walk *w, instance_id i, uint32_t entry)
{
  engine *x = state;
  const saved_entry *e = &x->shape->entries[entry];
  assert(entry > 0 && entry < x->shape->entry_count);

  if (!is_considered(e)) return;
  if ((double)x->kept_bytes < x->limit_bytes) {
    x->kept_bytes += e->bytes;
    return;
  }
  act_copy_out(w, i, entry,
               (offload_how){ .form = form_of(e), .pageable = true, .stream = STREAM_COMPUTE });
  wait_for_copy(w);
  act_release(w, i, entry);
}

static void entry_needed(void *state, walk *w, instance_id i, uint32_t entry)
{
  engine *x = state;
  const saved_entry *e = &x->shape->entries[entry];

  if (is_considered(e) && act_place(w, i, entry) == PLACE_DEVICE) x->kept_bytes -= e->bytes;
  assert(x->kept_bytes >= 0 && "only what was kept is needed on the device");
}

static void unpack(void *state, walk *w, instance_id i, uint32_t entry)
{
  assert(act_place(w, i, entry) == PLACE_HOST && "it left when it was packed");
  (void)state;

  act_copy_in(w, i, entry, STREAM_COMPUTE, STREAM_COMPUTE);
  wait_for_copy(w);
  act_drop_host(w, i, entry);
}

/* ---- conditions ---- */

static bool conditions(const settings *s, diag *d)
{
  assert(s->offload.system == SYSTEM_veomni);
  setting_key limit = KEY_offload_activation_gpu_limit, key = KEY_offload_system;
  bool full = s->recompute.recompute_granularity == GRANULARITY_FULL;

  if (full && s->offload.activation_gpu_limit > 0)
    diag_note(d, s->at[limit],
              "activation_gpu_limit has no effect: with checkpoints it is for what their "
              "recomputation saves, which non-reentrant ones do not show to VeOmni");
  return need(s, d, s->parallel.fsdp == FSDP_NONE || s->parallel.fsdp == FSDP_2, KEY_parallel_fsdp,
              key, "offload system veomni works with fsdp2 or without fsdp; fsdp is %s",
              chosen_word(s, KEY_parallel_fsdp)) &&
         need(s, d, !full || !s->recompute.use_reentrant, KEY_recompute_use_reentrant, key,
              "offload system veomni is not predicted with use_reentrant: it would also move what "
              "a recomputation saves");
}

/* ---- theory ---- */

/* By entry, whether it is on the host: in the order of saving, the first stay up to the limit. */
static void theory_prepare(offload_theory *t, arena *a)
{
  const chunk_shape *c = only_chunk(t->rank);
  double left = limit_bytes(t->rank->settings);
  bool *leaves = ARENA_ARRAY(a, bool, c->entry_count);

  assert(t->found == NULL);
  for (uint32_t e = 1; e < c->entry_count; e++) {
    if (c->entries[e].group == 0 || !is_considered(&c->entries[e])) continue;
    leaves[e] = left <= 0;
    if (!leaves[e]) left -= (double)c->entries[e].bytes;
  }
  t->found = leaves;
}

static bool theory_entry(const offload_theory *t, const chunk_shape *c, uint32_t entry)
{
  assert(t->found != NULL && entry < c->entry_count);
  const bool *leaves = t->found;

  return leaves[entry] && !torch_needs_at_once(c, entry);
}

const offload_descriptor veomni_system = {
  .policy = {
    .moves_gathered = true,
    .begin = begin,
    .entry_ready = entry_ready,
    .entry_needed = entry_needed,
    .unpack = unpack,
  },
  .theory = {
    .group_leaves = theory_every_group,
    .entry_leaves = theory_entry,
    .prepare = theory_prepare,
  },
  .conditions = conditions,
  .streams = {
    .leaves = "every saved tensor above 1024 bytes, Parameters too",
    .waits_for_copy_out = "the host, at once",
    .memory_goes = "with its last user",
    .comes_back = "on demand; the host waits",
    .into_pool_of = "compute",
  },
};
