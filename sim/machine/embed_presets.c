/*
 * embed_presets OUT.c FILE.yaml...: the shipped machines as trees in C. So the program reads no YAML for
 * them, and a build without a YAML reader has them too.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/file.h"
#include "sim/text/json_text.h"
#include "sim/text/yaml_text.h"

static void put_place(FILE *out, source_pos at)
{
  fprintf(out, "{ file, %d, %d }, ", at.line, at.column);
}

/* A string of JSON is one of C: a machine file has no control characters. */
static void put_node(FILE *out, const text_node *n)
{
  fprintf(out, "{ %d, %d, ", (int)n->kind, (int)n->quoted);
  json_string(out, n->text);
  fputs(", ", out);
  if (n->key != NULL)
    json_string(out, n->key);
  else
    fputs("0", out);
  fputs(", ", out);
  put_place(out, n->key_at);
  put_place(out, n->at);
  if (n->count == 0) fputs("0", out);
  if (n->count > 0) fputs("(const text_node[]){\n", out);
  for (uint32_t i = 0; i < n->count; i++) {
    put_node(out, &n->children[i]);
    fputs(",\n", out);
  }
  fprintf(out, "%s, %" PRIu32 ", %" PRIu32 ", %" PRIu32 " }", n->count > 0 ? "}" : "", n->count,
          n->values, n->levels);
}

/* "H100-SXM" of "presets/H100-SXM.yaml" */
static const char *name_of(const char *path, arena *a)
{
  const char *slash = strrchr(path, '/'), *name = slash == NULL ? path : slash + 1;
  return arena_strndup(a, name, strcspn(name, "."));
}

static bool put_preset(FILE *out, const char *path, arena *a, diag *d)
{
  size_t length;
  const char *name = name_of(path, a),
             *text = file_read(a, path, FILE_TEXT_LIMIT_BYTES, &length, d);
  const text_node *top = text == NULL ? NULL : text_read(a, path, text, length, d);
  if (top == NULL) return false;
  const char *description = text + strspn(text, "# ");
  fprintf(out, "#define file \"%s\"\n  { file, ", name);
  json_string(out, arena_strndup(a, description, strcspn(description, ":\n")));
  fputs(", ", out);
  put_node(out, top);
  fputs(" },\n#undef file\n", out);
  return true;
}

static bool put_all(FILE *out, char **paths, int count, arena *a, diag *d)
{
  fputs("/* Made by sim/machine/embed_presets.c. */\n#include \"sim/machine/machine.h\"\n\n"
        "const machine_preset machine_presets[] = {\n",
        out);
  for (int i = 0; i < count; i++)
    if (!put_preset(out, paths[i], a, d)) return false;
  fputs("  { .name = 0 },\n};\n", out);
  return true;
}

int main(int argc, char **argv)
{
  arena a = { 0 };
  diag d = { 0 };
  file_writer w;
  if (argc < 2) return DIAG_WRONG;
  if (file_open(&w, argv[1], &d)) {
    if (put_all(w.stream, argv + 2, argc - 2, &a, &d))
      file_close(&w, &d);
    else
      file_discard(&w);
  }
  arena_release(&a);
  return diag_finish(&d);
}
