#include "sim/text/yaml_text.h"

#include <assert.h>
#include <libfyaml.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/array.h"
#include "sim/text/limits.h"

/*
 * libfyaml reports events; this file builds the tree, so that nothing is ever expanded. Complete
 * values wait in `done`, those of one collection next to each other. The collection's end moves them
 * to the arena.
 */
typedef struct open_node {
  text_node node;
  uint32_t first;  /* its first child in `done` */
  uint32_t anchor; /* 1 + its index in `anchors`; 0: none */
  bool has_key;    /* of a mapping: the next value's key was read */
  const char *key;
  source_pos key_at;
} open_node;

/* Aliases are references to what their anchor names, so they cost no memory; but a walk over
 * the tree visits every value as often as it is referred to. */
enum { MOST_ANCHORS = 1000, MOST_ALIASED_VALUES = 100000 };

typedef struct anchor {
  const char *name;
  source_pos at;
  text_node node;
  bool complete; /* its value has ended */
} anchor;

/* The key of a mapping that is merged into the one around it: a plain <<. */
static const char merge_key[] = "<<";

typedef struct reader {
  arena *arena;
  const char *file;
  struct fy_parser *parser;
  diag *diag;
  struct {
    text_node *items;
    uint32_t count, capacity;
  } done;
  struct {
    anchor *items;
    uint32_t count, capacity;
  } anchors;
  uint32_t aliased; /* values of all aliases so far */
  open_node open[TEXT_DEPTH_LIMIT];
  uint32_t depth;
  uint32_t documents;
} reader;

static source_pos token_pos(const reader *r, struct fy_token *token, source_pos otherwise)
{
  const struct fy_mark *mark = token ? fy_token_start_mark(token) : NULL;
  return mark ? (source_pos){ r->file, mark->line + 1, mark->column + 1 } : otherwise;
}

/* libfyaml's marks of quoted texts, anchors and aliases point after the sign that introduces them.
 */
static source_pos sign_pos(const reader *r, struct fy_token *token, source_pos otherwise)
{
  source_pos at = token_pos(r, token, otherwise);
  if (token && at.column > 1) at.column--;
  return at;
}

static source_pos scalar_pos(const reader *r, struct fy_token *token, source_pos otherwise)
{
  enum fy_scalar_style style = fy_token_scalar_style(token);
  bool in_quotes = style == FYSS_SINGLE_QUOTED || style == FYSS_DOUBLE_QUOTED;
  return in_quotes ? sign_pos(r, token, otherwise) : token_pos(r, token, otherwise);
}

static open_node *innermost(reader *r)
{
  return r->depth > 0 ? &r->open[r->depth - 1] : NULL;
}

/* The place of a value without a token: nothing was written after its key. */
static source_pos empty_pos(reader *r)
{
  const open_node *in = innermost(r);
  if (in && in->has_key) return in->key_at;
  return in ? in->node.at : (source_pos){ r->file, 1, 1 };
}

/* ---- anchors ---- */

static bool refuse_tag(reader *r, struct fy_token *tag)
{
  return tag == NULL || diag_error(r->diag, token_pos(r, tag, empty_pos(r)),
                                   "a tag (!); expected plain values: tags are not read");
}

static const char *name_of(reader *r, struct fy_token *token)
{
  size_t length = 0;
  const char *text = fy_token_get_text(token, &length);
  assert(text != NULL && "a name is plain text");
  return arena_strndup(r->arena, text, length);
}

static anchor *find_anchor(reader *r, const char *name)
{
  for (uint32_t i = 0; i < r->anchors.count; i++)
    if (strcmp(r->anchors.items[i].name, name) == 0) return &r->anchors.items[i];
  return NULL;
}

/* Sets *index to 1 + the anchor's, 0: there is none. As PyYAML, refuses a name that has a value. */
static bool begin_anchor(reader *r, struct fy_token *token, uint32_t *index)
{
  *index = 0;
  if (token == NULL) return true;
  source_pos at = sign_pos(r, token, empty_pos(r));
  const char *name = name_of(r, token);
  const anchor *other = find_anchor(r, name);
  if (other != NULL)
    return diag_error(r->diag, at,
                      "anchor &%.100s is also at line %d, column %d; expected each once", name,
                      other->at.line, other->at.column);
  if (r->anchors.count == MOST_ANCHORS)
    return diag_error(r->diag, at, "more than %d anchors; expected at most %d", MOST_ANCHORS,
                      MOST_ANCHORS);
  *ARRAY_PUSH(&r->anchors) = (anchor){ .name = name, .at = at };
  *index = r->anchors.count;
  return true;
}

static void end_anchor(reader *r, uint32_t index, const text_node *value)
{
  if (index == 0) return;
  anchor *of = &r->anchors.items[index - 1];
  assert(!of->complete && "a value ends once");
  of->node = *value;
  of->complete = true;
}

/* ---- values ---- */

static bool expects_key(reader *r)
{
  const open_node *in = innermost(r);
  return in && in->node.kind == TEXT_MAPPING && !in->has_key;
}

static void add_value(reader *r, text_node value)
{
  open_node *in = innermost(r);
  value.key_at = value.at;
  if (in && in->has_key) {
    value.key = in->key;
    value.key_at = in->key_at;
    in->has_key = false;
  }
  *ARRAY_PUSH(&r->done) = value;
}

static void set_key(reader *r, const char *text, bool plain, source_pos at)
{
  open_node *in = innermost(r);
  assert(expects_key(r));
  in->has_key = true;
  in->key = plain && strcmp(text, merge_key) == 0 ? merge_key : text;
  in->key_at = at;
}

static bool on_scalar(reader *r, struct fy_token *token, uint32_t anchored)
{
  size_t length = 0;
  const char *text = token ? fy_token_get_text(token, &length) : "";
  source_pos at = scalar_pos(r, token, empty_pos(r));
  if (!text) return diag_error(r->diag, at, "a text that cannot be read; expected UTF-8");
  if (memchr(text, 0, length)) {
    return diag_error(r->diag, at, "a text with a NUL character (\\0); expected none");
  }
  const char *copy = arena_strndup(r->arena, text, length);
  bool quoted = token && fy_token_scalar_style(token) != FYSS_PLAIN;
  text_node value = { .kind = TEXT_SCALAR, .text = copy, .quoted = quoted, .at = at, .values = 1 };
  end_anchor(r, anchored, &value);
  if (expects_key(r))
    set_key(r, copy, !quoted, at);
  else
    add_value(r, value);
  return true;
}

static bool on_start(reader *r, text_kind kind, struct fy_token *token, uint32_t anchored)
{
  source_pos at = token_pos(r, token, empty_pos(r));
  if (expects_key(r)) {
    return diag_error(r->diag, at, "a list or mapping as a key; expected a word");
  }
  if (r->depth == TEXT_DEPTH_LIMIT) {
    return diag_error(r->diag, at, "nested more than %d levels deep; expected at most %d",
                      TEXT_DEPTH_LIMIT, TEXT_DEPTH_LIMIT);
  }
  open_node *in = &r->open[r->depth++];
  *in = (open_node){ .node = { .kind = kind, .text = "", .at = at, .values = 1 },
                     .first = r->done.count,
                     .anchor = anchored };
  return true;
}

static bool check_alias(reader *r, const char *name, const anchor *of, source_pos at)
{
  if (of == NULL)
    return diag_error(r->diag, at, "an alias of an anchor that is not before it; expected &%.100s",
                      name);
  if (!of->complete)
    return diag_error(r->diag, at, "an alias of the value that it is in; expected another");
  if (expects_key(r) && of->node.kind != TEXT_SCALAR)
    return diag_error(r->diag, at, "a list or mapping as a key; expected a word");
  if (of->node.values > MOST_ALIASED_VALUES - r->aliased)
    return diag_error(r->diag, at, "aliases of more than %d values; expected fewer",
                      MOST_ALIASED_VALUES);
  if (r->depth + of->node.levels > TEXT_DEPTH_LIMIT)
    return diag_error(r->diag, at, "nested more than %d levels deep; expected at most %d",
                      TEXT_DEPTH_LIMIT, TEXT_DEPTH_LIMIT);
  return true;
}

/* Messages about what an alias repeats name the place of the anchor's value. */
static bool on_alias(reader *r, struct fy_token *token)
{
  source_pos at = sign_pos(r, token, empty_pos(r));
  const char *name = name_of(r, token);
  const anchor *of = find_anchor(r, name);
  if (!check_alias(r, name, of, at)) return false;
  r->aliased += of->node.values;
  if (expects_key(r))
    set_key(r, of->node.text, !of->node.quoted, at);
  else
    add_value(r, of->node);
  return true;
}

/* ---- the end of a collection ---- */

static int compare_by_key(const void *a, const void *b)
{
  const text_node *const *x = a, *const *y = b;
  int order = strcmp((*x)->key, (*y)->key);
  return order != 0 ? order : (*x > *y) - (*x < *y);
}

static bool is_merge(const text_node *n)
{
  return n->key == merge_key;
}

/* If a key is given several times, the last value counts, as in PyYAML and json. Returns the number of
 * children that are left, in their order. */
static uint32_t drop_repeated_keys(reader *r, text_node *children, uint32_t count)
{
  const text_node **sorted = ARENA_ARRAY(r->arena, const text_node *, count);
  const text_node **earlier =
      ARENA_ARRAY(r->arena, const text_node *, count); /* with the same key */
  bool *dropped = ARENA_ARRAY(r->arena, bool, count);
  for (uint32_t i = 0; i < count; i++) {
    sorted[i] = &children[i];
  }
  qsort(sorted, count, sizeof *sorted, compare_by_key);
  for (uint32_t i = 1; i < count; i++) {
    if (strcmp(sorted[i - 1]->key, sorted[i]->key) != 0 || is_merge(sorted[i])) continue;
    earlier[sorted[i] - children] = sorted[i - 1];
    dropped[sorted[i - 1] - children] = true;
  }
  for (uint32_t i = 0; i < count; i++) {
    if (!earlier[i]) continue;
    diag_note(r->diag, children[i].key_at,
              "key '%.100s' is also at line %d, column %d; the last value counts", children[i].key,
              earlier[i]->key_at.line, earlier[i]->key_at.column);
  }
  uint32_t left = 0;
  for (uint32_t i = 0; i < count; i++) {
    if (!dropped[i]) children[left++] = children[i];
  }
  return left;
}

/* ---- merged mappings ---- */

static bool check_merge(reader *r, const text_node *n)
{
  bool right = n->kind != TEXT_SCALAR;
  for (uint32_t i = 0; n->kind == TEXT_SEQUENCE && i < n->count; i++)
    right = right && n->children[i].kind == TEXT_MAPPING;
  return right ||
         diag_error(r->diag, n->key_at, "a merge key (<<) without a mapping or a list of mappings");
}

/* Adds its children, or those of the mappings of a list. */
static uint32_t add_merged(text_node *to, uint32_t count, const text_node *merged)
{
  if (merged->kind == TEXT_MAPPING && merged->count > 0)
    memcpy(to + count, merged->children, merged->count * sizeof *to);
  if (merged->kind == TEXT_MAPPING) return count + merged->count;
  for (uint32_t i = 0; i < merged->count; i++)
    count = add_merged(to, count, &merged->children[i]);
  return count;
}

/* Own keys win, then the first of a list. Returns the number of nodes that are left, in order. */
static uint32_t keep_first_of_keys(reader *r, text_node *nodes, uint32_t count)
{
  const text_node **sorted = ARENA_ARRAY(r->arena, const text_node *, count);
  bool *dropped = ARENA_ARRAY(r->arena, bool, count);
  uint32_t left = 0;
  for (uint32_t i = 0; i < count; i++)
    sorted[i] = &nodes[i];
  qsort(sorted, count, sizeof *sorted, compare_by_key);
  for (uint32_t i = 1; i < count; i++)
    dropped[sorted[i] - nodes] = strcmp(sorted[i - 1]->key, sorted[i]->key) == 0;
  for (uint32_t i = 0; i < count; i++)
    if (!dropped[i]) nodes[left++] = nodes[i];
  return left;
}

static uint32_t most_merged(const text_node *children, uint32_t count)
{
  uint32_t most = count;
  for (uint32_t i = 0; i < count; i++)
    if (is_merge(&children[i])) most += children[i].values;
  return most;
}

/* Puts merged mappings in the place of their merge keys, the last of which wins, as in PyYAML. */
static bool merge_children(reader *r, text_node *of, const text_node *children, uint32_t count)
{
  text_node *all = ARENA_ARRAY(r->arena, text_node, most_merged(children, count));
  of->children = all;
  of->count = 0;
  for (uint32_t i = 0; i < count; i++)
    if (!is_merge(&children[i])) all[of->count++] = children[i];
  for (uint32_t i = count; i-- > 0;) {
    if (!is_merge(&children[i])) continue;
    if (!check_merge(r, &children[i])) return false;
    of->count = add_merged(all, of->count, &children[i]);
  }
  of->count = keep_first_of_keys(r, all, of->count);
  return true;
}

static bool any_merge(const text_node *children, uint32_t count)
{
  for (uint32_t i = 0; i < count; i++)
    if (is_merge(&children[i])) return true;
  return false;
}

static void count_values(text_node *node)
{
  for (uint32_t i = 0; i < node->count; i++) {
    const text_node *child = &node->children[i];
    node->values += child->values;
    if (child->levels >= node->levels) node->levels = child->levels;
  }
  node->levels++;
}

static bool on_end(reader *r)
{
  open_node *in = innermost(r);
  assert(in && !in->has_key);
  text_node node = in->node;
  node.count = r->done.count - in->first;
  if (node.count > 0) {
    text_node *children = ARENA_ARRAY(r->arena, text_node, node.count);
    memcpy(children, r->done.items + in->first, node.count * sizeof *children);
    if (node.kind == TEXT_MAPPING) node.count = drop_repeated_keys(r, children, node.count);
    node.children = children;
    r->done.count = in->first;
    if (node.kind == TEXT_MAPPING && any_merge(children, node.count) &&
        !merge_children(r, &node, children, node.count))
      return false;
  }
  count_values(&node);
  r->depth--;
  end_anchor(r, in->anchor, &node);
  add_value(r, node);
  return true;
}

/* ---- events ---- */

static bool on_document(reader *r, struct fy_token *token)
{
  if (++r->documents == 1) return true;
  return diag_error(r->diag, token_pos(r, token, empty_pos(r)),
                    "a second document (---); expected one in a file");
}

static bool on_event(reader *r, const struct fy_event *e)
{
  uint32_t anchored = 0;
  switch (e->type) {
  case FYET_DOCUMENT_START: return on_document(r, e->document_start.document_start);
  case FYET_ALIAS: return on_alias(r, e->alias.anchor);
  case FYET_SCALAR:
    return refuse_tag(r, e->scalar.tag) && begin_anchor(r, e->scalar.anchor, &anchored) &&
           on_scalar(r, e->scalar.value, anchored);
  case FYET_SEQUENCE_START:
    return refuse_tag(r, e->sequence_start.tag) &&
           begin_anchor(r, e->sequence_start.anchor, &anchored) &&
           on_start(r, TEXT_SEQUENCE, e->sequence_start.sequence_start, anchored);
  case FYET_MAPPING_START:
    return refuse_tag(r, e->mapping_start.tag) &&
           begin_anchor(r, e->mapping_start.anchor, &anchored) &&
           on_start(r, TEXT_MAPPING, e->mapping_start.mapping_start, anchored);
  case FYET_SEQUENCE_END:
  case FYET_MAPPING_END: return on_end(r);
  case FYET_NONE:
  case FYET_STREAM_START:
  case FYET_STREAM_END:
  case FYET_DOCUMENT_END: break;
  }
  return true;
}

/* libfyaml's first error, in the form of offsim's messages. */
static bool report_syntax(reader *r, struct fy_diag *collected)
{
  void *place = NULL;
  const struct fy_diag_error *error = fy_diag_errors_iterate(collected, &place);
  if (!error) {
    return diag_error(r->diag, (source_pos){ r->file, 0, 0 }, "this is neither YAML nor JSON");
  }
  source_pos at = { r->file, error->line, error->column };
  return diag_error(r->diag, at, "%s; expected YAML or JSON", error->msg);
}

static bool read_events(reader *r, struct fy_diag *collected)
{
  struct fy_event *event;
  while ((event = fy_parser_parse(r->parser)) != NULL) {
    bool good = on_event(r, event);
    fy_parser_event_free(r->parser, event);
    if (!good) return false;
  }
  return !fy_diag_got_error(collected) || report_syntax(r, collected);
}

/* ---- the parser's life ---- */

static void discard_output(struct fy_diag *from, void *user, const char *text, size_t length)
{
  (void)from, (void)user, (void)text, (void)length;
}

static struct fy_diag *new_collector(void)
{
  struct fy_diag_cfg cfg;
  fy_diag_cfg_default(&cfg);
  cfg.fp = NULL;
  cfg.output_fn = discard_output;
  struct fy_diag *collector = fy_diag_create(&cfg);
  if (!collector) die_refused("no memory for the YAML reader");
  fy_diag_set_collect_errors(collector, true);
  return collector;
}

static bool read_with_parser(reader *r, const char *text, size_t length)
{
  struct fy_diag *collected = new_collector();
  struct fy_parse_cfg cfg = {
    .flags = FYPCF_QUIET | FYPCF_COLLECT_DIAG | FYPCF_SLOPPY_FLOW_INDENTATION | FYPCF_JSON_NONE,
    .diag = collected,
  };
  r->parser = fy_parser_create(&cfg);
  if (!r->parser || fy_parser_set_string(r->parser, text, length) != 0) {
    die_refused("no memory for the YAML reader");
  }
  bool good = read_events(r, collected);
  fy_parser_destroy(r->parser);
  fy_diag_destroy(collected);
  return good;
}

const text_node *text_read(arena *a, const char *file, const char *text, size_t length, diag *d)
{
  if (!text_check_bytes(file, text, length, d) || !text_check_depth(file, text, length, d)) {
    return NULL;
  }
  reader *r = ARENA_NEW(a, reader);
  r->arena = a;
  r->file = file;
  r->diag = d;
  bool good = read_with_parser(r, text, length);
  text_node *top = ARENA_NEW(a, text_node);
  source_pos start = { file, 1, 1 };
  *top = r->done.count > 0 && good
             ? r->done.items[0]
             : (text_node){ .kind = TEXT_SCALAR, .text = "", .key_at = start, .at = start };
  ARRAY_FREE(&r->done);
  ARRAY_FREE(&r->anchors);
  return good ? top : NULL;
}
