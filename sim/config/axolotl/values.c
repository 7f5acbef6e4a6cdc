/* Values of an Axolotl file, as Axolotl's Python sees them. */
#include <string.h>

#include "sim/config/axolotl/parts.h"
#include "sim/text/scalar.h"

const text_node *axolotl_get(const axolotl_reader *r, const char *key)
{
  const text_node *n = text_get(r->top, key);
  return n != NULL && !text_is_null(n) ? n : NULL;
}

bool axolotl_truth(const text_node *n)
{
  bool value;
  double number;
  if (n == NULL || text_is_null(n)) return false;
  if (n->kind != TEXT_SCALAR) return n->count > 0;
  if (n->quoted) return *n->text != '\0';
  if (scalar_bool(n->text, &value)) return value;
  return !scalar_double(n->text, &number) || number != 0;
}

bool axolotl_is(const axolotl_reader *r, const char *key, const char *word)
{
  const text_node *n = axolotl_get(r, key);
  return n != NULL && n->kind == TEXT_SCALAR && strcmp(n->text, word) == 0;
}

bool axolotl_has_plugin(const axolotl_reader *r, const char *name)
{
  const text_node *list = axolotl_get(r, "plugins");
  if (list == NULL || list->kind != TEXT_SEQUENCE) return false;
  for (uint32_t i = 0; i < list->count; i++) {
    const char *path = list->children[i].text, *dot = strrchr(path, '.');
    if (strcmp(dot != NULL ? dot + 1 : path, name) == 0) return true;
  }
  return false;
}

source_pos axolotl_place(const axolotl_reader *r, const text_node *n)
{
  return n != NULL ? n->at : r->top->at;
}

bool axolotl_set(const axolotl_reader *r, setting_key key, const char *text, const text_node *n)
{
  return settings_set_key(r->s, key, text, axolotl_place(r, n), r->a, r->d);
}

bool axolotl_gates_by_silu(const axolotl_reader *r)
{
  return r->s->model.swiglu && r->s->model.hidden_act == HIDDEN_ACT_SILU;
}

const char *axolotl_join(const axolotl_reader *r, const char *list, const char *word)
{
  return *list == '\0' ? word : arena_printf(r->a, "%s %s", list, word);
}
