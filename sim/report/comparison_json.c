#include <inttypes.h>

#include "sim/report/comparison.h"
#include "sim/report/json.h"
#include "sim/report/json_members.h"
#include "sim/text/json_text.h"

static void sets_member(FILE *out, const candidate *tried)
{
  fprintf(out, "\"set\": [");
  for (uint32_t i = 0; i < tried->set_count; i++) {
    fputs(i == 0 ? "" : ", ", out);
    json_string(out, tried->sets[i]);
  }
  fprintf(out, "], ");
}

static void row_object(FILE *out, const comparison *c, const comparison_row *r)
{
  fprintf(out, "    {\"name\": ");
  json_string(out, r->tried.name);
  fprintf(out, ", \"system\": \"%s\", \"recompute_granularity\": \"%s\", ",
          offload_systems[r->tried.system].name,
          choice_word(KEY_recompute_recompute_granularity, r->tried.recompute));
  sets_member(out, &r->tried);
  bytes_member(out, "allocated_peak_bytes", r->peak_bytes);
  bytes_member(out, "saving_bytes", r->saving_bytes);
  seconds_member(out, "step_time_s", r->step_ps, ", ");
  ratio_member(out, "overhead", r->step_ps - c->reference.step_ps, c->reference.step_ps);
  bytes_member(out, "theoretical_saving_bytes", r->theoretical_saving_bytes);
  bytes_member(out, "simulated_saving_bytes", r->simulated_saving_bytes);
  ratio_member(out, "saving_ratio", r->simulated_saving_bytes, r->theoretical_saving_bytes);
  bytes_member(out, "host_pinned_total_bytes", r->host_pinned_total_bytes);
  bytes_member(out, "d2h_bytes", r->d2h_bytes);
  bytes_member(out, "h2d_bytes", r->h2d_bytes);
  seconds_member(out, "exposed_d2h_s", r->exposed_d2h_ps, ", ");
  seconds_member(out, "exposed_h2d_s", r->exposed_h2d_ps, ", ");
  fprintf(out, "\"fits_device\": %s, \"fits_host\": %s, \"on_front\": %s}",
          r->fits_device ? "true" : "false", r->fits_host ? "true" : "false",
          r->on_front ? "true" : "false");
}

void comparison_json(const comparison *c, FILE *out)
{
  fprintf(out, "{\n  \"format_version\": %d,\n  \"machine\": ", JSON_FORMAT_VERSION);
  json_string(out, c->machine->name);
  fprintf(out, ",\n  \"capacity_bytes\": %" PRId64 ",\n  \"reference\": ", c->capacity_bytes);
  json_string(out, c->reference.tried.name);
  fprintf(out, ",\n  \"rows\": [\n");
  for (uint32_t i = 0; i < c->row_count; i++) {
    row_object(out, c, &c->rows[i]);
    fprintf(out, "%s\n", i + 1 < c->row_count ? "," : "");
  }
  fprintf(out, "  ],\n  \"refused\": [");
  for (uint32_t i = 0; i < c->refused_count; i++) {
    fprintf(out, "%s\n    {\"systems\": ", i == 0 ? "" : ",");
    json_string(out, c->refused[i].systems);
    fprintf(out, ", \"reason\": ");
    json_string(out, c->refused[i].reason);
    fputc('}', out);
  }
  fprintf(out, "%s]\n}\n", c->refused_count > 0 ? "\n  " : "");
}
