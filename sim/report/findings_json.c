#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/diag.h"
#include "sim/report/findings_parts.h"
#include "sim/report/json.h"
#include "sim/text/json_text.h"

/* A line of the plan as a string, without the blanks around it. */
static void line_string(FILE *out, const char *line)
{
  char *text = strdup(line + strspn(line, " "));
  if (text == NULL) die_refused("no memory for a line of a plan");
  text[strcspn(text, "\n")] = '\0';
  json_string(out, text);
  free(text);
}

static void print_op(FILE *out, const verification *v, const finding *f, uint32_t op)
{
  char *line = NULL;
  size_t length;
  FILE *text = open_memstream(&line, &length);
  if (text == NULL) die_refused("no memory for a line of a plan");
  plan_print_op(text, v->plan, f->rank, op);
  fclose(text);
  fprintf(out, "{\"op\": %" PRIu32 ", \"text\": ", op);
  line_string(out, line);
  fputs("}", out);
  free(line);
}

static void print_ops(FILE *out, const verification *v, const finding *f)
{
  fputs("\"ops\": [", out);
  if (f->first != NO_OP) {
    print_op(out, v, f, f->first);
    fputs(", ", out);
  }
  print_op(out, v, f, f->second);
  fprintf(out, "], \"ranks\": [%" PRIu32 "], ", f->rank);
}

static void print_buffer(FILE *out, const verification *v, const finding *f)
{
  fputs("\"buffer\": ", out);
  if (f->buffer == NO_BUFFER) {
    fputs("null, ", out);
    return;
  }
  const plan_buffer *b = &v->plan->ranks[f->rank].buffers.items[f->buffer];
  fprintf(out, "{\"number\": %" PRIu32 ", \"name\": ", f->buffer);
  json_string(out, v->plan->tensors.items[b->tensor].name);
  fprintf(out, ", \"bytes\": %" PRId64 "}, ", b->bytes);
}

static void print_edge(FILE *out, const verification *v, const finding *f)
{
  const plan_op *ops = v->plan->ranks[f->rank].ops.items;
  fputs("\"missing_edge\": ", out);
  if (!finding_lacks_edge(v, f)) {
    fputs("null", out);
    return;
  }
  fprintf(out,
          "{\"stream\": \"%s\", \"before_op\": %" PRIu32 ", \"waits_for\": \"%s\", "
          "\"after_op\": %" PRIu32 "}",
          stream_name((plan_stream)ops[f->second].stream), f->second,
          stream_name((plan_stream)ops[f->first].stream), f->first);
}

static void print_finding(FILE *out, const verified_iteration *i, const finding *f)
{
  fputs("{\"iteration\": ", out);
  json_string(out, i->name);
  fprintf(out, ", \"kind\": \"%s\", \"severity\": \"%s\", ", finding_name((finding_kind)f->kind),
          severity_name(finding_severity_of((finding_kind)f->kind)));
  print_ops(out, i->verification, f);
  print_buffer(out, i->verification, f);
  print_edge(out, i->verification, f);
  fputs("}", out);
}

static bool all_safe(const verified_iteration *iterations, uint32_t count)
{
  for (uint32_t i = 0; i < count; i++)
    if (!iterations[i].verification->safe) return false;
  return true;
}

void findings_json(const verified_iteration *iterations, uint32_t count, FILE *out)
{
  const char *separator = "";
  fprintf(out, "{\"format_version\": %d, \"safe\": %s, \"findings\": [", JSON_FORMAT_VERSION,
          all_safe(iterations, count) ? "true" : "false");
  for (uint32_t i = 0; i < count; i++) {
    const finding_array *all = &iterations[i].verification->findings;
    for (uint32_t f = 0; f < all->count; f++) {
      fputs(separator, out);
      print_finding(out, &iterations[i], &all->items[f]);
      separator = ", ";
    }
  }
  fputs("]}\n", out);
}
