#include "sim/config/megatron/variables.h"

#include <string.h>

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"

/* At a $: the length of the variable as it is written, and its name. 0: no variable. */
static size_t variable_at(const char *dollar, const char **name, size_t *length)
{
  bool in_braces = dollar[1] == '{';
  *name = dollar + 1 + in_braces;
  *length = strspn(*name, LETTERS) > 0 ? strspn(*name, LETTERS "0123456789") : 0;
  bool ends = *length > 0 && (!in_braces || (*name)[*length] == '}');
  return ends ? 1 + *length + 2 * (size_t)in_braces : 0;
}

/* The last value counts, as in a shell. */
static const char *preset_of(const shell_presets *presets, const char *name, size_t length)
{
  for (uint32_t i = presets->environment_count; i-- > 0;) {
    const char *text = presets->environment[i];
    if (strncmp(text, name, length) == 0 && text[length] == '=') return text + length + 1;
  }
  return NULL;
}

/* The length of the text with values in the variables' place; `out`: where it is written, or NULL. */
static size_t replace(const text_node *n, const shell_presets *presets, char *out,
                      unset_names *missing, arena *a)
{
  size_t count = 0;
  for (const char *p = n->text; *p != '\0';) {
    const char *name;
    size_t length, written = *p == '$' ? variable_at(p, &name, &length) : 0;
    const char *value = written > 0 ? preset_of(presets, name, length) : NULL;
    if (written > 0 && value == NULL) unset_add(missing, arena_strndup(a, name, length), n->at, a);
    size_t taken = written > 0 ? written : 1, added = value != NULL ? strlen(value) : taken;
    if (out != NULL) memcpy(out + count, value != NULL ? value : p, added);
    count += added;
    p += taken;
  }
  return count;
}

text_node variables_replaced(const text_node *n, const shell_presets *presets, unset_names *missing,
                             arena *a)
{
  text_node copy = *n;
  if (n->kind == TEXT_SCALAR && strchr(n->text, '$') != NULL) {
    size_t length = replace(n, presets, NULL, missing, a);
    char *text = ARENA_ARRAY(a, char, length + 1);
    replace(n, presets, text, missing, a);
    text[length] = '\0';
    copy.text = text;
  }
  if (n->kind != TEXT_SEQUENCE) return copy;
  text_node *items = ARENA_ARRAY(a, text_node, n->count);
  for (uint32_t i = 0; i < n->count; i++) {
    items[i] = variables_replaced(&n->children[i], presets, missing, a);
  }
  copy.children = items;
  return copy;
}
