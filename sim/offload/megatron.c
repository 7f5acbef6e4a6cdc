/*
 * Megatron-LM's fine-grained activation offloading (megatron/core/pipeline_parallel/
 * fine_grained_activation_offload.py at d98e8a64).
 *
 * Forward, at a group's commit: the d2h stream waits for compute, the group's tensors are copied
 * one by one and lose their device reference, and the group is pushed on its chunk's stack. Compute
 * does not wait for copies unless the number of copies in flight is limited. Backward, after a
 * group: the h2d stream waits for compute and reloads the top of the chunk's stack or, if that is
 * empty, the top of the next chunk's stack. Before a group's backward compute waits for that
 * group's reload.
 *
 *            commit             start.backward          commit.backward
 *   PENDING ---------> STACKED ----------------> COMING ----------------> (consumed)
 *      |                  |                          |
 *      | kept             | needed before its        | needed before the commit marker: `fixed` waits
 *      |                  | reload began: copied     |
 *      |                  | back on the compute      |
 *      |                  | stream                   |
 *      v                  v                          v
 *   (consumed)         (consumed)                (consumed)
 *
 * In the first iteration (warm-up) nothing is kept, so backward begins with copies on the compute
 * stream. Afterwards keep_rules.h decides, and the rule of the last stage here.
 *
 * Two modes. `fixed` has the fixes that follow; `as_released` is the code of software.megatron as it is,
 * with those defects that this version has (megatron_releases.h):
 *   PR #6783   a chunk handler counts as finished as soon as it has nothing pending and nothing
 *              on its stack: after a kept first group the rest of the chunk goes to the next
 *              chunk's handler, and backward stops with "Chunk mismatch"
 *   PR #7399   a copy back on the compute stream does not wait for the group's copy to the host
 *   PR #7575   a group that delta or fraction keeps reloads another one when its backward ends, but
 *              is on no stack itself: each such group makes the prefetch one group longer. With the
 *              fix (first made as PR #5101) it has an entry on the stack, without a copy: a group
 *              comes back when it would if everything were offloaded. Groups of the margin and of
 *              the last stage's rule have no entry: they set the length of the prefetch.
 *   (no PR)    in backward, a group's commit marker may come long before its tensors are needed:
 *              that of attn_norm and mlp_norm is after the residual addition. Another group's end
 *              can reload the group in between, and then nothing waits for that copy: the next
 *              commit of the name takes the event of the wrong group. Not reported upstream as far
 *              as known; with offsim's fix compute waits at once.
 *   (no PR)    in the first iteration the manager asks each tensor that it copies for the address of
 *              its storage; the fp8 copy of a weight has none, and the run stops.
 *   (no PR)    full recomputation runs the markers of a layer twice. In forward its groups are empty, but
 *              each has an entry on the stack. In the recomputation its groups leave, and backward needs
 *              them at once. The last group of a name in forward is no longer the last of the chunk, so it
 *              leaves, too: each group is needed before its reload begins, and is copied back on the
 *              compute stream. A recomputed group goes to the handler of the newest forward. If that is
 *              another micro-batch's, backward stops with "Chunk mismatch", unless that micro-batch comes
 *              back next, which is not modelled. A group of norms empties the residual, so that of a
 *              checkpoint's first layer empties what the layer is recomputed from, and backward stops. Not
 *              reported upstream as far as known. With offsim's fix a layer that is recomputed has no
 *              groups.
 *   (in main)  up to 0.19 every view with gaps is gathered into a new tensor before its copy.
 *   PR #3697   up to 0.18 a group that is kept stays on the list of pending ones, whose last one is what a
 *              commit takes: a group that begins before a kept one and commits after it is not offloaded. As
 *              something is pending, the handler does not count as finished.
 * Module layer_input is that of pull request #5218, which is not merged: the input of each checkpoint of
 * full recomputation. Its manager begins the next reload when it has waited for a group's own, so that
 * the copy overlaps with the recomputation too; only in the first iteration after the group's backward.
 * Transformer Engine's checkpoints, of fp8 and fp4, mark what came back for compute when they are done.
 *
 * `pr7575` is `fixed` with that pull request to the letter: margin groups have entries too, and a
 * group's own entry is popped first when its backward ends. With one module that is the same. With
 * several, one group is prefetched instead of one of each module, and groups that commit in a
 * different order than they start are needed before their reload begins.
 */
#include "sim/offload/systems.h"

#include <assert.h>
#include <string.h>

#include "sim/offload/megatron_conditions.h"
#include "sim/offload/megatron_manager.h"

/* ---- begin ---- */

static const uint32_t *next_with_name(const manager *m, name_id name, arena *a)
{
  assert(name < m->table.name_count);
  uint32_t count = m->order.backward_count;
  uint32_t *next = ARENA_ARRAY(a, uint32_t, count + 1);

  next[count] = count;
  for (uint32_t b = count; b-- > 0;) {
    const chunk_groups *c = &m->table.chunks[chunk_at(&m->order, m->order.backward[b])];
    next[b] = c->last[name] != 0 ? b : next[b + 1];
  }
  return next;
}

static handler *new_handlers(const manager *m, arena *a)
{
  assert(m->handlers == NULL && m->order.count > 0);
  handler *handlers = ARENA_ARRAY(a, handler, m->order.count);

  for (uint32_t p = 0; p < m->order.count; p++) {
    uint32_t count = m->table.chunks[chunk_at(&m->order, p)].count;
    handlers[p].pending = (group_list){ .groups = ARENA_ARRAY(a, uint32_t, count), .room = count };
    handlers[p].stack = (group_list){ .groups = ARENA_ARRAY(a, uint32_t, count), .room = count };
    handlers[p].coming = (group_list){ .groups = ARENA_ARRAY(a, uint32_t, count), .room = count };
    if (m->max_inflight != UNSET)
      handlers[p].name_count = ARENA_ARRAY(a, uint32_t, m->table.name_count);
  }
  return handlers;
}

static void *begin(const rank_shape *r, iteration_kind iteration, arena *a, diag *d)
{
  const struct offload_settings *offload = &r->settings->offload;
  manager *m = ARENA_NEW(a, manager);
  bool inputs = has_choice(&offload->offload_modules, OFFLOAD_LAYER_INPUT);
  bool fp8 = r->settings->training.fp8_format != FP8_FORMAT_NONE;

  *m = (manager){ .rank = r,
                  .iteration = iteration,
                  .all_step = offload->mode == MODE_PR7575,
                  .before = inputs && iteration == ITERATION_STEADY,
                  .marks_for_compute = inputs && fp8,
                  .min_elements = offload->min_offloaded_tensor_size,
                  .max_inflight = offload->fine_grained_offloading_max_inflight_offloads,
                  .memory = a,
                  .diag = d,
                  .table = group_table_new(r, a),
                  .order = chunk_order_new(r->schedule, r->chunk_count, a),
                  .backward_current = NO_POSITION };
  for (int k = 0; k < MEGATRON_DEFECT_COUNT; k++)
    m->has[k] = megatron_has(r->settings, (megatron_defect)k);
  if (!manager_may_begin(m)) return NULL;
  m->kept = iteration == ITERATION_WARMUP
                ? keep_nothing(&m->table, &m->order, a)
                : keep_by_rules(r->settings, r->pp_rank, &m->table, &m->order, a);
  m->handlers = new_handlers(m, a);
  m->next_with = ARENA_ARRAY(a, const uint32_t *, m->table.name_count);
  for (name_id n = 0; n < m->table.name_count; n++)
    m->next_with[n] = next_with_name(m, n, a);
  uint32_t groups = m->kept.base[m->order.count] + 1;
  m->unmanaged = ARENA_ARRAY(a, bool, groups);
  m->awaited = ARENA_ARRAY(a, bool, groups);
  m->left = ARENA_ARRAY(a, bool, groups);
  m->back = ARENA_ARRAY(a, bool, groups);
  m->states = ARENA_ARRAY(a, uint8_t, groups);
  m->replay = graph_replay_new(r->settings, iteration, groups, a);
  m->offloaded = ARENA_ARRAY(a, event_id, groups);
  m->reloaded = ARENA_ARRAY(a, event_id, groups);
  if (m->max_inflight != UNSET) m->inflight = ARENA_ARRAY(a, event_id, groups);
  assert(m->has[MEGATRON_INLINE_RELOAD] == (offload->mode == MODE_AS_RELEASED) &&
         "in every version");
  /* In the first iteration each forward extends the order of backward. */
  m->backward_known = iteration == ITERATION_WARMUP ? 0 : m->order.backward_count;
  return m;
}

/* ---- small things ---- */

static void become(manager *m, uint32_t row, group_state from, group_state to)
{
  assert(m->states[row] == from && from < to && "as in the diagram");
  m->states[row] = (uint8_t)to;
}

static void push(group_list *l, uint32_t group)
{
  assert(l->count < l->room && group > 0);
  l->groups[l->count++] = group;
}

static uint32_t take_at(group_list *l, uint32_t index)
{
  assert(index < l->count);
  uint32_t group = l->groups[index];
  memmove(&l->groups[index], &l->groups[index + 1], (l->count - index - 1) * sizeof *l->groups);
  l->count--;
  return group;
}

/* Removes the first group of that name from the list; 0: there is none. */
static uint32_t take_name(group_list *l, const chunk_groups *c, name_id name)
{
  assert(l->count <= l->room && name > 0);
  for (uint32_t i = 0; i < l->count; i++)
    if (c->name[l->groups[i]] == name) return take_at(l, i);
  return 0;
}

/* Removes this group from its list. */
static void take_group(group_list *l, uint32_t group)
{
  uint32_t i = 0;
  while (i < l->count && l->groups[i] != group)
    i++;
  uint32_t taken = take_at(l, i);
  assert(taken == group && "the list has the group");
}

/* In the first iteration a chunk has a name from that group's start marker on. */
static bool has_begun(const manager *m, uint32_t position, name_id name)
{
  const chunk_groups *c = groups_at(m, position);
  uint32_t started = m->handlers[position].started;

  assert(started <= c->count);
  for (uint32_t g = 1; g <= started; g++)
    if (name == 0 || c->name[g] == name) return true;
  return false;
}

/* The place in order.backward of the next chunk that has the name and has not begun to come back,
 * or backward_known. */
static uint32_t front_backward(const manager *m, name_id name)
{
  uint32_t b = m->next_with[name][m->backward_next];

  assert(m->backward_next <= m->backward_known && m->backward_known <= m->order.backward_count);
  while (m->iteration == ITERATION_WARMUP && b < m->backward_known &&
         !has_begun(m, m->order.backward[b], name))
    b = m->next_with[name][b + 1];
  return b < m->backward_known ? b : m->backward_known;
}

/* ---- forward ---- */

static void forward_begin(void *state, walk *w, instance_id i)
{
  manager *m = state;
  assert(i < m->order.count);
  (void)w;

  m->newest_forward = m->order.position[i];
  if (m->iteration == ITERATION_WARMUP)
    m->backward_known = m->order.known[m->order.position[i] + 1];
}

/* The position of the next forward that has a group of that name, or NO_POSITION. */
static uint32_t next_forward_with(const manager *m, uint32_t position, name_id name)
{
  assert(name > 0 && name < m->table.name_count);
  for (uint32_t p = position + 1; p < m->order.count; p++)
    if (groups_at(m, p)->last[name] != 0) return p;
  return NO_POSITION;
}

/*
 * The clause that PR #6783 removed: the handler has begun, nothing is pending, nothing is stacked.
 * The next handler that has the name then gets the group, so its backward will not find the
 * expected chunk. After the last handler no handler gets it, and it stays on the device.
 */
static bool leaves_its_handler(manager *m, uint32_t position, instance_id i, uint32_t group)
{
  assert(m->order.forward[position] == i);
  const handler *h = &m->handlers[position];
  name_id name = groups_at(m, position)->name[group];

  if (m->past_last_handler) return true;
  assert(h->started <= groups_at(m, position)->count);
  if (!m->has[MEGATRON_FINISHED_EARLY] || m->iteration == ITERATION_WARMUP) return false;
  if (h->started == 0 || h->pending.count != 0 || h->stack.count != 0) return false;
  uint32_t next = next_forward_with(m, position, name);
  if (next == NO_POSITION)
    m->past_last_handler = true;
  else if (instance_group(m->rank, i, group)->recomputed)
    manager_stop_in_recomputation(m, i, group, next);
  else
    manager_stop_chunk_mismatch(m, i, group);
  return true;
}

/* The rule of the last stage: this chunk comes back next, and no later group of it has the name. */
static bool comes_back_at_once(const manager *m, uint32_t position, name_id name)
{
  assert(name > 0 && name < m->table.name_count);
  uint32_t b = front_backward(m, name);

  return b < m->backward_known && m->order.backward[b] == position &&
         groups_at(m, position)->last[name] <= m->handlers[position].started;
}

/* Whether the group would leave without the rules that keep groups. */
static bool may_leave(const manager *m, uint32_t position, uint32_t group)
{
  assert(group > 0 && group <= groups_at(m, position)->count);
  if (m->iteration == ITERATION_WARMUP) return true;
  if (m->kept.margin[group_row(m, position, group)]) return false;
  return !comes_back_at_once(m, position, groups_at(m, position)->name[group]);
}

/* Shapes of expert activations vary from step to step, so they do not use the pool. */
static bool uses_pool(const char *name)
{
  assert(name != NULL && name[0] != '\0');
  static const char *const dynamic[] = { "expert_fc1", "moe_act", "fused_group_mlp" };

  for (size_t i = 0; i < sizeof dynamic / sizeof dynamic[0]; i++)
    if (strcmp(name, dynamic[i]) == 0) return false;
  return true;
}

static void copy_out(const manager *m, walk *w, instance_id i, uint32_t group)
{
  const chunk_shape *c = instance_chunk(m->rank, i);
  const saved_group *g = instance_group(m->rank, i, group);
  bool pooled = uses_pool(g->name);

  for (uint32_t e = g->first_entry; e < g->first_entry + g->entry_count; e++)
    if (entry_leaves(&c->entries[e], m->min_elements) && act_place(w, i, e) == PLACE_DEVICE)
      act_offload(
          w, i, e,
          (offload_how){ .form = entry_copy_form(&c->entries[e], m->has[MEGATRON_GATHERED_VIEW]),
                         .pooled = pooled,
                         .record_stream = true,
                         .stream = STREAM_D2H });
}

/* If more copies of one name than the limit are in flight, compute waits for the oldest. */
static void limit_inflight(manager *m, walk *w, uint32_t position, uint32_t group)
{
  const chunk_groups *c = groups_at(m, position);
  name_id name = c->name[group];
  event_id *events = m->inflight + group_row(m, position, c->first_of_name[name]);
  uint32_t made = m->handlers[position].name_count[name]++;

  assert(made + c->first_of_name[name] < c->first_of_name[name + 1] && "once each");
  events[made] = m->offloaded[group_row(m, position, group)];
  assert(made == 0 || events[made - 1] < events[made]);
  if (made >= m->max_inflight)
    act_wait(w, STREAM_COMPUTE, events[made - (uint32_t)m->max_inflight]);
}

static bool lies_in(const manager *m, const walk *w, instance_id i, uint32_t group, uint32_t slot)
{
  assert(slot > 0);
  const chunk_shape *c = instance_chunk(m->rank, i);
  const saved_group *g = instance_group(m->rank, i, group);

  for (uint32_t e = g->first_entry; e < g->first_entry + g->entry_count; e++)
    if (c->entries[e].slot == slot && act_place(w, i, e) == PLACE_DEVICE) return true;
  return false;
}

/* Whether a group of the layer before this one is kept and has saved something in the storage. */
static bool is_kept_user(const manager *m, const walk *w, instance_id i, uint32_t group,
                         uint32_t slot)
{
  assert(slot > 0);
  uint32_t position = m->order.position[i];
  int32_t layer = instance_group(m->rank, i, group)->layer;

  for (uint32_t g = group - 1; g > 0 && instance_group(m->rank, i, g)->layer == layer; g--)
    if (m->kept.keep[group_row(m, position, g)] && lies_in(m, w, i, g, slot)) return true;
  return false;
}

/* Whether a checkpoint has the storage for its recomputation. */
static bool is_input_of_checkpoint(const chunk_shape *c, uint32_t slot)
{
  assert(slot > 0);
  for (uint32_t e = 1; e < c->entry_count; e++)
    if (c->entries[e].checkpoint_input && c->entries[e].slot == slot) return true;
  return false;
}

/* Python variables still refer to these tensors, so their storage is emptied. The released code
 * would empty it even if a kept group uses it, whose backward could then not read it; but in that
 * case it has already stopped with "Chunk mismatch". */
static void empty_released(const manager *m, walk *w, instance_id i, uint32_t group)
{
  const saved_group *g = instance_group(m->rank, i, group);
  const chunk_shape *c = instance_chunk(m->rank, i);
  bool in_checkpoint = m->has[MEGATRON_RECOMPUTED_GROUP] && !g->recomputed && g->entry_count == 0;

  for (uint32_t k = 0; k < 4 && g->released[k] != 0; k++) {
    assert(g->released_elements[k] > 0);
    if (g->released_elements[k] < m->min_elements) continue;
    if (in_checkpoint && is_input_of_checkpoint(c, g->released[k])) {
      manager_stop_without_input(m, i, group);
      return;
    }
    if (!is_kept_user(m, w, i, group, g->released[k]))
      act_empty_storage(w, i, g->released[k], STREAM_COMPUTE);
  }
}

/* The commit takes the last pending group. Where that is a kept one inside this group, this one stays
 * too. */
static bool is_behind_kept_group(const manager *m, const handler *h, uint32_t group)
{
  assert(h->pending.count > 0 && "a commit follows its start");
  return m->has[MEGATRON_KEPT_PENDING] && h->pending.groups[h->pending.count - 1] != group;
}

static void commit(manager *m, walk *w, instance_id i, uint32_t group)
{
  uint32_t position = m->order.position[i], row = group_row(m, position, group);
  handler *h = &m->handlers[position];
  assert(h->started >= group && m->states[row] == GROUP_PENDING);

  act_join(w, STREAM_D2H, STREAM_COMPUTE);
  if (is_behind_kept_group(m, h, group)) {
    become(m, row, GROUP_PENDING, GROUP_CONSUMED);
    m->groups_behind_kept++;
    return;
  }
  take_group(&h->pending, group);
  bool full = may_leave(m, position, group), leaves = full && !m->kept.keep[row];
  bool steps = leaves || m->all_step || (full && !m->has[MEGATRON_KEPT_RELOADS]);
  become(m, row, GROUP_PENDING, steps ? GROUP_STACKED : GROUP_CONSUMED);
  if (steps) push(&h->stack, group);
  if (!leaves && m->has[MEGATRON_KEPT_PENDING]) push(&h->pending, group);
  assert(!leaves || m->states[row] == GROUP_STACKED);
  if (!leaves) return;
  copy_out(m, w, i, group);
  m->left[row] = true;
  m->offloaded[row] = act_record(w, STREAM_D2H);
  if (m->max_inflight != UNSET) limit_inflight(m, w, position, group);
  empty_released(m, w, i, group);
}

/* Runs the delayed commits of earlier layers when the host is back from a layer's graph: at the
 * latest before its experts. */
static void commit_delayed(manager *m, walk *w, instance_id i, int32_t layer)
{
  assert(layer >= 0 && m->replay.delayed_count <= m->kept.base[m->order.count]);
  delayed_commit due;

  while (graph_replay_due(&m->replay, i, layer, &due))
    commit(m, w, due.instance, due.group);
}

static void group_start(void *state, walk *w, instance_id i, uint32_t group)
{
  manager *m = state;
  uint32_t position = m->order.position[i];
  assert(group > 0 && group <= groups_at(m, position)->count);
  handler *h = &m->handlers[position];

  if (stopped(m)) return;
  if (instance_group(m->rank, i, group)->recomputed && m->newest_forward != position) {
    manager_stop_in_recomputation(m, i, group, m->newest_forward);
    return;
  }
  if (graph_replay_may_delay(&m->replay, instance_group(m->rank, i, group)->name))
    commit_delayed(m, w, i, instance_group(m->rank, i, group)->layer);
  if (leaves_its_handler(m, position, i, group)) {
    m->unmanaged[group_row(m, position, group)] = true;
    m->unmanaged_groups++;
    return;
  }
  assert(group == h->started + 1 && "groups are numbered in the order of their start markers");
  h->started = group;
  become(m, group_row(m, position, group), GROUP_NEW, GROUP_PENDING);
  push(&h->pending, group);
}

static void group_commit(void *state, walk *w, instance_id i, uint32_t group)
{
  manager *m = state;
  assert(group == 0 || m->handlers[m->order.position[i]].started >= group || stopped(m) ||
         m->unmanaged[group_row(m, m->order.position[i], group)]);
  const saved_group *g = instance_group(m->rank, i, group);

  if (stopped(m) || m->unmanaged[group_row(m, m->order.position[i], group)]) return;
  if (graph_replay_delays(&m->replay, g, i, group)) return;
  commit(m, w, i, group);
  if (uses_pool(g->name)) graph_replay_committed(&m->replay, w);
}

static void layer_begin(void *state, walk *w, instance_id i, int32_t layer, layer_pass pass)
{
  manager *m = state;
  (void)i;
  assert(layer >= 0);

  graph_replay_layer_begin(&m->replay, w, pass);
}

static void layer_end(void *state, walk *w, instance_id i, int32_t layer, layer_pass pass)
{
  assert(layer >= 0);
  manager *m = state;

  if (stopped(m)) return;
  if (pass == PASS_FORWARD) commit_delayed(m, w, i, layer);
  graph_replay_layer_end(&m->replay, w, pass);
}

/* ---- backward ---- */

/* Makes the next expected chunk that has the name the current one. */
static void switch_backward(manager *m, uint32_t position, name_id name)
{
  uint32_t b = front_backward(m, name);

  assert(b < m->backward_known && m->order.backward[b] == position && "chunks come as expected");
  m->backward_next = b + 1;
  m->backward_current = position;
}

/* Checkpoints of Transformer Engine free what came back for them marked for compute. */
static void mark_for_compute(const manager *m, walk *w, instance_id i, uint32_t entry)
{
  assert(act_place(w, i, entry) == PLACE_DEVICE);
  uint32_t row = group_row(m, m->order.position[i], instance_entry(m->rank, i, entry)->group);

  if (m->marks_for_compute && m->left[row]) act_record_stream(w, i, entry, STREAM_COMPUTE);
}

/* Backward reads an entry. Its group may be on its way back, with its commit marker still to come. */
static void entry_needed(void *state, walk *w, instance_id i, uint32_t entry)
{
  manager *m = state;
  uint32_t position = m->order.position[i], group = instance_entry(m->rank, i, entry)->group;
  uint32_t row = group_row(m, position, group);

  if (group == 0 || stopped(m) || m->unmanaged[row]) return;
  if (act_place(w, i, entry) == PLACE_DEVICE) mark_for_compute(m, w, i, entry);
  assert(m->states[row] != GROUP_NEW && (m->states[row] != GROUP_PENDING || m->replay.delays) &&
         "forward has committed it, or delays its commit");
  bool early = m->has[MEGATRON_EARLY_READ];
  if (early && m->backward_current != position) {
    manager_stop_without_chunk(m, i, group);
    return;
  }
  if (m->states[row] != GROUP_COMING || m->awaited[row]) return;
  assert(m->kept.keep[row] == false && "a kept group does not come back");
  if (early) {
    m->early_entries++;
    return;
  }
  take_group(&m->handlers[position].coming, group);
  become(m, row, GROUP_COMING, GROUP_CONSUMED);
  act_wait(w, STREAM_COMPUTE, m->reloaded[row]);
}

/* A tensor that is still on the host is copied back now, on the compute stream. */
static void unpack(void *state, walk *w, instance_id i, uint32_t entry)
{
  manager *m = state;

  if (act_place(w, i, entry) != PLACE_HOST) return;
  assert(instance_entry(m->rank, i, entry)->group > 0 && "only a group's tensors leave");
  uint32_t row = group_row(m, m->order.position[i], instance_entry(m->rank, i, entry)->group);
  assert(m->states[row] >= GROUP_STACKED && "only a group that was committed left");
  if (m->has[MEGATRON_INLINE_RELOAD])
    m->unordered_reloads++;
  else
    act_wait(w, STREAM_COMPUTE, m->offloaded[row]);
  act_reload(w, i, entry, STREAM_COMPUTE, STREAM_COMPUTE);
  mark_for_compute(m, w, i, entry);
}

static bool is_on_host(const manager *m, walk *w, instance_id i, uint32_t group)
{
  assert(group > 0);
  const saved_group *g = instance_group(m->rank, i, group);

  for (uint32_t e = g->first_entry; e < g->first_entry + g->entry_count; e++)
    if (act_place(w, i, e) == PLACE_HOST) return true;
  return false;
}

/* A group whose commit marker has passed comes back: nothing would wait for its copy. */
static void came_late(manager *m, walk *w, handler *h, uint32_t row, uint32_t group, bool copied)
{
  assert(m->awaited[row] && group > 0);
  bool unawaited = m->has[MEGATRON_LATE_GROUP];
  become(m, row, GROUP_STACKED, unawaited ? GROUP_COMING : GROUP_CONSUMED);
  if (unawaited) {
    push(&h->coming, group);
    m->late_groups += copied;
  } else if (copied) {
    act_wait(w, STREAM_COMPUTE, m->reloaded[row]);
  }
}

static void came_in_time(manager *m, handler *h, uint32_t row, uint32_t group)
{
  assert(!m->awaited[row]);
  become(m, row, GROUP_STACKED, GROUP_COMING);
  push(&h->coming, group);
  assert(!m->back[row] && "it comes back once");
  m->back[row] = true;
  if (++m->back_now > m->back_most) m->back_most = m->back_now;
}

/* Reloads the top of the stack, unless it never left. Tensors that were needed earlier are no
 * longer on the host, so a group may come back without a copy. */
static void bring_back(manager *m, walk *w, uint32_t position)
{
  handler *h = &m->handlers[position];
  instance_id i = m->order.forward[position];
  assert(h->stack.count > 0);
  uint32_t group = h->stack.groups[--h->stack.count], row = group_row(m, position, group);
  const saved_group *g = instance_group(m->rank, i, group);
  bool copied = is_on_host(m, w, i, group);

  if (m->kept.keep[row] || (m->all_step && !copied)) {
    become(m, row, GROUP_STACKED, GROUP_CONSUMED);
    return;
  }
  assert(m->states[row] == GROUP_STACKED && h->started >= group);
  act_wait(w, STREAM_H2D, m->offloaded[row]);
  for (uint32_t e = g->first_entry; e < g->first_entry + g->entry_count; e++)
    if (act_place(w, i, e) == PLACE_HOST) act_reload(w, i, e, STREAM_H2D, STREAM_H2D);
  m->reloaded[row] = act_record(w, STREAM_H2D);
  if (m->awaited[row])
    came_late(m, w, h, row, group, copied);
  else
    came_in_time(m, h, row, group);
}

/* Reloads from the next chunk, if its forward is complete and its stack is not empty. */
static void bring_back_from_next_chunk(manager *m, walk *w)
{
  uint32_t b = front_backward(m, 0);

  if (b == m->backward_known) return;
  uint32_t position = m->order.backward[b];
  assert(position != m->backward_current && "the chunk's backward has not begun");
  const handler *h = &m->handlers[position];
  if (h->started == groups_at(m, position)->count && h->stack.count > 0) bring_back(m, w, position);
}

/* Compute waits for the group's reload, if it has begun. */
static void await_group(manager *m, walk *w, uint32_t position, uint32_t group)
{
  const chunk_groups *c = groups_at(m, position);
  uint32_t row = group_row(m, position, group);

  m->awaited[row] = true;
  assert(!m->back[row] || m->back_now > 0);
  if (m->back[row]) m->back_now--;
  if (!m->has[MEGATRON_LATE_GROUP] && m->states[row] == GROUP_CONSUMED) return;
  uint32_t came = take_name(&m->handlers[position].coming, c, c->name[group]);
  if (came == 0) return;
  become(m, group_row(m, position, came), GROUP_COMING, GROUP_CONSUMED);
  act_wait(w, STREAM_COMPUTE, m->reloaded[group_row(m, position, came)]);
}

static void bring_next_back(manager *m, walk *w, uint32_t position)
{
  assert(m->backward_current == position);
  if (m->handlers[position].stack.count > 0)
    bring_back(m, w, position);
  else
    bring_back_from_next_chunk(m, w);
}

static void group_backward_commit(void *state, walk *w, instance_id i, uint32_t group)
{
  manager *m = state;
  uint32_t position = m->order.position[i];
  assert(group > 0 && group <= groups_at(m, position)->count);

  if (stopped(m) || m->unmanaged[group_row(m, position, group)]) return;
  if (m->backward_current != position)
    switch_backward(m, position, groups_at(m, position)->name[group]);
  await_group(m, w, position, group);
  if (!m->before) return;
  act_join(w, STREAM_H2D, STREAM_COMPUTE);
  bring_next_back(m, w, position);
}

static void group_backward_start(void *state, walk *w, instance_id i, uint32_t group)
{
  manager *m = state;
  uint32_t position = m->order.position[i];

  if (stopped(m) || m->unmanaged[group_row(m, position, group)]) return;
  assert(m->backward_current == position && m->awaited[group_row(m, position, group)]);
  if (m->before) return;
  act_join(w, STREAM_H2D, STREAM_COMPUTE);
  group_list *stack = &m->handlers[position].stack;
  if (m->all_step && stack->count > 0 && stack->groups[stack->count - 1] == group) {
    become(m, group_row(m, position, group), GROUP_STACKED, GROUP_CONSUMED);
    stack->count--;
  }
  bring_next_back(m, w, position);
}

static void backward_end(void *state, walk *w, instance_id i)
{
  manager *m = state;
  assert(i < m->order.count &&
         (stopped(m) || m->replay.delayed_count <= m->kept.base[m->order.count]));
  (void)w;

  graph_replay_drop(&m->replay, i);
}

static bool marks_recomputation(const settings *s)
{
  assert(s->offload.fine_grained_activation_offloading);
  return megatron_has(s, MEGATRON_RECOMPUTED_GROUP);
}

/* ---- comparison: of the modules that offload_modules knows, those that this model has ---- */

static const char *compared_modules(const settings *given, const settings *resolved, arena *a)
{
  const struct model_settings *m = &resolved->model;
  bool moe = m->num_experts > 0, fused = m->use_transformer_engine_op_fuser;

  if (given->offload.offload_modules.count > 0) return NULL;
  return arena_printf(a, "%sqkv_linear,core_attn,attn_proj%s%s",
                      m->multi_latent_attention ? "attn_norm," : "", moe ? ",mlp_norm" : "",
                      !moe    ? ""
                      : fused ? ",fused_group_mlp"
                              : ",expert_fc1,moe_act");
}

/* ---- theory ---- */

static void theory_prepare(offload_theory *t, arena *a)
{
  assert(t->found == NULL && t->min_elements == 0);
  t->min_elements = t->rank->settings->offload.min_offloaded_tensor_size;
  kept_groups *kept = ARENA_NEW(a, kept_groups);

  *kept = keep_by_rules(t->rank->settings, t->rank->pp_rank, &t->table, &t->order, a);
  t->found = kept;
}

static bool theory_group(const offload_theory *t, uint32_t position, uint32_t group)
{
  assert(group > 0 && position < t->order.count);
  const kept_groups *kept = t->found;

  return !kept->keep[kept->base[position] + group] && !theory_comes_back_first(t, position, group);
}

static bool theory_entry(const offload_theory *t, const chunk_shape *c, uint32_t entry)
{
  assert(entry < c->entry_count);
  return entry_leaves(&c->entries[entry], t->min_elements);
}

const offload_descriptor megatron_system = {
  .policy = {
    .first_keeps_nothing = true,
    .marks_recomputation = marks_recomputation,
    .begin = begin,
    .forward_begin = forward_begin,
    .group_start = group_start,
    .group_commit = group_commit,
    .group_backward_commit = group_backward_commit,
    .entry_needed = entry_needed,
    .unpack = unpack,
    .group_backward_start = group_backward_start,
    .backward_end = backward_end,
    .layer_begin = layer_begin,
    .layer_end = layer_end,
    .turn_visit = manager_visit,
    .turns_alike = manager_turns_alike,
    .defects = manager_defects,
  },
  .theory = {
    .group_leaves = theory_group,
    .entry_leaves = theory_entry,
    .prepare = theory_prepare,
  },
  .conditions = megatron_conditions,
  .compared = { .key = KEY_offload_offload_modules, .value = compared_modules },
  .streams = {
    .leaves = "what the chosen modules save, from 1 Mi elements",
    .waits_for_copy_out = "nothing, unless a limit is set",
    .memory_goes = "at once, marked",
    .comes_back = "after the backward of the group as many places later as modules are chosen",
    .into_pool_of = "the copying stream",
  },
};
