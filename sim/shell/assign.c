/* NAME=value, NAME+=value, NAME[i]=value, NAME=( ... ). */
#include <string.h>

#include "sim/shell/parts.h"
#include "sim/text/scalar.h"

typedef struct assignment {
  const char *name;
  const char *subscript, *subscript_end; /* NULL: none */
  bool appends;
  const char *value; /* its first byte */
} assignment;

static bool split(evaluator *e, const raw_word *w, assignment *x)
{
  uint32_t length = shell_name_length(w->start, w->end);
  const char *p = w->start + length;
  if (length == 0 || p == w->end) return false;
  *x = (assignment){ 0 };
  if (*p == '[') {
    int open = 0;
    x->subscript = p + 1;
    for (; p < w->end; p++) {
      open += (*p == '[') - (*p == ']');
      if (open == 0) break;
    }
    if (p == w->end) return false;
    x->subscript_end = p++;
  }
  if (p < w->end && *p == '+') {
    x->appends = true;
    p++;
  }
  if (p == w->end || *p != '=') return false;
  x->value = p + 1;
  if (e != NULL) x->name = arena_strndup(e->a, w->start, length);
  return true;
}

bool is_assignment(const raw_word *w)
{
  assignment x;
  return split(NULL, w, &x);
}

const char *assigned_name(evaluator *e, const raw_word *w)
{
  assignment x;
  return split(e, w, &x) ? x.name : raw_text(e, w);
}

/* ---- arrays ---- */

typedef struct element_list {
  element *items;
  uint32_t count, capacity;
} element_list;

static void add_element(evaluator *e, element_list *list, element x)
{
  if (list->count == list->capacity) {
    uint32_t capacity = list->capacity * 2 + 8;
    element *more = ARENA_ARRAY(e->a, element, capacity);
    if (list->count > 0) memcpy(more, list->items, list->count * sizeof *more);
    list->items = more;
    list->capacity = capacity;
  }
  list->items[list->count++] = x;
}

/* In the order of the indexes; maps in the order of the keys' first use. */
static void put_element(evaluator *e, element_list *list, element x, bool appends)
{
  uint32_t i = 0;
  if (x.key == NULL) {
    i = list->count;
    while (i > 0 && list->items[i - 1].index >= x.index) {
      i--;
    }
  } else {
    while (i < list->count && strcmp(list->items[i].key, x.key) != 0) {
      i++;
    }
  }
  bool found = i < list->count && (x.key != NULL || list->items[i].index == x.index);
  if (found && appends) x.text = arena_printf(e->a, "%s%s", list->items[i].text, x.text);
  if (found) {
    list->items[i] = x;
    return;
  }
  add_element(e, list, x);
  memmove(list->items + i + 1, list->items + i, (list->count - 1 - i) * sizeof x);
  list->items[i] = x;
}

static void existing_elements(evaluator *e, const variable *v, element_list *list)
{
  if (v == NULL || !v->is_set) return;
  if (v->kind == VARIABLE_SCALAR) {
    add_element(e, list, (element){ .text = v->text, .key = NULL });
    return;
  }
  for (uint32_t i = 0; i < v->element_count; i++) {
    add_element(e, list, v->elements[i]);
  }
}

static bool store(evaluator *e, const char *name, element_list list, source_pos at)
{
  variable *v = variable_copy(e, name);
  if (v->readonly) return diag_error(e->d, at, "%.100s is readonly and assigned again", name);
  v->is_set = true;
  if (v->kind != VARIABLE_MAP) v->kind = VARIABLE_ARRAY;
  v->elements = list.items;
  v->element_count = list.count;
  return put_variable(e, v);
}

/* The element that [subscript] names; *known: whether it is one that offsim can tell. */
static bool read_subscript(evaluator *e, const raw_word *w, const char *from, const char *to,
                           bool is_map, element *x, bool *known)
{
  raw_word inner = { .start = from, .end = to, .source = w->source };
  const char *text = expand_text(e, &inner, EXPAND_VALUE);
  source_pos at = shell_place(w->source, w->start);
  if (text != NULL && !is_map) text = arithmetic(e, text, at);
  if (text == NULL) return false;
  text = plain_text(e, text);
  *known = text != NULL;
  if (!*known) return true;
  if (is_map)
    x->key = text;
  else
    *known = scalar_i64(text, &x->index) && x->index >= 0 && x->index < 1 << 20;
  return true;
}

/* A subscript that is not known: all elements may have changed. */
static bool forget(evaluator *e, const char *name, const raw_word *w)
{
  source_pos at = shell_place(w->source, w->start);
  element_list list = { 0 };
  value_origin o = { .kind = ORIGIN_UNKNOWN, .many = true, .what = raw_text(e, w), .at = at };
  add_element(e, &list, (element){ .text = mark_text(e, new_origin(e, o)), .key = NULL });
  const variable *v = find_variable(e, name);
  if (v != NULL && v->kind == VARIABLE_MAP) list.items[0].key = "";
  return store(e, name, list, at);
}

/* [key]=value inside ( ). */
static bool is_keyed(const raw_word *w, const char **close)
{
  if (w->end - w->start < 3 || *w->start != '[') return false;
  const char *p = memchr(w->start, ']', (size_t)(w->end - w->start));
  *close = p;
  return p != NULL && p + 1 < w->end && p[1] == '=';
}

static bool assign_array(evaluator *e, const raw_word *w, const assignment *x)
{
  const variable *before = find_variable(e, x->name);
  bool is_map = before != NULL && before->kind == VARIABLE_MAP;
  element_list list = { 0 };
  if (x->appends) existing_elements(e, before, &list);
  int64_t next = list.count > 0 && !is_map ? list.items[list.count - 1].index + 1 : 0;
  field_list fields = { 0 };
  for (uint32_t i = 0; i < w->element_count; i++) {
    const char *close;
    const raw_word *part = &w->elements[i];
    if (is_keyed(part, &close)) {
      element item = { 0 };
      bool known;
      raw_word value = { .start = close + 2, .end = part->end, .source = part->source };
      if (!read_subscript(e, part, part->start + 1, close, is_map, &item, &known)) return false;
      if (!known) return forget(e, x->name, w);
      item.text = expand_text(e, &value, EXPAND_VALUE);
      if (item.text == NULL) return false;
      put_element(e, &list, item, false);
      next = item.index + 1;
      continue;
    }
    if (is_map) return forget(e, x->name, w);
    uint32_t from = fields.count;
    const char *before_text = from > 0 ? fields.items[from - 1].text : NULL;
    if (!expand_words(e, part, 1, &fields)) return false;
    if (from > 0 && fields.items[from - 1].text != before_text && list.count > 0) {
      /* the part left no word: its marks went to the word before */
      const char *marks = fields.items[from - 1].text + strlen(before_text);
      list.items[list.count - 1].text =
          arena_printf(e->a, "%s%s", list.items[list.count - 1].text, marks);
    }
    for (uint32_t j = from; j < fields.count; j++) {
      /* the place of the element, unless its text knows a better one */
      value_origin place = { .kind = ORIGIN_PLACE, .at = fields.items[j].at };
      bool has_place = is_mark(fields.items[j].text) &&
                       mark_origin(e, fields.items[j].text)->kind == ORIGIN_PLACE;
      const char *mark = has_place ? "" : mark_text(e, new_origin(e, place));
      element item = { .index = next++,
                       .text = arena_printf(e->a, "%s%s", mark, fields.items[j].text) };
      put_element(e, &list, item, false);
    }
  }
  return store(e, x->name, list, shell_place(w->source, w->start));
}

static bool assign_element(evaluator *e, const raw_word *w, const assignment *x, const char *text)
{
  const variable *before = find_variable(e, x->name);
  bool is_map = before != NULL && before->kind == VARIABLE_MAP, known;
  element item = { .text = text };
  if (!read_subscript(e, w, x->subscript, x->subscript_end, is_map, &item, &known)) return false;
  if (!known) return forget(e, x->name, w);
  element_list list = { 0 };
  existing_elements(e, before, &list);
  put_element(e, &list, item, x->appends);
  return store(e, x->name, list, shell_place(w->source, w->start));
}

bool assign_word(evaluator *e, const raw_word *w)
{
  assignment x;
  if (!split(e, w, &x)) return false;
  if (w->is_array) return assign_array(e, w, &x);
  raw_word value = { .start = x.value, .end = w->end, .source = w->source };
  const char *text = expand_text(e, &value, EXPAND_VALUE);
  if (text == NULL) return false;
  if (x.subscript != NULL) return assign_element(e, w, &x, text);
  source_pos at = shell_place(w->source, w->start);
  const variable *before = find_variable(e, x.name);
  if (x.appends && before != NULL && before->is_integer)
    text = arena_printf(e->a, "(%s)+(%s)", before->text, text);
  else if (x.appends && is_set_variable(e, x.name))
    text = arena_printf(e->a, "%s%s", scalar_text(e, x.name, at), text);
  if (strlen(text) > TEXT_BYTES_MOST)
    return diag_error(e->d, at, "a value has more than %d bytes, which offsim does not read",
                      TEXT_BYTES_MOST);
  return set_scalar(e, x.name, text, at);
}
