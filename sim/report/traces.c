#include "sim/report/traces.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/report/text.h"
#include "sim/text/json_text.h"

/* ==== for people ==== */

static void print_file(FILE *out, const char *letter, const char *name, const trace *t, arena *a)
{
  fprintf(out, "%s  %s: %s of %s, %s, %s, %s\n", letter, name, t->header.source, t->header.scenario,
          figure_count(a, t->header.ranks, "rank", "ranks"),
          figure_count(a, t->header.steps, "step", "steps"),
          figure_count(a, t->ops.count, "op", "ops"));
}

/* ---- ranks ---- */

enum { RANK, OPS_A, OPS_B, ORDER, BYTES_A, BYTES_B, BYTES, COLUMNS };

static const char *same_or_op(arena *a, const trace_pair *p)
{
  const trace_op *o = p->a != NULL ? p->a : p->b;
  return o == NULL ? "same" : arena_printf(a, "op %" PRIu32, o->op);
}

static void fill_row(const char **cells, uint32_t rank, const rank_comparison *r, figure_unit unit,
                     arena *a)
{
  bool same_order = r->order.a == NULL && r->order.b == NULL;
  cells[RANK] = arena_printf(a, "%" PRIu32, rank);
  cells[OPS_A] = arena_printf(a, "%" PRIu32, r->ops_a);
  cells[OPS_B] = arena_printf(a, "%" PRIu32, r->ops_b);
  cells[ORDER] = same_or_op(a, &r->order);
  cells[BYTES_A] = figure_in(a, r->highest_a, unit);
  cells[BYTES_B] = figure_in(a, r->highest_b, unit);
  cells[BYTES] = same_order ? same_or_op(a, &r->bytes) : "-";
}

static void print_ranks(const trace_comparison *c, FILE *out, arena *a)
{
  grid g = grid_new(a, COLUMNS, c->rank_count);
  int64_t largest = 0;
  for (uint32_t r = 0; r < c->rank_count; r++)
    largest = max_i64(largest, max_i64(c->ranks[r].highest_a, c->ranks[r].highest_b));
  figure_unit unit = unit_of_bytes(largest);
  const char *heads[2][COLUMNS] = {
    { "", "ops", "ops", "order differs", "requested", "requested", "bytes differ" },
    { "rank", "a", "b", "first at", arena_printf(a, "a, %s", unit.name),
      arena_printf(a, "b, %s", unit.name), "first at" }
  };
  for (int line = 0; line < 2; line++)
    for (int i = 0; i < COLUMNS; i++)
      g.head[line][i] = heads[line][i];
  for (uint32_t r = 0; r < c->rank_count; r++)
    fill_row(&g.cells[r * COLUMNS], r, &c->ranks[r], unit, a);
  fputc('\n', out);
  grid_print(&g, out);
}

/* ---- ops ---- */

static void print_op(FILE *out, const char *letter, const trace_op *o)
{
  fprintf(out, "  %s  ", letter);
  if (o == NULL) {
    fputs("has ended\n", out);
    return;
  }
  fprintf(out, "step %" PRIu32 " rank %" PRIu32 " op %" PRIu32 ": %s", o->step, o->rank, o->op,
          o->kind);
  if (o->call[0] != '\0') fprintf(out, " %s", o->call);
  fprintf(out, " on %s", o->stream);
  if (o->layer >= 0 || o->module[0] != '\0') fputs(" @", out);
  if (o->layer >= 0) fprintf(out, " layer %" PRId32, o->layer);
  if (o->module[0] != '\0') fprintf(out, " %s", o->module);
  fprintf(out, ", %s", o->phase);
  if (strcmp(o->phase, "forward") == 0 || strcmp(o->phase, "backward") == 0)
    fprintf(out, " m%" PRIu32 " c%" PRIu32, o->microbatch, o->chunk);
  fputc('\n', out);
}

static void print_pair(FILE *out, const trace_pair *p)
{
  print_op(out, "a", p->a);
  print_op(out, "b", p->b);
}

static void print_order(const trace_comparison *c, FILE *out)
{
  uint32_t r = 0;
  while (r < c->rank_count && c->ranks[r].order.a == NULL && c->ranks[r].order.b == NULL)
    r++;
  if (r == c->rank_count) {
    fputs("\norder: the same ops in the same order\n", out);
    return;
  }
  fprintf(out, "\norder: differs, on rank %" PRIu32 " first at\n", r);
  print_pair(out, &c->ranks[r].order);
}

static void print_bytes(const trace_comparison *c, FILE *out)
{
  uint32_t r = 0;
  while (r < c->rank_count && c->ranks[r].bytes_differ == 0)
    r++;
  if (!c->same_order) return;
  if (r == c->rank_count) {
    fputs("memory: the same requested bytes at every op\n", out);
    return;
  }
  const trace_pair *p = &c->ranks[r].bytes;
  fprintf(out,
          "memory: differs at %" PRIu32 " of %" PRIu32 " ops of rank %" PRIu32 ", first %" PRId64
          " and %" PRId64 " bytes at\n",
          c->ranks[r].bytes_differ, c->ranks[r].ops_a, r, p->a->requested_bytes,
          p->b->requested_bytes);
  print_pair(out, p);
}

static void print_fingerprint(FILE *out, const char *letter, const trace_output *o)
{
  assert(o->known);
  fprintf(out, "  %s  %016" PRIx64 "%016" PRIx64 " %s\n", letter, o->fingerprint[0],
          o->fingerprint[1], o->buffer);
}

static void print_outputs(const trace_comparison *c, FILE *out, arena *a)
{
  assert(c->outputs_differ <= c->outputs);
  fprintf(out, "outputs: %s compared, of %s", figure_count(a, c->outputs, "one", "outputs"),
          figure_count(a, c->pairs, "op", "ops"));
  if (c->only_a + c->only_b > 0)
    fprintf(out, " (only in a: %" PRIu32 ", only in b: %" PRIu32 ")", c->only_a, c->only_b);
  if (c->outputs_differ == 0) {
    fputs(c->outputs > 0 ? ": the same bits\n" : ": contents are not known\n", out);
    return;
  }
  fprintf(out, ": %" PRIu32 " differ, the first of\n", c->outputs_differ);
  print_pair(out, &c->output);
  print_fingerprint(out, "a", &c->a->outputs.items[c->output.a->first_output + c->output_index]);
  print_fingerprint(out, "b", &c->b->outputs.items[c->output.b->first_output + c->output_index]);
}

void traces_table(const trace_comparison *c, const trace_names *names, bool outputs_only, FILE *out,
                  arena *a)
{
  print_file(out, "a", names->a, c->a, a);
  print_file(out, "b", names->b, c->b, a);
  print_ranks(c, out, a);
  if (outputs_only)
    fputc('\n', out);
  else
    print_order(c, out);
  if (!outputs_only) print_bytes(c, out);
  print_outputs(c, out, a);
}

/* ==== for programs ==== */

static void text_member(FILE *out, const char *key, const char *text)
{
  json_member(out, key, text);
  fputs(", ", out);
}

static void json_file(FILE *out, const char *key, const char *name, const trace *t)
{
  fprintf(out, "  \"%s\": {", key);
  text_member(out, "file", name);
  text_member(out, "source", t->header.source);
  text_member(out, "scenario", t->header.scenario);
  fprintf(out,
          "\"ranks\": %" PRIu32 ", \"steps\": %" PRIu32 ", \"ops\": %" PRIu32
          ", \"step_ps\": %" PRId64 "},\n",
          t->header.ranks, t->header.steps, t->ops.count, median_step_ps(t));
}

static void json_op(FILE *out, const char *key, const trace_op *o)
{
  fprintf(out, "\"%s\": ", key);
  if (o == NULL) {
    fputs("null", out);
    return;
  }
  fprintf(out, "{\"step\": %" PRIu32 ", \"rank\": %" PRIu32 ", \"op\": %" PRIu32 ", ", o->step,
          o->rank, o->op);
  text_member(out, "kind", o->kind);
  text_member(out, "name", o->name);
  text_member(out, "call", o->call);
  text_member(out, "stream", o->stream);
  fprintf(out, "\"layer\": %" PRId32 ", ", o->layer);
  text_member(out, "module", o->module);
  text_member(out, "phase", o->phase);
  fprintf(out,
          "\"microbatch\": %" PRIu32 ", \"chunk\": %" PRIu32 ", \"requested_bytes\": %" PRId64 "}",
          o->microbatch, o->chunk, o->requested_bytes);
}

static void json_pair(FILE *out, const char *key, const trace_pair *p)
{
  fprintf(out, "\"%s\": ", key);
  if (p->a == NULL && p->b == NULL) {
    fputs("null", out);
    return;
  }
  fputc('{', out);
  json_op(out, "a", p->a);
  fputs(", ", out);
  json_op(out, "b", p->b);
  fputc('}', out);
}

static void json_rank(FILE *out, uint32_t rank, const rank_comparison *r)
{
  fprintf(out, "    {\"rank\": %" PRIu32 ", \"ops_a\": %" PRIu32 ", \"ops_b\": %" PRIu32 ",\n",
          rank, r->ops_a, r->ops_b);
  fprintf(out,
          "     \"requested_peak_bytes_a\": %" PRId64 ", \"requested_peak_bytes_b\": %" PRId64
          ",\n     \"ops_with_other_bytes\": %" PRIu32 ",\n     ",
          r->highest_a, r->highest_b, r->bytes_differ);
  json_pair(out, "first_other_op", &r->order);
  fputs(",\n     ", out);
  json_pair(out, "first_other_bytes", &r->bytes);
  fputc('}', out);
}

static void json_output(FILE *out, const trace_comparison *c)
{
  fputs("  \"first_other_output\": ", out);
  if (c->output.a == NULL) {
    fputs("null,\n", out);
    return;
  }
  const trace_output *a = &c->a->outputs.items[c->output.a->first_output + c->output_index];
  const trace_output *b = &c->b->outputs.items[c->output.b->first_output + c->output_index];
  fputs("{", out);
  text_member(out, "buffer", a->buffer);
  fprintf(out,
          "\"fingerprint_a\": \"%016" PRIx64 "%016" PRIx64 "\", \"fingerprint_b\": \"%016" PRIx64
          "%016" PRIx64 "\", ",
          a->fingerprint[0], a->fingerprint[1], b->fingerprint[0], b->fingerprint[1]);
  json_pair(out, "op", &c->output);
  fputs("},\n", out);
}

static const char *truth(bool value)
{
  return value ? "true" : "false";
}

void traces_json(const trace_comparison *c, const trace_names *names, bool same,
                 const timings *timed, const gate_list *g, FILE *out)
{
  fprintf(out, "{\n  \"format_version\": 1,\n  \"same\": %s,\n", truth(same));
  json_file(out, "a", names->a, c->a);
  json_file(out, "b", names->b, c->b);
  fprintf(out, "  \"same_order\": %s,\n  \"same_bytes\": %s,\n", truth(c->same_order),
          truth(c->same_bytes));
  fprintf(out,
          "  \"ops_compared\": %" PRIu32 ",\n  \"ops_only_a\": %" PRIu32
          ",\n  \"ops_only_b\": %" PRIu32 ",\n",
          c->pairs, c->only_a, c->only_b);
  fprintf(out, "  \"outputs_compared\": %" PRIu32 ",\n  \"outputs_differ\": %" PRIu32 ",\n",
          c->outputs, c->outputs_differ);
  json_output(out, c);
  if (timed != NULL) timing_json(timed, out);
  gates_json(g, out);
  fputs(",\n", out);
  fputs("  \"ranks\": [\n", out);
  for (uint32_t r = 0; r < c->rank_count; r++) {
    if (r > 0) fputs(",\n", out);
    json_rank(out, r, &c->ranks[r]);
  }
  fputs("\n  ]\n}\n", out);
}
