#include <inttypes.h>

#include "sim/report/traces.h"
#include "sim/text/json_text.h"

static void text_member(FILE *out, const char *key, const char *text)
{
  fprintf(out, "\"%s\": ", key);
  json_string(out, text);
  fputs(", ", out);
}

static void print_file(FILE *out, const char *key, const char *name, const trace *t)
{
  fprintf(out, "  \"%s\": {", key);
  text_member(out, "file", name);
  text_member(out, "source", t->header.source);
  text_member(out, "scenario", t->header.scenario);
  fprintf(out, "\"ranks\": %" PRIu32 ", \"steps\": %" PRIu32 ", \"ops\": %" PRIu32 "},\n",
          t->header.ranks, t->header.steps, t->ops.count);
}

static void print_op(FILE *out, const char *key, const trace_op *o)
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

static void print_pair(FILE *out, const char *key, const trace_pair *p)
{
  fprintf(out, "\"%s\": ", key);
  if (p->a == NULL && p->b == NULL) {
    fputs("null", out);
    return;
  }
  fputc('{', out);
  print_op(out, "a", p->a);
  fputs(", ", out);
  print_op(out, "b", p->b);
  fputc('}', out);
}

static void print_rank(FILE *out, uint32_t rank, const rank_comparison *r)
{
  fprintf(out, "    {\"rank\": %" PRIu32 ", \"ops_a\": %" PRIu32 ", \"ops_b\": %" PRIu32 ",\n",
          rank, r->ops_a, r->ops_b);
  fprintf(out,
          "     \"requested_peak_bytes_a\": %" PRId64 ", \"requested_peak_bytes_b\": %" PRId64
          ",\n     \"ops_with_other_bytes\": %" PRIu32 ",\n     ",
          r->highest_a, r->highest_b, r->bytes_differ);
  print_pair(out, "first_other_op", &r->order);
  fputs(",\n     ", out);
  print_pair(out, "first_other_bytes", &r->bytes);
  fputc('}', out);
}

static void print_output(FILE *out, const trace_comparison *c)
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
  print_pair(out, "op", &c->output);
  fputs("},\n", out);
}

static const char *truth(bool value)
{
  return value ? "true" : "false";
}

void traces_json(const trace_comparison *c, const trace_names *names, bool same,
                 const timing_report *timed, FILE *out)
{
  fprintf(out, "{\n  \"format_version\": 1,\n  \"same\": %s,\n", truth(same));
  print_file(out, "a", names->a, c->a);
  print_file(out, "b", names->b, c->b);
  fprintf(out, "  \"same_order\": %s,\n  \"same_bytes\": %s,\n", truth(c->same_order),
          truth(c->same_bytes));
  fprintf(out,
          "  \"ops_compared\": %" PRIu32 ",\n  \"ops_only_a\": %" PRIu32
          ",\n  \"ops_only_b\": %" PRIu32 ",\n",
          c->pairs, c->only_a, c->only_b);
  fprintf(out, "  \"outputs_compared\": %" PRIu32 ",\n  \"outputs_differ\": %" PRIu32 ",\n",
          c->outputs, c->outputs_differ);
  print_output(out, c);
  if (timed != NULL) timing_json(timed, out);
  fputs("  \"ranks\": [\n", out);
  for (uint32_t r = 0; r < c->rank_count; r++) {
    if (r > 0) fputs(",\n", out);
    print_rank(out, r, &c->ranks[r]);
  }
  fputs("\n  ]\n}\n", out);
}
