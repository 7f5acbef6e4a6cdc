#include "sim/residents/rank_parameters.h"

#include <assert.h>
#include <string.h>

rank_parameters rank_parameters_of(const settings *s, uint32_t pp_rank, arena *a)
{
  rank_parameters r = { .list = parameters_of_rank(s, pp_rank, a),
                        .buffered = parameters_are_buffered(s) };
  r.buffers = gradient_buffers_of_rank(s, pp_rank, &r.list, a);
  r.places = ARENA_ARRAY(a, parameter_place, r.list.count);
  for (uint32_t b = 0; b < r.buffers.count; b++)
    for (uint32_t i = 0; i < r.buffers.items[b].slot_count; i++) {
      const buffer_slot *slot = &r.buffers.items[b].slots[i];
      assert(slot->parameter < r.list.count);
      r.places[slot->parameter] = (parameter_place){ b, slot->start, 0 };
    }
  return r;
}

/* ---- which one a parameter of the graph is --------------------------------------------------- */

static bool is_named(const char *name, const char *module, const char *last)
{
  size_t length = strlen(module);
  return strncmp(name, module, length) == 0 && name[length] == '.' &&
         strcmp(name + length + 1, last) == 0;
}

/* Parameters outside the layers are those of the embedding and the output layer, which a
 * prediction layer runs again. */
static bool is_at(const parameter *p, int32_t layer)
{
  return p->layer == layer || p->layer < 0;
}

typedef struct search {
  const rank_parameters *in;
  uint32_t chunk;
  uint32_t after; /* the last one found: graph and list have almost the same order, and exactly the
                     same for ungrouped local experts, whose modules share a name */
} search;

static uint32_t find_named(const search *s, int32_t layer, const char *module, const char *last)
{
  for (uint32_t k = 1; k <= s->in->list.count; k++) {
    uint32_t i = (s->after + k) % s->in->list.count;
    const parameter *p = &s->in->list.items[i];
    if (p->chunk == s->chunk && is_at(p, layer) && is_named(p->name, module, last)) return i;
  }
  return NO_ROW;
}

/* Parameters with different names: an output layer without its own weight has the embedding's;
 * the list has the norms of latent attention as modules, while an up projection may contain them.
 * An entry without a name covers the whole module. */
static const struct {
  const char *module, *name, *listed, *listed_name;
} aliases[] = {
  { "output_layer", NULL, "embedding.word_embeddings", NULL },
  { "mlp.experts.linear_fc1", NULL, "mlp.experts.local_experts.linear_fc1", NULL },
  { "mlp.experts.linear_fc2", NULL, "mlp.experts.local_experts.linear_fc2", NULL },
  { "self_attention.linear_q_up_proj", "layer_norm_weight", "self_attention.q_layernorm",
    "weight" },
  { "self_attention.linear_q_up_proj", "layer_norm_bias", "self_attention.q_layernorm", "bias" },
  { "self_attention.linear_kv_up_proj", "layer_norm_weight", "self_attention.kv_layernorm",
    "weight" },
  { "self_attention.linear_kv_up_proj", "layer_norm_bias", "self_attention.kv_layernorm", "bias" },
};

static uint32_t find(const search *s, const plan_site *site, const char *name)
{
  uint32_t found = find_named(s, site->layer, site->module, name);
  for (size_t i = 0; i < sizeof aliases / sizeof *aliases && found == NO_ROW; i++) {
    if (strcmp(site->module, aliases[i].module) != 0) continue;
    if (aliases[i].name == NULL)
      found = find_named(s, site->layer, aliases[i].listed, name);
    else if (strcmp(name, aliases[i].name) == 0)
      found = find_named(s, site->layer, aliases[i].listed, aliases[i].listed_name);
  }
  return found;
}

/* ---- layouts --------------------------------------------------------------------------------- */

static plan_view view_of(dtype type, int64_t offset, const graph_tensor *t)
{
  plan_view v = { .dtype = (uint8_t)type, .rank = t->rank, .offset = offset };
  int64_t stride = 1;
  for (int i = t->rank; i-- > 0; stride *= t->shape[i]) {
    v.shape[i] = t->shape[i];
    v.strides[i] = stride;
  }
  return v;
}

/* `count` equal contiguous parts; each begins `step` after the previous one. */
static plan_view view_of_parts(dtype type, int64_t offset, uint32_t count, int64_t elements,
                               int64_t step)
{
  return (plan_view){ .dtype = (uint8_t)type,
                      .rank = 2,
                      .offset = offset,
                      .shape = { count, elements },
                      .strides = { step, 1 } };
}

static bool are_evenly_spaced(const rank_parameters *r, uint32_t first, uint32_t count)
{
  int64_t step = count > 1 ? r->places[first + 1].start - r->places[first].start : 0;
  for (uint32_t i = 1; i < count; i++)
    if (r->places[first + i].buffer != r->places[first].buffer ||
        r->places[first + i].start - r->places[first + i - 1].start != step)
      return false;
  return true;
}

/* How many parameters of the list one of the graph is: it has the weights of grouped experts as
 * one. 0: unknown. */
static uint32_t rows_of(const rank_parameters *r, uint32_t first, const graph_tensor *t)
{
  int64_t elements = 1, own = parameter_elements(&r->list.items[first]);
  assert(own > 0);
  for (int i = 0; i < t->rank; i++)
    elements *= t->shape[i];
  int64_t count = elements / own;
  if (count * own != elements || first + count > r->list.count) return 0;
  for (int64_t i = 1; i < count; i++)
    if (strcmp(r->list.items[first + i].name, r->list.items[first].name) != 0) return 0;
  return (uint32_t)count;
}

/* Of `count` rows, whose weights have no known place. */
static graph_place place_in_group(const rank_parameters *r, uint32_t first, uint32_t count,
                                  const graph_tensor *t)
{
  const parameter_place *at = &r->places[first];
  dtype type = (dtype)r->buffers.items[at->buffer].gradient_type;
  int64_t own = parameter_elements(&r->list.items[first]);
  graph_place made = { .row = first, .count = 1, .weight = { .whole = 1 } };
  if (at->shared > 0)
    made.gradient = view_of_parts(type, at->start, 1, at->shared, at->shared);
  else if (count == 1)
    made.gradient = view_of(type, at->start, t);
  else
    made.gradient = view_of_parts(type, at->start, count, own, own);
  return made;
}

static graph_place place_of(const rank_parameters *r, uint32_t first, uint32_t count,
                            const graph_tensor *t)
{
  if (count == 0 || !are_evenly_spaced(r, first, count)) return (graph_place){ .row = NO_ROW };
  if (r->in_groups) return place_in_group(r, first, count, t);
  const parameter *p = &r->list.items[first];
  const parameter_place *at = &r->places[first];
  dtype gradient = (dtype)r->buffers.items[at->buffer].gradient_type;
  graph_place made = { .row = first, .count = count, .weight = { .whole = 1 } };
  if (count == 1) {
    made.gradient = view_of(gradient, at->start, t);
    if (r->buffered) made.weight = view_of((dtype)p->type, at->start, t);
    return made;
  }
  int64_t elements = parameter_elements(p), step = at[1].start - at[0].start;
  made.gradient = view_of_parts(gradient, at->start, count, elements, step);
  if (r->buffered) made.weight = view_of_parts((dtype)p->type, at->start, count, elements, step);
  return made;
}

void rank_parameters_place(const rank_parameters *r, const settings *s, uint32_t chunk, graph *g)
{
  search from = { r, chunk, r->list.count - 1 };
  assert(g->places == NULL && r->list.count > 0);
  bool merged = s->model.moe_grouped_gemm && !experts_are_grouped_by_te(s);
  g->places = ARENA_ARRAY(g->memory, graph_place, g->tensors.count);
  for (tensor_id t = 1; t < g->tensors.count; t++) {
    const graph_tensor *of = &g->tensors.items[t];
    if (!of->parameter) continue;
    uint32_t found = find(&from, &g->sites.items[of->site], of->name);
    bool told = found != NO_ROW && !(merged && r->list.items[found].is_expert);
    uint32_t count = told ? rows_of(r, found, of) : 0;
    g->places[t] = told ? place_of(r, found, count, of) : (graph_place){ .row = NO_ROW };
    if (g->places[t].row != NO_ROW) from.after = found + count - 1;
  }
}
