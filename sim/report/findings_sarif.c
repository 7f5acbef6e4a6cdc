/*
 * What the verifier has found as SARIF 2.1.0 (docs.oasis-open.org/sarif/sarif/v2.1.0), which
 * code-scanning services read. Each kind of finding is a rule. A plan that was read from a text has
 * lines; findings of a compiled one are at the beginning of the scenario.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "sim/report/findings.h"
#include "sim/report/json.h"

static const char *level_of(finding_kind kind)
{
  static const char *const levels[SEVERITIES] = { "error", "warning", "note" };
  return levels[finding_severity_of(kind)];
}

static void print_rules(FILE *out)
{
  for (int k = 0; k < FINDING_KINDS; k++) {
    fprintf(out, "%s\n    {\"id\": \"%s\", \"shortDescription\": {\"text\": ", k > 0 ? "," : "",
            finding_name((finding_kind)k));
    json_string(out, finding_meaning((finding_kind)k));
    fprintf(out, "}, \"defaultConfiguration\": {\"level\": \"%s\"}}", level_of((finding_kind)k));
  }
}

/* A file's name as a reference of RFC 3986. */
static void uri_string(FILE *out, const char *name)
{
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/";
  fputc('"', out);
  for (; *name != '\0'; name++)
    if (strchr(plain, *name) != NULL)
      fputc(*name, out);
    else
      fprintf(out, "%%%02X", (unsigned char)*name);
  fputc('"', out);
}

/* With the op as its message. */
static void print_location(FILE *out, const verified_iteration *i, const char *scenario,
                           uint32_t rank, uint32_t op)
{
  const line_array *lines = &i->verification->plan->ranks[rank].lines;
  bool has_line = lines->count > 0;
  assert(op != NO_OP);
  fputs("{\"physicalLocation\": {\"artifactLocation\": {\"uri\": ", out);
  uri_string(out, has_line ? i->name : scenario);
  fprintf(out, "}, \"region\": {\"startLine\": %" PRId32 "}}", has_line ? lines->items[op] : 1);
  fputs(", \"message\": {\"text\": ", out);
  findings_op_string(out, i->verification->plan, rank, op);
  fputs("}}", out);
}

static void print_related(FILE *out, const verified_iteration *i, const char *scenario,
                          const finding *f)
{
  const char *separator = "";
  fputs(", \"relatedLocations\": [", out);
  if (f->first != NO_OP) {
    print_location(out, i, scenario, f->rank, f->first);
    separator = ", ";
  }
  for (uint32_t k = f->places; k < f->places + f->place_count; k++) {
    const finding_place *p = &i->verification->places.items[k];
    if (p->op == NO_OP) continue;
    fputs(separator, out);
    print_location(out, i, scenario, p->rank, p->op);
    separator = ", ";
  }
  fputs("]", out);
}

static void print_message(FILE *out, const verified_iteration *i, const finding *f)
{
  char text[512]; /* names of iterations and files may be cut, the rest is short */
  snprintf(text, sizeof text, "rank %" PRIu32 ", op %" PRIu32 "%s: %s. %.200s", f->rank, f->second,
           f->step_before ? " (the first op is of the step before)" : "",
           finding_meaning((finding_kind)f->kind), i->name);
  json_string(out, text);
}

static void print_result(FILE *out, const verified_iteration *i, const char *scenario,
                         const finding *f)
{
  finding_kind kind = (finding_kind)f->kind;
  fprintf(out,
          "{\"ruleId\": \"%s\", \"ruleIndex\": %d, \"level\": \"%s\", \"message\": {\"text\": ",
          finding_name(kind), (int)kind, level_of(kind));
  print_message(out, i, f);
  fputs("}, \"locations\": [", out);
  print_location(out, i, scenario, f->rank, f->second);
  fputs("]", out);
  print_related(out, i, scenario, f);
  fputs("}", out);
}

void findings_sarif(const verified_iteration *iterations, uint32_t count, const char *scenario,
                    bool advice, FILE *out)
{
  const char *separator = "";
  fputs("{\"$schema\": \"https://json.schemastore.org/sarif-2.1.0.json\", \"version\": \"2.1.0\",\n"
        " \"runs\": [{\"tool\": {\"driver\": {\"name\": \"offsim\", \"rules\": [",
        out);
  print_rules(out);
  fputs("]}},\n  \"results\": [", out);
  for (uint32_t i = 0; i < count; i++) {
    const finding_array *all = &iterations[i].verification->findings;
    for (uint32_t k = 0; k < all->count; k++) {
      const finding *f = &all->items[k];
      if (finding_severity_of((finding_kind)f->kind) == SEVERITY_ADVICE && !advice) continue;
      fprintf(out, "%s\n    ", separator);
      print_result(out, &iterations[i], scenario, f);
      separator = ",";
    }
  }
  fputs("]}]}\n", out);
}
