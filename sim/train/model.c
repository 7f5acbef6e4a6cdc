#include "sim/train/model.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "sim/exec/number_formats.h"

/* ---- which there are ------------------------------------------------------------------------- */

static int by_name(const void *left, const void *right)
{
  const model_tensor *a = left, *b = right;
  return strcmp(a->name, b->name);
}

static uint32_t count_of(const exec_layout *layout, const train_parameter_list *parameters)
{
  uint32_t count = 0;
  for (uint32_t r = 0; r < layout->rank_count; r++)
    count += parameters[r].count;
  return count;
}

static void keep_distinct(train_model *m)
{
  uint32_t kept = 0;
  qsort(m->tensors, m->count, sizeof *m->tensors, by_name);
  for (uint32_t i = 0; i < m->count; i++)
    if (kept == 0 || strcmp(m->tensors[kept - 1].name, m->tensors[i].name) != 0)
      m->tensors[kept++] = m->tensors[i];
  assert(kept <= m->count);
  m->count = kept;
}

static uint32_t index_of(const train_model *m, const char *name)
{
  assert(m->count > 0);
  model_tensor key = { .name = name };
  const model_tensor *found = bsearch(&key, m->tensors, m->count, sizeof key, by_name);
  assert(found != NULL);
  return (uint32_t)(found - m->tensors);
}

train_model model_of(const exec_layout *layout, const train_parameter_list *parameters, arena *a)
{
  train_model m = { .tensors = ARENA_ARRAY(a, model_tensor, count_of(layout, parameters)) };
  for (uint32_t r = 0; r < layout->rank_count; r++)
    for (uint32_t i = 0; i < parameters[r].count; i++) {
      const train_part *part = &parameters[r].items[i].part;
      if (parameters[r].items[i].trained)
        m.tensors[m.count++] =
            (model_tensor){ .name = part->name, .rows = part->rows, .columns = part->columns };
    }
  keep_distinct(&m);
  m.tensor_of = ARENA_ARRAY(a, uint32_t *, layout->rank_count);
  for (uint32_t r = 0; r < layout->rank_count; r++) {
    m.tensor_of[r] = ARENA_ARRAY(a, uint32_t, parameters[r].count);
    for (uint32_t i = 0; i < parameters[r].count; i++)
      if (parameters[r].items[i].trained)
        m.tensor_of[r][i] = index_of(&m, parameters[r].items[i].part.name);
  }
  return m;
}

/* ---- from the ranks -------------------------------------------------------------------------- */

int64_t tensor_count(const model_tensor *t)
{
  assert(t->rows >= 0 && t->columns >= 0);
  return t->rows * t->columns;
}

const train_home *parameter_home(const train_parameter *p, model_kind kind)
{
  assert(kind < MODEL_KINDS);
  return kind == MODEL_WEIGHT ? &p->weight : kind == MODEL_GRADIENT ? &p->gradient : &p->main;
}

static dtype type_of_home(const plan *p, uint32_t stage, const train_home *h)
{
  assert(stage < p->rank_count && h->buffer < p->ranks[stage].buffers.count);
  const plan_buffer *b = &p->ranks[stage].buffers.items[h->buffer];
  return h->view.whole ? (dtype)p->tensors.items[b->tensor].dtype : (dtype)h->view.dtype;
}

/* A rank's part that is copied into its tensor. */
typedef struct taking {
  model_tensor *to;
  model_kind kind;
  const train_part *part;
  const unsigned char *from;
  size_t size;        /* bytes of an element */
  unsigned char *had; /* by element of the tensor: an earlier rank has set it */
} taking;

/* Copies row by row, because a part has whole rows or a piece of each. Returns the first element of
 * the first row that differs from an earlier rank's, -1: none. */
static int64_t take(const taking *t)
{
  int64_t differs = -1, columns = t->part->own_columns;
  size_t bytes = (size_t)columns * t->size;
  for (int64_t row = 0; row < t->part->own_rows; row++) {
    int64_t element = train_part_element(t->part, row * columns);
    const unsigned char *from = t->from + (size_t)row * bytes;
    unsigned char *to = (unsigned char *)t->to->data[t->kind] + (size_t)element * t->size;
    assert(element >= 0 && element + columns <= tensor_count(t->to));
    if (t->had[element] && differs < 0 && memcmp(to, from, bytes) != 0) differs = element;
    memcpy(to, from, bytes);
    memset(t->had + element, 1, (size_t)columns);
  }
  return differs;
}

static const char *const kind_names[MODEL_KINDS] = { "weight", "gradient", "main parameter" };

typedef struct gathering {
  const execution *exec;
  const plan *plan;
  const exec_rank *rank;
  model_kind kind;
  unsigned char *had;
} gathering;

static const char *gather_one(const gathering *g, model_tensor *to, const train_parameter *p,
                              arena *a)
{
  const train_home *home = parameter_home(p, g->kind);
  dtype type = type_of_home(g->plan, g->rank->stage, home);
  size_t size = (size_t)dtype_bytes(type);
  const unsigned char *data = g->exec->by->data(g->exec->exec, g->rank->global, home->buffer);
  assert(home->view.whole || view_is_contiguous(&home->view));
  if (data == NULL)
    return arena_printf(a, "rank %u no longer has %s of %s", g->rank->global, kind_names[g->kind],
                        p->part.name);
  if (to->data[g->kind] == NULL) {
    to->data[g->kind] = arena_alloc(a, (size_t)tensor_count(to), size);
    to->type[g->kind] = (uint8_t)type;
  }
  assert(to->type[g->kind] == type);
  taking t = { to, g->kind, &p->part, data + (size_t)home->view.offset * size, size, g->had };
  int64_t differs = take(&t);
  return differs < 0
             ? NULL
             : arena_printf(a,
                            "rank %u and an earlier rank have different %s of %s: in the row of "
                            "element %lld",
                            g->rank->global, kind_names[g->kind], p->part.name, (long long)differs);
}

/* `had` of all tensors, one after the other. */
static int64_t *first_elements(const train_model *m, arena *a)
{
  int64_t *first = ARENA_ARRAY(a, int64_t, m->count + 1);
  for (uint32_t i = 0; i < m->count; i++)
    first[i + 1] = first[i] + tensor_count(&m->tensors[i]);
  return first;
}

bool model_gather(train_model *m, model_kind kind, const execution *e, const plan *p,
                  const exec_layout *layout, const train_parameter_list *parameters,
                  const char **finding, arena *a)
{
  arena scratch = { 0 };
  const int64_t *first = first_elements(m, &scratch);
  unsigned char *had = ARENA_ARRAY(&scratch, unsigned char, (size_t)first[m->count]);
  const char *wrong = NULL;
  for (uint32_t r = 0; r < layout->rank_count; r++)
    for (uint32_t i = 0; i < parameters[r].count && wrong == NULL; i++) {
      const train_parameter *from = &parameters[r].items[i];
      uint32_t tensor = m->tensor_of[r][i];
      if (!from->trained || parameter_home(from, kind)->buffer == NO_BUFFER) continue;
      gathering g = { e, p, &layout->ranks[r], kind, had + first[tensor] };
      wrong = gather_one(&g, &m->tensors[tensor], from, a);
    }
  arena_release(&scratch);
  if (wrong != NULL) *finding = wrong;
  return wrong == NULL;
}

/* ---- the figures ----------------------------------------------------------------------------- */

static void add_tensor(XXH3_state_t *hash, const model_tensor *t, model_kind kind)
{
  assert(kind < MODEL_KINDS);
  if (t->data[kind] == NULL) return;
  XXH3_128bits_update(hash, t->name, strlen(t->name) + 1);
  XXH3_128bits_update(hash, t->data[kind],
                      (size_t)(tensor_count(t) * dtype_bytes((dtype)t->type[kind])));
}

static exec_fingerprint digest(const XXH3_state_t *hash)
{
  XXH128_hash_t h = XXH3_128bits_digest(hash);
  return (exec_fingerprint){ h.low64, h.high64 };
}

exec_fingerprint tensor_fingerprint(const model_tensor *t, model_kind kind)
{
  XXH3_state_t hash;
  XXH3_128bits_reset(&hash);
  add_tensor(&hash, t, kind);
  return digest(&hash);
}

exec_fingerprint model_fingerprint(const train_model *m, model_kind kind)
{
  XXH3_state_t hash;
  XXH3_128bits_reset(&hash);
  for (uint32_t i = 0; i < m->count; i++)
    add_tensor(&hash, &m->tensors[i], kind);
  return digest(&hash);
}

double tensor_value(const model_tensor *t, model_kind kind, int64_t i)
{
  assert(i >= 0 && i < tensor_count(t));
  return (double)(float)number_load(t->data[kind], (dtype)t->type[kind], i);
}

static double add_squares(double sum, const model_tensor *t, model_kind kind)
{
  const dtype type = (dtype)t->type[kind];
  const float *floats = t->data[kind];
  int64_t count = tensor_count(t);
  for (int64_t i = 0; i < count; i++) {
    double x = type == DTYPE_FP32 ? (double)floats[i] : tensor_value(t, kind, i);
    sum += x * x;
  }
  return sum;
}

double model_norm(const train_model *m, model_kind kind)
{
  double sum = 0;
  for (uint32_t i = 0; i < m->count; i++)
    if (m->tensors[i].data[kind] != NULL) sum = add_squares(sum, &m->tensors[i], kind);
  return sqrt(sum);
}
