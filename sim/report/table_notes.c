#include <string.h>

#include "sim/base/units.h"
#include "sim/report/table_parts.h"
#include "sim/report/wrap.h"

/* ---- peaks -------------------------------------------------------------------------------------- */

/* Of many ranks, only the fullest tells its modules. */
enum { HOLDINGS_SHOWN = 5, RANKS_IN_DETAIL = 4, MODULE_COLUMN = 17 };

static uint32_t neediest_gpu(const prediction *p)
{
  uint32_t neediest = 0;
  for (uint32_t i = 1; i < p->rank_count; i++)
    if (p->result.ranks[i].allocated_peak_bytes > p->result.ranks[neediest].allocated_peak_bytes)
      neediest = i;
  return neediest;
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
                          class_name((buffer_class)c), figure_in(v->memory, r->peak_by_class[c], v->bytes));
  wrap_text(v->out, "      by class", MODULE_COLUMN, text, ", ");
}

static void print_holdings(const view *v, const rank_prediction *r)
{
  uint32_t shown = (uint32_t)min_i64(HOLDINGS_SHOWN, r->peak_holding_count);
  for (uint32_t i = 0; i < shown; i++) {
    const replay_holding *h = &r->peak_holdings[i];
    fprintf(v->out, "      %s %10s  %s, %s, %s\n", i == 0 ? "by module " : "          ",
            figure_in(v->memory, h->bytes, v->bytes), h->module[0] != '\0' ? h->module : "whole model",
            class_name((buffer_class)h->purpose), figure_count(v->memory, h->buffers, "buffer", "buffers"));
  }
}

void print_peaks(const view *v)
{
  fprintf(v->out, "\nWhat lives at a step's allocated peak, %s\n", v->bytes.name);
  for (uint32_t i = 0; i < v->p->rank_count; i++) {
    const rank_prediction *r = &v->p->result.ranks[i];
    fprintf(v->out, "%4u  %s: %s\n", i, figure_in(v->memory, r->steady_allocated_peak_bytes, v->bytes),
            instant(v, r));
    print_classes(v, r);
    if (v->p->rank_count <= RANKS_IN_DETAIL || i == neediest_gpu(v->p))
      print_holdings(v, r);
  }
}

/* ---- savings ------------------------------------------------------------------------------------ */

static const char *largest_class(const view *v, const rank_prediction *with,
                                 const rank_prediction *without)
{
  int64_t most = 0;
  const char *text = "";
  for (int c = 0; c < BUFFER_CLASSES; c++) {
    int64_t more = with->peak_by_class[c] - without->peak_by_class[c];
    if (more <= most)
      continue;
    most = more;
    text = arena_printf(v->memory, "; there live %s more of class %s",
                        figure_with_unit(v->memory, more, v->bytes), class_name((buffer_class)c));
  }
  return text;
}

void print_savings(const view *v)
{
  const char *title = "\nWhere the simulated saving is not the theoretical one\n";
  for (uint32_t i = 0; i < v->p->rank_count; i++) {
    const rank_prediction *with = &v->p->result.ranks[i], *without = &v->p->baseline.ranks[i];
    int64_t short_by = with->theoretical_saving_bytes - with->simulated_saving_bytes;
    if (short_by == 0)
      continue;
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

void print_defects(const view *v)
{
  const char *title = "\nDefects of the released code that this run meets (offload.mode as_released)\n";
  for (uint32_t i = 0; i < v->p->rank_count; i++) {
    if (v->p->defects[i] == NULL)
      continue;
    fputs(title, v->out);
    wrap_text(v->out, arena_printf(v->memory, "%4u", i), 6, v->p->defects[i], " ");
    title = "";
  }
}

/* ---- verdict ------------------------------------------------------------------------------------ */

static uint32_t fullest_gpu(const prediction *p)
{
  uint32_t fullest = 0;
  for (uint32_t i = 1; i < p->rank_count; i++)
    if (p->result.ranks[i].reserved_peak_bytes > p->result.ranks[fullest].reserved_peak_bytes)
      fullest = i;
  return fullest;
}

static void print_device_fit(const view *v)
{
  const prediction *p = v->p;
  const char *capacity = figure_of_capacity(v->memory, p->capacity_bytes);
  uint32_t rank = p->fits_device ? fullest_gpu(p) : neediest_gpu(p);
  const rank_prediction *r = &p->result.ranks[rank];
  if (p->fits_device)
    fprintf(v->out, "device    fits: rank %u reserves most, %s%s\n", rank,
            figure_with_unit(v->memory, r->reserved_peak_bytes, v->bytes), capacity);
  else
    fprintf(v->out, "device    DOES NOT FIT: rank %u allocates %s%s\n", rank,
            figure_with_unit(v->memory, r->allocated_peak_bytes, v->bytes), capacity);
  uint32_t waits = 0;
  for (uint32_t i = 0; i < p->rank_count; i++)
    waits += p->result.ranks[i].back_pressure;
  if (waits > 0)
    fprintf(v->out,
            "          %s a step found no memory: the allocator waited for the GPU and gave back what it had "
            "cached\n",
            figure_count(v->memory, waits, "allocation", "allocations"));
}

static void print_host_fit(const view *v)
{
  if (!v->offloads)
    return;
  int64_t total = v->p->host_pinned_total_bytes, memory = v->p->machine->host.memory_bytes;
  fprintf(v->out, "host      %s: the GPUs of the fullest host pin %s%s\n",
          v->p->fits_host ? "fits" : "DOES NOT FIT",
          figure_with_unit(v->memory, total, unit_of_bytes(total)),
          figure_of_capacity(v->memory, memory));
}

static void print_disk(const view *v)
{
  uint32_t most = 0;
  for (uint32_t i = 1; i < v->p->rank_count; i++)
    if (v->p->result.ranks[i].disk_write_bytes > v->p->result.ranks[most].disk_write_bytes)
      most = i;
  const rank_prediction *r = &v->p->result.ranks[most];
  if (r->disk_write_bytes > 0)
    fprintf(v->out, "disk      rank %u writes %s GB and reads %s GB a step\n", most,
            figure(v->memory, r->disk_write_bytes, 1000000000, 2),
            figure(v->memory, r->disk_read_bytes, 1000000000, 2));
}

/* Of the rank where that is most, if compute waits for copies there at all. */
static void print_slow_copies(const view *v)
{
  const rank_prediction *ranks = v->p->result.ranks;
  uint32_t most = 0;
  for (uint32_t i = 1; i < v->p->rank_count; i++)
    if (ranks[i].waiting_slows_ps > ranks[most].waiting_slows_ps)
      most = i;
  if (ranks[most].waiting_slows_ps > 0 &&
      ranks[most].exposed_d2h_ps + ranks[most].exposed_h2d_ps > 0)
    fprintf(v->out,
            "copies    of rank %u take %s longer, because exchanges on two streams wait "
            "(docs/06-real-gpu.md)\n",
            most, figure_with_unit(v->memory, ranks[most].waiting_slows_ps, v->time));
}

void print_verdict(const view *v)
{
  const prediction *p = v->p;
  int64_t with = p->result.step_ps, without = p->baseline.step_ps;
  fprintf(v->out, "\nstep      %s", figure_with_unit(v->memory, with, v->time));
  if (v->offloads)
    fprintf(v->out, ", without offload %s: overhead %s %%",
            figure_with_unit(v->memory, without, v->time),
            figure_percent(v->memory, with - without, without, 2));
  fputc('\n', v->out);
  wrap_text(v->out, "limit", 10, prediction_bottleneck(p, v->memory), " ");
  print_slow_copies(v);
  print_device_fit(v);
  print_host_fit(v);
  print_disk(v);
}

/* ---- measured ----------------------------------------------------------------------------------- */

static void print_beside(const view *v, const char *what, int64_t predicted, int64_t measured)
{
  if (measured == 0)
    return;
  fprintf(v->out, "%-8s  predicted %s, measured %s: error %s %%\n", what,
          figure_with_unit(v->memory, predicted, v->bytes),
          figure_with_unit(v->memory, measured, v->bytes),
          figure_percent(v->memory, predicted - measured, measured, 2));
}

void print_measured(const view *v, const measured_bytes *measured)
{
  const rank_prediction *r = &v->p->result.ranks[v->p->rank_count - 1];
  if (measured->static_bytes == 0 && measured->peak_bytes == 0)
    return;
  fprintf(v->out, "\nBeside the measured figures of rank %u\n", v->p->rank_count - 1);
  print_beside(v, "static", r->static_bytes, measured->static_bytes);
  print_beside(v, "peak", r->allocated_peak_bytes, measured->peak_bytes);
}
