/* Precision, optimizer, CUDA graphs. */
#include "sim/config/resolve/steps.h"

static void resolve_precision(settings *s)
{
  struct training_settings *t = &s->training;

  if (t->fp16) {
    t->check_for_nan_in_loss_and_grad = false; /* the loss scaler looks for them */
  }
  if (t->bf16 && t->grad_reduce_in_bf16) {
    t->accumulate_allreduce_grads_in_fp32 = false;
  } else if (t->bf16 && t->main_grads_dtype == MAIN_GRADS_FP32) {
    t->accumulate_allreduce_grads_in_fp32 = true;
  }
}

static void resolve_optimizer(settings *s)
{
  optimizer_choice optimizer = s->training.optimizer;
  bool emerging = optimizer != OPTIMIZER_ADAM && optimizer != OPTIMIZER_SGD;

  if (s->parallel.use_megatron_fsdp) {
    s->parallel.use_distributed_optimizer = true;
  }
  s->derived.layer_wise_optimizer =
      emerging && (s->parallel.use_distributed_optimizer || optimizer == OPTIMIZER_DIST_MUON);
}

/* Deprecated names of whole captures (megatron/core/transformer/cuda_graph_config.py). */
static void resolve_cuda_graphs(settings *s)
{
  struct training_settings *t = &s->training;

  if (has_choice(&t->cuda_graph_modules, CAPTURE_FULL_ITERATION) &&
      t->cuda_graph_impl != GRAPHS_NONE) {
    t->cuda_graph_impl = GRAPHS_FULL_ITERATION;
  }
  if (has_choice(&t->cuda_graph_modules, CAPTURE_FULL) ||
      has_choice(&t->cuda_graph_modules, CAPTURE_FULL_ITERATION) ||
      has_choice(&t->cuda_graph_modules, CAPTURE_FULL_ITERATION_INFERENCE)) {
    t->cuda_graph_modules = (choice_list){ 0 };
  }
}

void resolve_training(settings *s)
{
  resolve_precision(s);
  resolve_optimizer(s);
  resolve_cuda_graphs(s);
}
