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
  } else if (t->bf16 && text_is(t->main_grads_dtype, "fp32")) {
    t->accumulate_allreduce_grads_in_fp32 = true;
  }
}

static void resolve_optimizer(settings *s)
{
  const char *optimizer = s->training.optimizer;
  bool emerging = !text_is(optimizer, "adam") && !text_is(optimizer, "sgd");

  if (s->parallel.use_megatron_fsdp) {
    s->parallel.use_distributed_optimizer = true;
  }
  s->derived.layer_wise_optimizer =
      emerging && (s->parallel.use_distributed_optimizer || text_is(optimizer, "dist_muon"));
}

/* Deprecated names of whole captures (megatron/core/transformer/cuda_graph_config.py). */
static void resolve_cuda_graphs(settings *s)
{
  struct training_settings *t = &s->training;

  if (names_contain(&t->cuda_graph_modules, "full_iteration") &&
      !text_is(t->cuda_graph_impl, "none")) {
    t->cuda_graph_impl = "full_iteration";
  }
  if (names_contain(&t->cuda_graph_modules, "full") ||
      names_contain(&t->cuda_graph_modules, "full_iteration") ||
      names_contain(&t->cuda_graph_modules, "full_iteration_inference")) {
    t->cuda_graph_modules = (name_list){ 0 };
  }
}

void resolve_training(settings *s)
{
  resolve_precision(s);
  resolve_optimizer(s);
  resolve_cuda_graphs(s);
}
