#include "sim/report/findings.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/diag.h"
#include "sim/plan/text.h"
#include "sim/report/json.h"
#include "sim/report/text.h"

/* ---- like findings ---- */

/* Findings that differ only in layer and micro-batch. */
typedef struct finding_group {
  const finding *first;
  uint64_t count;
  int64_t bytes; /* of their buffers */
} finding_group;

static const plan_op *op_of(const verification *v, const finding *f, uint32_t op)
{
  assert(f->rank < v->plan->rank_count && op < v->plan->ranks[f->rank].ops.count);
  return &v->plan->ranks[f->rank].ops.items[op];
}

static const char *module_of(const verification *v, const finding *f, uint32_t op)
{
  const plan_op *o = op == NO_OP ? NULL : op_of(v, f, op);
  return o == NULL || o->site == 0 ? "" : v->plan->sites.items[o->site].module;
}

static const char *tensor_of(const verification *v, const finding *f)
{
  const rank_plan *r = &v->plan->ranks[f->rank];
  assert(f->buffer == NO_BUFFER || f->buffer < r->buffers.count);
  return f->buffer == NO_BUFFER ? ""
                                : v->plan->tensors.items[r->buffers.items[f->buffer].tensor].name;
}

static bool same_op(const verification *v, const finding *a, const finding *b, uint32_t op_a,
                    uint32_t op_b)
{
  if (op_a == NO_OP || op_b == NO_OP) return op_a == op_b;
  const plan_op *x = op_of(v, a, op_a), *y = op_of(v, b, op_b);
  return x->kind == y->kind && x->stream == y->stream &&
         strcmp(module_of(v, a, op_a), module_of(v, b, op_b)) == 0;
}

static bool is_alike(const verification *v, const finding *a, const finding *b)
{
  return a->kind == b->kind && a->stream == b->stream && a->step_before == b->step_before &&
         a->place_count == 0 && same_op(v, a, b, a->first, b->first) &&
         same_op(v, a, b, a->second, b->second) && strcmp(tensor_of(v, a), tensor_of(v, b)) == 0;
}

/* `groups` has room for all findings; returns how many groups there are. */
static uint32_t group_findings(const verification *v, finding_group *groups)
{
  uint32_t count = 0;
  for (uint32_t i = 0; i < v->findings.count; i++) {
    const finding *f = &v->findings.items[i];
    uint32_t g = 0;
    while (g < count && !is_alike(v, groups[g].first, f))
      g++;
    if (g == count) groups[count++] = (finding_group){ .first = f };
    groups[g].count++;
    if (f->buffer != NO_BUFFER)
      groups[g].bytes += v->plan->ranks[f->rank].buffers.items[f->buffer].bytes;
  }
  assert(count <= v->findings.count);
  return count;
}

/* ---- one finding ---- */

bool finding_lacks_edge(const verification *v, const finding *f)
{
  return f->first != NO_OP && op_runs_on_stream((op_kind)op_of(v, f, f->first)->kind) &&
         op_runs_on_stream((op_kind)op_of(v, f, f->second)->kind) &&
         finding_severity_of((finding_kind)f->kind) == SEVERITY_ERROR;
}

/* " (a.plan:12)" if the plan was read from a text. */
static void print_line(FILE *out, const verified_iteration *i, uint32_t rank, uint32_t op)
{
  const line_array *lines = &i->verification->plan->ranks[rank].lines;
  if (lines->count > 0) fprintf(out, " (%s:%" PRId32 ")", i->name, lines->items[op]);
}

static void print_op_line(FILE *out, const verified_iteration *i, const finding *f,
                          const char *word, uint32_t op, bool step_before)
{
  if (op == NO_OP) return;
  fprintf(out, "  %-8s op %" PRIu32 "%s", word, op, step_before ? " of the step before" : "");
  print_line(out, i, f->rank, op);
  fputc(':', out);
  plan_print_op(out, i->verification->plan, f->rank, op);
}

/* Whether the finding's places are ops that wait for each other, beginning with its own. */
static bool has_cycle(const verification *v, const finding *f)
{
  return f->kind == FINDING_DEADLOCK && v->places.items[f->places].op != NO_OP;
}

/* The ops of other ranks: a cycle, or what the other side lacks. */
static void print_places(FILE *out, const verified_iteration *i, const finding *f)
{
  bool cycle = has_cycle(i->verification, f);
  const char *word = cycle ? "cycle" : "other";
  for (uint32_t k = f->places; k < f->places + f->place_count; k++) {
    const finding_place *p = &i->verification->places.items[k];
    fprintf(out, "  %-8s rank %" PRIu32, word, p->rank);
    if (p->op == NO_OP) {
      fputs(" never issues it\n", out);
      continue;
    }
    fprintf(out, " op %" PRIu32, p->op);
    print_line(out, i, p->rank, p->op);
    fputc(':', out);
    plan_print_op(out, i->verification->plan, p->rank, p->op);
    if (cycle) word = "for";
  }
  if (cycle) fputs("  for      the first of these\n", out);
}

static void print_known(FILE *out, const verification *v, const finding *f)
{
  const char *early = plan_stream_name(v->plan, (plan_stream)op_of(v, f, f->first)->stream);
  const char *late = plan_stream_name(v->plan, (plan_stream)op_of(v, f, f->second)->stream);
  const knowledge *at =
      known_at(&v->order.ranks[f->rank], actor_stream(op_of(v, f, f->second)), f->second);
  uint32_t known = at->own.done_to[op_of(v, f, f->first)->stream];
  if (f->step_before)
    wrap_line(out, 11, "  known    %s has not waited for all that %s did in the step before", late,
              early);
  else if (known <= STREAM_BEGUN)
    wrap_line(out, 11, "  known    %s has waited for nothing of %s yet", late, early);
  else
    wrap_line(out, 11, "  known    %s has waited for %s up to op %" PRIu32 ", which is earlier",
              late, early, known - done_with(0));
  char or_marked[64] = "";
  if (f->kind == FINDING_BLOCK_REUSED)
    snprintf(or_marked, sizeof or_marked, "; or the free of %%%" PRIu32 " names %s", f->buffer,
             early);
  wrap_line(out, 11,
            "  missing  %s waits, before op %" PRIu32
            ", for an event that %s records after op %" PRIu32 "%s%s",
            late, f->second, early, f->first, f->step_before ? " of the step before" : "",
            or_marked);
}

static void print_buffer_line(FILE *out, const verification *v, const finding *f, const char *word,
                              uint32_t buffer)
{
  if (buffer == NO_BUFFER) return;
  fprintf(out, "  %-8s", word);
  plan_print_buffer(out, v->plan, f->rank, buffer);
  fputc('\n', out);
}

static void print_group(FILE *out, const verified_iteration *i, const finding_group *g)
{
  const verification *v = i->verification;
  const finding *f = g->first;
  fputc('\n', out);
  wrap_line(out, 0, "%s: %s, rank %" PRIu32 ": %s",
            severity_name(finding_severity_of((finding_kind)f->kind)),
            finding_name((finding_kind)f->kind), f->rank, finding_meaning((finding_kind)f->kind));
  print_op_line(out, i, f, "first", f->first, f->step_before);
  if (!has_cycle(v, f)) print_op_line(out, i, f, "second", f->second, false);
  print_places(out, i, f);
  print_buffer_line(out, v, f, "buffer", f->buffer);
  if (f->reused != f->buffer) print_buffer_line(out, v, f, "becomes", f->reused);
  if (finding_lacks_edge(v, f)) print_known(out, v, f);
  if (g->count > 1) fprintf(out, "  and %" PRIu64 " more like it\n", g->count - 1);
  if (f->kind == FINDING_NEVER_REUSABLE)
    fprintf(out, "  they can hold %" PRId64 " bytes\n", g->bytes);
}

/* ---- for people ---- */

/* A plan may omit ranks, or the size of the run. */
static void print_assumed(FILE *out, const verification *v)
{
  if (v->assumed > 0)
    fprintf(out,
            "assumed: ranks that the plan does not have meet %" PRIu64
            " messages and collectives\n",
            v->assumed);
}

static void print_iteration(FILE *out, const verified_iteration *i, bool advice, arena *a)
{
  const verification *v = i->verification;
  finding_group *groups = ARENA_ARRAY(a, finding_group, v->findings.count);
  uint32_t count = group_findings(v, groups);
  wrap_line(out, 0,
            "%s: %s; %" PRIu64 " errors, %" PRIu64 " warnings, %" PRIu64 " pieces of advice",
            i->name, v->safe ? "safe" : alarm_text(a, "NOT SAFE", out), v->counts[SEVERITY_ERROR],
            v->counts[SEVERITY_WARNING], v->counts[SEVERITY_ADVICE]);
  print_assumed(out, v);
  for (uint32_t g = 0; g < count; g++) {
    finding_severity severity = finding_severity_of((finding_kind)groups[g].first->kind);
    if (severity != SEVERITY_ADVICE || advice) print_group(out, i, &groups[g]);
  }
}

void findings_table(const verified_iteration *iterations, uint32_t count, bool advice, FILE *out,
                    arena *a)
{
  for (uint32_t i = 0; i < count; i++) {
    if (i > 0) fputc('\n', out);
    print_iteration(out, &iterations[i], advice, a);
  }
}

void findings_first_error(const verified_iteration *iterations, uint32_t count, FILE *out)
{
  for (uint32_t i = 0; i < count; i++) {
    const finding_array *all = &iterations[i].verification->findings;
    for (uint32_t k = 0; k < all->count; k++) {
      finding_kind kind = (finding_kind)all->items[k].kind;
      if (finding_severity_of(kind) != SEVERITY_ERROR) continue;
      fprintf(out, "%s, rank %" PRIu32 ", op %" PRIu32 ": %s, %s", iterations[i].name,
              all->items[k].rank, all->items[k].second, finding_name(kind), finding_meaning(kind));
      return;
    }
  }
}

/* ---- for programs ---- */

/* A line of the plan as a string, without the blanks around it. */
static void line_string(FILE *out, const char *line)
{
  char *text = strdup(line + strspn(line, " "));
  if (text == NULL) die_refused("no memory for a line of a plan");
  text[strcspn(text, "\n")] = '\0';
  json_string(out, text);
  free(text);
}

void findings_op_string(FILE *out, const plan *p, uint32_t rank, uint32_t op)
{
  char *line = NULL;
  size_t length;
  FILE *text = open_memstream(&line, &length);
  if (text == NULL) die_refused("no memory for a line of a plan");
  plan_print_op(text, p, rank, op);
  fclose(text);
  line_string(out, line);
  free(line);
}

static void json_op(FILE *out, const verification *v, const finding *f, uint32_t op)
{
  fprintf(out, "{\"op\": %" PRIu32 ", \"text\": ", op);
  findings_op_string(out, v->plan, f->rank, op);
  fputs("}", out);
}

static void json_ops(FILE *out, const verification *v, const finding *f)
{
  fputs("\"ops\": [", out);
  if (f->first != NO_OP) {
    json_op(out, v, f, f->first);
    fputs(", ", out);
  }
  json_op(out, v, f, f->second);
  fprintf(out, "], \"ranks\": [%" PRIu32 "], ", f->rank);
}

static void json_place(FILE *out, const verified_iteration *i, uint32_t rank, uint32_t op,
                       bool step_before)
{
  const line_array *lines = &i->verification->plan->ranks[rank].lines;
  fprintf(out, "{\"rank\": %" PRIu32 ", \"op\": ", rank);
  if (op == NO_OP)
    fputs("null", out);
  else
    fprintf(out, "%" PRIu32, op);
  fprintf(out, ", \"step_before\": %s, \"file\": ", step_before ? "true" : "false");
  if (op == NO_OP || lines->count == 0) {
    fputs("null, \"line\": null}", out);
    return;
  }
  json_string(out, i->name);
  fprintf(out, ", \"line\": %" PRId32 "}", lines->items[op]);
}

static void json_places(FILE *out, const verified_iteration *i, const finding *f)
{
  fputs("\"places\": [", out);
  if (f->first != NO_OP) {
    json_place(out, i, f->rank, f->first, f->step_before);
    fputs(", ", out);
  }
  json_place(out, i, f->rank, f->second, false);
  for (uint32_t k = f->places; k < f->places + f->place_count; k++) {
    const finding_place *p = &i->verification->places.items[k];
    if (k == f->places && has_cycle(i->verification, f)) continue; /* it is `second` */
    fputs(", ", out);
    json_place(out, i, p->rank, p->op, false);
  }
  fputs("], ", out);
}

static void json_buffer(FILE *out, const verification *v, const finding *f)
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

static void json_edge(FILE *out, const verification *v, const finding *f)
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
          plan_stream_name(v->plan, (plan_stream)ops[f->second].stream), f->second,
          plan_stream_name(v->plan, (plan_stream)ops[f->first].stream), f->first);
}

static void json_finding(FILE *out, const verified_iteration *i, const finding *f)
{
  fputs("{\"iteration\": ", out);
  json_string(out, i->name);
  fprintf(out, ", \"kind\": \"%s\", \"severity\": \"%s\", ", finding_name((finding_kind)f->kind),
          severity_name(finding_severity_of((finding_kind)f->kind)));
  json_ops(out, i->verification, f);
  json_places(out, i, f);
  json_buffer(out, i->verification, f);
  json_edge(out, i->verification, f);
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
  uint64_t assumed = 0;
  for (uint32_t i = 0; i < count; i++)
    assumed += iterations[i].verification->assumed;
  fprintf(out, "{\"format_version\": %d, \"safe\": %s, \"assumed\": %" PRIu64 ", \"findings\": [",
          JSON_FORMAT_VERSION, all_safe(iterations, count) ? "true" : "false", assumed);
  for (uint32_t i = 0; i < count; i++) {
    const finding_array *all = &iterations[i].verification->findings;
    for (uint32_t f = 0; f < all->count; f++) {
      fputs(separator, out);
      json_finding(out, &iterations[i], &all->items[f]);
      separator = ", ";
    }
  }
  fputs("]}\n", out);
}
