/*
 * YAML and JSON as a tree of texts with positions.
 *
 * The tree is plain data in the caller's arena and is not changed after it was read. It knows no
 * types: a scalar is text, and text_as_i64 reads it as a number. A text is one document without
 * tags. Keys are scalars. If a key is given again, the last value counts, with a note.
 *
 * Anchors, aliases and merge keys (<<) are read as by PyYAML. An alias refers to the anchor's value,
 * which has the place where it was written; so values are shared, and a text whose aliases together
 * repeat too many of them is refused.
 *
 *     const text_node *top = text_read(arena, path, text, length, d);
 *     const text_node *model = text_get(top, "model");
 *     int64_t layers;
 *     if (!text_as_i64(text_get(model, "num_layers"), &layers, d)) return false;
 *
 * Positions count lines and columns from 1; a column is one character of UTF-8.
 */
#ifndef OFFSIM_SIM_TEXT_YAML_TEXT_H
#define OFFSIM_SIM_TEXT_YAML_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/arena.h"
#include "sim/base/diag.h"

typedef enum text_kind { TEXT_SCALAR, TEXT_SEQUENCE, TEXT_MAPPING } text_kind;

typedef struct text_node text_node;
struct text_node {
  text_kind kind;
  bool quoted;       /* a scalar in quotes or a block scalar: "true" is then a word */
  const char *text;  /* of a scalar; "" of the others */
  const char *key;   /* the node's key in its mapping; NULL elsewhere */
  source_pos key_at; /* of the key; of the value itself when there is no key */
  source_pos at;     /* of the value */
  const text_node
      *children; /* of a sequence, or a mapping, in the order of the text; merged ones last */
  uint32_t count;
  uint32_t values, levels; /* in it, itself included, as if aliases were written out; of lists and
                            * mappings */
};

/* Whether the first line that is neither blank nor a comment begins a YAML or JSON mapping. */
bool text_looks_like_mapping(const char *text);

/* The tree, or NULL after a diag error. `file` is kept for positions and must outlive the tree. An
 * empty text is a scalar "", see text_is_null. */
const text_node *text_read(arena *a, const char *file, const char *text, size_t length, diag *d);

/* The value of `key` in a mapping. NULL: the key is missing, or `map` is NULL or no mapping. */
const text_node *text_get(const text_node *map, const char *key);

/* The value is missing, `~` or `null`. */
bool text_is_null(const text_node *n);

/*
 * Each reports what was found, under which key, and what was expected, and then returns false with
 * `value` untouched. The node may not be NULL. Spellings: scalar.h. A quoted number is a number.
 */
bool text_as_i64(const text_node *n, int64_t *value, diag *d);
bool text_as_double(const text_node *n, double *value, diag *d); /* n->text holds it exactly */
bool text_as_bool(const text_node *n, bool *value, diag *d);
bool text_as_string(const text_node *n, const char **value, diag *d); /* any scalar */

/* False after a diag error that says what a `kind` node is called: the node is something else. */
bool text_expect(const text_node *n, text_kind kind, diag *d);

/* "a mapping", "a list", "'text'" or "nothing", for messages; in the arena. */
const char *text_describe(arena *a, const text_node *n);

#endif
