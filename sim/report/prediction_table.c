#include <assert.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/report/prediction.h"
#include "sim/report/prediction_view.h"
#include "sim/report/text.h"

/* ---- the run ---- */

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
  if (s->model.num_experts == 0) return arena_printf(a, "MLP %" PRId64, s->model.ffn_hidden_size);
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
  const char *virtual = "", *experts = "";
  if (s->derived.virtual_stages > 1)
    virtual = arena_printf(v->memory, " x VPP %" PRId64, s->derived.virtual_stages);
  if (s->model.num_experts > 0)
    experts = arena_printf(v->memory, ", EP %" PRId64 ", ETP %" PRId64,
                           s->parallel.expert_model_parallel_size,
                           s->parallel.expert_tensor_parallel_size);
  wrap_line(v->out, 10,
            "parallel  %s: TP %" PRId64 ", CP %" PRId64 ", PP %" PRId64 "%s, DP %" PRId64 "%s%s",
            figure_count(v->memory, s->parallel.world_size, "GPU", "GPUs"),
            s->parallel.tensor_model_parallel_size, s->parallel.context_parallel_size,
            s->parallel.pipeline_model_parallel_size, virtual, s->derived.data_parallel_size,
            experts, s->parallel.use_distributed_optimizer ? "; distributed optimizer" : "");
}

static void print_offloaded_layers(const view *v)
{
  const settings *s = v->p->settings;
  wrap_line(
      v->out, 10, "offload   %s: the first %" PRId64 " of %" PRId64 " layers%s",
      chosen_word(s, KEY_offload_system), s->offload.cpu_offloading_num_layers, s->model.num_layers,
      s->offload.cpu_offloading_double_buffering ? ", back into two persistent sets of buffers"
                                                 : "");
}

static void print_manual_layers(const view *v)
{
  const struct offload_settings *o = &v->p->settings->offload;
  const char *layers = "";
  for (uint32_t i = 0; i < o->cpu_offloading_layers.count; i++)
    layers = arena_printf(v->memory, "%s%s%s", layers, i == 0 ? " " : ", ",
                          o->cpu_offloading_layers.names[i]);
  wrap_line(v->out, 10,
            "offload   %s, by hand: layers%s of each chunk, freed %" PRId64 " after, back %" PRId64
            " ahead",
            chosen_word(v->p->settings, KEY_offload_system), layers,
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
  const char *modules = "";
  if (o->system != SYSTEM_none)
    modules = arena_printf(v->memory, " (%s)%s", chosen_word(v->p->settings, KEY_offload_mode),
                           o->offload_modules.count > 0 ? ":" : "");
  for (uint32_t i = 0; o->system != SYSTEM_none && i < o->offload_modules.count; i++)
    modules = arena_printf(v->memory, "%s %s", modules,
                           choice_word(KEY_offload_offload_modules, o->offload_modules.items[i]));
  bool layers = o->layer_offloading && o->system != SYSTEM_layer_offloading;
  wrap_line(v->out, 10, "offload   %s%s%s", chosen_word(v->p->settings, KEY_offload_system),
            layers ? " + layer_offloading" : "", modules);
}

static void print_head(const view *v)
{
  const settings *s = v->p->settings;
  const char *mtp = "";
  if (s->model.mtp_num_layers > 0)
    mtp = arena_printf(v->memory, ", MTP %" PRId64, s->model.mtp_num_layers);
  wrap_line(v->out, 10, "model     %s, hidden %" PRId64 ", %s, %s, vocabulary %" PRId64 "%s",
            figure_count(v->memory, s->model.num_layers, "layer", "layers"), s->model.hidden_size,
            attention(s, v->memory), mlp(s, v->memory), s->model.padded_vocab_size, mtp);
  wrap_line(v->out, 10, "training  %s of %" PRId64 " x %" PRId64 " tokens, %s",
            figure_count(v->memory, s->derived.num_microbatches, "micro-batch", "micro-batches"),
            s->training.micro_batch_size, s->training.seq_length, precision(s));
  print_parallel(v);
  const machine *m = v->p->machine;
  const char *domain = "";
  if (m->nvlink.domain_gpus > m->host.gpus)
    domain = arena_printf(v->memory, ", %" PRId64 " in an NVLink domain", m->nvlink.domain_gpus);
  wrap_line(v->out, 10, "machine   %s: memory for PyTorch on each GPU %s, %s a host%s", m->name,
            figure_capacity(v->memory, v->p->capacity_bytes),
            figure_count(v->memory, m->host.gpus, "GPU", "GPUs"), domain);
  print_offload(v);
}

/* ---- columns ---- */

typedef enum cell_kind {
  CELL_RANK,
  CELL_LAYERS,
  CELL_BYTES,
  CELL_CLOCK,    /* bytes, on the clock: it ends where the memory does */
  CELL_BASELINE, /* bytes, of the baseline */
  CELL_R,
  CELL_GB,
  CELL_TIME,
  CELL_PART /* time, as a part of the step */
} cell_kind;

typedef struct column {
  const char *over, *title;
  cell_kind kind;
  size_t member;                /* of rank_prediction */
  bool (*shown)(const view *v); /* NULL: always */
} column;

static bool offloads(const view *v)
{
  return v->offloads;
}

static bool uses_host(const view *v)
{
  return v->offloads || v->p->host_total_bytes > 0;
}

/* The first iteration reached more than a later one. */
static bool peaks_differ(const view *v)
{
  for (uint32_t i = 0; i < v->p->rank_count; i++) {
    const rank_prediction *r = &v->p->result.ranks[i];
    if (r->allocated_peak_bytes != r->steady_allocated_peak_bytes) return true;
  }
  return false;
}

static const column memory_columns[] = {
  { "", "rank", CELL_RANK, 0, NULL },
  { "", "layers", CELL_LAYERS, 0, NULL },
  { "", "static", CELL_BYTES, OF(static_bytes), NULL },
  { "peak:", "allocated", CELL_BYTES, OF(allocated_peak_bytes), NULL },
  { "one", "step's", CELL_BYTES, OF(steady_allocated_peak_bytes), peaks_differ },
  { "", "live", CELL_CLOCK, OF(live_peak_bytes), NULL },
  { "", "reserved", CELL_CLOCK, OF(reserved_peak_bytes), NULL },
  { "without", "offload", CELL_BASELINE, OF(steady_allocated_peak_bytes), offloads },
  { "saving:", "theory", CELL_BYTES, OF(theoretical_saving_bytes), offloads },
  { "", "simulated", CELL_BYTES, OF(simulated_saving_bytes), offloads },
  { "", "R %", CELL_R, 0, offloads },
  { "pinned", "on host", CELL_BYTES, OF(host_pinned_peak_bytes), uses_host },
};

static const column time_columns[] = {
  { "", "rank", CELL_RANK, 0, NULL },
  { "GB", "out", CELL_GB, OF(d2h_bytes), offloads },
  { "GB", "back", CELL_GB, OF(h2d_bytes), offloads },
  { "link busy", "out %", CELL_PART, OF(d2h_busy_ps), offloads },
  { "", "back %", CELL_PART, OF(h2d_busy_ps), offloads },
  { "exposed", "D2H", CELL_TIME, OF(exposed_d2h_ps), offloads },
  { "", "H2D", CELL_TIME, OF(exposed_h2d_ps), offloads },
  { "", "compute", CELL_TIME, OF(compute_busy_ps), NULL },
  { "", "bubble", CELL_TIME, OF(bubble_ps), NULL },
  { "", "step", CELL_TIME, OF(step_ps), NULL },
};

enum {
  MEMORY_COLUMNS = sizeof memory_columns / sizeof *memory_columns,
  TIME_COLUMNS = sizeof time_columns / sizeof *time_columns
};

/* As in pipeline layouts: "E4", "4,4", "2mL"; chunks of a rank between commas. */
static const char *layers_of(const settings *s, uint32_t rank, arena *a)
{
  const char *text = "";
  for (int64_t chunk = 0; chunk < s->derived.virtual_stages; chunk++) {
    int64_t stage = chunk * s->parallel.pipeline_model_parallel_size + rank;
    const struct stage_content *c = &s->derived.stages[stage];
    text = arena_printf(a, "%s%s%s%u%s%s", text, chunk > 0 ? "," : "", c->embedding ? "E" : "",
                        c->layer_count, c->mtp_layers > 0 ? "m" : "", c->loss ? "L" : "");
  }
  return strlen(text) <= 16 ? text : arena_printf(a, "%.13s...", text);
}

/* What letters in that column mean. */
static const char *layers_legend(const settings *s)
{
  bool mtp = false;
  for (int64_t i = 0; i < s->derived.virtual_stages * s->parallel.pipeline_model_parallel_size; i++)
    mtp |= s->derived.stages[i].mtp_layers > 0;
  return mtp ? "E: with the embedding, m: multi-token prediction, L: the loss"
             : "E: with the embedding, L: the loss";
}

static const char *cell_of(const view *v, const column *c, uint32_t rank)
{
  arena *a = v->memory;
  const iteration_prediction *of = c->kind == CELL_BASELINE ? &v->p->baseline : &v->p->result;
  const rank_prediction *r = &of->ranks[rank];
  int64_t value = rank_value(r, c->member);
  assert(rank < v->p->rank_count);
  switch (c->kind) {
  case CELL_RANK: return arena_printf(a, "%u", rank);
  case CELL_LAYERS: return layers_of(v->p->settings, rank, a);
  case CELL_CLOCK:
    if (r->out_of_memory) return "-";
    break;
  case CELL_BYTES:
  case CELL_BASELINE: break;
  case CELL_R: return figure_percent(a, r->simulated_saving_bytes, r->theoretical_saving_bytes, 2);
  case CELL_GB: return figure(a, value, 1000000000, 2);
  case CELL_TIME: return figure_in(a, value, v->time);
  case CELL_PART: return figure_percent(a, value, r->step_ps, 1);
  }
  return figure_in(a, value, v->bytes);
}

static void print_columns(const view *v, const column *columns, uint32_t count)
{
  uint32_t shown = 0;
  grid g = grid_new(v->memory, count, v->p->rank_count);
  for (uint32_t c = 0; c < count; c++) {
    if (columns[c].shown != NULL && !columns[c].shown(v)) continue;
    g.head[0][shown] = columns[c].over;
    g.head[1][shown] = columns[c].title;
    for (uint32_t i = 0; i < v->p->rank_count; i++)
      g.cells[i * count + shown] = cell_of(v, &columns[c], i);
    shown++;
  }
  grid_print(&g, v->out);
}

/* ---- peaks ---- */

/* Of many ranks, only the fullest lists its modules. */
enum { HOLDINGS_SHOWN = 5, RANKS_IN_DETAIL = 4, MODULE_COLUMN = 17, HOLDING_COLUMN = 29 };

static uint32_t neediest_gpu(const prediction *p)
{
  return rank_with_most(p, OF(allocated_peak_bytes));
}

/* "backward of micro-batch 3, chunk 1, in layer 4's mlp.linear_fc1" */
static const char *instant(const view *v, const rank_prediction *r)
{
  arena *a = v->memory;
  const char *text = mark_name((mark_kind)r->peak_mark.kind);
  if (r->peak_mark.kind == MARK_FORWARD || r->peak_mark.kind == MARK_BACKWARD)
    text = arena_printf(a, "%s of micro-batch %u", text, r->peak_mark.microbatch);
  if (v->p->settings->derived.virtual_stages > 1 &&
      (r->peak_mark.kind == MARK_FORWARD || r->peak_mark.kind == MARK_BACKWARD))
    text = arena_printf(a, "%s, chunk %u", text, r->peak_mark.chunk);
  if (r->peak_layer >= 0)
    return arena_printf(a, "%s, layer %d %s", text, r->peak_layer, r->peak_module);
  return r->peak_module[0] != '\0' ? arena_printf(a, "%s, %s", text, r->peak_module) : text;
}

static void print_classes(const view *v, const rank_prediction *r)
{
  const char *text = "";
  for (int c = 0; c < BUFFER_CLASSES; c++)
    if (r->peak_by_class[c] != 0)
      text = arena_printf(v->memory, "%s%s%s %s", text, *text == '\0' ? "" : ", ",
                          class_name((buffer_class)c),
                          figure_in(v->memory, r->peak_by_class[c], v->bytes));
  wrap_text(v->out, "      by class", MODULE_COLUMN, text, ", ");
}

static void print_holdings(const view *v, const rank_prediction *r)
{
  uint32_t shown = (uint32_t)min_i64(HOLDINGS_SHOWN, r->peak_holding_count);
  for (uint32_t i = 0; i < shown; i++) {
    const replay_holding *h = &r->peak_holdings[i];
    wrap_line(v->out, HOLDING_COLUMN, "      %s %10s  %s, %s, %s",
              i == 0 ? "by module " : "          ", figure_in(v->memory, h->bytes, v->bytes),
              h->module[0] != '\0' ? h->module : "whole model",
              class_name((buffer_class)h->purpose),
              figure_count(v->memory, h->buffers, "buffer", "buffers"));
  }
}

static void print_peaks(const view *v)
{
  fprintf(v->out, "\nWhat lives at a step's allocated peak, %s\n", v->bytes.name);
  for (uint32_t i = 0; i < v->p->rank_count; i++) {
    const rank_prediction *r = &v->p->result.ranks[i];
    wrap_line(v->out, 6, "%4u  %s: %s", i,
              figure_in(v->memory, r->steady_allocated_peak_bytes, v->bytes), instant(v, r));
    print_classes(v, r);
    if (v->p->rank_count <= RANKS_IN_DETAIL || i == neediest_gpu(v->p)) print_holdings(v, r);
  }
}

/* ---- savings ---- */

static const char *largest_class(const view *v, const rank_prediction *with,
                                 const rank_prediction *without)
{
  int64_t most = 0;
  const char *text = "";
  for (int c = 0; c < BUFFER_CLASSES; c++) {
    int64_t more = with->peak_by_class[c] - without->peak_by_class[c];
    if (more <= most) continue;
    most = more;
    text = arena_printf(v->memory, "; there live %s more of class %s",
                        figure_with_unit(v->memory, more, v->bytes), class_name((buffer_class)c));
  }
  return text;
}

static void print_savings(const view *v)
{
  const char *title = "\nWhere the simulated saving is not the theoretical one\n";
  for (uint32_t i = 0; i < v->p->rank_count; i++) {
    const rank_prediction *with = &v->p->result.ranks[i], *without = &v->p->baseline.ranks[i];
    int64_t short_by = with->theoretical_saving_bytes - with->simulated_saving_bytes;
    if (short_by == 0) continue;
    fputs(title, v->out);
    title = "";
    int64_t size = short_by < 0 ? -short_by : short_by;
    wrap_text(v->out, arena_printf(v->memory, "%4u", i), 6,
              arena_printf(v->memory, "%s %s: the peak sits in %s, without offload in %s%s",
                           figure_with_unit(v->memory, size, unit_of_bytes(size)),
                           short_by < 0 ? "more" : "less", instant(v, with), instant(v, without),
                           largest_class(v, with, without)),
              " ");
  }
}

static void print_defects(const view *v)
{
  const char *title =
      "\nDefects of the released code that this run meets (offload.mode as_released)\n";
  for (uint32_t i = 0; i < v->p->rank_count; i++) {
    if (v->p->defects[i] == NULL) continue;
    fputs(title, v->out);
    wrap_text(v->out, arena_printf(v->memory, "%4u", i), 6, v->p->defects[i], " ");
    title = "";
  }
}

/* ---- measured ---- */

static void print_beside(const view *v, const char *what, int64_t predicted, int64_t measured)
{
  if (measured == 0) return;
  wrap_line(v->out, 10, "%-8s  predicted %s, measured %s: error %s %%", what,
            figure_with_unit(v->memory, predicted, v->bytes),
            figure_with_unit(v->memory, measured, v->bytes),
            figure_percent(v->memory, predicted - measured, measured, 2));
}

static void print_measured(const view *v, const measured_bytes *measured)
{
  const rank_prediction *r = &v->p->result.ranks[v->p->rank_count - 1];
  if (measured->static_bytes == 0 && measured->peak_bytes == 0) return;
  fprintf(v->out, "\nBeside the measured figures of rank %u\n", v->p->rank_count - 1);
  print_beside(v, "static", r->static_bytes, measured->static_bytes);
  print_beside(v, "peak", r->allocated_peak_bytes, measured->peak_bytes);
}

/* ---- the whole ---- */

static void print_details(const view *v)
{
  fprintf(v->out, "\nTime of one step, %s\n", v->time.name);
  print_columns(v, time_columns, TIME_COLUMNS);
  print_peaks(v);
  print_savings(v);
  print_defects(v);
}

void prediction_table(const prediction *p, const measured_bytes *measured, bool brief, FILE *out,
                      arena *a)
{
  view v = view_new(p, out, a);
  if (!brief) {
    print_head(&v);
    fputc('\n', out);
  }
  wrap_line(out, 0, "Memory, %s on each GPU; layers %s", v.bytes.name, layers_legend(p->settings));
  print_columns(&v, memory_columns, MEMORY_COLUMNS);
  if (!brief) print_details(&v);
  verdict_table(&v);
  print_measured(&v, measured);
}
