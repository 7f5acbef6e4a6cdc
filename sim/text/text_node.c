#include <string.h>

#include "sim/base/text.h"
#include "sim/text/scalar.h"
#include "sim/text/yaml_text.h"

const text_node *text_get(const text_node *map, const char *key)
{
  if (!map || map->kind != TEXT_MAPPING) return NULL;
  for (uint32_t i = 0; i < map->count; i++) {
    if (strcmp(map->children[i].key, key) == 0) return &map->children[i];
  }
  return NULL;
}

bool text_is_null(const text_node *n)
{
  if (n->kind != TEXT_SCALAR || n->quoted) return false;
  static const char *const words[] = { "", "~", "null", "Null", "NULL", NULL };
  return is_one_of(n->text, words);
}

/* Long texts are cut: a message is one line that can be read. */
enum { SHOWN_BYTES = 60 };

const char *text_describe(arena *a, const text_node *n)
{
  if (n->kind == TEXT_SEQUENCE) return "a list";
  if (n->kind == TEXT_MAPPING) return "a mapping";
  if (text_is_null(n)) return "nothing";
  bool whole = strlen(n->text) <= SHOWN_BYTES;
  return arena_printf(a, "'%.*s%s'", SHOWN_BYTES, n->text, whole ? "" : "...");
}

static bool wrong_type(const text_node *n, const char *expected, diag *d)
{
  arena scratch = { 0 };
  const char *found = text_describe(&scratch, n);
  if (n->key) {
    diag_error(d, n->at, "%s is %s; expected %s", n->key, found, expected);
  } else {
    diag_error(d, n->at, "found %s; expected %s", found, expected);
  }
  arena_release(&scratch);
  return false;
}

bool text_as_i64(const text_node *n, int64_t *value, diag *d)
{
  if (n->kind == TEXT_SCALAR && scalar_may_be_octal(n->text))
    return wrong_type(n, scalar_without_zeros, d);
  if (n->kind == TEXT_SCALAR && scalar_i64(n->text, value)) return true;
  return wrong_type(n, "a whole number", d);
}

bool text_as_double(const text_node *n, double *value, diag *d)
{
  if (n->kind == TEXT_SCALAR && scalar_may_be_octal(n->text))
    return wrong_type(n, scalar_without_zeros, d);
  if (n->kind == TEXT_SCALAR && scalar_double(n->text, value)) return true;
  return wrong_type(n, "a number", d);
}

bool text_as_bool(const text_node *n, bool *value, diag *d)
{
  if (n->kind == TEXT_SCALAR && scalar_bool(n->text, value)) return true;
  return wrong_type(n, "true or false", d);
}

bool text_as_string(const text_node *n, const char **value, diag *d)
{
  if (!text_expect(n, TEXT_SCALAR, d)) return false;
  *value = n->text;
  return true;
}

bool text_expect(const text_node *n, text_kind kind, diag *d)
{
  static const char *const names[] = {
    [TEXT_SCALAR] = "a single value", [TEXT_SEQUENCE] = "a list", [TEXT_MAPPING] = "a mapping"
  };
  return n->kind == kind || wrong_type(n, names[kind], d);
}
