#include "sim/report/json.h"

#include <inttypes.h>
#include <stdlib.h>

#include "sim/base/units.h"

void json_string(FILE *out, const char *text)
{
  fputc('"', out);
  for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++) {
    if (*c == '"' || *c == '\\')
      fprintf(out, "\\%c", *c);
    else if (*c < 0x20)
      fprintf(out, "\\u%04x", *c);
    else
      fputc(*c, out);
  }
  fputc('"', out);
}

void json_seconds(FILE *out, int64_t ps)
{
  const char *sign = ps < 0 ? "-" : "";
  int64_t size = ps < 0 ? -ps : ps;
  fprintf(out, "%s%" PRId64 ".%012" PRId64, sign, size / PS_PER_S, size % PS_PER_S);
}

static void bytes_member(FILE *out, const char *key, int64_t value)
{
  fprintf(out, "\"%s\": %" PRId64 ", ", key, value);
}

static void seconds_member(FILE *out, const char *key, int64_t ps, const char *after)
{
  fprintf(out, "\"%s\": ", key);
  json_seconds(out, ps);
  fputs(after, out);
}

/* Six decimals, rounded down; null where nothing is offloaded. */
static void ratio_member(FILE *out, const char *key, int64_t part, int64_t whole)
{
  if (whole == 0) {
    fprintf(out, "\"%s\": null, ", key);
    return;
  }
  int64_t millionths = muldiv_i64(part < 0 ? -part : part, 1000000, whole);
  fprintf(out, "\"%s\": %s%" PRId64 ".%06" PRId64 ", ", key, part < 0 ? "-" : "",
          millionths / 1000000, millionths % 1000000);
}

static void global_ranks(FILE *out, const settings *s, uint32_t pp_rank)
{
  int64_t model = s->parallel.tensor_model_parallel_size * s->parallel.context_parallel_size;
  int64_t dp = s->derived.data_parallel_size;
  int64_t pp = s->parallel.pipeline_model_parallel_size;
  bool pipeline_inside = s->parallel.use_tp_pp_dp_mapping;
  fprintf(out, "\"global_ranks\": [");
  for (int64_t d = 0; d < dp; d++)
    for (int64_t i = 0; i < model; i++) {
      int64_t block = pipeline_inside ? d * pp + pp_rank : pp_rank * dp + d;
      fprintf(out, "%s%" PRId64, d + i ? ", " : "", block * model + i);
    }
  fprintf(out, "], ");
}

static void rank_object(FILE *out, const prediction *p, const rank_prediction *r, uint32_t pp_rank)
{
  fprintf(out, "      {\"pp_rank\": %u, ", pp_rank);
  global_ranks(out, p->settings, pp_rank);
  bytes_member(out, "static_bytes", r->static_bytes);
  bytes_member(out, "allocated_peak_bytes", r->allocated_peak_bytes);
  bytes_member(out, "steady_allocated_peak_bytes", r->steady_allocated_peak_bytes);
  bytes_member(out, "requested_peak_bytes", r->requested_peak_bytes);
  bytes_member(out, "live_peak_bytes", r->live_peak_bytes);
  bytes_member(out, "reserved_peak_bytes", r->reserved_peak_bytes);
  bytes_member(out, "host_pinned_peak_bytes", r->host_pinned_peak_bytes);
  bytes_member(out, "host_pinned_pow2_bytes", r->host_pinned_pow2_bytes);
  bytes_member(out, "d2h_bytes", r->d2h_bytes);
  bytes_member(out, "h2d_bytes", r->h2d_bytes);
  bytes_member(out, "groups", r->groups);
  bytes_member(out, "offloaded_groups", r->offloaded_groups);
  bytes_member(out, "theoretical_saving_bytes", r->theoretical_saving_bytes);
  bytes_member(out, "simulated_saving_bytes", r->simulated_saving_bytes);
  ratio_member(out, "saving_ratio", r->simulated_saving_bytes, r->theoretical_saving_bytes);
  seconds_member(out, "exposed_d2h_s", r->exposed_d2h_ps, ", ");
  seconds_member(out, "exposed_h2d_s", r->exposed_h2d_ps, ", ");
  seconds_member(out, "bubble_s", r->bubble_ps, ", ");
  seconds_member(out, "compute_busy_s", r->compute_busy_ps, ", ");
  seconds_member(out, "d2h_busy_s", r->d2h_busy_ps, ", ");
  seconds_member(out, "h2d_busy_s", r->h2d_busy_ps, ", ");
  fprintf(out, "\"peak_phase\": \"%s\", \"peak_by_class\": {",
          mark_name((mark_kind)r->peak_mark.kind));
  const char *separator = "";
  for (int c = 0; c < BUFFER_CLASSES; c++) {
    if (r->peak_by_class[c] == 0)
      continue;
    fprintf(out, "%s\"%s\": %" PRId64, separator, class_name((buffer_class)c), r->peak_by_class[c]);
    separator = ", ";
  }
  fprintf(out, "}, ");
  seconds_member(out, "step_time_s", r->step_ps, "}");
}

static void iteration_object(FILE *out, const prediction *p, const char *key,
                             const iteration_prediction *it)
{
  fprintf(out, "  \"%s\": {\n    ", key);
  seconds_member(out, "step_time_s", it->step_ps, ",\n");
  fprintf(out, "    \"ranks\": [\n");
  for (uint32_t i = 0; i < p->rank_count; i++) {
    rank_object(out, p, &it->ranks[i], i);
    fprintf(out, "%s\n", i + 1 < p->rank_count ? "," : "");
  }
  fprintf(out, "    ]\n  },\n");
}

static void scenario_member(FILE *out, const settings *s)
{
  char *text = NULL;
  size_t length = 0;
  FILE *memory = open_memstream(&text, &length);
  if (memory == NULL)
    die_refused("memory: asked for a stream in memory");
  settings_print(s, memory);
  fclose(memory);
  fprintf(out, "  \"scenario\": ");
  json_string(out, text);
  fprintf(out, ",\n");
  free(text);
}

void prediction_json(const prediction *p, FILE *out, arena *a)
{
  fprintf(out, "{\n  \"format_version\": %d,\n", JSON_FORMAT_VERSION);
  scenario_member(out, p->settings);
  fprintf(out, "  \"machine\": ");
  json_string(out, p->machine->name);
  fprintf(out, ",\n");
  iteration_object(out, p, "baseline", &p->baseline);
  iteration_object(out, p, "warmup", &p->warmup);
  iteration_object(out, p, "result", &p->result);
  fprintf(out, "  ");
  ratio_member(out, "overhead", p->result.step_ps - p->baseline.step_ps, p->baseline.step_ps);
  fprintf(out, "\n  \"fits\": {\"device\": %s, \"host\": %s},\n", p->fits_device ? "true" : "false",
          p->fits_host ? "true" : "false");
  fprintf(out, "  \"capacity_bytes\": %" PRId64 ",\n", p->capacity_bytes);
  fprintf(out, "  \"host_pinned_total_bytes\": %" PRId64 ",\n", p->host_pinned_total_bytes);
  fprintf(out, "  \"bottleneck\": ");
  json_string(out, prediction_bottleneck(p, a));
  fprintf(out, "\n}\n");
}
