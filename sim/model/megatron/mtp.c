/*
 * Multi-token prediction: further layers after the decoder, each of which predicts one more
 * token.
 *
 * Megatron-LM (d98e8a64) core/transformer/multi_token_prediction.py: MultiTokenPredictionBlock,
 * MultiTokenPredictionLayer, process_mtp_loss; models/common/fine_grained_callables.py for its
 * parts.
 */
#include "sim/graph/node.h"
#include "sim/graph/parts.h"
#include "sim/model/megatron/moe.h"
#include "sim/operators/moe.h"
#include "sim/operators/operators.h"

/* roll_tensor: a shifted copy of token numbers, positions, labels or mask, each [micro-batch,
 * positions]. */
static tensor_id rolled(graph *g, const char *name, tensor_id t)
{
  if (t == 0) return 0;
  graph_tensor of = g->tensors.items[t];
  tensor_id y = graph_tensor_like(g, name, type_of(g, t), t);
  g->tensors.items[y].requires_grad = false;
  graph_node *n = graph_add(g, &operator_roll);
  n->dims[0] = of.shape[0];
  n->dims[1] = of.shape[1];
  node_input(n, t);
  node_output(n, y);
  return y;
}

static micro_batch rolled_inputs(graph *g, micro_batch data)
{
  graph_site(g, "mtp");
  data.tokens = rolled(g, "rolled_tokens", data.tokens);
  data.positions = rolled(g, "rolled_positions", data.positions);
  return data;
}

static micro_batch rolled_targets(graph *g, micro_batch data)
{
  graph_site(g, "mtp");
  data.labels = rolled(g, "rolled_labels", data.labels);
  data.loss_mask = rolled(g, "rolled_loss_mask", data.loss_mask);
  return data;
}

/* torch.cat of `count` tensors along the sequence; their gradients are views of the result's. */
static tensor_id joined(graph *g, const char *name, const tensor_id *parts, uint32_t count,
                        graph_tensor shape)
{
  tensor_id y = graph_tensor_new(g, name, (dtype)shape.dtype, shape.shape[0], shape.shape[1],
                                 shape.shape[2], 0);
  tensor_id first = g->tensors.count;
  for (uint32_t i = 0; i < count; i++) {
    graph_tensor of = g->tensors.items[parts[i]];
    graph_view(g, "part", parts[i], true, of.shape[0], of.shape[1], of.shape[2], 0);
  }
  graph_node *n = graph_add(g, &operator_join_slices);
  n->dims[SLICES_FIRST] = first;
  n->dims[SLICES_COUNT] = count;
  for (uint32_t i = 0; i < count && i < NODE_INPUTS; i++)
    node_input(n, first + i);
  node_output(n, y);
  for (uint32_t i = NODE_INPUTS; i < count; i++)
    graph_keep(g, parts[i]);
  return y;
}

/* torch.cat of two tensors along the last dimension. */
static tensor_id side_by_side(graph *g, const char *name, const tensor_id parts[2])
{
  graph_tensor of = g->tensors.items[parts[0]];
  tensor_id views[2];
  for (int i = 0; i < 2; i++)
    views[i] = graph_view(g, "part", parts[i], true, of.shape[0], of.shape[1], of.shape[2], 0);
  tensor_id y =
      graph_tensor_new(g, name, (dtype)of.dtype, of.shape[0], of.shape[1], 2 * of.shape[2], 0);
  graph_node *n = graph_add(g, &operator_join_columns);
  node_input(n, views[0]);
  node_input(n, views[1]);
  node_output(n, y);
  return y;
}

/* torch.chunk along the sequence: `count` views with consecutive ids, beginning with the returned
 * one. */
static tensor_id chunks(graph *g, tensor_id x, uint32_t count)
{
  graph_tensor of = g->tensors.items[x];
  tensor_id first = g->tensors.count;
  for (uint32_t i = 0; i < count; i++) {
    tensor_id part = graph_tensor_new(g, "chunk", (dtype)of.dtype, of.shape[0] / count, of.shape[1],
                                      of.shape[2], 0);
    g->tensors.items[part].base = of.base;
    g->tensors.items[part].offset_elements = of.offset_elements + i * tensor_elements(g, part);
  }
  graph_node *n = graph_add(g, &operator_slices);
  n->dims[SLICES_FIRST] = first;
  n->dims[SLICES_COUNT] = count;
  node_input(n, x);
  for (uint32_t i = 0; i < count && i < NODE_OUTPUTS; i++)
    node_output(n, first + i);
  return first;
}

/* gather_from_tensor_model_parallel_region: backward keeps the rank's own part. */
static tensor_id gathered_width(graph *g, const settings *s, tensor_id x)
{
  return size_tp(s) == 1 ? x : gathered_over_tp(g, s, x, COLLECTIVE_KINDS);
}

static tensor_id own_sequence(graph *g, const settings *s, tensor_id x)
{
  if (!s->parallel.sequence_parallel || size_tp(s) == 1) return x;
  return sequence_part(g, s, "sequence_part", x, false);
}

/* _concat_embeddings: both norms, their concatenation, the projection back to the hidden size. */
static tensor_id projection(graph *g, const settings *s, tensor_id hidden, tensor_id embedded)
{
  tensor_id parts[2] = { norm(g, s, "mtp.enorm", embedded), norm(g, s, "mtp.hnorm", hidden) };
  graph_site(g, "mtp.eh_proj");
  tensor_id both = side_by_side(g, "concatenated", parts);
  linear_spec eh_proj = { .module = "mtp.eh_proj",
                          .split = LINEAR_COLUMN,
                          .inputs = 2 * s->model.hidden_size,
                          .outputs = s->model.hidden_size / size_tp(s),
                          .sequence_parallel = s->parallel.sequence_parallel };
  tensor_id x = linear(g, s, &eh_proj, both).output;
  graph_keep(g, parts[0]);
  return own_sequence(g, s, gathered_width(g, s, x));
}

static tensor_id layer_of_depth(graph *g, const settings *s, uint32_t depth, tensor_id hidden,
                                tensor_id embedded)
{
  int32_t number = (int32_t)s->model.num_layers + (int32_t)depth;
  g->layer = number;
  tensor_id x = projection(g, s, hidden, embedded);
  bool moe = s->derived.layer_is_moe[s->model.num_layers - 1];
  x = transformer_layer(g, s, (layer_place){ number, moe }, x);
  part_output(g, x);
  part_begin(g, s, PART_MTP_POST);
  g->layer = number;
  x = norm(g, s, "mtp.final_layernorm", x);
  g->layer = -1;
  return x;
}

static bool recomputes_layer(const settings *s)
{
  return s->recompute.recompute_granularity == GRANULARITY_FULL &&
         s->recompute.recompute_method == METHOD_UNIFORM;
}

/* MultiTokenPredictionLayer.forward; only the uniform method recomputes MTP layers. */
static tensor_id predict(graph *g, const settings *s, const micro_batch *data, uint32_t depth,
                         tensor_id hidden)
{
  tensor_id embedded = embedding(g, s, data);
  if (!recomputes_layer(s)) return layer_of_depth(g, s, depth, hidden, embedded);
  region_id region = graph_region_begin(g, REGION_CHECKPOINT, (tensor_id[]){ hidden, embedded }, 2);
  tensor_id x = layer_of_depth(g, s, depth, hidden, embedded);
  graph_region_end(g, region, x);
  return x;
}

/* process_mtp_loss: attaches the loss of one depth to the hidden states. The last positions of a
 * sequence have no target that far ahead. */
static tensor_id attach(graph *g, tensor_id hidden, tensor_id losses, uint32_t depth)
{
  graph_site(g, "mtp");
  graph_tensor of = g->tensors.items[hidden];
  tensor_id y = graph_tensor_like(g, "hidden_states", type_of(g, hidden), hidden);
  g->tensors.items[y].base = of.base;
  g->tensors.items[y].offset_elements = of.offset_elements;
  graph_node *n = graph_add(g, &operator_attach_mtp_loss);
  n->dims[0] = g->tensors.items[losses].shape[0];
  n->dims[1] = g->tensors.items[losses].shape[1];
  n->dims[2] = depth + 1;
  node_input(n, hidden);
  node_input(n, losses);
  node_output(n, y);
  node_save(n, losses);
  return y;
}

tensor_id mtp_block(graph *g, const settings *s, const micro_batch *data, tensor_id hidden,
                    uint32_t depths)
{
  tensor_id *states = ARENA_ARRAY(g->memory, tensor_id, depths + 1);
  states[0] = hidden;
  micro_batch inputs = *data;
  for (uint32_t d = 0; d < depths; d++) {
    part_output(g, states[d]);
    part_begin(g, s, PART_PRE_DISPATCH);
    inputs = rolled_inputs(g, inputs);
    states[d + 1] = predict(g, s, &inputs, d, states[d]);
  }
  graph_site(g, "mtp");
  graph_tensor shape = g->tensors.items[hidden];
  shape.shape[0] *= depths + 1;
  return joined(g, "hidden_states_of_depths", states, depths + 1, shape);
}

tensor_id mtp_losses(graph *g, const settings *s, const micro_batch *data, tensor_id all)
{
  uint32_t depths = (uint32_t)s->model.mtp_num_layers;
  graph_site(g, "mtp");
  tensor_id first = chunks(g, all, depths + 1);
  tensor_id main_states = first;
  micro_batch targets = *data;
  for (uint32_t d = 0; d < depths; d++) {
    targets = rolled_targets(g, targets);
    main_states = attach(g, main_states, loss_of_tokens(g, s, &targets, first + 1 + d), d);
  }
  return main_states;
}
