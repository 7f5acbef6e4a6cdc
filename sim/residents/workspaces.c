/* Library workspaces, global buffers, and the tensors that a step leaves in memory. */
#include "sim/residents/workspaces.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/graph/attention_backend.h"
#include "sim/graph/fp8.h"
#include "sim/graph/parts.h"
#include "sim/graph/sizes.h"
#include "sim/graph/user_buffers.h"

enum {
  TE_ROUTER_GEMM = SOFTWARE_VERSION(2, 0),         /* general_gemm, which the router calls */
  TE_SHARED_PLACEHOLDERS = SOFTWARE_VERSION(2, 3), /* ba5dc5dd */
  TE_GROUPED_SHARED_PLACEHOLDERS = SOFTWARE_VERSION(2, 10), /* d2945c6a */
  GROUPED_GEMM_STREAMS = 4,
  OVERLAP_STREAMS = 3, /* cpp_extensions/gemm.py, get_cublas_workspace */
  SMALL_TENSORS = 9,
  YARN_POSITIONS = 4096 /* original_max_position_embeddings (transformer_config.py, 3318) */
};

/* ":4096:2:16:8": pairs of KiB and count. */
static int64_t configured_bytes(const char *config)
{
  int64_t sum = 0;
  while (*config == ':') {
    char *end;
    int64_t kib = strtol(config + 1, &end, 10);
    if (*end != ':') break;
    int64_t count = strtol(end + 1, &end, 10);
    if (kib < 0 || kib > MIB || count < 0 || count > MIB) break;
    sum += kib * KIB * count;
    config = end;
  }
  return sum;
}

/* PyTorch's own default (aten/src/ATen/cuda/CublasHandlePool.cpp, parseChosenWorkspaceSize): 32 MiB on
 * Hopper and, since PyTorch #175344 (opened on 19 February 2026), on compute capabilities 10 and 12. The
 * GB200 cases of tests/fidelity have it with images of April and June 2026, and not with those of
 * November 2025 and February 2026; that the image of March lacks it is assumed. */
int64_t cublas_workspace_bytes(const settings *s, int compute_capability)
{
  int64_t configured = configured_bytes(s->software.cublas_workspace_config);
  if (configured > 0) return configured;
  int major = compute_capability / 10;
  bool large = major == 9 || ((major == 10 || major == 12) && image_is_from(s, 2026, 4));
  return configured_bytes(large ? ":4096:8" : ":4096:2:16:8");
}

/* A thread's workspace on the stream of its products. */
static void write_cublas(static_writer *w, const char *name)
{
  static_take(w, name, CLASS_WORKSPACE, DTYPE_BYTE,
              cublas_workspace_bytes(w->s, w->compute_capability), NO_PARAMETER);
}

static void write_te_workspaces(static_writer *w)
{
  const settings *s = w->s;
  int64_t bytes = w->compute_capability >= 90 ? 32 * MIB : 4 * MIB;
  bool router =
      s->model.num_experts > 0 && s->derived.software.transformer_engine >= TE_ROUTER_GEMM;
  if (!uses_te(s) && !router) return;
  static_take(w, "te.gemm_workspace", CLASS_WORKSPACE, DTYPE_BYTE, bytes, NO_PARAMETER);
  if (s->parallel.tp_comm_overlap)
    static_take(w, "te.overlap_workspace", CLASS_WORKSPACE, DTYPE_BYTE, OVERLAP_STREAMS * bytes,
                NO_PARAMETER);
  if (s->model.num_experts == 0 || !experts_are_grouped_by_te(s)) return;
  for (int i = 0; i < GROUPED_GEMM_STREAMS; i++)
    static_take(w, "te.grouped_gemm_workspace", CLASS_WORKSPACE, DTYPE_BYTE, bytes, NO_PARAMETER);
}

/* Tokens x width of a hidden state between stages. */
static int64_t hidden_elements(const settings *s)
{
  return size_residual_sequence(s) * s->training.micro_batch_size * s->model.hidden_size;
}

/* Megatron-LM core/transformer/moe/token_dispatcher.py: the all-gather dispatcher uses the global
 * buffer. */
static bool gathers_all_tokens(const settings *s)
{
  const struct parallel_settings *p = &s->parallel;
  return s->model.num_experts > 0 && s->model.moe_token_dispatcher_type == DISPATCHER_ALLGATHER &&
         p->expert_model_parallel_size * p->expert_tensor_parallel_size > 1;
}

static bool has_output_layer(const static_writer *w)
{
  int64_t pp = w->s->parallel.pipeline_model_parallel_size;
  for (int64_t chunk = 0; chunk < w->s->derived.virtual_stages; chunk++)
    if (w->s->derived.stages[chunk * pp + w->pp_rank].loss) return true;
  return false;
}

/* Megatron's own column-parallel linears gather their input: the output layer is one in all
 * implementations. */
static bool gathers_sequence(const static_writer *w)
{
  return w->s->parallel.sequence_parallel && w->s->parallel.tensor_model_parallel_size > 1 &&
         (!uses_te(w->s) || has_output_layer(w));
}

/* The projection before multi-token prediction takes hidden states and embeddings together. */
static int64_t gathered_widths(const static_writer *w)
{
  bool predicts_more = w->s->model.mtp_num_layers > 0 && has_output_layer(w);
  return predicts_more && !uses_te(w->s) ? 2 : 1;
}

/* The scores of one layer, the gathered input with sequence parallel, and the gathered tokens of
 * MoE layers share one named buffer. */
static void write_global_buffer(static_writer *w)
{
  const settings *s = w->s;
  const struct training_settings *t = &s->training;
  bool own_attention = !uses_te(s) && !t->use_flash_attn;
  int64_t tp = s->parallel.tensor_model_parallel_size;
  int64_t positions = size_sequence(s);
  int64_t scores = 0, gathered = 0;
  if (own_attention)
    scores = t->micro_batch_size * (s->model.num_attention_heads / tp) * positions * t->seq_length;
  if (gathers_sequence(w)) gathered = gathered_widths(w) * hidden_elements(s) * tp;
  if (gathers_all_tokens(s))
    gathered = max_i64(gathered, hidden_elements(s) * s->parallel.expert_model_parallel_size *
                                     s->parallel.expert_tensor_parallel_size);
  dtype type = model_dtype(s);
  static_take(w, "global_memory_buffer", CLASS_WORKSPACE, type,
              max_i64(scores, gathered) * dtype_bytes(type), NO_PARAMETER);
}

/* One quantised copy of a weight, with its scales. `outer` runs across the product. */
static void write_fp8_copy(static_writer *w, const char *name, uint32_t index, int64_t outer,
                           int64_t inner)
{
  static_take(w, name, CLASS_WEIGHT, DTYPE_FP8, outer * inner, index);
  static_take(w, "fp8_weight.scale", CLASS_WEIGHT, DTYPE_BYTE,
              fp8_weight_scale_bytes(w->s, outer, inner), index);
}

static void write_fp8_weights(static_writer *w)
{
  const settings *s = w->s;
  bool both_layouts = !fp8_is_per_tensor(s) || w->compute_capability < 100;
  for (uint32_t i = 0; uses_te(s) && i < w->parameters.count; i++) {
    const parameter *p = &w->parameters.items[i];
    if (!p->is_linear || !layer_is_fp8(s, p->layer)) continue;
    int64_t rows = p->shape[0], columns = p->shape[1];
    if (p->type != DTYPE_FP8) write_fp8_copy(w, "fp8_weight.by_rows", i, rows, columns);
    if (both_layouts) write_fp8_copy(w, "fp8_weight.by_columns", i, columns, rows);
  }
}

/*
 * Tensors of a few bytes that outlive a step, a block each. Their number is counted, not derived: what
 * is left of the static memory of NVIDIA's recorded runs is 9 blocks of 512 bytes on H100 and GB200, 7 on
 * A100 (stages with the loss); allocator snapshots of Megatron-LM on H200, of runs without APEX, have 9 of
 * them on a whole model, and 7 and 10 on the two stages of a pipeline with two chunks each. Known among
 * those are pretrain's start time, the loss scale of one, the optimizer's flag, each chunk's rotary
 * frequencies, and of the last stage the sum and the last value of the loss. The error is at most 1 KiB a
 * rank.
 */
static void write_user_buffers_of(static_writer *w, bool fp8)
{
  for (user_linear of = USER_QKV; of < USER_LINEARS; of++)
    for (user_product product = USER_FORWARD; product < USER_PRODUCTS; product++)
      static_take(w, user_buffer_name(fp8, of, product), CLASS_DRIVER, DTYPE_BYTE,
                  user_buffer_bytes(w->s, fp8, of, product), NO_PARAMETER);
}

void write_user_buffers(static_writer *w)
{
  write_user_buffers_of(w, true);
  write_user_buffers_of(w, false);
}

void write_build_tensors(static_writer *w)
{
  for (int i = 0; i < SMALL_TENSORS; i++)
    static_take(w, "small_tensor", CLASS_WORKSPACE, DTYPE_FP32, 4, NO_PARAMETER);
}

static int64_t layers_of_rank(const static_writer *w)
{
  int64_t count = 0;
  int32_t last = -1;
  for (uint32_t i = 0; i < w->parameters.count; i++) {
    int32_t layer = w->parameters.items[i].layer;
    count += layer >= 0 && layer != last;
    last = layer;
  }
  return count;
}

/* A module's cache of angles. */
static void write_angles(static_writer *w, int64_t positions, int64_t width)
{
  static_take(w, "rotary.angles", CLASS_WORKSPACE, DTYPE_FP32, positions * width * 4, NO_PARAMETER);
}

/* YaRN's module also keeps cosines and sines: for its original length when it is built, and again
 * for the sequence when the fused kernel needs another type. */
static void write_yarn(static_writer *w, int64_t positions, int64_t width)
{
  const settings *s = w->s;
  dtype type = model_dtype(s);
  int64_t kept =
      s->model.apply_rope_fusion ? positions : YARN_POSITIONS / s->parallel.context_parallel_size;
  write_angles(w, positions, width);
  static_take(w, "rotary.cosines", CLASS_WORKSPACE, type, kept * width * dtype_bytes(type),
              NO_PARAMETER);
  static_take(w, "rotary.sines", CLASS_WORKSPACE, type, kept * width * dtype_bytes(type),
              NO_PARAMETER);
}

/* One module per model chunk; with latent attention one per layer. */
static void write_rotary(static_writer *w)
{
  const settings *s = w->s;
  const struct model_settings *m = &s->model;
  int64_t positions = size_sequence(s);
  int64_t layers = m->multi_latent_attention ? layers_of_rank(w) : 0;
  for (int64_t i = 0; i < layers; i++)
    write_yarn(w, positions, m->qk_pos_emb_head_dim);
  if (m->multi_latent_attention || m->position_embedding_type != POSITIONS_ROPE) return;
  int64_t width = (int64_t)((double)m->kv_channels * m->rotary_percent);
  for (int64_t i = 0; i < s->derived.virtual_stages; i++)
    write_angles(w, positions, width);
}

/* Whether the router's gate is PyTorch's product: RouterGatingLinearFunction takes TE's where it
 * can. */
static bool routes_by_torch(const settings *s)
{
  const struct model_settings *m = &s->model;
  bool te = s->derived.software.transformer_engine >= TE_ROUTER_GEMM &&
            m->moe_router_dtype != ROUTER_DTYPE_FP64;
  return m->num_experts > 0 && (!te || m->moe_shared_expert_gate);
}

/* Whether the rank's passes multiply matrices by PyTorch. Those of TE's layers alone do not. */
static bool multiplies_by_torch(const static_writer *w)
{
  return !uses_te(w->s) || has_output_layer(w) || attends_in_parts(w->s) || routes_by_torch(w->s);
}

void write_forward_workspaces(static_writer *w)
{
  /* Muon's step multiplies on the thread of forward. */
  if (multiplies_by_torch(w) || optimizer_is_muon(w->s->training.optimizer))
    write_cublas(w, "cublas.forward_workspace");
  write_te_workspaces(w);
  write_fp8_weights(w);
  write_global_buffer(w);
  write_rotary(w);
}

/* The router's and the shared experts' gate are plain matrix products. */
static bool shares_placeholder(const settings *s, const parameter *p)
{
  int engine = s->derived.software.transformer_engine;
  bool output = p->role == PARAMETER_OUTPUT;

  if (engine < TE_SHARED_PLACEHOLDERS || !(output || (p->role == PARAMETER_WEIGHT && p->is_linear)))
    return false;
  if (p->is_expert && s->model.moe_grouped_gemm)
    return experts_are_grouped_by_te(s) && engine >= TE_GROUPED_SHARED_PLACEHOLDERS;
  return s->derived.shares_placeholders || (uses_te(s) && !output);
}

static bool same_shape(const parameter *p, const parameter *q)
{
  return p->shape[0] == q->shape[0] && p->shape[1] == q->shape[1] && p->type == q->type;
}

/* O(parameters^2 / 2) in the worst case; layers repeat, so the search ends early. */
static bool is_first_of_shape(const settings *s, const parameter_list *list, uint32_t index)
{
  for (uint32_t i = 0; i < index; i++)
    if (shares_placeholder(s, &list->items[i]) && same_shape(&list->items[i], &list->items[index]))
      return false;
  return true;
}

static void write_gradient_placeholders(static_writer *w)
{
  const settings *s = w->s;
  if (!s->training.gradient_accumulation_fusion) return;
  for (uint32_t i = w->parameters.count; i-- > 0;) {
    const parameter *p = &w->parameters.items[i];
    if (shares_placeholder(s, p) && is_first_of_shape(s, &w->parameters, i))
      static_take(w, "gradient_placeholder", CLASS_WORKSPACE, (dtype)p->type,
                  parameter_elements(p) * dtype_bytes((dtype)p->type), i);
  }
}

void write_backward_workspaces(static_writer *w)
{
  if (multiplies_by_torch(w)) write_cublas(w, "cublas.backward_workspace");
  write_gradient_placeholders(w);
}

static void leave(static_writer *w, const char *name, dtype type, int64_t elements)
{
  static_take(w, name, CLASS_RETAINED, type, elements * dtype_bytes(type), NO_PARAMETER);
}

/* Once the group attn_norm has left, the layer empties its input (core/transformer/transformer_layer.py,
 * _forward_attention: forced_released_tensors). A norm that is a part of the linear after it has no such
 * group. */
static bool offloading_empties_input(const settings *s)
{
  bool norm_is_apart = !uses_te(s) || s->model.multi_latent_attention;
  return norm_is_apart && marks_group(s, OFFLOAD_ATTN_NORM) &&
         s->offload.activation_offload_fraction > 0 &&
         size_residual_sequence(s) * s->training.micro_batch_size * s->model.hidden_size >=
             s->offload.min_offloaded_tensor_size;
}

/* The inputs of the checkpoint of full recomputation whose first layer with experts this is. That of another
 * layer has none, and the input that a chunk has received stays anyway (write_retained). */
static uint32_t inputs_of_checkpoint(const static_writer *w, const parameter *p)
{
  const settings *s = w->s;
  bool uniform = s->recompute.recompute_method == METHOD_UNIFORM;
  uint32_t span = (uint32_t)s->recompute.recompute_num_layers, i = 0;
  int64_t pp = s->parallel.pipeline_model_parallel_size;
  const struct stage_content *stage = &s->derived.stages[p->chunk * pp + w->pp_rank];
  if (p->layer >= s->model.num_layers) { /* multi-token prediction: hidden states and embeddings */
    bool receives = stage->layer_count == 0 && p->layer == s->model.num_layers;
    return !uniform ? 0 : receives ? 1 : 2;
  }
  while (stage->layers[i] != (uint32_t)p->layer)
    i++;
  uint32_t first = uniform ? i - i % span : i;
  if ((!uniform && i >= span) || (first == 0 && !stage->embedding)) return 0;
  for (uint32_t k = first; k < i; k++)
    if (s->derived.layer_is_moe[stage->layers[k]]) return 0;
  return 1;
}

static void leave_graph_input(static_writer *w, dtype type)
{
  if (!offloading_empties_input(w->s))
    leave(w, "dispatcher.graph_input", type, hidden_elements(w->s));
  leave(w, "dispatcher.graph_input_grad", type, hidden_elements(w->s));
}

/* A dispatcher's probabilities keep their autograd graph. With parts (sim/graph/parts.h) it ends in a tensor
 * of the layer's input, inside a checkpoint in the checkpoint's inputs. That tensor stays with its
 * gradient, unless offloading has emptied it. */
static void leave_graph(static_writer *w, const parameter *router)
{
  const settings *s = w->s;
  if (runs_in_parts(s)) {
    leave_graph_input(w, residual_dtype(s));
  } else if (recomputes(s, RECOMPUTE_MOE)) {
    leave_graph_input(w, model_dtype(s));
  } else if (s->recompute.recompute_granularity == GRANULARITY_FULL) {
    for (uint32_t i = inputs_of_checkpoint(w, router); i > 0; i--)
      leave_graph_input(w, residual_dtype(s));
  }
}

/* The dispatcher of each MoE layer keeps what the unpermutation needs: the router's probabilities, the
 * experts of each token, and the rows of its copies. With all-gather these are of the tokens of all ranks
 * that go to local experts. */
static void leave_routing(static_writer *w)
{
  const settings *s = w->s;
  const struct model_settings *m = &s->model;
  bool gathers = m->moe_token_dispatcher_type == DISPATCHER_ALLGATHER;
  int64_t ep = gathers ? s->parallel.expert_model_parallel_size : 1;
  int64_t tokens = hidden_elements(s) / m->hidden_size * ep * (gathers ? size_tp(s) : 1);
  int64_t experts = m->num_experts / ep, rows = tokens * m->moe_router_topk / ep;
  dtype type = m->moe_router_dtype == ROUTER_DTYPE_FP32 ? DTYPE_FP32 : model_dtype(s);
  for (uint32_t i = 0; i < w->parameters.count; i++) {
    if (strcmp(w->parameters.items[i].name, "mlp.router.weight") != 0) continue;
    leave_graph(w, &w->parameters.items[i]);
    if (m->moe_token_dispatcher_type == DISPATCHER_FLEX) continue;
    leave(w, "dispatcher.probs", type, gathers ? rows : tokens * experts);
    leave(w, "dispatcher.routing_map", DTYPE_BYTE, tokens * experts);
    if (m->moe_permute_fusion)
      leave(w, "dispatcher.row_ids", DTYPE_INT32, tokens * (2 * experts + 1));
    else
      leave(w, "dispatcher.sorted_indices", DTYPE_INT64, rows);
  }
}

static void leave_batch(static_writer *w, const struct stage_content *stage)
{
  const struct training_settings *t = &w->s->training;
  int64_t tokens = t->micro_batch_size * size_sequence(w->s);
  bool first = stage->embedding || stage->mtp_layers > 0,
       last = stage->loss || stage->mtp_layers > 0;
  uint32_t begin = w->allocations.count;
  if (first) leave(w, "batch.tokens", DTYPE_INT64, tokens);
  if (first) leave(w, "batch.position_ids", DTYPE_INT64, tokens);
  if (last) leave(w, "batch.labels", DTYPE_INT64, tokens);
  if (last) leave(w, "batch.loss_mask", DTYPE_FP32, tokens);
  if ((first || last) && t->create_attention_mask_in_dataloader)
    leave(w, "batch.attention_mask", DTYPE_BYTE, tokens * t->seq_length);
  for (uint32_t i = begin; i < w->allocations.count; i++)
    w->allocations.items[i].of_batch = true;
}

static void leave_batches(static_writer *w)
{
  int64_t pp = w->s->parallel.pipeline_model_parallel_size;
  for (int64_t chunk = 0; chunk < w->s->derived.virtual_stages; chunk++)
    for (int64_t i = 0; i < w->s->derived.num_microbatches; i++)
      leave_batch(w, &w->s->derived.stages[chunk * pp + w->pp_rank]);
}

static uint32_t layers_of(const struct stage_content *stage)
{
  return stage->layer_count + stage->mtp_layers;
}

/* The last group of a name stays in the chunk whose backward comes next: that of the only layer of the last
 * stage with layers. */
static bool is_emptied_input(const static_writer *w, uint32_t chunk)
{
  const settings *s = w->s;
  int64_t pp = s->parallel.pipeline_model_parallel_size, stage = chunk * pp + w->pp_rank;
  uint32_t own = layers_of(&s->derived.stages[stage]), later = 0;
  while (++stage < s->derived.virtual_stages * pp)
    later += layers_of(&s->derived.stages[stage]);
  return offloading_empties_input(s) && own > 0 && (own > 1 || later > 0);
}

/* Each chunk keeps its last input, which the schedule has set (set_input_tensor), and the input's
 * gradient. The chunk with the embedding has none. Of an input that a layer has emptied only the gradient is
 * left. */
void write_retained(static_writer *w)
{
  const settings *s = w->s;
  if (s->model.num_experts > 0) leave_routing(w);
  if (keeps_batches(s)) leave_batches(w);
  if (s->parallel.pipeline_model_parallel_size == 1) return;
  dtype type = residual_dtype(s);
  int64_t row = s->training.micro_batch_size * s->model.hidden_size * dtype_bytes(type);
  for (uint32_t chunk = 0; chunk < s->derived.virtual_stages; chunk++) {
    if (w->pp_rank == 0 && chunk == 0) continue;
    int64_t bytes = size_received_sequence(s, w->pp_rank, chunk) * row;
    if (!is_emptied_input(w, chunk))
      static_take(w, "pipeline.input_tensor", CLASS_RETAINED, type, bytes, NO_PARAMETER);
    static_take(w, "pipeline.input_tensor_grad", CLASS_RETAINED, type, bytes, NO_PARAMETER);
  }
}
