/* The keys of an Axolotl file, one by one: the table keys.def as data. */
#include <assert.h>
#include <string.h>

#include "sim/base/text.h"
#include "sim/config/axolotl/parts.h"
#include "sim/config/foreign_keys.h"
#include "sim/config/foreign_messages.h"
#include "sim/text/suggest.h"

static const foreign_key rows[] = {
#define AXOLOTL_KEY(name, ...) { name, __VA_ARGS__ },
#include "sim/config/axolotl/keys.def"
};

enum { ROWS = sizeof rows / sizeof rows[0] };

static const foreign_key *find(const char *name)
{
  for (size_t i = 0; i < ROWS; i++)
    if (strcmp(rows[i].name, name) == 0) return &rows[i];
  return NULL;
}

const char *axolotl_key_of(setting_key key)
{
  for (size_t i = 0; i < ROWS; i++)
    if (rows[i].effect == FOREIGN_SETS && rows[i].key == key && strchr(rows[i].name, '.') == NULL)
      return rows[i].name;
  return NULL;
}

/* Whether the table has members of the mapping `name`. */
static bool has_members(const char *name)
{
  size_t length = strlen(name);
  for (size_t i = 0; i < ROWS; i++)
    if (strncmp(rows[i].name, name, length) == 0 && rows[i].name[length] == '.') return true;
  return false;
}

/* A member of a mapping that no schema looks into: it reaches torch.utils.checkpoint. */
static bool is_handed_on(const char *name)
{
  static const char mapping[] = "gradient_checkpointing_kwargs.";
  return begins_with(name, mapping);
}

/* Axolotl's schema drops keys that it does not have, so they change nothing. A name that nearly
 * equals one that changes something is probably misspelt. */
static bool unknown(const axolotl_reader *r, const text_node *n, const char *name)
{
  const char *names[ROWS];
  uint32_t count = 0;
  for (size_t i = 0; i < ROWS; i++)
    if (rows[i].effect != FOREIGN_IGNORED) names[count++] = rows[i].name;
  const char *near = suggest_nearest(name, names, count);
  if (near == NULL && !is_handed_on(name)) {
    diag_note(r->d, n->key_at, "Axolotl has no key \"%.200s\" and ignores it", name);
    return true;
  }
  return foreign_unknown(r->d, n->key_at, "Axolotl key", name, near, r->ignore_unknown);
}

/* YAML 1.1, which Axolotl reads, lets whole numbers have underscores. */
static const char *without_underscores(arena *a, const char *text)
{
  if (text[strspn(text, "0123456789_")] != '\0') return text;
  char *digits = arena_strdup(a, text), *to = digits;
  for (const char *from = text; *from != '\0'; from++)
    if (*from != '_') *to++ = *from;
  *to = '\0';
  return digits;
}

static bool set(const axolotl_reader *r, const foreign_key *row, const text_node *n)
{
  const char *text;
  return text_is_null(n) || (text_as_string(n, &text, r->d) &&
                             axolotl_set(r, row->key, without_underscores(r->a, text), n));
}

static void say_unmodelled(const axolotl_reader *r, const foreign_key *row, const text_node *n)
{
  bool harmless = n->kind == TEXT_SCALAR && strcmp(n->text, row->harmless) == 0;
  if (axolotl_truth(n) && !harmless) foreign_unmodelled(r->d, n->key_at, row->name, row->text);
}

/* Keys that Axolotl's schema has with a plugin alone. */
static const struct plugin_keys {
  const char *prefix, *plugin, *path;
} plugin_keys[] = {
  { "liger_", "LigerPlugin", "axolotl.integrations.liger.LigerPlugin" },
  { "cut_cross_entropy", "CutCrossEntropyPlugin",
    "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin" },
};

/* The plugin that the key needs and that the file does not name, or NULL. */
static const char *missing_plugin(const axolotl_reader *r, const char *name)
{
  for (size_t i = 0; i < sizeof plugin_keys / sizeof *plugin_keys; i++)
    if (begins_with(name, plugin_keys[i].prefix) && !axolotl_has_plugin(r, plugin_keys[i].plugin))
      return plugin_keys[i].path;
  return NULL;
}

static bool apply(const axolotl_reader *r, const text_node *n, const char *name)
{
  const foreign_key *row = find(name);
  if (row == NULL) return unknown(r, n, name);
  const char *plugin = missing_plugin(r, name);
  if (plugin != NULL) {
    if (axolotl_truth(n))
      diag_note(r->d, n->key_at, "%s has no effect: plugins has no %s", name, plugin);
    return true;
  }
  switch (row->effect) {
  case FOREIGN_SETS: return set(r, row, n);
  case FOREIGN_UNMODELLED: say_unmodelled(r, row, n); return true;
  case FOREIGN_REFUSED:
    return !axolotl_truth(n) || diag_error(r->d, n->key_at, "%s: %s", row->name, row->text);
  case FOREIGN_READ:
  case FOREIGN_IGNORED: return true;
  }
  assert(0 && "effect out of range");
  return false;
}

/* accelerate's prefix, which Axolotl takes off too (check_fsdp_config_kwargs_prefix). */
static const char *without_prefix(const char *name)
{
  bool prefixed = begins_with(name, "fsdp_") && strcmp(name, "fsdp_version") != 0;
  return prefixed ? name + 5 : name;
}

static bool apply_members(const axolotl_reader *r, const text_node *map)
{
  if (map->kind != TEXT_MAPPING || !has_members(map->key)) return true;
  bool good = true;
  for (uint32_t i = 0; i < map->count; i++) {
    const text_node *n = &map->children[i];
    const char *name = arena_printf(r->a, "%s.%s", map->key, without_prefix(n->key));
    good = diag_step(r->d, apply(r, n, name)) && good;
  }
  return good;
}

bool axolotl_apply_keys(const axolotl_reader *r)
{
  bool good = true;
  for (uint32_t i = 0; i < r->top->count; i++) {
    const text_node *n = &r->top->children[i];
    /* "a.b" is a member, not a key of the file itself */
    bool is_member = strchr(n->key, '.') != NULL;
    good = diag_step(r->d, (is_member ? unknown(r, n, n->key) : apply(r, n, n->key))) && good;
    good = diag_step(r->d, apply_members(r, n)) && good;
  }
  return good;
}
