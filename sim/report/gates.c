#include "sim/report/gates.h"

#include <inttypes.h>

#include "sim/text/json_text.h"

bool gates_hold(const gate_list *g)
{
  for (uint32_t i = 0; i < g->count; i++)
    if (!g->items[i].held) return false;
  return true;
}

void gates_broken(const gate_list *g, FILE *out)
{
  for (uint32_t i = 0; i < g->count; i++)
    if (!g->items[i].held)
      fprintf(out, "offsim: gate --%s: %s\n", g->items[i].name, g->items[i].finding);
}

void gates_json(const gate_list *g, FILE *out)
{
  fputs("  \"gates\": [", out);
  for (uint32_t i = 0; i < g->count; i++) {
    fprintf(out, "%s{\"name\": \"%s\", \"held\": %s, \"finding\": ", i > 0 ? ", " : "",
            g->items[i].name, g->items[i].held ? "true" : "false");
    json_string(out, g->items[i].finding);
    fputc('}', out);
  }
  fputc(']', out);
}

static void xml_text(FILE *out, const char *text)
{
  for (; *text != '\0'; text++) {
    const char *escape = *text == '<'   ? "&lt;"
                         : *text == '>' ? "&gt;"
                         : *text == '&' ? "&amp;"
                         : *text == '"' ? "&quot;"
                                        : NULL;
    if (escape != NULL)
      fputs(escape, out);
    else
      fputc(*text, out);
  }
}

void gates_junit(const gate_list *g, FILE *out)
{
  uint32_t failures = 0;
  for (uint32_t i = 0; i < g->count; i++)
    failures += !g->items[i].held;
  fprintf(out,
          "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite "
          "name=\"offsim compare\" tests=\"%" PRIu32 "\" failures=\"%" PRIu32 "\">\n",
          g->count, failures);
  for (uint32_t i = 0; i < g->count; i++) {
    const gate *of = &g->items[i];
    fprintf(out, "    <testcase classname=\"offsim.compare\" name=\"%s\">", of->name);
    fputs(of->held ? "<system-out>" : "<failure message=\"", out);
    xml_text(out, of->finding);
    fputs(of->held ? "</system-out></testcase>\n" : "\"/></testcase>\n", out);
  }
  fputs("  </testsuite>\n</testsuites>\n", out);
}
