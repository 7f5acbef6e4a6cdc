#include "sim/graph/sizes.h"

#include <assert.h>

int64_t size_tp(const settings *s)
{
  return s->parallel.tensor_model_parallel_size;
}

int64_t size_sequence(const settings *s)
{
  assert(s->training.seq_length % s->parallel.context_parallel_size == 0);
  return s->training.seq_length / s->parallel.context_parallel_size;
}

int64_t size_residual_sequence(const settings *s)
{
  if (!s->parallel.sequence_parallel) return size_sequence(s);
  assert(size_sequence(s) % size_tp(s) == 0);
  return size_sequence(s) / size_tp(s);
}

bool layer_slides(const settings *s, int32_t layer)
{
  assert(layer >= 0);
  return s->derived.layer_slides[layer % s->model.num_layers];
}

int64_t size_window(const settings *s, int32_t layer)
{
  int64_t keys = s->derived.window_keys;
  bool hides = layer_slides(s, layer) && keys < s->training.seq_length;
  return hides && s->model.attention_class != ATTENTION_LLAMA4 ? keys : 0;
}

dtype model_dtype(const settings *s)
{
  if (s->training.bf16) return DTYPE_BF16;
  return s->training.fp16 ? DTYPE_FP16 : DTYPE_FP32;
}

dtype residual_dtype(const settings *s)
{
  return s->model.fp32_residual_connection ? DTYPE_FP32 : model_dtype(s);
}

bool uses_te(const settings *s)
{
  return s->model.transformer_impl == TRANSFORMER_TE;
}

bool image_is_from(const settings *s, int year, int month)
{
  software_release image = s->derived.software;
  return image.year > year || (image.year == year && image.month >= month);
}

bool megatron_is_from(const settings *s, int day, int year, int month)
{
  return s->derived.megatron_day > 0 ? s->derived.megatron_day >= day
                                     : image_is_from(s, year, month);
}

/*
 * Megatron-LM's RerunDataIterator saves each micro-batch of a step (core/rerun_state_machine.py). In
 * May 2026 (5e4fc931, #4103) get_batch began to put the device's tensors into that very dictionary;
 * since July (bf32f441, #5635) the iterator saves a copy of it. With --rerun-mode disabled it saves
 * nothing. Only tensor parallel rank 0 reads the iterator; a plan is that of the last one.
 */
bool keeps_batches(const settings *s)
{
  int day = s->derived.megatron_day;
  return day >= 20260521 && day < 20260706 && s->training.rerun_mode != RERUN_DISABLED &&
         s->parallel.tensor_model_parallel_size == 1 && !uses_hf(s);
}

bool is_layernorm(const settings *s)
{
  return s->model.normalization == NORM_LAYER;
}

bool is_gated(const settings *s)
{
  return s->model.swiglu || s->model.quick_geglu;
}

activation_function activation_of(const settings *s)
{
  if (s->model.swiglu) return ACTIVATION_SILU;
  if (s->model.quick_geglu) return ACTIVATION_QUICK_GELU;
  if (s->model.squared_relu) return ACTIVATION_SQUARED_RELU;
  return s->model.bias_activation_fusion || s->model.use_te_activation_func ? ACTIVATION_GELU_TANH
                                                                            : ACTIVATION_GELU_ERF;
}

/* Megatron's first_last_layers_bf16 counts decoder layers (fp8_utils.py: is_first_last_bf16_layer);
 * MTP layers follow the last of them. */
bool layer_is_fp8(const settings *s, int32_t layer)
{
  if (s->training.fp8_format == FP8_FORMAT_NONE) return false;
  if (!s->training.first_last_layers_bf16) return true;
  bool at_start = layer < s->training.num_layers_at_start_in_bf16;
  bool at_end = layer >= s->model.num_layers - s->training.num_layers_at_end_in_bf16;
  return !at_start && !at_end;
}

int64_t size_received_sequence(const settings *s, uint32_t pp_rank, uint32_t chunk)
{
  int64_t own = chunk * s->parallel.pipeline_model_parallel_size + pp_rank, depths = 0;
  assert(pp_rank < s->parallel.pipeline_model_parallel_size && chunk < s->derived.virtual_stages);
  for (int64_t before = 0; before < own; before++)
    depths += s->derived.stages[before].mtp_layers;
  return (1 + depths) * size_residual_sequence(s);
}

bool stage_has_final_norm(const settings *s, const struct stage_content *stage)
{
  if (s->model.mtp_num_layers == 0) return stage->loss;
  uint32_t count = stage->layer_count;
  return count > 0 && stage->layers[count - 1] + 1 == (uint32_t)s->model.num_layers;
}

bool recomputes(const settings *s, recompute_modules_choice module)
{
  return s->recompute.recompute_granularity == GRANULARITY_SELECTIVE &&
         has_choice(&s->recompute.recompute_modules, module);
}

bool marks_group(const settings *s, offload_modules_choice module)
{
  return offload_scope_of(s) == OFFLOAD_MODULES && has_choice(&s->offload.offload_modules, module);
}
