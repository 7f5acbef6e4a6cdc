/* The keys of a verl configuration, one by one: the table keys.def as data. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "sim/base/text.h"
#include "sim/config/foreign_keys.h"
#include "sim/config/foreign_messages.h"
#include "sim/config/verl/parts.h"
#include "sim/text/scalar.h"
#include "sim/text/suggest.h"

static const foreign_key rows[] = {
#define VERL_KEY(name, ...) { name, __VA_ARGS__ },
#include "sim/config/verl/keys.def"
};

enum { ROWS = sizeof rows / sizeof rows[0] };

/* "a.b.*" covers everything below a.b, and a.b itself if it is empty. */
static bool covers(const char *row, const char *name)
{
  size_t length = strlen(row);

  if (length < 2 || strcmp(row + length - 2, ".*") != 0) {
    return strcmp(row, name) == 0;
  }
  return strncmp(row, name, length - 2) == 0 &&
         (name[length - 2] == '.' || name[length - 2] == '\0');
}

/* Special rows come before the general ones that cover them. */
static const foreign_key *find(const char *name)
{
  for (size_t i = 0; i < ROWS; i++) {
    if (covers(rows[i].name, name)) {
      return &rows[i];
    }
  }
  return NULL;
}

enum { ACTORS_LENGTH = sizeof "actor_rollout_ref.actor." - 1 };

static bool is_actors(const char *name)
{
  return strncmp(name, "actor_rollout_ref.actor.", ACTORS_LENGTH) == 0 ||
         strncmp(name, "actor_rollout_ref.model.", ACTORS_LENGTH) == 0;
}

/* What a key of a newer verl or of a recipe is called if it may change shapes or memory. */
static bool looks_decisive(const char *name)
{
  static const char *const parts[] = {
    "batch",         "bsz",  "length", "token", "size", "parallel", "offload", "recompute",
    "checkpointing", "type", "lora",   "rank",  "fp8",  "quant",    "chunk"
  };

  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
    if (strstr(name, parts[i]) != NULL) {
      return true;
    }
  }
  return false;
}

static bool unknown(const verl_reader *r, const verl_given *g)
{
  const char *names[ROWS];
  size_t count = 0;

  if (!is_actors(g->name)) {
    return true;
  }
  for (size_t i = 0; i < ROWS; i++) {
    if (strncmp(rows[i].name, g->name, ACTORS_LENGTH) == 0) {
      names[count++] = rows[i].name + ACTORS_LENGTH;
    }
  }
  const char *near = suggest_nearest(g->name + ACTORS_LENGTH, names, count);
  if (near != NULL) {
    near = arena_printf(r->a, "%.*s%s", ACTORS_LENGTH, g->name, near);
  }
  bool skipped = r->ignore_unknown || (near == NULL && !looks_decisive(g->name + ACTORS_LENGTH));
  return foreign_unknown(r->d, g->at, "verl key", g->said, near, skipped);
}

static bool is_empty(const char *value)
{
  static const char *const nothing[] = {
    "", "null", "None", "~", "false", "False", "{}", "[]", NULL
  };

  return is_one_of(value, nothing);
}

/* Hydra's own, `${oc.select:...}`: what it gives is the default of the key, or of one that was
 * read. */
static bool is_reference(const char *value)
{
  return begins_with(value, "${");
}

/* Hydra reads null as YAML does; a key's default counts. */
static bool is_nothing(const char *value)
{
  return is_reference(value) || strcmp(value, "null") == 0 || strcmp(value, "None") == 0 ||
         strcmp(value, "~") == 0;
}

static bool set(const verl_reader *r, const foreign_key *row, const verl_given *g)
{
  return is_nothing(g->value) ||
         settings_set_key(r->s, row->key, g->value, g->value_at, r->a, r->d);
}

static void say_unmodelled(const verl_reader *r, const foreign_key *row, const verl_given *g)
{
  if (!is_empty(g->value) && !is_reference(g->value) && strcmp(g->value, row->harmless) != 0) {
    foreign_unmodelled(r->d, g->at, g->said, row->text);
  }
}

static bool apply(const verl_reader *r, const verl_given *g)
{
  const foreign_key *row = find(g->name);

  if (row == NULL) {
    return unknown(r, g);
  }
  switch (row->effect) {
  case FOREIGN_SETS: return set(r, row, g);
  case FOREIGN_UNMODELLED: say_unmodelled(r, row, g); return true;
  case FOREIGN_READ:
  case FOREIGN_IGNORED: return true;
  case FOREIGN_REFUSED: break; /* no row does */
  }
  assert(0 && "effect out of range");
  return false;
}

bool verl_apply_keys(const verl_reader *r)
{
  bool good = true;

  for (uint32_t i = 0; i < r->given.count; i++) {
    good = diag_step(r->d, apply(r, &r->given.items[i])) && good;
  }
  return good;
}

bool verl_key_is_decisive(const char *name)
{
  const foreign_key *row = find(name);
  return row != NULL ? row->effect != FOREIGN_IGNORED : is_actors(name);
}

bool verl_key_matters(const char *name)
{
  const foreign_key *row = find(name);
  return row != NULL && (row->effect == FOREIGN_SETS || row->effect == FOREIGN_READ);
}

const verl_given *verl_get(const verl_reader *r, const char *name)
{
  assert(find(name) != NULL && "a key that is read is a row of the table");
  for (uint32_t i = r->given.count; i-- > 0;) {
    const verl_given *g = &r->given.items[i];
    if (strcmp(g->name, name) == 0) {
      return is_nothing(g->value) ? NULL : g;
    }
  }
  return NULL;
}

const verl_given *verl_either(const verl_reader *r, const char *name, const char *other)
{
  const verl_given *g = verl_get(r, name);
  return g != NULL ? g : verl_get(r, other);
}

/* ---- values ---- */

const char *verl_said(const verl_reader *r, const char *name)
{
  const verl_given *g = verl_get(r, name);
  return g != NULL ? g->said : name;
}

source_pos verl_place(const verl_reader *r, const char *name)
{
  const verl_given *g = verl_get(r, name);
  return g != NULL ? g->value_at : (source_pos){ r->path, 0, 0 };
}

const char *verl_text_of(const verl_reader *r, const char *name, const char *otherwise)
{
  const verl_given *g = verl_get(r, name);
  return g != NULL ? g->value : otherwise;
}

bool verl_wrong(const verl_reader *r, const verl_given *g, const char *expected)
{
  const char *hint = strchr(g->value, '$') != NULL ? " (variables are not expanded)" : "";

  return diag_error(r->d, g->value_at, "%s is \"%.200s\"; it must be %s%s", g->said, g->value,
                    expected, hint);
}

/* A whole number from `least` on, small enough for products. */
bool verl_number(const verl_reader *r, const char *name, int64_t least, int64_t otherwise,
                 int64_t *value)
{
  const verl_given *g = verl_get(r, name);

  *value = otherwise;
  if (g == NULL) {
    return true;
  }
  if (!scalar_i64(g->value, value) || *value < least || *value > 1 << 30) {
    return verl_wrong(
        r, g, least == 0 ? "a whole number that is not negative" : "a whole number above 0");
  }
  return true;
}

bool verl_truth(const verl_reader *r, const char *name, bool otherwise, bool *value)
{
  const verl_given *g = verl_get(r, name);

  *value = otherwise;
  return g == NULL || scalar_bool(g->value, value) || verl_wrong(r, g, "True or False");
}

bool verl_real(const verl_reader *r, const char *name, double otherwise, double *value)
{
  const verl_given *g = verl_get(r, name);

  *value = otherwise;
  return g == NULL || scalar_double(g->value, value) || verl_wrong(r, g, "a number");
}

bool verl_set(const verl_reader *r, setting_key key, const char *text, const char *because)
{
  return settings_set_key(r->s, key, text, verl_place(r, because), r->a, r->d);
}

bool verl_set_number(const verl_reader *r, setting_key key, int64_t value, const char *because)
{
  return verl_set(r, key, arena_printf(r->a, "%" PRId64, value), because);
}

/* verl/utils/torch_dtypes.py, PrecisionType. */
static const char *type_named(const char *word)
{
  static const struct {
    const char *word, *type;
  } types[] = {
    { "fp32", "fp32" },     { "float", "fp32" }, { "float32", "fp32" }, { "bf16", "bf16" },
    { "bfloat16", "bf16" }, { "fp16", "fp16" },  { "float16", "fp16" }, { "half", "fp16" },
  };

  for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
    if (strcmp(types[i].word, word) == 0) {
      return types[i].type;
    }
  }
  return NULL;
}

bool verl_type(const verl_reader *r, const char *name, const char *other, const char *otherwise,
               const char **type)
{
  const verl_given *g = verl_either(r, name, other);

  *type = g == NULL ? otherwise : type_named(g->value);
  return *type != NULL || verl_wrong(r, g, "fp32, bf16 or fp16");
}
