/*
 * Ulysses sequence parallelism around flash attention: outside, a rank has a part of the positions
 * and all heads; inside, all positions and a part of the heads
 * (verl/models/transformers/monkey_patch.py, _ulysses_flash_attention_forward). Gathering the
 * position ids and the log-probabilities, one number for each token, is left out.
 */
#include "sim/model/hf/ulysses.h"

#include <assert.h>

#include "sim/model/hf/eager.h"
#include "sim/operators/hf.h"

/* Key heads are repeated where there are fewer of them than ranks. */
static tensor_id repeated(graph *g, tensor_id x, int64_t ranks)
{
  graph_tensor t = g->tensors.items[x];
  if (t.shape[1] >= ranks) return x;
  graph_node *n = graph_add_of(g, &operator_hf_repeat, x);
  t.shape[1] = ranks;
  return hf_result(g, n, "repeated", (dtype)t.dtype, t.shape);
}

static tensor_id exchanged(graph *g, tensor_id x, int64_t heads, int64_t positions)
{
  graph_tensor t = g->tensors.items[x];
  const int64_t shape[4] = { t.shape[0], heads, positions, t.shape[3] };
  assert(t.shape[1] * t.shape[2] == heads * positions);
  graph_node *n = graph_add_of(g, &operator_ulysses_exchange, x);
  tensor_id y = hf_result(g, n, t.name, (dtype)t.dtype, shape);
  const int64_t row = heads * t.shape[3];
  graph_strides(g, y, 0, 4, shape, (int64_t[]){ positions * row, t.shape[3], row, 1 });
  return y;
}

void hf_ulysses_enter(graph *g, const settings *s, tensor_id *query, tensor_id *key,
                      tensor_id *value)
{
  int64_t ranks = s->parallel.context_parallel_size;
  tensor_id *of[] = { query, key, value };
  if (ranks == 1) return;
  *key = repeated(g, *key, ranks);
  *value = repeated(g, *value, ranks);
  for (int i = 0; i < 3; i++) {
    const int64_t *shape = g->tensors.items[*of[i]].shape;
    *of[i] = exchanged(g, *of[i], shape[1] / ranks, shape[2] * ranks);
  }
}

tensor_id hf_ulysses_leave(graph *g, const settings *s, tensor_id attention)
{
  int64_t ranks = s->parallel.context_parallel_size;
  const int64_t *shape = g->tensors.items[attention].shape;
  return ranks == 1 ? attention : exchanged(g, attention, shape[1] * ranks, shape[2] / ranks);
}
