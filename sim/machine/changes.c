#include <string.h>

#include "sim/machine/machine.h"

static const source_pos place = { "--machine-set", 0, 0 };

/* The children with `new` in place of the one with its key, or after them. */
static void put_child(text_node *of, const text_node *new, arena *a)
{
  text_node *children = ARENA_ARRAY(a, text_node, (size_t)of->count + 1);
  uint32_t i = 0;
  if (of->count > 0) memcpy(children, of->children, of->count * sizeof *children);
  while (i < of->count && strcmp(children[i].key, new->key) != 0)
    i++;
  children[i] = *new;
  of->children = children;
  if (i == of->count) of->count++;
}

static text_node scalar(const char *key, const char *text)
{
  return (text_node){ .kind = TEXT_SCALAR, .text = text, .key = key, .key_at = place, .at = place };
}

static bool change(text_node *top, const char *text, arena *a, diag *d)
{
  const char *dot = strchr(text, '.'), *equals = strchr(text, '=');
  if (dot == NULL || equals == NULL || equals < dot)
    return diag_error(
        d, place, "\"%s\" is not of the form SECTION.KEY=VALUE, as in link.d2h_bytes_per_us=25000",
        text);
  const char *name = arena_strndup(a, text, (size_t)(dot - text));
  const text_node *section = text_get(top, name), *whole = text_get(top, "name");
  if (section == NULL || section->kind != TEXT_MAPPING)
    return diag_error(d, place, "a machine has no section '%s'", name);
  text_node changed = *section;
  text_node value =
      scalar(arena_strndup(a, dot + 1, (size_t)(equals - dot - 1)), arena_strdup(a, equals + 1));
  put_child(&changed, &value, a);
  put_child(top, &changed, a);
  if (whole == NULL || whole->kind != TEXT_SCALAR) return true; /* the reader says so */
  text_node named = *whole;
  named.text = arena_printf(a, "%s, %s", whole->text, text);
  put_child(top, &named, a);
  return true;
}

const text_node *machine_change(const text_node *top, const machine_changes *changes, arena *a,
                                diag *d)
{
  text_node *changed = ARENA_NEW(a, text_node);
  *changed = *top;
  for (uint32_t i = 0; top->kind == TEXT_MAPPING && i < changes->count; i++)
    if (!change(changed, changes->texts[i], a, d)) return NULL;
  return changed;
}
