#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "sim/predict/idle_offload.h"
#include "sim/predict/range.h"
#include "sim/predict/uneven_load.h"
#include "sim/report/json.h"
#include "sim/report/prediction.h"
#include "sim/text/scalar.h"

/* Of what lives at a peak, the largest. */
enum { JSON_HOLDINGS = 16 };

static void global_ranks(FILE *out, const settings *s, uint32_t pp_rank, arena *a)
{
  int64_t count = settings_global_ranks(s, pp_rank, NULL);
  assert(count > 0);
  int64_t *ranks = ARENA_ARRAY(a, int64_t, (size_t)count);
  settings_global_ranks(s, pp_rank, ranks);
  fprintf(out, "\"global_ranks\": [");
  for (int64_t i = 0; i < count; i++)
    fprintf(out, "%s%" PRId64, i == 0 ? "" : ", ", ranks[i]);
  fprintf(out, "], ");
}

static void peak_classes(FILE *out, const rank_prediction *r)
{
  const char *separator = "";
  fprintf(out, "\"peak_by_class\": {");
  for (int c = 0; c < BUFFER_CLASSES; c++) {
    if (r->peak_by_class[c] == 0) continue;
    fprintf(out, "%s\"%s\": %" PRId64, separator, class_name((buffer_class)c), r->peak_by_class[c]);
    separator = ", ";
  }
  fprintf(out, "}, ");
}

static void peak_modules(FILE *out, const rank_prediction *r)
{
  fprintf(out, "\"peak_by_module\": [");
  for (uint32_t i = 0; i < r->peak_holding_count && i < JSON_HOLDINGS; i++) {
    const replay_holding *h = &r->peak_holdings[i];
    fprintf(out, "%s{\"module\": ", i == 0 ? "" : ", ");
    json_string(out, h->module);
    fprintf(out, ", \"class\": \"%s\", \"bytes\": %" PRId64 ", \"buffers\": %u}",
            class_name((buffer_class)h->purpose), h->bytes, h->buffers);
  }
  fprintf(out, "], ");
}

static void peak_members(FILE *out, const rank_prediction *r)
{
  fprintf(out,
          "\"peak_phase\": \"%s\", \"peak_microbatch\": %u, \"peak_chunk\": %u, "
          "\"peak_layer\": %d, \"peak_module\": ",
          mark_name((mark_kind)r->peak_mark.kind), r->peak_mark.microbatch, r->peak_mark.chunk,
          r->peak_layer);
  json_string(out, r->peak_module);
  fprintf(out, ", ");
  peak_classes(out, r);
  peak_modules(out, r);
}

static void rank_object(FILE *out, const prediction *p, const rank_prediction *r, uint32_t pp_rank,
                        const char *defects, arena *a)
{
  fprintf(out, "      {\"pp_rank\": %u, ", pp_rank);
  global_ranks(out, p->settings, pp_rank, a);
  bytes_member(out, "static_bytes", r->static_bytes);
  bytes_member(out, "allocated_peak_bytes", r->allocated_peak_bytes);
  bytes_member(out, "steady_allocated_peak_bytes", r->steady_allocated_peak_bytes);
  bytes_member(out, "requested_peak_bytes", r->requested_peak_bytes);
  bytes_member(out, "live_peak_bytes", r->live_peak_bytes);
  bytes_member(out, "reserved_peak_bytes", r->reserved_peak_bytes);
  bytes_member(out, "host_pinned_peak_bytes", r->host_pinned_peak_bytes);
  bytes_member(out, "host_pinned_pow2_bytes", r->host_pinned_pow2_bytes);
  bytes_member(out, "host_pageable_peak_bytes", r->host_pageable_peak_bytes);
  bytes_member(out, "d2h_bytes", r->d2h_bytes);
  bytes_member(out, "h2d_bytes", r->h2d_bytes);
  bytes_member(out, "disk_write_bytes", r->disk_write_bytes);
  bytes_member(out, "disk_read_bytes", r->disk_read_bytes);
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
  seconds_member(out, "waiting_slows_s", r->waiting_slows_ps, ", ");
  seconds_member(out, "host_arithmetic_s", r->host_arithmetic_ps, ", ");
  seconds_member(out, "optimizer_d2h_s", r->optimizer_d2h_ps, ", ");
  seconds_member(out, "optimizer_h2d_s", r->optimizer_h2d_ps, ", ");
  peak_members(out, r);
  fprintf(out, "\"defects\": ");
  if (defects != NULL)
    json_string(out, defects);
  else
    fputs("null", out);
  fprintf(out, ", ");
  fprintf(out, "\"back_pressure\": %u, \"fits\": %s, ", r->back_pressure,
          r->out_of_memory ? "false" : "true");
  seconds_member(out, "step_time_s", r->step_ps, "}");
}

static void iteration_object(FILE *out, const prediction *p, const char *key,
                             const iteration_prediction *it, arena *a)
{
  fprintf(out, "  \"%s\": {\n    ", key);
  seconds_member(out, "step_time_s", it->step_ps, ",\n");
  fprintf(out, "    \"ranks\": [\n");
  for (uint32_t i = 0; i < p->rank_count; i++) {
    rank_object(out, p, &it->ranks[i], i, it == &p->result ? p->defects[i] : NULL, a);
    fprintf(out, "%s\n", i + 1 < p->rank_count ? "," : "");
  }
  fprintf(out, "    ]\n  },\n");
}

/* ---- the scenario, by the key table ---- */

static void put_INT(FILE *out, int64_t value)
{
  if (value == UNSET)
    fputs("null", out);
  else
    fprintf(out, "%" PRId64, value);
}

static void put_LIST(FILE *out, name_list value)
{
  json_strings(out, value.names, value.count);
}

static void put_CHOICES(FILE *out, setting_key key, choice_list value)
{
  fputc('[', out);
  for (uint32_t i = 0; i < value.count; i++) {
    fputs(i == 0 ? "" : ", ", out);
    json_string(out, choice_word(key, value.items[i]));
  }
  fputc(']', out);
}

#define PUT_INT(section, key)     put_INT(out, s->section.key)
#define PUT_REAL(section, key)    scalar_print_double(out, s->section.key)
#define PUT_FLAG(section, key)    fputs(s->section.key ? "true" : "false", out)
#define PUT_TEXT(section, key)    json_string(out, s->section.key)
#define PUT_LIST(section, key)    put_LIST(out, s->section.key)
#define PUT_CHOICE(section, key)  json_string(out, chosen_word(s, KEY_##section##_##key))
#define PUT_CHOICES(section, key) put_CHOICES(out, KEY_##section##_##key, s->section.key)

/* A key's name; the first of a section opens the section's object. */
static void scenario_key(FILE *out, const char **section, const char *of_section, const char *key)
{
  if (strcmp(*section, of_section) == 0)
    fprintf(out, ", \"%s\": ", key);
  else
    fprintf(out, "%s    \"%s\": {\"%s\": ", **section == '\0' ? "" : "},\n", of_section, key);
  *section = of_section;
}

static void scenario_member(FILE *out, const settings *s)
{
  const char *at = "";
  fprintf(out, "  \"scenario\": {\n");
#define KEY(section, key, type, ...)                                                               \
  scenario_key(out, &at, #section, #key);                                                          \
  PUT_##type(section, key);
#include "sim/config/keys.def"
  fprintf(out, "}\n  },\n");
}

/* ---- what would make it fit ---- */

static const char *cause_word(shortage_cause cause)
{
  switch (cause) {
  case SHORT_OF_NOTHING: return "null";
  case SHORT_BY_ALLOCATION: return "\"allocation\"";
  case SHORT_BY_FRAGMENTATION: return "\"fragmentation\"";
  case SHORT_ON_HOST: return "\"host\"";
  }
  assert(0 && "cause out of range");
  return "null";
}

static void error_object(FILE *out, const first_error *e)
{
  if (e->kind == NULL) {
    fputs("null", out);
    return;
  }
  fprintf(out, "{\"kind\": \"%s\", \"rank\": %" PRIu32 ", \"where\": ", e->kind, e->rank);
  json_string(out, e->where);
  fputc('}', out);
}

static void suggestion_object(FILE *out, const prediction *p, const suggestion *s)
{
  fprintf(out, "    {\"name\": ");
  json_string(out, s->tried.name);
  fputs(", \"set\": ", out);
  json_strings(out, s->tried.sets, s->tried.set_count);
  fprintf(out, ", \"fits\": %s, ", s->short_of.cause == SHORT_OF_NOTHING ? "true" : "false");
  fprintf(out, "\"safe\": %s, \"first_error\": ", s->unsafe.kind == NULL ? "true" : "false");
  error_object(out, &s->unsafe);
  fputs(", ", out);
  bytes_member(out, "missing_bytes", s->short_of.missing_bytes);
  fprintf(out, "\"missing_cause\": %s, ", cause_word(s->short_of.cause));
  bytes_member(out, "allocated_peak_bytes", s->allocated_peak_bytes);
  bytes_member(out, "reserved_peak_bytes", s->reserved_peak_bytes);
  bytes_member(out, "host_pinned_total_bytes", s->host_pinned_total_bytes);
  ratio_member(out, "cost", s->step_ps - p->result.step_ps, p->result.step_ps);
  throughput_members(out, s->speed);
  seconds_member(out, "step_time_s", s->step_ps, "}");
}

static void suggestions_member(FILE *out, const prediction *p, const suggestions *found)
{
  fprintf(out, "  \"suggestions\": ");
  if (found == NULL) {
    fputs("null,\n  \"suggestions_left_out\": 0", out);
    return;
  }
  fputc('[', out);
  for (uint32_t i = 0; i < found->count; i++) {
    fputs(i == 0 ? "\n" : ",\n", out);
    suggestion_object(out, p, &found->items[i]);
  }
  fprintf(out, "%s],\n  \"suggestions_left_out\": %u", found->count > 0 ? "\n  " : "",
          found->left_out);
}

static void idle_member(FILE *out, const prediction *p, arena *a)
{
  uint32_t count;
  const idle_offload *idle = idle_offloads(p, &count, a);
  fprintf(out, "  \"moves_nothing\": [");
  for (uint32_t i = 0; i < count; i++) {
    fprintf(out, "%s{\"name\": \"%s\", \"reason\": ", i == 0 ? "" : ", ", idle[i].name);
    json_string(out, idle[i].reason);
    fputc('}', out);
  }
  fprintf(out, "],\n");
}

static void fit_members(FILE *out, const prediction *p)
{
  shortage s = prediction_shortage(p);
  bool on_device = s.cause == SHORT_BY_ALLOCATION || s.cause == SHORT_BY_FRAGMENTATION;
  fprintf(out, "  \"fits\": %s,\n", s.cause == SHORT_OF_NOTHING ? "true" : "false");
  fprintf(out, "  \"missing_bytes\": %" PRId64 ",\n", s.missing_bytes);
  fprintf(out, "  \"missing_cause\": %s,\n  \"missing_rank\": ", cause_word(s.cause));
  if (on_device)
    fprintf(out, "%u", s.rank);
  else
    fputs("null", out);
  fprintf(out, ",\n  \"margin_bytes\": %" PRId64 ",\n",
          p->fits_device ? prediction_margin_bytes(p) : 0);
}

static void safety_member(FILE *out, const safety_summary *s)
{
  bool safe = summary_is_safe(s);
  fprintf(out,
          "  \"safety\": {\"safe\": %s, \"errors_of_first_step\": %" PRIu64
          ", \"errors_of_later_steps\": %" PRIu64 ", \"first\": ",
          safe ? "true" : "false", s->errors[0], s->errors[1]);
  error_object(out, &s->first);
  fputs("},\n", out);
}

/* Which lengths of sequences the figures are of. */
static void lengths_member(FILE *out, const prediction *p, int64_t longest)
{
  const struct training_settings *t = &p->settings->training;
  fprintf(out, "  \"lengths\": {\"assumed_tokens\": %" PRId64 ", \"packed\": %s, ", t->seq_length,
          t->packed_sequences ? "true" : "false");
  if (longest == LONGEST_NOT_SOUGHT)
    fputs("\"longest_that_fits_tokens\": null},\n", out);
  else
    fprintf(out, "\"longest_that_fits_tokens\": %" PRId64 "},\n", longest);
}

/* What an error of each class makes of the step. */
static void range_member(FILE *out, const step_range *r)
{
  const char *separator = "";
  fprintf(out, "  \"range\": ");
  if (r == NULL) {
    fputs("null,\n", out);
    return;
  }
  fputc('{', out);
  seconds_member(out, "least_s", r->least_ps, ", ");
  seconds_member(out, "most_s", r->most_ps, ", ");
  fprintf(out, "\"nominal_percent\": %d, \"parts\": [", RANGE_NOMINAL_PERCENT);
  for (rate_class c = 0; c < RATE_CLASSES; c++) {
    fprintf(out, "%s{\"rates\": \"%s\", ", separator, range_part_name(c));
    seconds_member(out, "faster_s", r->parts[c].faster_ps, ", ");
    seconds_member(out, "slower_s", r->parts[c].slower_ps, "}");
    separator = ", ";
  }
  fputs("]},\n", out);
}

static void uneven_load_member(FILE *out, const prediction *p)
{
  fputs("  \"uneven_load\": ", out);
  if (p->uneven_growth_bytes == NULL) {
    fputs("null,\n", out);
    return;
  }
  fprintf(out, "{\"more_rows_percent\": %d, \"peak_growth_bytes\": [", UNEVEN_PERCENT);
  for (uint32_t i = 0; i < p->rank_count; i++)
    fprintf(out, "%s%" PRId64, i == 0 ? "" : ", ", p->uneven_growth_bytes[i]);
  fputs("]},\n", out);
}

void prediction_json(const prediction *p, const suggestions *found, int64_t longest, FILE *out,
                     arena *a)
{
  fprintf(out, "{\n  \"format_version\": %d,\n", JSON_FORMAT_VERSION);
  scenario_member(out, p->settings);
  fprintf(out, "  \"machine\": ");
  json_string(out, p->machine->name);
  fprintf(out, ",\n");
  iteration_object(out, p, "baseline", &p->baseline, a);
  iteration_object(out, p, "warmup", &p->warmup, a);
  iteration_object(out, p, "result", &p->result, a);
  fprintf(out, "  ");
  ratio_member(out, "overhead", p->result.step_ps - p->baseline.step_ps, p->baseline.step_ps);
  fputc('\n', out);
  fprintf(out, "  ");
  throughput_members(out, p->speed);
  fputc('\n', out);
  range_member(out, p->range);
  uneven_load_member(out, p);
  fit_members(out, p);
  safety_member(out, &p->safety);
  fprintf(out, "  \"capacity_bytes\": %" PRId64 ",\n", p->capacity_bytes);
  fprintf(out, "  \"host_pinned_total_bytes\": %" PRId64 ",\n", p->host_pinned_total_bytes);
  fprintf(out, "  \"host_total_bytes\": %" PRId64 ",\n", p->host_total_bytes);
  fprintf(out, "  \"bottleneck\": ");
  json_string(out, bottleneck_sentence(p, a));
  fprintf(out, ",\n");
  idle_member(out, p, a);
  lengths_member(out, p, longest);
  suggestions_member(out, p, found);
  fprintf(out, "\n}\n");
}
