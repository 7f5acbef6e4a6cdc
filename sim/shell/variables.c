/* The table of variables. Entries never change; a table is copied by copying its pointers. */
#include <string.h>

#include "sim/base/text.h"
#include "sim/shell/parts.h"

static uint32_t find_index(const variable_table *t, const char *name)
{
  for (uint32_t i = 0; i < t->count; i++) {
    if (strcmp(t->items[i]->name, name) == 0) return i;
  }
  return UINT32_MAX;
}

const variable *find_variable(const evaluator *e, const char *name)
{
  uint32_t index = find_index(&e->variables, name);
  return index == UINT32_MAX ? NULL : e->variables.items[index];
}

bool put_variable(evaluator *e, const variable *v)
{
  variable_table *t = &e->variables;
  uint32_t index = find_index(t, v->name);
  if (index != UINT32_MAX) {
    t->items[index] = v;
    return true;
  }
  if (t->count == VARIABLES_MOST)
    return diag_error(e->d, (source_pos){ e->file, 0, 0 },
                      "more than %d variables, which offsim does not read", VARIABLES_MOST);
  if (t->count == t->capacity) {
    variable_table more = { .count = t->count,
                            .capacity = t->capacity == 0 ? 64 : t->capacity * 2 };
    more.items = ARENA_ARRAY(e->a, const variable *, more.capacity);
    if (t->count > 0) memcpy(more.items, t->items, t->count * sizeof *t->items);
    *t = more;
  }
  t->items[t->count++] = v;
  return true;
}

void drop_variable(evaluator *e, const char *name)
{
  variable_table *t = &e->variables;
  uint32_t index = find_index(t, name);
  if (index == UINT32_MAX) return;
  t->count--;
  memmove(t->items + index, t->items + index + 1, (t->count - index) * sizeof *t->items);
}

variable_table copy_table(evaluator *e, const variable_table *t)
{
  variable_table copy = { .count = t->count, .capacity = t->count + 16 };
  copy.items = ARENA_ARRAY(e->a, const variable *, copy.capacity);
  if (t->count > 0) memcpy(copy.items, t->items, t->count * sizeof *t->items);
  return copy;
}

/* Unknown parts of what a variable is given are then known by its name: that is what --env can
 * set. */
static const char *named(evaluator *e, const char *name, const char *text)
{
  if (first_unknown(e, text) == NO_ORIGIN) return text;
  text_buffer b = { 0 };
  for (const char *p = text; *p != '\0';) {
    size_t length = is_mark(p) ? MARK_BYTES : strcspn(p, "\xFF");
    if (is_mark(p) && mark_origin(e, p)->kind == ORIGIN_UNKNOWN &&
        mark_origin(e, p)->name == NULL) {
      value_origin o = *mark_origin(e, p);
      o.name = name;
      if (!buffer_add_text(e, &b, mark_text(e, new_origin(e, o)))) return "";
    } else if (!buffer_add(e, &b, p, length)) {
      return "";
    }
    p += length;
  }
  return buffer_text(e, &b);
}

variable *variable_copy(evaluator *e, const char *name)
{
  variable *v = ARENA_NEW(e->a, variable);
  const variable *before = find_variable(e, name);
  if (before != NULL) *v = *before;
  v->name = name;
  return v;
}

bool set_scalar(evaluator *e, const char *name, const char *text, source_pos at)
{
  variable *v = variable_copy(e, name);
  if (v->readonly) return diag_error(e->d, at, "%.100s is readonly and assigned again", name);
  bool unknown = first_unknown(e, text) != NO_ORIGIN;
  if (v->preset != NULL && unknown) {
    diag_note(e->d, at,
              "%s is taken from --env: the script gives it \"%.100s\", which is not known", name,
              shown_text(e, text));
    text = v->preset;
  }
  v->is_set = true;
  name_argument(e, name, text);
  text = named(e, name, text);
  if (v->is_integer) {
    text = arithmetic(e, text, at);
    if (text == NULL) return false;
  }
  if (v->kind == VARIABLE_SCALAR) {
    v->text = text;
    return put_variable(e, v);
  }
  /* an array: its element 0 */
  element *elements = ARENA_ARRAY(e->a, element, v->element_count + 1);
  bool found = false;
  for (uint32_t i = 0; i < v->element_count; i++) {
    elements[i] = v->elements[i];
    bool first =
        v->kind == VARIABLE_MAP ? strcmp(elements[i].key, "0") == 0 : elements[i].index == 0;
    if (first) elements[i].text = text;
    found = found || first;
  }
  if (!found) {
    memmove(elements + 1, elements, v->element_count * sizeof *elements);
    elements[0] = (element){ .key = v->kind == VARIABLE_MAP ? "0" : NULL, .text = text };
    v->element_count++;
  }
  v->elements = elements;
  return put_variable(e, v);
}

static const char *unset_text(evaluator *e, const char *name, source_pos at)
{
  value_origin o = { .kind = ORIGIN_UNSET, .name = name, .what = name, .at = at };
  return mark_text(e, new_origin(e, o));
}

/* What bash or the login sets, and what is another at every run. */
static bool is_set_by_others(const evaluator *e, const char *name)
{
  static const char *const names[] = {
    "HOME",         "PWD",           "OLDPWD",    "USER",         "LOGNAME",
    "PATH",         "SHELL",         "HOSTNAME",  "RANDOM",       "SECONDS",
    "EPOCHSECONDS", "EPOCHREALTIME", "LINENO",    "UID",          "EUID",
    "PPID",         "BASHPID",       "BASH",      "BASH_VERSION", "OSTYPE",
    "MACHTYPE",     "HOSTTYPE",      "SHLVL",     "FUNCNAME",     "BASH_LINENO",
    "PIPESTATUS",   "BASH_REMATCH",  "SRANDOM",   "TERM",         "LANG",
    "BASH_COMMAND", "BASHOPTS",      "SHELLOPTS", "OPTIND",       "_",
    NULL,
  };
  return is_one_of(name, names) || (e->is_batch && begins_with(name, "SLURM_"));
}

/* What every job of Slurm's has. */
static bool is_filled(const char *name)
{
  static const char *const names[] = {
    "SLURM_JOB_ID",
    "SLURM_JOBID",
    "SLURM_JOB_NAME",
    "SLURM_JOB_NODELIST",
    "SLURM_NODELIST",
    "SLURM_NNODES",
    "SLURM_NODEID",
    "SLURM_SUBMIT_DIR",
    "SLURM_JOB_PARTITION",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_JOB_NUM_NODES",
    NULL,
  };
  return is_one_of(name, names);
}

const char *scalar_text(evaluator *e, const char *name, source_pos at)
{
  const variable *v = find_variable(e, name);
  if (v == NULL && is_set_by_others(e, name)) {
    value_origin o = {
      .kind = ORIGIN_UNKNOWN, .name = name, .what = arena_printf(e->a, "$%s", name), .at = at
    };
    if (strcmp(name, "PWD") == 0) o.directory = ".";
    o.filled = is_filled(name);
    return mark_text(e, new_origin(e, o));
  }
  if (v == NULL || !v->is_set) return unset_text(e, name, at);
  if (v->kind == VARIABLE_SCALAR) return v->text;
  for (uint32_t i = 0; i < v->element_count; i++) {
    const element *x = &v->elements[i];
    uint32_t unknown = first_unknown(e, x->text);
    if (v->kind == VARIABLE_MAP ? strcmp(x->key, "0") == 0 : x->index == 0) return x->text;
    if (unknown != NO_ORIGIN && e->origins.items[unknown].many) return x->text;
  }
  return unset_text(e, name, at);
}

bool is_set_variable(evaluator *e, const char *name)
{
  const variable *v = find_variable(e, name);
  if (v == NULL) return is_set_by_others(e, name);
  if (v->kind == VARIABLE_SCALAR) return v->is_set;
  const char *text = scalar_text(e, name, (source_pos){ 0 });
  return !is_mark(text) || mark_origin(e, text)->kind != ORIGIN_UNSET || text[MARK_BYTES] != '\0';
}

bool has_unknown_elements(const evaluator *e, const variable *v)
{
  for (uint32_t i = 0; v->kind != VARIABLE_SCALAR && i < v->element_count; i++) {
    uint32_t unknown = first_unknown(e, v->elements[i].text);
    if (unknown != NO_ORIGIN && e->origins.items[unknown].many) return true;
  }
  return false;
}
