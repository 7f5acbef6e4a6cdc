#include "sim/compile/state_chunks.h"

#include <assert.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/compile/take_static.h"

static const plan_view whole = { .whole = 1 };

enum { SIDES = 2, WINDOWS = 2, WINDOW_ALIGNMENT_BYTES = 256 };

/* Of a parameter: allocations of the list, NO_PARAMETER where it has none. */
typedef struct bundle {
  uint32_t parameter, main, states[OPTIMIZER_STATES];
  int64_t state_bytes, main_bytes;
} bundle;

/* [from, to) of a side's bundles. */
typedef struct chunk {
  uint32_t from, to;
} chunk;

/* A window's buffer of a type, NO_BUFFER while it has none. */
typedef struct window {
  uint32_t buffer[DTYPES];
} window;

/* An optimizer: the bundles that leave come first, then those that stay. */
typedef struct side {
  bundle *bundles;
  uint32_t count, leaving;
  chunk *chunks;
  uint32_t chunk_count;
  bool has_masters;
  event_id masters; /* main parameters are back */
  event_id states;  /* so are those of the next chunk */
  window windows[WINDOWS];
  uint32_t next_window;
} side;

struct state_chunks {
  const static_allocation_list *list;
  uint32_t *buffer; /* by allocation: on the device */
  uint32_t *twin;   /* by allocation: on the host, NO_BUFFER: not yet */
  plan_view *view;  /* by allocation: its part of a window */
  bool *makes, *holds;
  bool first; /* the optimizer makes its states in this step */
  side sides[SIDES];
};

/* ---- which parameters leave, in which chunks -------------------------------------------------- */

static bool is_named(const static_allocation *a, const char *name)
{
  assert(a->purpose < BUFFER_CLASSES);
  return a->purpose == CLASS_OPTIMIZER && strcmp(a->name, name) == 0;
}

static bool is_main(const static_allocation *a)
{
  return is_named(a, "main_param") || is_named(a, "master_param");
}

static int state_of(const static_allocation *a)
{
  return is_named(a, "exp_avg") ? 0 : is_named(a, "exp_avg_sq") ? 1 : -1;
}

static void add_allocation(bundle *of, const static_allocation *a, uint32_t id)
{
  int state = state_of(a);
  assert(a->bytes > 0);
  if (is_main(a)) {
    of->main = id;
    of->main_bytes = a->bytes;
  } else if (state >= 0) {
    of->states[state] = id;
    of->state_bytes += a->bytes;
  }
}

static bundle *bundles_by_parameter(const static_allocation_list *list, arena *a)
{
  bundle *of = ARENA_ARRAY(a, bundle, list->parameters.count);
  for (uint32_t p = 0; p < list->parameters.count; p++)
    of[p] =
        (bundle){ .parameter = p, .main = NO_PARAMETER, .states = { NO_PARAMETER, NO_PARAMETER } };
  for (uint32_t i = 0; i < list->count; i++)
    if (list->items[i].parameter != NO_PARAMETER)
      add_allocation(&of[list->items[i].parameter], &list->items[i], i);
  return of;
}

/* Their first states were allocated in the order of the optimizer's groups. */
static void find_bundles(side *s, const static_allocation_list *list, const bundle *of,
                         bool experts, arena *a)
{
  s->bundles = ARENA_ARRAY(a, bundle, list->parameters.count);
  for (uint32_t i = 0; i < list->count; i++)
    if (state_of(&list->items[i]) == 0 &&
        list->parameters.items[list->items[i].parameter].is_expert_parallel == experts)
      s->bundles[s->count++] = of[list->items[i].parameter];
  assert(s->count <= list->parameters.count);
}

static int64_t bytes_of_fraction(const side *s, double fraction)
{
  int64_t all = 0;
  for (uint32_t i = 0; i < s->count; i++)
    all += s->bundles[i].state_bytes + s->bundles[i].main_bytes;
  double part = (double)all * fraction;
  int64_t down = (int64_t)part;
  assert(part >= 0 && down <= all);
  return (double)down < part ? down + 1 : down;
}

/* Puts those that leave first. With all of them their order stays as it is. */
static void select_leaving(side *s, double fraction, arena *a)
{
  int64_t left = bytes_of_fraction(s, fraction);
  bundle *leaving = ARENA_ARRAY(a, bundle, s->count), *staying = ARENA_ARRAY(a, bundle, s->count);
  bool *leaves = ARENA_ARRAY(a, bool, s->count);
  uint32_t kept = 0;
  for (int with_main = 1; with_main >= 0 && fraction < 1; with_main--)
    for (uint32_t i = 0; i < s->count && left > 0; i++) {
      if ((s->bundles[i].main != NO_PARAMETER) != (with_main == 1)) continue;
      leaves[i] = true;
      leaving[s->leaving++] = s->bundles[i];
      left -= s->bundles[i].state_bytes + s->bundles[i].main_bytes;
    }
  if (fraction >= 1) {
    s->leaving = s->count;
    return;
  }
  for (uint32_t i = 0; i < s->count; i++)
    if (!leaves[i]) staying[kept++] = s->bundles[i];
  assert(s->leaving + kept == s->count);
  if (s->leaving > 0) memcpy(s->bundles, leaving, s->leaving * sizeof *leaving);
  if (kept > 0) memcpy(s->bundles + s->leaving, staying, kept * sizeof *staying);
}

static void cut_chunks(side *s, int64_t chunk_bytes, arena *a)
{
  s->chunks = ARENA_ARRAY(a, chunk, s->leaving);
  int64_t bytes = 0;
  for (uint32_t i = 0; i < s->leaving; i++) {
    bool opens = i == 0 || (chunk_bytes > 0 && bytes + s->bundles[i].state_bytes > chunk_bytes);
    if (opens) {
      s->chunks[s->chunk_count++] = (chunk){ i, i };
      bytes = 0;
    }
    bytes += s->bundles[i].state_bytes;
    s->chunks[s->chunk_count - 1].to = i + 1;
  }
  assert(s->chunk_count <= s->leaving);
}

static void note_states(state_chunks *c, const bundle *b)
{
  for (int k = 0; k < OPTIMIZER_STATES; k++) {
    assert(b->states[k] < c->list->count && "Adam has two states");
    c->makes[b->states[k]] = c->holds[b->states[k]] = true;
  }
  if (b->main == NO_PARAMETER) return;
  c->makes[b->main] = c->list->items[b->main].phase == STATIC_STEP;
  c->holds[b->main] = true;
}

static void forget_windows(side *s)
{
  for (int k = 0; k < WINDOWS; k++)
    for (int type = 0; type < DTYPES; type++)
      s->windows[k].buffer[type] = NO_BUFFER;
  s->next_window = 0;
  assert(s->windows[0].buffer[DTYPE_FP32] == NO_BUFFER);
}

state_chunks *state_chunks_of(walk *w, const static_allocation_list *list)
{
  const struct training_settings *t = &w->settings->training;
  state_chunks *c = ARENA_NEW(w->memory, state_chunks);
  assert(t->chunked_optimizer_state_offload);
  *c = (state_chunks){ .list = list,
                       .twin = ARENA_ARRAY(w->memory, uint32_t, list->count),
                       .view = ARENA_ARRAY(w->memory, plan_view, list->count),
                       .first = w->iteration == ITERATION_WARMUP && !t->resumes,
                       .makes = ARENA_ARRAY(w->memory, bool, list->count),
                       .holds = ARENA_ARRAY(w->memory, bool, list->count) };
  for (uint32_t i = 0; i < list->count; i++) {
    c->twin[i] = NO_BUFFER;
    c->view[i] = (plan_view){ .whole = 1 };
  }
  const bundle *of = bundles_by_parameter(list, w->memory);
  for (int k = 0; k < SIDES; k++) {
    side *s = &c->sides[k];
    forget_windows(s);
    find_bundles(s, list, of, k == 1, w->memory);
    select_leaving(s, t->optimizer_state_offload_fraction, w->memory);
    cut_chunks(s, t->optimizer_state_offload_chunk_size_mb * MIB, w->memory);
    for (uint32_t i = 0; i < s->leaving; i++)
      note_states(c, &s->bundles[i]);
  }
  return c;
}

bool state_chunks_make(const state_chunks *c, uint32_t allocation)
{
  assert(allocation < c->list->count);
  return c->makes[allocation];
}

bool state_chunks_hold(const state_chunks *c, uint32_t allocation)
{
  assert(c->holds[allocation] || !c->makes[allocation]);
  return c->holds[allocation];
}

/* ---- copies ---------------------------------------------------------------------------------- */

static uint32_t tensor_of(const walk *w, const state_chunks *c, uint32_t allocation)
{
  uint32_t known = c->twin[allocation] != NO_BUFFER ? c->twin[allocation] : c->buffer[allocation];
  assert(known < w->rank->buffers.count);
  return w->rank->buffers.items[known].tensor;
}

static void resident_twin(walk *w, state_chunks *c, uint32_t allocation)
{
  const static_allocation *what = &c->list->items[allocation];
  assert(w->iteration == ITERATION_STEADY && c->twin[allocation] == NO_BUFFER);
  c->twin[allocation] = walk_resident(w, (plan_buffer){ .bytes = what->bytes,
                                                        .tensor = static_tensor(w, what),
                                                        .purpose = CLASS_PINNED_HOST,
                                                        .stream = STREAM_HOST });
}

/* In the order in which a step makes them: main parameters come back after those that stay. */
void state_chunks_residents(walk *w, state_chunks *c, uint32_t *buffer)
{
  assert(c->buffer == NULL && "once");
  c->buffer = buffer;
  for (int k = 0; k < SIDES && w->iteration == ITERATION_STEADY; k++)
    for (uint32_t i = 0; i < c->sides[k].leaving; i++) {
      uint32_t main = c->sides[k].bundles[i].main;
      if (main == NO_PARAMETER) continue;
      c->buffer[main] = take_static_resident(w, &c->list->items[main]);
      resident_twin(w, c, main);
    }
  for (int k = 0; k < SIDES && w->iteration == ITERATION_STEADY; k++)
    for (uint32_t i = 0; i < c->sides[k].leaving; i++)
      for (int state = 0; state < OPTIMIZER_STATES; state++)
        resident_twin(w, c, c->sides[k].bundles[i].states[state]);
}

/* Between the device's buffer, or its part of a window, and the host's. */
static void copy(walk *w, const state_chunks *c, op_kind kind, uint32_t allocation)
{
  uint32_t device = c->buffer[allocation], host = c->twin[allocation];
  plan_stream stream = kind == OP_D2H ? STREAM_D2H : STREAM_H2D;
  assert(copy_may_be_part(kind));
  walk_copy(w, kind, stream, kind == OP_D2H ? device : host, kind == OP_D2H ? host : device,
            tensor_of(w, c, allocation));
  const plan_view *part = &c->view[allocation];
  walk_copy_parts(w, kind == OP_D2H ? part : &whole, kind == OP_D2H ? &whole : part);
  walk_mark_stream(w, device, stream);
}

static void copy_out(walk *w, state_chunks *c, uint32_t allocation)
{
  assert(c->buffer[allocation] != NO_BUFFER);
  if (c->twin[allocation] == NO_BUFFER)
    c->twin[allocation] =
        walk_host_alloc(w, c->list->items[allocation].bytes, tensor_of(w, c, allocation), 0);
  copy(w, c, OP_D2H, allocation);
}

/* Both sides of a copy back are ready: the host's when copies out are over, the device's when compute is. */
static void order_copies_back(walk *w)
{
  assert(w->backward_seen);
  act_join(w, STREAM_H2D, STREAM_D2H);
  act_join(w, STREAM_H2D, STREAM_COMPUTE);
}

/* ---- main parameters ------------------------------------------------------------------------- */

/* There is one when the step begins; in the first step a precision-aware optimizer has not made it. */
static bool has_master(const state_chunks *c, const bundle *b)
{
  assert(c->list != NULL);
  return b->main != NO_PARAMETER && (!c->first || !c->makes[b->main]);
}

static void masters_leave(walk *w, state_chunks *c, const side *s)
{
  bool begun = false;
  assert(s->leaving <= s->count);
  for (uint32_t i = 0; i < s->leaving; i++) {
    if (!has_master(c, &s->bundles[i])) continue;
    if (!begun) act_join(w, STREAM_D2H, STREAM_COMPUTE);
    begun = true;
    copy_out(w, c, s->bundles[i].main);
  }
  for (uint32_t i = 0; i < s->leaving; i++)
    if (has_master(c, &s->bundles[i])) walk_drop_reference(w, c->buffer[s->bundles[i].main]);
}

static void masters_return(walk *w, state_chunks *c, side *s)
{
  assert(s->leaving <= s->count);
  for (uint32_t i = 0; i < s->leaving; i++) {
    uint32_t main = s->bundles[i].main;
    if (!has_master(c, &s->bundles[i])) continue;
    c->buffer[main] = walk_alloc(w, c->list->items[main].bytes, tensor_of(w, c, main),
                                 CLASS_OPTIMIZER, STREAM_COMPUTE);
    s->has_masters = true;
  }
  if (!s->has_masters) return;
  order_copies_back(w);
  for (uint32_t i = 0; i < s->leaving; i++)
    if (has_master(c, &s->bundles[i])) copy(w, c, OP_H2D, s->bundles[i].main);
  s->masters = act_record(w, STREAM_H2D);
}

/* ---- windows --------------------------------------------------------------------------------- */

static int64_t align_elements(int64_t elements, dtype type)
{
  int64_t unit = max_i64(1, WINDOW_ALIGNMENT_BYTES / dtype_bytes(type));
  assert(elements >= 0);
  return (elements + unit - 1) / unit * unit;
}

static void lay_out(state_chunks *c, const side *s, chunk part, int64_t elements[DTYPES])
{
  assert(part.from < part.to && part.to <= s->leaving);
  for (uint32_t i = part.from; i < part.to; i++)
    for (int k = 0; k < OPTIMIZER_STATES; k++) {
      const static_allocation *a = &c->list->items[s->bundles[i].states[k]];
      dtype type = (dtype)a->type;
      int64_t begin = align_elements(elements[type], type), own = a->bytes / dtype_bytes(type);
      c->view[s->bundles[i].states[k]] = (plan_view){
        .dtype = a->type, .rank = 1, .offset = begin, .shape = { own }, .strides = { 1 }
      };
      elements[type] = begin + own;
    }
}

static uint32_t new_window(walk *w, dtype type, int64_t elements)
{
  assert(elements > 0);
  *ARRAY_PUSH(&w->plan->tensors) = (plan_tensor){
    .name = "optimizer_state_window", .dtype = (uint8_t)type, .rank = 1, .shape = { elements }
  };
  return walk_alloc(w, elements * dtype_bytes(type), w->plan->tensors.count - 1, CLASS_OPTIMIZER,
                    STREAM_COMPUTE);
}

static void fit_window(walk *w, window *in, dtype type, int64_t elements)
{
  uint32_t old = in->buffer[type];
  if (elements == 0) return;
  if (old != NO_BUFFER && w->rank->buffers.items[old].bytes >= elements * dtype_bytes(type)) return;
  in->buffer[type] = new_window(w, type, elements);
  if (old != NO_BUFFER) walk_drop_reference(w, old);
  assert(in->buffer[type] != old);
}

/* A chunk's states come back. */
static void bring(walk *w, state_chunks *c, side *s, chunk part)
{
  int64_t elements[DTYPES] = { 0 };
  window *in = &s->windows[s->next_window];
  s->next_window = (s->next_window + 1) % WINDOWS;
  lay_out(c, s, part, elements);
  for (int type = 0; type < DTYPES; type++)
    fit_window(w, in, (dtype)type, elements[type]);
  order_copies_back(w);
  for (uint32_t i = part.from; i < part.to; i++)
    for (int k = 0; k < OPTIMIZER_STATES; k++) {
      uint32_t state = s->bundles[i].states[k];
      c->buffer[state] = in->buffer[c->list->items[state].type];
      copy(w, c, OP_H2D, state);
    }
  assert(!c->first && "the states are on the host");
  s->states = act_record(w, STREAM_H2D);
}

static void release_windows(walk *w, side *s)
{
  for (int k = 0; k < WINDOWS; k++)
    for (int type = 0; type < DTYPES; type++)
      if (s->windows[k].buffer[type] != NO_BUFFER)
        walk_drop_reference(w, s->windows[k].buffer[type]);
  assert(s->leaving <= s->count);
  forget_windows(s);
}

/* ---- states that are made --------------------------------------------------------------------- */

static void make(walk *w, state_chunks *c, uint32_t allocation)
{
  assert(c->makes[allocation]);
  c->buffer[allocation] = take_static(w, &c->list->items[allocation]);
}

static void make_states(walk *w, state_chunks *c, const side *s, chunk part)
{
  assert(w->iteration == ITERATION_WARMUP && part.to <= s->leaving);
  for (uint32_t i = part.from; i < part.to; i++) {
    for (int k = 0; k < OPTIMIZER_STATES; k++)
      make(w, c, s->bundles[i].states[k]);
    uint32_t main = s->bundles[i].main;
    if (main != NO_PARAMETER && c->makes[main]) make(w, c, main);
  }
}

/* `made`: the optimizer has just made them. */
static void states_leave(walk *w, state_chunks *c, const side *s, chunk part, bool made)
{
  assert(part.from < part.to && part.to <= s->leaving);
  act_join(w, STREAM_D2H, STREAM_COMPUTE);
  for (uint32_t i = part.from; i < part.to; i++)
    for (int k = 0; k < OPTIMIZER_STATES; k++)
      copy_out(w, c, s->bundles[i].states[k]);
  for (uint32_t i = part.from; i < part.to && made; i++)
    for (int k = 0; k < OPTIMIZER_STATES; k++)
      walk_drop_reference(w, c->buffer[s->bundles[i].states[k]]);
  if (made) walk_host_sync(w, STREAM_D2H);
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* initialize_state_for_loading: the optimizer makes the states of a chunk, which leave at once; then main
 * parameters leave. The checkpoint is read into the host's tensors. */
static void load(walk *w, state_chunks *c, side *s)
{
  assert(w->iteration == ITERATION_WARMUP && !c->first);
  if (s->leaving == 0) return;
  for (uint32_t i = 0; i < s->chunk_count; i++) {
    make_states(w, c, s, s->chunks[i]);
    states_leave(w, c, s, s->chunks[i], true);
  }
  masters_leave(w, c, s);
  walk_host_sync(w, STREAM_D2H);
}

void state_chunks_leave(walk *w, state_chunks *c)
{
  assert(!w->forward_seen && "a step begins");
  if (w->iteration == ITERATION_WARMUP && !c->first) {
    for (int k = 0; k < SIDES; k++)
      load(w, c, &c->sides[k]);
    return;
  }
  for (int k = 0; k < SIDES; k++)
    masters_leave(w, c, &c->sides[k]);
}

void state_chunks_return(walk *w, state_chunks *c)
{
  assert(w->backward_seen && "the last backward is over");
  for (int k = 0; k < SIDES; k++) {
    side *s = &c->sides[k];
    masters_return(w, c, s);
    if (s->chunk_count > 0 && !c->first) bring(w, c, s, s->chunks[0]);
  }
}

/* Of all parameters' optimizer steps, in program order. */
typedef struct stepping {
  optimizer_buffers buffers;
  bool *only;
  int64_t bytes, all, done; /* that all kernels move; elements */
} stepping;

static int64_t elements_of(const state_chunks *c, const bundle *b)
{
  const static_allocation *a = &c->list->items[b->states[0]];
  assert(a->bytes % dtype_bytes((dtype)a->type) == 0);
  return a->bytes / dtype_bytes((dtype)a->type);
}

static void step_part(walk *w, const state_chunks *c, const side *s, chunk part, stepping *all)
{
  int64_t own = 0;
  if (part.from == part.to) return;
  assert(part.to <= s->count);
  for (uint32_t i = part.from; i < part.to; i++) {
    all->only[s->bundles[i].parameter] = true;
    own += elements_of(c, &s->bundles[i]);
  }
  int64_t before = muldiv_i64(all->bytes, all->done, all->all);
  all->done += own;
  optimizer_step_buffers(w, &all->buffers, muldiv_i64(all->bytes, all->done, all->all) - before);
  for (uint32_t i = part.from; i < part.to; i++)
    all->only[s->bundles[i].parameter] = false;
}

static void step_chunk(walk *w, state_chunks *c, side *s, uint32_t number, stepping *all)
{
  chunk part = s->chunks[number];
  assert(number < s->chunk_count);
  if (c->first) {
    make_states(w, c, s, part);
  } else {
    act_wait(w, STREAM_COMPUTE, s->states);
    if (number + 1 < s->chunk_count) bring(w, c, s, s->chunks[number + 1]);
  }
  step_part(w, c, s, part, all);
  states_leave(w, c, s, part, c->first);
}

/* The second step copies main parameters that the first has made. */
static void make_missing_twins(walk *w, state_chunks *c)
{
  assert(w->backward_seen);
  for (int k = 0; k < SIDES; k++)
    for (uint32_t i = 0; i < c->sides[k].leaving; i++) {
      uint32_t main = c->sides[k].bundles[i].main;
      if (main != NO_PARAMETER && c->twin[main] == NO_BUFFER)
        c->twin[main] = walk_host_alloc(w, c->list->items[main].bytes, tensor_of(w, c, main), 0);
    }
}

void state_chunks_step(walk *w, state_chunks *c, const optimizer_buffers *b, int64_t bytes)
{
  assert(w->backward_seen && b->of_allocation == c->buffer);
  stepping all = { .buffers = *b,
                   .only = ARENA_ARRAY(w->memory, bool, c->list->parameters.count),
                   .bytes = bytes };
  all.buffers.view_of_allocation = c->view;
  all.buffers.only = all.only;
  for (int k = 0; k < SIDES; k++)
    for (uint32_t i = 0; i < c->sides[k].count; i++)
      all.all += elements_of(c, &c->sides[k].bundles[i]);
  for (int k = 0; k < SIDES; k++) {
    side *s = &c->sides[k];
    if (s->has_masters) act_wait(w, STREAM_COMPUTE, s->masters);
    step_part(w, c, s, (chunk){ s->leaving, s->count }, &all);
    for (uint32_t i = 0; i < s->chunk_count; i++)
      step_chunk(w, c, s, i, &all);
    release_windows(w, s);
  }
  make_missing_twins(w, c);
}
