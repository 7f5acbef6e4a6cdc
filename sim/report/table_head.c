#include <inttypes.h>

#include "sim/report/table_parts.h"

static const char *attention(const settings *s, arena *a)
{
  if (s->model.multi_latent_attention)
    return arena_printf(a, "%" PRId64 " heads (MLA)", s->model.num_attention_heads);
  if (s->model.num_query_groups != s->model.num_attention_heads)
    return arena_printf(a, "%" PRId64 " heads in %" PRId64 " groups", s->model.num_attention_heads,
                        s->model.num_query_groups);
  return arena_printf(a, "%" PRId64 " heads", s->model.num_attention_heads);
}

static const char *mlp(const settings *s, arena *a)
{
  if (s->model.num_experts == 0)
    return arena_printf(a, "MLP %" PRId64, s->model.ffn_hidden_size);
  return arena_printf(a, "%" PRId64 " experts, top %" PRId64, s->model.num_experts,
                      s->model.moe_router_topk);
}

static const char *precision(const settings *s)
{
  if (s->training.fp8_format != FP8_FORMAT_NONE) return "fp8";
  return s->training.bf16 ? "bf16" : s->training.fp16 ? "fp16" : "fp32";
}

static void print_parallel(const view *v)
{
  const settings *s = v->p->settings;
  fprintf(v->out, "parallel  %s: TP %" PRId64 ", CP %" PRId64 ", PP %" PRId64,
          figure_count(v->memory, s->parallel.world_size, "GPU", "GPUs"),
          s->parallel.tensor_model_parallel_size, s->parallel.context_parallel_size,
          s->parallel.pipeline_model_parallel_size);
  if (s->derived.virtual_stages > 1)
    fprintf(v->out, " x VPP %" PRId64, s->derived.virtual_stages);
  fprintf(v->out, ", DP %" PRId64, s->derived.data_parallel_size);
  if (s->model.num_experts > 0)
    fprintf(v->out, ", EP %" PRId64 ", ETP %" PRId64, s->parallel.expert_model_parallel_size,
            s->parallel.expert_tensor_parallel_size);
  fprintf(v->out, "%s\n", s->parallel.use_distributed_optimizer ? "; distributed optimizer" : "");
}

static void print_offloaded_layers(const view *v)
{
  const settings *s = v->p->settings;
  fprintf(v->out, "offload   %s: the first %" PRId64 " of %" PRId64 " layers%s\n",
          chosen_word(s, KEY_offload_system), s->offload.cpu_offloading_num_layers,
          s->model.num_layers,
          s->offload.cpu_offloading_double_buffering ? ", back into two persistent sets of buffers"
                                                     : "");
}

static void print_manual_layers(const view *v)
{
  const struct offload_settings *o = &v->p->settings->offload;
  fprintf(v->out, "offload   %s, by hand: layers", chosen_word(v->p->settings, KEY_offload_system));
  for (uint32_t i = 0; i < o->cpu_offloading_layers.count; i++)
    fprintf(v->out, "%s%s", i == 0 ? " " : ", ", o->cpu_offloading_layers.names[i]);
  fprintf(v->out, " of each chunk, let go %" PRId64 " after, back %" PRId64 " ahead\n",
          o->cpu_offloading_release_after, o->cpu_offloading_reload_ahead);
}

static void print_offload(const view *v)
{
  const struct offload_settings *o = &v->p->settings->offload;
  if (o->cpu_offloading_manual_synchronization) {
    print_manual_layers(v);
    return;
  }
  if (offloads_layers(v->p->settings) && !uses_hf(v->p->settings)) {
    print_offloaded_layers(v);
    return;
  }
  fprintf(v->out, "offload   %s", chosen_word(v->p->settings, KEY_offload_system));
  if (o->system != SYSTEM_none) {
    fprintf(v->out, " (%s)%s", chosen_word(v->p->settings, KEY_offload_mode),
            o->offload_modules.count > 0 ? ":" : "");
    for (uint32_t i = 0; i < o->offload_modules.count; i++)
      fprintf(v->out, " %s", choice_word(KEY_offload_offload_modules, o->offload_modules.items[i]));
  }
  fputc('\n', v->out);
}

void print_head(const view *v)
{
  const settings *s = v->p->settings;
  fprintf(v->out, "model     %s, hidden %" PRId64 ", %s, %s, vocabulary %" PRId64,
          figure_count(v->memory, s->model.num_layers, "layer", "layers"), s->model.hidden_size,
          attention(s, v->memory), mlp(s, v->memory), s->model.padded_vocab_size);
  if (s->model.mtp_num_layers > 0)
    fprintf(v->out, ", MTP %" PRId64, s->model.mtp_num_layers);
  fprintf(v->out, "\ntraining  %s of %" PRId64 " x %" PRId64 " tokens, %s\n",
          figure_count(v->memory, s->derived.num_microbatches, "micro-batch", "micro-batches"),
          s->training.micro_batch_size, s->training.seq_length, precision(s));
  print_parallel(v);
  fprintf(v->out, "machine   %s: memory for PyTorch on each GPU %s, %s a host\n", v->p->machine->name,
          figure_capacity(v->memory, v->p->capacity_bytes),
          figure_count(v->memory, v->p->machine->host.gpus, "GPU", "GPUs"));
  print_offload(v);
}
