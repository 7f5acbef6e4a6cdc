/*
 * PyTorch's torch.autograd.graph.save_on_cpu(pin_memory=True) (torch/autograd/graph.py).
 *
 * Every saved tensor of any size leaves, including Parameters and views of them. The host waits for
 * each copy, on the compute stream, so forward's kernels are issued one saved tensor at a time. A
 * view that is not contiguous is first gathered on the device; a broadcast view becomes as large as
 * its shape. A tensor comes back on the compute stream when its operator needs it, without a host
 * wait.
 */
#include "sim/offload/save_on_cpu.h"

#include "sim/config/checks.h"
#include "sim/offload/systems.h"
#include "sim/offload/torch_entries.h"

static void *begin(const rank_shape *r, iteration_kind iteration, arena *a, diag *d)
{
  assert(r->chunk_count == 1 && "one stage, one chunk");
  const rank_shape **kept = ARENA_NEW(a, const rank_shape *);
  (void)iteration;
  (void)d;

  *kept = r;
  return kept;
}

void save_on_cpu_pack(walk *w, instance_id i, uint32_t entry, bool contiguous)
{
  assert(act_place(w, i, entry) == PLACE_DEVICE && "packed once");
  act_copy_out(
      w, i, entry,
      (offload_how){ .form = contiguous ? COPY_VIEW : COPY_GATHERED, .stream = STREAM_COMPUTE });
  act_host_wait(w, act_record(w, STREAM_COMPUTE));
  act_release(w, i, entry);
}

void save_on_cpu_unpack(walk *w, instance_id i, uint32_t entry)
{
  assert(act_place(w, i, entry) == PLACE_HOST && "it left when it was packed");
  act_reload(w, i, entry, STREAM_COMPUTE, STREAM_COMPUTE);
}

static void entry_ready(void *state, walk *w, instance_id i, uint32_t entry)
{
  const rank_shape *r = *(const rank_shape **)state;
  const saved_entry *e = instance_entry(r, i, entry);

  if (save_on_cpu_entry_leaves(e)) save_on_cpu_pack(w, i, entry, e->contiguous);
}

static void unpack(void *state, walk *w, instance_id i, uint32_t entry)
{
  (void)state;

  save_on_cpu_unpack(w, i, entry);
}

/* ---- conditions ---- */

static bool conditions(const settings *s, diag *d)
{
  assert(s->offload.system == SYSTEM_save_on_cpu);
  return need(s, d, s->parallel.fsdp == FSDP_NONE, KEY_offload_system, KEY_parallel_fsdp,
              "offload system save_on_cpu does not work with fsdp: it would copy gathered "
              "parameters, which FSDP frees soon");
}

/* ---- theory ---- */

static bool theory_entry(const offload_theory *t, const chunk_shape *c, uint32_t entry)
{
  assert(entry < c->entry_count);
  (void)t;

  return save_on_cpu_entry_leaves(&c->entries[entry]) && !torch_needs_at_once(c, entry);
}

const offload_descriptor save_on_cpu_system = {
  .policy = {
    .begin = begin,
    .entry_ready = entry_ready,
    .unpack = unpack,
  },
  .theory = { .group_leaves = theory_every_group, .entry_leaves = theory_entry },
  .conditions = conditions,
  .streams = {
    .leaves = "every saved tensor, weights' views too",
    .waits_for_copy_out = "the host, at once",
    .memory_goes = "with its last user",
    .comes_back = "on demand",
    .into_pool_of = "compute",
  },
};
