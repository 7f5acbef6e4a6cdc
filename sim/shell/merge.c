/* Branches that cannot be decided: both are evaluated, and what they leave differently is
 * unknown. */
#include <string.h>

#include "sim/shell/parts.h"

/* ---- states ---- */

shell_state take_state(evaluator *e)
{
  return (shell_state){ .variables = copy_table(e, &e->variables),
                        .arguments = e->arguments,
                        .argument_count = e->argument_count,
                        .cwd = e->cwd,
                        .errexit = e->errexit,
                        .nounset = e->nounset };
}

void put_state(evaluator *e, const shell_state *s)
{
  e->variables = copy_table(e, &s->variables);
  e->arguments = s->arguments;
  e->argument_count = s->argument_count;
  e->cwd = s->cwd;
  e->errexit = s->errexit;
  e->nounset = s->nounset;
}

/* ---- texts ---- */

static const char *skip_places(const evaluator *e, const char *p)
{
  while (is_mark(p) &&
         (mark_origin(e, p)->kind == ORIGIN_PLACE || mark_origin(e, p)->kind == ORIGIN_MISSING)) {
    p += MARK_BYTES;
  }
  return p;
}

static bool same_mark(const evaluator *e, const char *left, const char *right)
{
  const value_origin *x = mark_origin(e, left), *y = mark_origin(e, right);
  if (x == y) return true;
  if (x->kind != y->kind) return false;
  if (x->kind == ORIGIN_SECRET) return strcmp(x->value, y->value) == 0;
  return x->kind == ORIGIN_UNSET;
}

static bool same_text(evaluator *e, const char *left, const char *right)
{
  for (;;) {
    left = skip_places(e, left);
    right = skip_places(e, right);
    if (*left == '\0' || *right == '\0') return *left == *right;
    if (is_mark(left) != is_mark(right)) return false;
    if (is_mark(left)) {
      if (!same_mark(e, left, right)) return false;
      left += MARK_BYTES;
      right += MARK_BYTES;
    } else if (*left++ != *right++) {
      return false;
    }
  }
}

/* Bytes of both texts up to the last blank before their first difference. */
static void common_beginning(evaluator *e, const char *left, const char *right, size_t *left_length,
                             size_t *right_length)
{
  const char *x = left, *y = right;
  *left_length = *right_length = 0;
  for (;;) {
    x = skip_places(e, x);
    y = skip_places(e, y);
    if (*x == '\0' || *y == '\0' || is_mark(x) != is_mark(y)) return;
    if (is_mark(x)) {
      if (!same_mark(e, x, y)) return;
      x += MARK_BYTES;
      y += MARK_BYTES;
      continue;
    }
    if (*x != *y) return;
    bool blank = *x == ' ' || *x == '\n' || *x == '\t';
    x++;
    y++;
    if (!blank) continue;
    *left_length = (size_t)(x - left);
    *right_length = (size_t)(y - right);
  }
}

/* ---- variables ---- */

static const char *alternatives_mark(evaluator *e, uint32_t because, const char *name,
                                     const char *left, const char *right, bool many)
{
  const char **alternatives = ARENA_ARRAY(e->a, const char *, 2);
  alternatives[0] = left;
  alternatives[1] = right;
  value_origin o = { .kind = ORIGIN_UNKNOWN,
                     .many = many,
                     .name = name,
                     .alternatives = alternatives,
                     .alternative_count = 2 };
  const value_origin *why = &e->origins.items[because];
  o.what = why->what;
  o.at = why->at;
  if (why->name != NULL) o.name = why->name;
  return mark_text(e, new_origin(e, o));
}

static const char *merged_text(evaluator *e, const char *name, const char *left, const char *right,
                               uint32_t because)
{
  size_t left_length, right_length;
  common_beginning(e, left, right, &left_length, &right_length);
  const char *mark = alternatives_mark(e, because, name, shown_text(e, left + left_length),
                                       shown_text(e, right + right_length), false);
  return arena_printf(e->a, "%s%s", arena_strndup(e->a, left, left_length), mark);
}

static const char *joined_elements(evaluator *e, const variable *v, uint32_t from)
{
  text_buffer b = { 0 };
  for (uint32_t i = from; i < v->element_count; i++) {
    if (i > from) buffer_add(e, &b, " ", 1);
    buffer_add_text(e, &b, shown_text(e, v->elements[i].text));
  }
  return buffer_text(e, &b);
}

/* What both begin with, then one element for the rest. */
static void merge_elements(evaluator *e, variable *v, const variable *left, const variable *right,
                           uint32_t because)
{
  uint32_t same = 0;
  while (same < left->element_count && same < right->element_count &&
         left->elements[same].index == right->elements[same].index &&
         same_text(e, left->elements[same].text, right->elements[same].text)) {
    same++;
  }
  element *elements = ARENA_ARRAY(e->a, element, same + 1);
  if (same > 0) memcpy(elements, left->elements, same * sizeof *elements);
  const char *mark = alternatives_mark(e, because, NULL, joined_elements(e, left, same),
                                       joined_elements(e, right, same), true);
  elements[same] = (element){ .index = same > 0 ? elements[same - 1].index + 1 : 0, .text = mark };
  v->elements = elements;
  v->element_count = same + 1;
}

static bool same_variable(evaluator *e, const variable *x, const variable *y)
{
  if (x == y) return true;
  if (x == NULL || y == NULL || x->kind != y->kind || x->is_set != y->is_set ||
      x->exported != y->exported)
    return false;
  if (x->kind == VARIABLE_SCALAR) return !x->is_set || same_text(e, x->text, y->text);
  if (x->element_count != y->element_count) return false;
  for (uint32_t i = 0; i < x->element_count; i++) {
    const element *p = &x->elements[i], *q = &y->elements[i];
    bool same_key = p->key != NULL && q->key != NULL ? strcmp(p->key, q->key) == 0
                                                     : p->key == q->key && p->index == q->index;
    if (!same_key || !same_text(e, p->text, q->text)) return false;
  }
  return true;
}

static const char *value_shown(evaluator *e, const variable *v)
{
  if (v == NULL || !v->is_set) return "";
  return v->kind == VARIABLE_SCALAR ? shown_text(e, v->text) : joined_elements(e, v, 0);
}

static const variable *merged_variable(evaluator *e, const char *name, const variable *x,
                                       const variable *y, uint32_t because)
{
  variable *v = ARENA_NEW(e->a, variable);
  *v = x != NULL ? *x : *y;
  v->is_set = true;
  v->readonly = false;
  v->exported = (x != NULL && x->exported) || (y != NULL && y->exported);
  bool x_set = x != NULL && x->is_set, y_set = y != NULL && y->is_set;
  if (v->preset != NULL) {
    v->kind = VARIABLE_SCALAR;
    v->text = v->preset;
  } else if (x_set && y_set && x->kind == VARIABLE_SCALAR && y->kind == VARIABLE_SCALAR) {
    v->text = merged_text(e, name, x->text, y->text, because);
  } else if (x_set && y_set && x->kind == VARIABLE_ARRAY && y->kind == VARIABLE_ARRAY) {
    merge_elements(e, v, x, y, because);
  } else if ((x_set && x->kind != VARIABLE_SCALAR) || (y_set && y->kind != VARIABLE_SCALAR)) {
    v->kind = VARIABLE_ARRAY;
    element *only = ARENA_NEW(e->a, element);
    only->text = alternatives_mark(e, because, NULL, value_shown(e, x), value_shown(e, y), true);
    v->elements = only;
    v->element_count = 1;
  } else {
    v->kind = VARIABLE_SCALAR;
    v->text = alternatives_mark(e, because, name, value_shown(e, x), value_shown(e, y), false);
  }
  return v;
}

static const variable *in_table(const variable_table *t, const char *name)
{
  for (uint32_t i = 0; i < t->count; i++) {
    if (strcmp(t->items[i]->name, name) == 0) return t->items[i];
  }
  return NULL;
}

/* Every name of either table, merged into the evaluator's. */
static bool merge_tables(evaluator *e, const variable_table *other, uint32_t because)
{
  variable_table own = copy_table(e, &e->variables);
  for (uint32_t i = 0; i < own.count; i++) {
    const variable *x = own.items[i], *y = in_table(other, x->name);
    if (!same_variable(e, x, y) && !put_variable(e, merged_variable(e, x->name, y, x, because)))
      return false;
  }
  for (uint32_t i = 0; i < other->count; i++) {
    const variable *y = other->items[i];
    if (in_table(&own, y->name) == NULL &&
        !put_variable(e, merged_variable(e, y->name, y, NULL, because)))
      return false;
  }
  return true;
}

static bool same_arguments(evaluator *e, const shell_state *s)
{
  if (e->argument_count != s->argument_count) return false;
  for (uint32_t i = 0; i < e->argument_count; i++) {
    if (!same_text(e, e->arguments[i].text, s->arguments[i].text)) return false;
  }
  return true;
}

static void forget_arguments(evaluator *e, uint32_t because)
{
  value_origin o = e->origins.items[because];
  o.many = true;
  e->arguments = ARENA_ARRAY(e->a, field, 1);
  e->arguments[0] = (field){ .text = mark_text(e, new_origin(e, o)), .at = o.at };
  e->argument_count = 1;
}

bool merge_state(evaluator *e, const shell_state *other, uint32_t because)
{
  if (!same_arguments(e, other)) forget_arguments(e, because);
  bool same_cwd = e->cwd == other->cwd ||
                  (e->cwd != NULL && other->cwd != NULL && strcmp(e->cwd, other->cwd) == 0);
  if (!same_cwd) e->cwd = NULL;
  return merge_tables(e, &other->variables, because);
}

/* Nothing is known of it, for this reason. */
static bool is_forgotten(const evaluator *e, const variable *v, const value_origin *why)
{
  if (!v->is_set || (v->kind != VARIABLE_SCALAR && v->element_count != 1)) return false;
  const char *text = v->kind == VARIABLE_SCALAR ? v->text : v->elements[0].text;
  if (!is_mark(text) || text[MARK_BYTES] != '\0') return false;
  const value_origin *o = mark_origin(e, text);
  return o->kind == ORIGIN_UNKNOWN && o->alternatives == NULL && o->what == why->what;
}

bool forget_changes(evaluator *e, const shell_state *before, uint32_t because, bool *changed)
{
  const value_origin why = e->origins.items[because];
  for (uint32_t i = 0; i < e->variables.count; i++) {
    const variable *x = e->variables.items[i], *y = in_table(&before->variables, x->name);
    if (same_variable(e, x, y)) continue;
    if (y != NULL && is_forgotten(e, y, &why)) {
      if (!put_variable(e, y)) return false;
      continue;
    }
    *changed = true;
    variable *v = ARENA_NEW(e->a, variable);
    *v = *x;
    v->is_set = true;
    value_origin o = why;
    o.many = x->kind != VARIABLE_SCALAR;
    o.alternatives = NULL;
    o.alternative_count = 0;
    if (o.name == NULL) o.name = x->kind == VARIABLE_SCALAR ? x->name : NULL;
    const char *mark = mark_text(e, new_origin(e, o));
    if (x->kind == VARIABLE_SCALAR) {
      v->text = v->preset != NULL ? v->preset : mark;
    } else {
      element *only = ARENA_NEW(e->a, element);
      *only = (element){ .text = mark };
      v->kind = VARIABLE_ARRAY;
      v->elements = only;
      v->element_count = 1;
    }
    if (!put_variable(e, v)) return false;
  }
  if (!same_arguments(e, before)) {
    uint32_t unknown = e->argument_count == 1 ? first_unknown(e, e->arguments[0].text) : NO_ORIGIN;
    bool already = unknown != NO_ORIGIN && e->origins.items[unknown].many;
    forget_arguments(e, because);
    *changed = *changed || !already;
  }
  return true;
}

/* ---- branches ---- */

static void push_pending(evaluator *e, flow by, const shell_state *s, uint32_t origin)
{
  frame *f = e->frames;
  while (f != NULL && f->is_call != (by == FLOW_RETURN)) {
    f = f->outer;
  }
  if (f == NULL) return; /* outside a loop or a call it ends the script: that path does not count */
  if (f->pending.count == f->pending.capacity) {
    uint32_t capacity = f->pending.capacity * 2 + 4;
    shell_state *items = ARENA_ARRAY(e->a, shell_state, capacity);
    flow *flows = ARENA_ARRAY(e->a, flow, capacity);
    uint32_t *origins = ARENA_ARRAY(e->a, uint32_t, capacity);
    if (f->pending.count > 0) {
      memcpy(items, f->pending.items, f->pending.count * sizeof *items);
      memcpy(flows, f->pending.by, f->pending.count * sizeof *flows);
      memcpy(origins, f->pending.origins, f->pending.count * sizeof *origins);
    }
    f->pending.items = items;
    f->pending.by = flows;
    f->pending.origins = origins;
    f->pending.capacity = capacity;
  }
  f->pending.items[f->pending.count] = *s;
  f->pending.by[f->pending.count] = by;
  f->pending.origins[f->pending.count++] = origin;
}

flow join_branches(evaluator *e, flow left, const shell_state *left_state, flow right,
                   uint32_t origin)
{
  if (!diag_ok(e->d)) return FLOW_EXIT;
  if (left == FLOW_EXIT) return right;
  if (right == FLOW_EXIT) {
    put_state(e, left_state);
    return left;
  }
  if (left == right) return merge_state(e, left_state, origin) ? left : FLOW_EXIT;
  if (left != FLOW_NEXT) {
    push_pending(e, left, left_state, origin);
    return right;
  }
  shell_state right_state = take_state(e);
  push_pending(e, right, &right_state, origin);
  put_state(e, left_state);
  return left;
}
