/* The errors with which Megatron-LM's released code stops, and what else it does wrong. */
#include <inttypes.h>

#include "sim/offload/megatron_manager.h"

static source_pos mode_pos(const manager *m)
{
  return m->rank->settings->at[KEY_offload_mode];
}

static bool check_order(const manager *m)
{
  assert(m->order.count > 0 && m->order.backward_count <= m->order.count);
  if (m->order.defect == NULL) return true;
  return diag_error(
      m->diag, mode_pos(m),
      "pipeline rank %u: Megatron's offload manager cannot predict the order of backward "
      "for this schedule and stops with the assertion \"%s\"; choose other "
      "num_microbatches or microbatch_group_size_per_vp_stage",
      m->rank->pp_rank, m->order.defect);
}

/* The first iteration counts what it copies by the address of its storage
 * (_record_offload_transfer), and an fp8 weight, whose numbers are in another tensor, has none. */
static bool check_wrapped(const manager *m)
{
  assert(m->has[MEGATRON_STORAGE_ADDRESS]);
  for (uint32_t c = 0; c < m->rank->chunk_count; c++)
    for (uint32_t k = 1; k < m->rank->chunks[c].group_count; k++) {
      const saved_group *g = &m->rank->chunks[c].groups[k];
      if (g->wrapped_elements == 0 || g->wrapped_elements < m->min_elements) continue;
      return diag_error(
          m->diag, mode_pos(m),
          "pipeline rank %u: the released code stops in the first forward with \"Attempted to "
          "access the data pointer on an invalid python storage\" (%s of layer %d saves an fp8 "
          "copy "
          "of a weight with %" PRId64 " elements, and min_offloaded_tensor_size is %" PRId64
          "); set offload.mode to fixed, or give fp8_param_gather",
          m->rank->pp_rank, g->name, g->layer, g->wrapped_elements, m->min_elements);
    }
  return true;
}

bool manager_may_begin(const manager *m)
{
  return check_order(m) && (!m->has[MEGATRON_STORAGE_ADDRESS] || check_wrapped(m));
}

void manager_stop_chunk_mismatch(const manager *m, instance_id i, uint32_t group)
{
  assert(m->has[MEGATRON_FINISHED_EARLY] && m->iteration == ITERATION_STEADY);
  const saved_group *g = instance_group(m->rank, i, group);

  diag_error(
      m->diag, mode_pos(m),
      "pipeline rank %u: the released code stops in its second iteration with the assertion "
      "\"Chunk mismatch\" (%s of layer %d, micro-batch %u): a chunk handler counts as finished "
      "while its first groups are kept on the device; fixed by Megatron-LM PR #6783: set "
      "offload.mode to fixed, or offload only one module, or put more layers into a chunk",
      m->rank->pp_rank, g->name, g->layer, i / m->rank->chunk_count);
}

/* The hook that returns a saved tensor asks backward's current chunk, which a chunk's first commit
 * marker sets. Before that marker it is None in an iteration's first chunk, and the previous chunk in
 * later ones. */
void manager_stop_without_chunk(const manager *m, instance_id i, uint32_t group)
{
  assert(m->has[MEGATRON_EARLY_READ] && m->backward_current != m->order.position[i]);
  const saved_group *g = instance_group(m->rank, i, group);
  bool none = m->backward_current == NO_POSITION;

  diag_error(
      m->diag, mode_pos(m),
      "pipeline rank %u: the released code stops in backward with %s (%s of layer %d, "
      "micro-batch %u): a recomputation reads a tensor of the group before any commit marker "
      "of its chunk has passed; set offload.mode to fixed, or take "
      "that recomputation out of recompute_modules",
      m->rank->pp_rank,
      none ? "\"'NoneType' object has no attribute 'tensor_pop'\""
           : "a KeyError, as it asks the chunk before",
      g->name, g->layer, i / m->rank->chunk_count);
}

/* The start marker of a recomputed group gets the handler of another forward, `to`. The group's commit marker
 * in backward then finds that chunk where it expects its own. */
void manager_stop_in_recomputation(const manager *m, instance_id i, uint32_t group, uint32_t to)
{
  assert(m->has[MEGATRON_RECOMPUTED_GROUP] && to != m->order.position[i]);
  const saved_group *g = instance_group(m->rank, i, group);
  uint32_t next =
      m->backward_next < m->backward_known ? m->order.backward[m->backward_next] : NO_POSITION;
  const char *what = next == to ? "takes it for a group of the next backward, which is not modelled"
                                : "stops with the assertion \"Chunk mismatch\"";

  diag_error(
      m->diag, mode_pos(m),
      "pipeline rank %u: recomputing %s of layer %d for micro-batch %u, the released code gives "
      "the group to a later forward, of micro-batch %u, and %s; set offload.mode to fixed, or "
      "recompute no layer whose modules are offloaded",
      m->rank->pp_rank, g->name, g->layer, i / m->rank->chunk_count,
      m->order.forward[to] / m->rank->chunk_count, what);
}

void manager_stop_without_input(const manager *m, instance_id i, uint32_t group)
{
  assert(m->has[MEGATRON_RECOMPUTED_GROUP]);
  const saved_group *g = instance_group(m->rank, i, group);

  diag_error(
      m->diag, mode_pos(m),
      "pipeline rank %u: the released code stops in backward: %s of layer %d has emptied the "
      "input of the layer's checkpoint, from which the layer is recomputed; set offload.mode to "
      "fixed, or recompute no layer whose modules are offloaded",
      m->rank->pp_rank, g->name, g->layer);
}

static const char *joined(const manager *m, const char *before, int64_t count, const char *what)
{
  assert(count > 0);
  if (before == NULL) return arena_printf(m->memory, "%" PRId64 " %s", count, what);
  return arena_printf(m->memory, "%s; %" PRId64 " %s", before, count, what);
}

const char *manager_defects(void *state)
{
  manager *m = state;
  assert(m->has[MEGATRON_INLINE_RELOAD] || m->unordered_reloads == 0);
  assert(m->has[MEGATRON_EARLY_READ] || m->early_entries == 0);
  const struct {
    int64_t count;
    const char *what;
  } found[] = {
    { m->unordered_reloads,
      "tensors are copied back on the compute stream without waiting for their "
      "copy to the host (Megatron-LM issue #7398)" },
    { m->late_groups, "groups come back after the marker at which compute would have waited for "
                      "them: nothing waits (not reported upstream)" },
    { m->early_entries,
      "tensors are read while they are on their way back, by a recomputation that "
      "begins before compute waits for their group (not reported upstream)" },
    { m->unmanaged_groups,
      "groups after a kept one are not offloaded, because their chunk's handler "
      "counts as finished (fixed by Megatron-LM PR #6783)" },
    { m->groups_behind_kept, "groups stay on the device, because a kept group inside them is still "
                             "pending (mended by Megatron-LM PR #3697)" },
  };
  const char *met = NULL;
  bool early = m->has[MEGATRON_KEPT_RELOADS] && m->iteration == ITERATION_STEADY;

  for (size_t k = 0; k < sizeof found / sizeof found[0]; k++)
    if (found[k].count != 0) met = joined(m, met, found[k].count, found[k].what);
  if (early && m->back_most > m->kept.margin_count)
    met = arena_printf(m->memory,
                       "%s%sup to %u groups are back early, %u more than if all were offloaded, "
                       "because kept groups reload others too (fixed by Megatron-LM PR #7575)",
                       met != NULL ? met : "", met != NULL ? "; " : "", m->back_most,
                       m->back_most - m->kept.margin_count);
  return met;
}
