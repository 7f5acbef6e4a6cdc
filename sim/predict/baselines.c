#define XXH_INLINE_ALL
#include <xxhash.h>

#include "sim/predict/baselines.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#include "sim/base/array.h"
#include "sim/config/key_table.h"

typedef struct known_run {
  XXH128_hash_t run;
  int64_t step_ps;
  uint32_t first, ranks; /* rows of `peaks` */
} known_run;

typedef struct known_peaks {
  int64_t allocated_bytes, steady_bytes;
} known_peaks;

struct baselines {
  pthread_mutex_t lock;
  struct {
    known_run *items;
    uint32_t count, capacity;
  } runs;
  struct {
    known_peaks *items;
    uint32_t count, capacity;
  } peaks;
};

static void add_text(XXH3_state_t *hash, const char *text)
{
  XXH3_128bits_update(hash, text, strlen(text) + 1);
}

static void add_list(XXH3_state_t *hash, const name_list *list)
{
  XXH3_128bits_update(hash, &list->count, sizeof list->count);
  for (uint32_t i = 0; i < list->count; i++)
    add_text(hash, list->names[i]);
}

static void add_choices(XXH3_state_t *hash, const choice_list *list)
{
  XXH3_128bits_update(hash, &list->count, sizeof list->count);
  if (list->count > 0) XXH3_128bits_update(hash, list->items, list->count * sizeof *list->items);
}

static void add_value(XXH3_state_t *hash, const settings *s, setting_key key)
{
  const void *member = key_member_const(s, key);
  switch (key_rows[key].type) {
  case KEY_TYPE_INT: XXH3_128bits_update(hash, member, sizeof(int64_t)); break;
  case KEY_TYPE_REAL: XXH3_128bits_update(hash, member, sizeof(double)); break;
  case KEY_TYPE_FLAG: XXH3_128bits_update(hash, member, sizeof(bool)); break;
  case KEY_TYPE_TEXT: add_text(hash, *(const char *const *)member); break;
  case KEY_TYPE_LIST: add_list(hash, member); break;
  case KEY_TYPE_CHOICE: XXH3_128bits_update(hash, member, sizeof(uint32_t)); break;
  case KEY_TYPE_CHOICES: add_choices(hash, member); break;
  }
}

XXH128_hash_t settings_digest(const settings *s)
{
  XXH3_state_t hash;
  XXH3_128bits_reset(&hash);
  for (setting_key key = 0; key < KEY_COUNT; key++)
    add_value(&hash, s, key);
  return XXH3_128bits_digest(&hash);
}

baselines *baselines_new(arena *a)
{
  baselines *b = ARENA_NEW(a, baselines);
  pthread_mutex_init(&b->lock, NULL);
  return b;
}

void baselines_release(baselines *b)
{
  ARRAY_FREE(&b->runs);
  ARRAY_FREE(&b->peaks);
  pthread_mutex_destroy(&b->lock);
}

/* A space has few runs beside its settings. */
static const known_run *find_run(const baselines *b, XXH128_hash_t run)
{
  for (uint32_t i = 0; i < b->runs.count; i++)
    if (XXH128_isEqual(b->runs.items[i].run, run)) return &b->runs.items[i];
  return NULL;
}

bool baselines_find(baselines *b, XXH128_hash_t run, iteration_prediction *found, uint32_t ranks,
                    arena *a)
{
  pthread_mutex_lock(&b->lock);
  const known_run *known = find_run(b, run);
  if (known != NULL) {
    assert(known->ranks == ranks);
    *found = (iteration_prediction){ .step_ps = known->step_ps,
                                     .ranks = ARENA_ARRAY(a, rank_prediction, ranks) };
    for (uint32_t i = 0; i < ranks; i++) {
      const known_peaks *p = &b->peaks.items[known->first + i];
      found->ranks[i].allocated_peak_bytes = p->allocated_bytes;
      found->ranks[i].steady_allocated_peak_bytes = p->steady_bytes;
    }
  }
  pthread_mutex_unlock(&b->lock);
  return known != NULL;
}

void baselines_add(baselines *b, XXH128_hash_t run, const iteration_prediction *is, uint32_t ranks)
{
  pthread_mutex_lock(&b->lock);
  if (find_run(b, run) == NULL) { /* another thread may have been faster */
    *ARRAY_PUSH(&b->runs) = (known_run){ run, is->step_ps, b->peaks.count, ranks };
    for (uint32_t i = 0; i < ranks; i++)
      *ARRAY_PUSH(&b->peaks) = (known_peaks){ is->ranks[i].allocated_peak_bytes,
                                              is->ranks[i].steady_allocated_peak_bytes };
  }
  pthread_mutex_unlock(&b->lock);
}
