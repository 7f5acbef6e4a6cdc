#include "sim/compile/lower.h"

#include <assert.h>
#include <string.h>

#include "sim/compile/frames.h"
#include "sim/compile/parts.h"
#include "sim/model/hf/fsdp_units.h"
#include "sim/model/saved_marks.h"

#define NEVER UINT32_MAX /* later than any item */

/* What only the order of lowering needs, beside the emitter. */
typedef struct lowering {
  emitter e;
  uint32_t *first_ending; /* by item: a storage whose frame reference ends there, 0 = none */
  uint32_t *next_ending;  /* by storage: another one */
  uint32_t *region_begin, *region_end; /* by region: items */
  region_id *discarded_by;             /* by storage: the DISCARD region whose output it is */
  bool *recomputed;                    /* by DISCARD region, in backward */
  uint32_t *cached_entry; /* by tensor that a CHECKPOINT region keeps: its entry, NEVER until it has one;
                           * else 0 */
  region_id recomputing;               /* region whose forward runs again, 0 = none */
  uint32_t packs_only;   /* item with which a recomputation stops, 0 = none */
  bool packs_parameters; /* the hooks of packing see parameters too */
  place_id *held_by; /* by node: what it holds */
  bool gathers_parameters; /* they come and go under what is saved of them */
  bool layer_hooks, node_hooks; /* somebody listens */
  uint32_t begun_layer; /* item whose layer's backward has been told of, 0 = none */
  uint32_t *group_row; /* by group of the graph: that of the program, 0 = none: its calls save nothing */
} lowering;

typedef enum saving { NOT_SAVING, SAVING, RECOMPUTING } saving;

/* ---- small parts ------------------------------------------------------------------------------ */

place_id lower_place(emitter *e, int64_t bytes, uint32_t tensor_row, buffer_class class)
{
  *ARRAY_PUSH(&e->program->places) = (program_place){
    .bytes = bytes, .tensor = tensor_row, .class = (uint8_t)class, .stream = (uint8_t)e->stream
  };
  return e->program->places.count - 1;
}

void lower_instruction(emitter *e, instruction_kind kind, uint32_t a, uint32_t b)
{
  *ARRAY_PUSH(e->out) = (instruction){ (uint32_t)kind, a, b };
}

static bool *dropped_flag(emitter *e, place_id p)
{
  while (e->dropped_capacity <= p) {
    uint32_t old = e->dropped_capacity;
    e->dropped = array_grow(e->dropped, &e->dropped_capacity, old + 1, sizeof *e->dropped);
    memset(e->dropped + old, 0, e->dropped_capacity - old);
  }
  return &e->dropped[p];
}

bool lower_is_alive(emitter *e, place_id p)
{
  return (p & (OPERAND_PARAMETER | OPERAND_PARAMETER_GRADIENT)) || !*dropped_flag(e, p);
}

/* Ends a place's reference, once. */
void lower_drop(emitter *e, place_id p)
{
  if (p == 0 || (p & (OPERAND_PARAMETER | OPERAND_PARAMETER_GRADIENT)) || !lower_is_alive(e, p))
    return;
  *dropped_flag(e, p) = true;
  lower_instruction(e, I_DROP, p, 0);
}

place_id lower_root(const emitter *e, place_id p)
{
  place_id same = e->program->places.items[p].same_as;
  return same != 0 ? same : p;
}

uint32_t lower_site_row(emitter *e, uint32_t graph_site)
{
  if (e->site_row[graph_site] == 0 && graph_site != 0) {
    *ARRAY_PUSH(&e->plan->sites) = e->graph->sites.items[graph_site];
    e->site_row[graph_site] = e->plan->sites.count - 1;
  }
  return e->site_row[graph_site];
}

uint32_t lower_tensor_row(emitter *e, tensor_id t)
{
  if (e->tensor_row[t] == 0) {
    const graph_tensor *from = &e->graph->tensors.items[t];
    plan_tensor row = { .name = from->name, .dtype = from->dtype, .rank = from->rank };
    row.site = lower_site_row(e, from->site);
    memcpy(row.shape, from->shape, sizeof row.shape);
    *ARRAY_PUSH(&e->plan->tensors) = row;
    e->tensor_row[t] = e->plan->tensors.count;
  }
  return e->tensor_row[t] - 1;
}

uint32_t lower_parameter(emitter *e, tensor_id parameter)
{
  const graph *g = e->graph;
  const graph_tensor *from = &g->tensors.items[parameter];
  assert(from->parameter);
  if (e->parameter_row[parameter] == 0) {
    *ARRAY_PUSH(&e->program->parameters) =
        (program_parameter){ .bytes = tensor_bytes(g, parameter),
                             .tensor = lower_tensor_row(e, parameter),
                             .layer = g->sites.items[from->site].layer,
                             .trainable = from->requires_grad,
                             .companion = from->companion };
    e->parameter_row[parameter] = e->program->parameters.count;
  }
  return e->parameter_row[parameter] - 1;
}

tensor_id lower_gradient_key(const graph *g, tensor_id t)
{
  while (g->tensors.items[t].parent != 0)
    t = g->tensors.items[t].parent;
  return t;
}

/* ---- what the frame refers to, and until when -------------------------------------------------- */

static void used_at(emitter *e, tensor_id t, uint32_t item)
{
  if (t != 0)
    e->last_use[tensor_storage(e->graph, t)] = item;
}

/* What a part hands over is there when it ends. */
static void used_by_part(emitter *e, part_id ends, uint32_t item)
{
  const graph_part *p = &e->graph->parts.items[ends];
  for (int i = 0; i < PART_OUTPUTS; i++)
    used_at(e, p->outputs[i], item);
  for (int i = 0; i < PART_DETACHED; i++)
    used_at(e, p->detached[i], item);
}

static void find_last_uses(lowering *l)
{
  const graph *g = l->e.graph;
  for (uint32_t i = 0; i < g->items.count; i++) {
    uint32_t index = g->items.items[i].index;
    switch ((item_kind)g->items.items[i].kind) {
    case ITEM_NODE:
      for (int k = 0; k < NODE_INPUTS; k++)
        used_at(&l->e, g->nodes.items[index].inputs[k], i);
      for (int k = 0; k < NODE_OUTPUTS; k++)
        used_at(&l->e, g->nodes.items[index].outputs[k], i);
      break;
    case ITEM_KEEP: used_at(&l->e, index, i); break;
    case ITEM_GROUP_COMMIT:
      for (int k = 0; k < 4; k++)
        used_at(&l->e, g->groups.items[index].released[k], i);
      break;
    case ITEM_REGION_BEGIN:
      l->region_begin[index] = i;
      for (int k = 0; k < REGION_CACHED && g->regions.items[index].cached[k] != 0; k++)
        l->cached_entry[g->regions.items[index].cached[k]] = NEVER;
      break;
    case ITEM_REGION_END: l->region_end[index] = i; break;
    case ITEM_DISCARD:
      for (int k = 0; k < REGION_OUTPUTS && g->regions.items[index].outputs[k] != 0; k++) {
        tensor_id storage = tensor_storage(g, g->regions.items[index].outputs[k]);
        l->discarded_by[storage] = index;
        used_at(&l->e, storage, i);
      }
      break;
    case ITEM_GROUP_START:
    case ITEM_GROUP_HOOKS_END:
    case ITEM_LAYER_BEGIN:
    case ITEM_LAYER_END: break;
    case ITEM_PART: used_by_part(&l->e, index - 1, i); break;
    }
  }
  /* Held beyond the forward: by the schedule until sent, and until the backward. */
  used_at(&l->e, g->output, NEVER);
  used_at(&l->e, g->input, NEVER);
  if (frames_hold_mask(l->e.settings))
    used_at(&l->e, g->attention_mask, NEVER);
}

static void sort_endings(lowering *l)
{
  for (uint32_t t = l->e.graph->tensors.count - 1; t > 0; t--) {
    uint32_t item = l->e.last_use[t];
    if (l->e.graph->tensors.items[t].base != t || l->e.graph->tensors.items[t].parameter ||
        item == NEVER)
      continue;
    l->next_ending[t] = l->first_ending[item];
    l->first_ending[item] = t;
  }
}

/* A recomputation's function holds the inputs that it has unpacked until the region's backward is done. */
static bool is_held_by_recomputation(const lowering *l, tensor_id storage)
{
  const graph *g = l->e.graph;
  const tensor_id *inputs = g->regions.items[l->recomputing].inputs;
  for (int i = 0; l->recomputing != 0 && i < NODE_INPUTS && inputs[i] != 0; i++)
    if (tensor_storage(g, inputs[i]) == storage)
      return true;
  return false;
}

/* Frame references that end after `item`. A discarded output keeps its handle until it is recomputed. */
static void drop_ending(lowering *l, uint32_t item, saving mode)
{
  for (tensor_id t = l->first_ending[item]; t != 0; t = l->next_ending[t])
    if ((mode == NOT_SAVING || l->discarded_by[t] == 0) && !is_held_by_recomputation(l, t))
      lower_drop(&l->e, l->e.where[t]);
}

/* ---- saving ------------------------------------------------------------------------------------ */

static saved_entry entry_of(const lowering *l, tensor_id t)
{
  const graph *g = l->e.graph;
  const graph_tensor *tensor = &g->tensors.items[t];
  tensor_id storage = tensor_storage(g, t);
  return (saved_entry){ .parameter = tensor->parameter,
                        .of_parameter = !tensor->parameter && g->tensors.items[storage].parameter,
                        .contiguous = tensor->contiguous,
                        .not_offloadable = tensor->not_offloadable,
                        .discarded = l->discarded_by[storage] != 0,
                        .elements = tensor_elements(g, t),
                        .offset_elements = tensor->offset_elements,
                        .bytes = tensor_bytes(g, t),
                        .storage_bytes = tensor_bytes(g, storage),
                        .element_bytes = (uint8_t)dtype_bytes((dtype)tensor->dtype),
                        .group = l->e.active_group };
}

/* The entries of an operator or region that is about to run, in the order in which autograd packs. */
static uint32_t new_entries(lowering *l, const tensor_id *tensors, int limit)
{
  chunk_program *p = l->e.program;
  uint32_t first = p->entries.count;
  for (int i = 0; i < limit && tensors[i] != 0; i++) {
    *ARRAY_PUSH(&p->entries) = entry_of(l, tensors[i]);
    *ARRAY_PUSH(&p->entry_places) = 0;
  }
  if (l->e.active_group != 0) {
    saved_group *group = &p->groups.items[l->e.active_group];
    if (group->entry_count == 0)
      group->first_entry = first;
    group->entry_count += p->entries.count - first;
  }
  return first;
}

/* A place that refers to the same buffer as the frame's. A Parameter needs one only where its packing is
 * seen. */
static void save(lowering *l, tensor_id t, uint32_t entry)
{
  emitter *e = &l->e;
  chunk_program *p = e->program;
  saved_entry *saved = &p->entries.items[entry];
  tensor_id storage = tensor_storage(e->graph, t);
  if (saved->bytes == 0)
    return;
  saved->tensor = lower_tensor_row(e, t);
  if (saved->parameter && !l->packs_parameters)
    return;
  if (e->graph->tensors.items[storage].parameter && l->gathers_parameters)
    return;
  place_id slot = lower_place(e, saved->bytes, saved->tensor, CLASS_RELOAD);
  p->entry_places.items[entry] = slot;
  if (e->graph->tensors.items[storage].parameter) {
    saved->slot = slot;
    lower_instruction(e, I_BIND, slot, OPERAND_PARAMETER | lower_parameter(e, storage));
    return;
  }
  place_id from = e->where[storage];
  assert(from != 0 && "an operator saves a tensor that nothing has produced");
  p->places.items[from].class = CLASS_SAVED;
  saved->slot = from;
  lower_instruction(e, I_BIND, slot, from);
}

static void tell_ready(lowering *l, uint32_t entry)
{
  if (l->e.active_group != 0)
    lower_instruction(&l->e, I_ENTRY_READY, entry, 0);
}

static bool is_input(const graph *g, const graph_node *n, tensor_id t)
{
  for (int i = 0; i < NODE_INPUTS && n->inputs[i] != 0; i++)
    if (tensor_storage(g, n->inputs[i]) == tensor_storage(g, t))
      return true;
  return false;
}

/* Before the operator: inputs that it packs first, and what it announces before it has made it. */
static void save_early(lowering *l, const graph_node *n, uint32_t first_entry, uint16_t early)
{
  for (uint32_t i = 0; i < NODE_SAVED && n->saved[i] != 0; i++) {
    if (!(early >> i & 1))
      continue;
    if (is_input(l->e.graph, n, n->saved[i]))
      save(l, n->saved[i], first_entry + i);
    tell_ready(l, first_entry + i);
  }
}

static void save_late(lowering *l, const graph_node *n, uint32_t first_entry, uint16_t early)
{
  for (uint32_t i = 0; i < NODE_SAVED && n->saved[i] != 0; i++) {
    bool is_early = early >> i & 1;
    if (!is_early || !is_input(l->e.graph, n, n->saved[i]))
      save(l, n->saved[i], first_entry + i);
    if (!is_early)
      tell_ready(l, first_entry + i);
  }
}

static void set_marks(lowering *l, const graph_node *n, uint32_t first_entry, saved_marks marks)
{
  const graph *g = l->e.graph;
  for (uint32_t i = 0; i < NODE_SAVED && n->saved[i] != 0; i++) {
    saved_entry *entry = &l->e.program->entries.items[first_entry + i];
    bool is_view = tensor_storage(g, n->saved[i]) != n->saved[i];
    entry->marked = marks.marked >> i & 1;
    entry->base_leaves = is_view && (marks.base >> i & 1);
  }
}

static void unpack_all(lowering *l, const tensor_id *tensors, int limit, uint32_t first_entry)
{
  const chunk_program *p = l->e.program;
  for (uint32_t i = 0; i < (uint32_t)limit && tensors[i] != 0; i++)
    if (p->entries.items[first_entry + i].group != 0 && p->entry_places.items[first_entry + i] != 0)
      lower_instruction(&l->e, I_UNPACK, first_entry + i, 0);
}

static void release_all(lowering *l, const tensor_id *tensors, int limit, uint32_t first_entry)
{
  for (uint32_t i = 0; i < (uint32_t)limit && tensors[i] != 0; i++)
    lower_drop(&l->e, l->e.program->entry_places.items[first_entry + i]);
}

/* ---- forward ----------------------------------------------------------------------------------- */

static void drop_temporaries(emitter *e)
{
  for (uint32_t i = 0; i < e->temporaries.count; i++)
    lower_drop(e, e->temporaries.items[i]);
  e->temporaries.count = 0;
}

/* A selective checkpoint keeps what the operator has made. */
static void keep_outputs(lowering *l, const graph_node *n)
{
  for (int i = 0; i < NODE_OUTPUTS && n->outputs[i] != 0; i++) {
    uint32_t *entry = &l->cached_entry[n->outputs[i]];
    if (*entry == 0) continue;
    assert(*entry == NEVER && tensor_storage(l->e.graph, n->outputs[i]) == n->outputs[i]);
    *entry = new_entries(l, &n->outputs[i], 1);
    l->e.program->entries.items[*entry].cached = true;
    save(l, n->outputs[i], *entry);
    tell_ready(l, *entry);
  }
}

static bool is_kept(const lowering *l, const graph_node *n)
{
  for (int i = 0; i < NODE_OUTPUTS && n->outputs[i] != 0; i++)
    if (l->cached_entry[n->outputs[i]] == 0)
      return false;
  return n->outputs[0] != 0;
}

/* The recomputation finds them in place of running the operator: its frame gets the checkpoint's
 * reference. */
static void find_outputs(lowering *l, const graph_node *n)
{
  for (int i = 0; i < NODE_OUTPUTS && n->outputs[i] != 0; i++) {
    uint32_t entry = l->cached_entry[n->outputs[i]];
    unpack_all(l, &n->outputs[i], 1, entry);
    l->e.where[n->outputs[i]] = l->e.program->entry_places.items[entry];
  }
}

static bool saves_only(const graph_node *n, uint16_t early)
{
  for (uint32_t i = 0; i < NODE_SAVED && n->saved[i] != 0; i++)
    if (!(early >> i & 1))
      return false;
  return true;
}

/* A checkpoint that is not reentrant builds nodes in its first run, which autograd goes back through; of a
 * reentrant one, in the second. */
static void hold(lowering *l, node_id id, saving mode)
{
  emitter *e = &l->e;
  tensor_id held = e->graph->nodes.items[id].held;
  saving without = e->settings->recompute.use_reentrant ? NOT_SAVING : RECOMPUTING;
  if (held == 0 || mode == without || l->gathers_parameters)
    return;
  l->held_by[id] = lower_place(e, tensor_bytes(e->graph, held), lower_tensor_row(e, held), CLASS_RELOAD);
  lower_instruction(e, I_BIND, l->held_by[id], OPERAND_PARAMETER | lower_parameter(e, held));
}

/* `only_packs`: a checkpoint that has everything when the operator has packed stops there. */
static void forward_node(lowering *l, node_id id, saving mode, bool only_packs)
{
  const graph_node *n = &l->e.graph->nodes.items[id];
  l->e.node = n;
  hold(l, id, mode);
  if (mode == NOT_SAVING) {
    n->kind->forward(&l->e, l->e.graph, n);
    keep_outputs(l, n);
  } else {
    saved_marks marks = saved_marks_of(l->e.settings, n);
    uint32_t first = l->e.node_entry[id] = new_entries(l, n->saved, NODE_SAVED);
    set_marks(l, n, first, marks);
    save_early(l, n, first, marks.early);
    if (only_packs && saves_only(n, marks.early))
      return;
    if (is_kept(l, n))
      find_outputs(l, n);
    else
      n->kind->forward(&l->e, l->e.graph, n);
    save_late(l, n, first, marks.early);
  }
  drop_temporaries(&l->e);
}

static void begin_group(lowering *l, group_id id)
{
  const graph_group *from = &l->e.graph->groups.items[id];
  group_array *groups = &l->e.program->groups;
  *ARRAY_PUSH(groups) = (saved_group){ .name = from->name, .layer = from->layer };
  l->e.active_group = l->group_row[id] = groups->count - 1;
  lower_instruction(&l->e, I_GROUP_START, l->group_row[id], 0);
}

static void commit_group(lowering *l, group_id id)
{
  const graph_group *from = &l->e.graph->groups.items[id];
  saved_group *to = &l->e.program->groups.items[l->group_row[id]];
  for (int i = 0; i < 4 && from->released[i] != 0; i++) {
    to->released[i] = l->e.where[tensor_storage(l->e.graph, from->released[i])];
    to->released_elements[i] = tensor_elements(l->e.graph, from->released[i]);
  }
  lower_instruction(&l->e, I_GROUP_COMMIT, l->group_row[id], 0);
}

static void save_region_inputs(lowering *l, region_id id)
{
  const graph_region *r = &l->e.graph->regions.items[id];
  group_id active = l->e.active_group;
  int open = NODE_INPUTS - (int)r->closed_over;
  l->e.active_group = 0;
  uint32_t first = l->e.region_entry[id] = new_entries(l, r->inputs, (int)r->closed_over);
  l->e.active_group = active;
  new_entries(l, r->inputs + r->closed_over, open);
  for (uint32_t i = 0; i < NODE_INPUTS && r->inputs[i] != 0; i++) {
    l->e.program->entries.items[first + i].checkpoint_input = r->kind == REGION_CHECKPOINT;
    save(l, r->inputs[i], first + i);
    if (i >= r->closed_over) tell_ready(l, first + i);
  }
}

static void empty_outputs(lowering *l, region_id id)
{
  const graph *g = l->e.graph;
  const tensor_id *outputs = g->regions.items[id].outputs;
  for (int i = 0; i < REGION_OUTPUTS && outputs[i] != 0; i++)
    lower_instruction(&l->e, I_EMPTY, l->e.where[tensor_storage(g, outputs[i])], STREAM_HOST);
}

/* The hooks of a decoder layer's module. */
static void layer_hook(lowering *l, instruction_kind kind, uint32_t layer, layer_pass pass)
{
  if (l->layer_hooks)
    lower_instruction(&l->e, kind, layer, (uint32_t)pass);
}

/* The items [from, to). NOT_SAVING: inside a region that will be recomputed; its markers mean nothing.
 * RECOMPUTING: the same items again, in backward: hooks are not active. */
static void lower_forward(lowering *l, uint32_t from, uint32_t to, saving mode)
{
  const graph *g = l->e.graph;
  for (uint32_t i = from; i < to; i++) {
    uint32_t index = g->items.items[i].index;
    switch ((item_kind)g->items.items[i].kind) {
    case ITEM_NODE: forward_node(l, index, mode, mode == RECOMPUTING && i == l->packs_only); break;
    case ITEM_GROUP_START:
      if (mode == SAVING)
        begin_group(l, index);
      break;
    case ITEM_GROUP_HOOKS_END: l->e.active_group = 0; break;
    case ITEM_GROUP_COMMIT:
      if (mode == SAVING)
        commit_group(l, index);
      break;
    case ITEM_REGION_BEGIN:
      if (mode != NOT_SAVING) {
        save_region_inputs(l, index);
        lower_forward(l, i + 1, l->region_end[index], NOT_SAVING);
        i = l->region_end[index];
      }
      break;
    case ITEM_DISCARD:
      if (mode != NOT_SAVING)
        empty_outputs(l, index);
      break;
    case ITEM_LAYER_BEGIN:
      layer_hook(l, I_LAYER_BEGIN, index, mode == RECOMPUTING ? PASS_RECOMPUTE : PASS_FORWARD);
      break;
    case ITEM_LAYER_END:
      if (mode != RECOMPUTING || l->e.settings->recompute.use_reentrant)
        layer_hook(l, I_LAYER_END, index, mode == RECOMPUTING ? PASS_RECOMPUTE : PASS_FORWARD);
      break;
    case ITEM_PART: parts_forward(&l->e, index); break;
    case ITEM_KEEP:
    case ITEM_REGION_END: break;
    }
    drop_ending(l, i, mode);
  }
}

/* ---- backward ---------------------------------------------------------------------------------- */

static void add_in_place(emitter *e, place_id sum, place_id more)
{
  emit_kernel(e, (kernel_shape){ .kind = KERNEL_ELEMENTWISE, .type = DTYPE_BF16 },
              (ref[]){ sum, more, 0 }, (ref[]){ sum, 0 });
}

/* The sum in a new tensor. */
static place_id add_apart(emitter *e, place_id a, place_id b)
{
  program_place of = e->program->places.items[a];
  place_id sum = lower_place(e, of.bytes, of.tensor, CLASS_TRANSIENT);
  lower_instruction(e, I_ALLOC, sum, 0);
  emit_kernel(e, (kernel_shape){ .kind = KERNEL_ELEMENTWISE, .type = DTYPE_BF16 },
              (ref[]){ a, b, 0 }, (ref[]){ sum, 0 });
  lower_drop(e, a);
  return sum;
}

/* A gradient that came through a view's backward is a view itself, whose base holds the storage too, so that
 * autograd does not add to it in place (input_buffer.cpp: can_accumulate_inplace). Gradients of the same
 * view are added before that. Functions of Megatron-LM make their views inside. */
static bool is_held_by_base(const emitter *e, place_id sum, place_id more)
{
  tensor_id through = e->program->places.items[sum].through;
  return uses_hf(e->settings) && through != 0 && through != e->program->places.items[more].through;
}

/* Gradients of inputs, made by the operator just run, go where the next operators look for them. */
static void deliver_gradients(emitter *e)
{
  for (uint32_t i = 0; i < e->gradients.count; i++) {
    pending_gradient made = e->gradients.items[i];
    place_id *collected = &e->gradient[made.tensor];
    if (*collected == 0) {
      *collected = made.place;
      continue;
    }
    if (parts_hold(e, *collected) || is_held_by_base(e, *collected, made.place))
      *collected = add_apart(e, *collected, made.place);
    else
      add_in_place(e, *collected, made.place);
    lower_drop(e, made.place);
  }
  e->gradients.count = 0;
}

/* Without fusion the accumulator's hook adds each weight gradient to the gradient buffer and frees it. */
void lower_accumulate(emitter *e)
{
  for (uint32_t i = 0; i < e->parameter_gradients.count; i++) {
    pending_gradient made = e->parameter_gradients.items[i];
    ref total = OPERAND_PARAMETER_GRADIENT | lower_parameter(e, made.tensor);
    add_in_place(e, total, made.place);
    e->out->items[e->out->count - 1].kind = I_ACCUMULATE;
    lower_drop(e, made.place);
  }
  e->parameter_gradients.count = 0;
}

static void consume_output_gradients(emitter *e, const graph_node *n)
{
  for (int i = 0; i < NODE_OUTPUTS && n->outputs[i] != 0; i++) {
    place_id *p = &e->gradient[lower_gradient_key(e->graph, n->outputs[i])];
    lower_drop(e, *p);
    *p = 0;
  }
}

static bool any_gradient(const emitter *e, const graph_node *n)
{
  for (int i = 0; i < NODE_OUTPUTS && n->outputs[i] != 0; i++)
    if (e->gradient[lower_gradient_key(e->graph, n->outputs[i])] != 0)
      return true;
  return false;
}

/* The hook fires for what was saved where hooks were active, and after operators inside a checkpoint that
 * is not reentrant: the first of them is the one that asks for the checkpoint's inputs. */
static void tell_used(lowering *l, const tensor_id *tensors, int limit, uint32_t first_entry)
{
  uint32_t count = 0;
  while (count < (uint32_t)limit && tensors[count] != 0)
    count++;
  bool hooked = l->node_hooks && count > 0;
  if (hooked && (l->e.program->entries.items[first_entry].group != 0 ||
                 !l->e.settings->recompute.use_reentrant))
    lower_instruction(&l->e, I_NODE_BACKWARD_END, first_entry, count);
}

static void backward_node(lowering *l, node_id id)
{
  emitter *e = &l->e;
  const graph_node *n = &e->graph->nodes.items[id];
  e->node = n;
  e->node_first_entry = e->node_entry[id];
  if (n->kind->backward != NULL && any_gradient(e, n)) {
    unpack_all(l, n->saved, NODE_SAVED, e->node_first_entry);
    n->kind->backward(e, e->graph, n);
  }
  drop_temporaries(e);
  consume_output_gradients(e, n);
  release_all(l, n->saved, NODE_SAVED, e->node_first_entry);
  lower_drop(e, l->held_by[id]);
  tell_used(l, n->saved, NODE_SAVED, e->node_first_entry);
  deliver_gradients(e);
  lower_accumulate(e);
}

/* The region's inputs are found where autograd saved them. */
static void read_region_inputs(lowering *l, region_id id)
{
  const graph *g = l->e.graph;
  const graph_region *r = &g->regions.items[id];
  unpack_all(l, r->inputs, NODE_INPUTS, l->e.region_entry[id]);
  for (uint32_t i = 0; i < NODE_INPUTS && r->inputs[i] != 0; i++)
    if (!g->tensors.items[r->inputs[i]].parameter)
      l->e.where[tensor_storage(g, r->inputs[i])] =
          l->e.program->entry_places.items[l->e.region_entry[id] + i];
}

/* The last operator of the region that saves anything. */
static uint32_t last_saving_item(const lowering *l, region_id id)
{
  const graph *g = l->e.graph;
  for (uint32_t i = l->region_end[id]; i-- > l->region_begin[id];)
    if (g->items.items[i].kind == ITEM_NODE &&
        g->nodes.items[g->items.items[i].index].saved[0] != 0)
      return i;
  return l->region_begin[id];
}

static void drop_recomputed_outputs(lowering *l, region_id id);

/* The exception that stops a recomputation ends its frames. Autograd has saved the region's inputs, or what
 * hooks took in their place; what hooks then brought back was the frames' alone. */
static void end_frames(lowering *l, region_id id)
{
  const graph_region *r = &l->e.graph->regions.items[id];
  drop_recomputed_outputs(l, id);
  for (uint32_t i = r->closed_over; i < NODE_INPUTS && r->inputs[i] != 0; i++) {
    uint32_t entry = l->e.region_entry[id] + i;
    if (l->e.program->entries.items[entry].group != 0)
      lower_instruction(&l->e, I_DROP_UNPACKED, entry, 0);
  }
}

/* The region runs to its last operator that saves, which does not run if all that it saves are operands. */
static void recompute_until_saved(lowering *l, region_id id)
{
  uint32_t last = last_saving_item(l, id);
  l->packs_only = last;
  lower_forward(l, l->region_begin[id] + 1, last + 1, RECOMPUTING);
  l->packs_only = 0;
  end_frames(l, id);
}

/* The region's items run again, inside another region's recomputation or not. */
static void recompute(lowering *l, region_id id)
{
  region_id outer = l->recomputing;
  read_region_inputs(l, id);
  l->recomputing = id;
  if (l->e.graph->regions.items[id].stops_early)
    recompute_until_saved(l, id);
  else
    lower_forward(l, l->region_begin[id] + 1, l->region_end[id], RECOMPUTING);
  l->recomputing = outer;
}

static void recompute_discarded(lowering *l, region_id id)
{
  if (l->recomputed[id])
    return;
  l->recomputed[id] = true;
  l->e.refilling = id;
  recompute(l, id);
  l->e.refilling = 0;
  const tensor_id *outputs = l->e.graph->regions.items[id].outputs;
  for (int i = 0; i < REGION_OUTPUTS && outputs[i] != 0; i++)
    lower_drop(&l->e, l->e.where[tensor_storage(l->e.graph, outputs[i])]);
}

/* The DISCARD regions before region `end` (they are numbered as they begin) that hook on the node. */
static void recompute_before(lowering *l, node_id id, region_id end)
{
  const graph *g = l->e.graph;
  const graph_node *n = &g->nodes.items[id];
  for (region_id r = 1; r < end; r++)
    for (int i = 0; i < NODE_OUTPUTS && n->outputs[i] != 0; i++)
      if (g->regions.items[r].kind == REGION_DISCARD &&
          lower_gradient_key(g, g->regions.items[r].hook) == lower_gradient_key(g, n->outputs[i]))
        recompute_discarded(l, r);
}

static void lower_backward(lowering *l, uint32_t from, uint32_t to, bool hooks);

/* Frame references that a recomputation made and that nothing inside it ended. */
static void drop_recomputed_outputs(lowering *l, region_id id)
{
  const graph *g = l->e.graph;
  for (uint32_t i = l->region_begin[id]; i < l->region_end[id]; i++) {
    if (g->items.items[i].kind != ITEM_NODE)
      continue;
    const graph_node *n = &g->nodes.items[g->items.items[i].index];
    for (int k = 0; k < NODE_OUTPUTS && n->outputs[k] != 0; k++)
      if (tensor_storage(g, n->outputs[k]) == n->outputs[k])
        lower_drop(&l->e, l->e.where[n->outputs[k]]);
  }
}

/* A hook on the checkpoint's output fires before the checkpoint: what it saved is full again by then. */
static void recompute_hooked_on(lowering *l, region_id id)
{
  const graph *g = l->e.graph;
  for (uint32_t i = l->region_begin[id]; i < l->region_end[id]; i++)
    if (g->items.items[i].kind == ITEM_NODE)
      recompute_before(l, g->items.items[i].index, id);
}

/* The backward of the last layer inside begins when its output's gradient is there. */
static void begin_last_layer(lowering *l, region_id id)
{
  const graph_item *items = l->e.graph->items.items;
  for (uint32_t i = l->region_end[id]; i-- > l->region_begin[id];)
    if (items[i].kind == ITEM_LAYER_END) {
      layer_hook(l, I_LAYER_BEGIN, items[i].index, PASS_BACKWARD);
      l->begun_layer = i;
      return;
    }
}

/* What the recomputation did not come to is let go too. */
static void release_kept(lowering *l, region_id id)
{
  const tensor_id *cached = l->e.graph->regions.items[id].cached;
  uint32_t first = l->cached_entry[cached[0]];
  if (cached[0] == 0)
    return;
  release_all(l, cached, REGION_CACHED, first);
  tell_used(l, cached, REGION_CACHED, first);
}

static void backward_checkpoint(lowering *l, region_id id)
{
  const tensor_id *inputs = l->e.graph->regions.items[id].inputs;
  uint32_t closed_over = l->e.graph->regions.items[id].closed_over;
  if (!l->e.settings->recompute.use_reentrant)
    begin_last_layer(l, id);
  recompute_hooked_on(l, id);
  recompute(l, id);
  lower_backward(l, l->region_begin[id] + 1, l->region_end[id], false);
  drop_recomputed_outputs(l, id);
  release_kept(l, id);
  release_all(l, inputs, NODE_INPUTS, l->e.region_entry[id]);
  tell_used(l, inputs + closed_over, NODE_INPUTS - (int)closed_over,
            l->e.region_entry[id] + closed_over);
}

/* The items [from, to) in reverse; `hooks`: the markers of groups are active. */
static void lower_backward(lowering *l, uint32_t from, uint32_t to, bool hooks)
{
  const graph *g = l->e.graph;
  for (uint32_t i = to; i-- > from;) {
    uint32_t index = g->items.items[i].index;
    switch ((item_kind)g->items.items[i].kind) {
    case ITEM_NODE:
      recompute_before(l, index, g->regions.count);
      backward_node(l, index);
      break;
    case ITEM_GROUP_START:
      if (hooks && l->group_row[index] != 0)
        lower_instruction(&l->e, I_GROUP_BACKWARD_START, l->group_row[index], 0);
      break;
    case ITEM_GROUP_COMMIT:
      if (hooks && l->group_row[index] != 0)
        lower_instruction(&l->e, I_GROUP_BACKWARD_COMMIT, l->group_row[index], 0);
      break;
    case ITEM_REGION_END:
      if (g->regions.items[index].kind == REGION_CHECKPOINT) {
        backward_checkpoint(l, index);
        i = l->region_begin[index];
      } else {
        recompute_discarded(l, index);
      }
      break;
    case ITEM_REGION_BEGIN: /* of a DISCARD region */
      release_all(l, g->regions.items[index].inputs, NODE_INPUTS, l->e.region_entry[index]);
      break;
    case ITEM_LAYER_END:
      if (l->begun_layer != i)
        layer_hook(l, I_LAYER_BEGIN, index, PASS_BACKWARD);
      break;
    case ITEM_LAYER_BEGIN: layer_hook(l, I_LAYER_END, index, PASS_BACKWARD); break;
    case ITEM_PART: parts_backward_end(&l->e, index); break;
    case ITEM_KEEP:
    case ITEM_GROUP_HOOKS_END:
    case ITEM_DISCARD: break;
    }
  }
}

/* ---- a chunk ------------------------------------------------------------------------------------ */

static lowering lowering_new(const settings *s, const graph *g, plan *p, chunk_program *program,
                             arena *a)
{
  lowering l = { .e = { .settings = s, .graph = g, .plan = p, .program = program } };
  uint32_t tensors = g->tensors.count;
  l.e.where = ARENA_ARRAY(a, place_id, tensors);
  l.e.last_use = ARENA_ARRAY(a, uint32_t, tensors);
  l.e.gradient = ARENA_ARRAY(a, place_id, tensors);
  l.e.tensor_row = ARENA_ARRAY(a, uint32_t, tensors);
  l.e.site_row = ARENA_ARRAY(a, uint32_t, g->sites.count);
  l.e.node_entry = ARENA_ARRAY(a, uint32_t, g->nodes.count);
  l.e.region_entry = ARENA_ARRAY(a, uint32_t, g->regions.count);
  l.first_ending = ARENA_ARRAY(a, uint32_t, g->items.count);
  l.next_ending = ARENA_ARRAY(a, uint32_t, tensors);
  l.region_begin = ARENA_ARRAY(a, uint32_t, g->regions.count);
  l.region_end = ARENA_ARRAY(a, uint32_t, g->regions.count);
  l.discarded_by = ARENA_ARRAY(a, region_id, tensors);
  l.cached_entry = ARENA_ARRAY(a, uint32_t, tensors);
  l.group_row = ARENA_ARRAY(a, uint32_t, g->groups.count);
  l.recomputed = ARENA_ARRAY(a, bool, g->regions.count);
  l.held_by = ARENA_ARRAY(a, place_id, g->nodes.count);
  l.e.parameter_row = ARENA_ARRAY(a, uint32_t, tensors);
  l.packs_parameters = l.layer_hooks = uses_hf(s);
  l.gathers_parameters = uses_fsdp(s);
  l.node_hooks = offload_policy_find(s->offload.system)->node_backward_end != NULL;
  return l;
}

static void start_tables(chunk_program *program)
{
  *ARRAY_PUSH(&program->places) = (program_place){ 0 };
  *ARRAY_PUSH(&program->entries) = (saved_entry){ 0 };
  *ARRAY_PUSH(&program->entry_places) = 0;
  *ARRAY_PUSH(&program->groups) = (saved_group){ 0 };
}

/* All of them, also those that no operator reads. */
static void list_parameters(emitter *e)
{
  for (tensor_id t = 1; t < e->graph->tensors.count; t++)
    if (e->graph->tensors.items[t].parameter)
      lower_parameter(e, t);
}

static void lower_whole_forward(lowering *l)
{
  emitter *e = &l->e;
  e->out = &e->program->forward;
  tensor_id input = e->graph->input;
  if (input != 0) {
    e->program->input =
        lower_place(e, tensor_bytes(e->graph, input), lower_tensor_row(e, input), CLASS_SAVED);
    e->where[tensor_storage(e->graph, input)] = e->program->input;
  }
  lower_forward(l, 0, e->graph->items.count, SAVING);
  parts_forward(e, 0);
  e->program->output = e->where[tensor_storage(e->graph, e->graph->output)];
  if (e->graph->attention_mask != 0 && frames_hold_mask(e->settings))
    e->program->attention_mask = e->where[e->graph->attention_mask];
}

static void lower_whole_backward(lowering *l, bool last_stage)
{
  emitter *e = &l->e;
  const graph *g = e->graph;
  chunk_program *p = e->program;
  e->out = &p->backward;
  p->output_gradient = lower_place(e, tensor_bytes(g, g->output), lower_tensor_row(e, g->output),
                                   CLASS_TRANSIENT);
  if (last_stage)
    lower_instruction(e, I_ALLOC, p->output_gradient, 0);
  e->gradient[lower_gradient_key(g, g->output)] = p->output_gradient;
  parts_backward_start(e);
  lower_backward(l, 0, g->items.count, true);
  if (last_stage)
    lower_drop(e, p->output);
  if (g->input != 0) {
    p->input_gradient = e->gradient[lower_gradient_key(g, g->input)];
    lower_drop(e, p->input);
  }
  parts_finish(e);
}

chunk_program *lower_chunk(const settings *s, const graph *g, plan *p, arena *a)
{
  chunk_program *program = ARENA_NEW(a, chunk_program);
  lowering l = lowering_new(s, g, p, program, a);
  start_tables(program);
  if (uses_hf(s))
    list_parameters(&l.e);
  parts_start(&l.e, a);
  find_last_uses(&l);
  sort_endings(&l);
  lower_whole_forward(&l);
  lower_whole_backward(&l, g->ends_in_loss);
  parts_release(&l.e);
  array_release(l.e.dropped);
  ARRAY_FREE(&l.e.temporaries);
  ARRAY_FREE(&l.e.gradients);
  ARRAY_FREE(&l.e.parameter_gradients);
  return program;
}

void chunk_program_release(chunk_program *c)
{
  ARRAY_FREE(&c->forward);
  ARRAY_FREE(&c->backward);
  ARRAY_FREE(&c->forward_parts);
  ARRAY_FREE(&c->backward_parts);
  ARRAY_FREE(&c->places);
  ARRAY_FREE(&c->steps);
  ARRAY_FREE(&c->operands);
  ARRAY_FREE(&c->parameters);
  ARRAY_FREE(&c->refills);
  ARRAY_FREE(&c->refill_places);
  ARRAY_FREE(&c->entries);
  ARRAY_FREE(&c->entry_places);
  ARRAY_FREE(&c->groups);
}
