#include "sim/tune/choices.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "sim/base/array.h"
#include "sim/base/units.h"
#include "sim/compile/compile.h"
#include "sim/config/key_table.h"
#include "sim/offload/systems.h"
#include "sim/predict/bounds.h"

typedef struct choosing {
  const settings *given, *resolved;
  int64_t device_bytes; /* what there is */
  struct {
    space_choice *items;
    uint32_t count, capacity;
  } choices; /* of the axis that is being made */
  arena *memory;
} choosing;

/* ---- sets ---- */

/* What was given has this value already. */
static bool is_given(const choosing *x, setting_key key, const char *value)
{
  settings with = *x->given;
  diag quiet = { .quiet = true };
  if (!settings_set_key(&with, key, value, (source_pos){ 0 }, x->memory, &quiet)) return false;
  const void *a = key_member_const(x->given, key), *b = key_member_const(&with, key);
  const choice_list *l = a, *m = b;
  switch (key_rows[key].type) {
  case KEY_TYPE_INT:
  case KEY_TYPE_REAL: return memcmp(a, b, sizeof(int64_t)) == 0;
  case KEY_TYPE_FLAG: return *(const bool *)a == *(const bool *)b;
  case KEY_TYPE_CHOICE: return *(const uint32_t *)a == *(const uint32_t *)b;
  case KEY_TYPE_CHOICES: return l->set == m->set;
  case KEY_TYPE_TEXT:
  case KEY_TYPE_LIST: break;
  }
  return false;
}

static void set(choosing *x, space_choice *c, setting_key key, const char *value)
{
  enum { MOST = 12 };
  if (is_given(x, key, value)) return;
  if (c->sets == NULL) c->sets = ARENA_ARRAY(x->memory, const char *, MOST);
  assert(c->set_count < MOST);
  c->sets[c->set_count++] = arena_printf(x->memory, "%s=%s", key_rows[key].name, value);
}

static const char *number(const choosing *x, int64_t value)
{
  return arena_printf(x->memory, "%" PRId64, value);
}

static void add(choosing *x, space_choice c)
{
  *ARRAY_PUSH(&x->choices) = c;
}

static bool take_axis(choosing *x, space *to, diag *d)
{
  bool ok = x->choices.count < 2 ||
            space_add_choices(to, x->choices.items, x->choices.count, (source_pos){ 0 }, d);
  ARRAY_FREE(&x->choices);
  return ok;
}

/* ---- sets of modules ---- */

/* Every set of the words is a choice: sets of more words are too many to search. */
enum { MOST_WORDS = 16 };

typedef struct word_list {
  const char **words;
  uint32_t count;
} word_list;

typedef space_choice choice_of_words(choosing *x, const char *words);

/* False: the settings' rules refuse the choice. */
static bool settings_with(choosing *x, const space_choice *choice, settings *s)
{
  candidate c = { 0 };
  diag quiet = { .quiet = true };
  for (uint32_t i = 0; i < choice->set_count; i++)
    c.sets[c.set_count++] = choice->sets[i];
  return candidate_settings(s, x->given, &c, "tune", x->memory, &quiet);
}

/* Sizes of a plan: two plans of one model that differ do so in one of these. */
typedef struct plan_sizes {
  int64_t ops, buffers, calls, allocated_bytes;
} plan_sizes;

/* False: it is not possible. */
static bool find_sizes(choosing *x, choice_of_words *of, const char *words, plan_sizes *found)
{
  settings s;
  compilation c = { 0 };
  diag quiet = { .quiet = true };
  arena scratch = { 0 };
  space_choice choice = of(x, words);
  bool ok = settings_with(x, &choice, &s) &&
            allocated_bound(&found->allocated_bytes, &s, &scratch, &quiet) &&
            compile(&c, &s, ITERATION_STEADY, &scratch, &quiet);
  found->ops = found->buffers = 0;
  found->calls = ok ? c.plan.calls.count : 0;
  for (uint32_t i = 0; ok && i < c.plan.rank_count; i++) {
    found->ops += c.plan.ranks[i].ops.count;
    found->buffers += c.plan.ranks[i].buffers.count;
  }
  compilation_release(&c);
  arena_release(&scratch);
  return ok;
}

static bool are_equal(const plan_sizes *a, const plan_sizes *b)
{
  return a->ops == b->ops && a->buffers == b->buffers && a->calls == b->calls &&
         a->allocated_bytes == b->allocated_bytes;
}

/* Possible, and not what the plan is without: alone, or beside one other, which some modules need. */
static bool is_of_use(choosing *x, setting_key key, choice_of_words *of, const char *word,
                      const plan_sizes *without)
{
  const char *const *words = key_rows[key].words;
  plan_sizes alone, other, both;
  if (find_sizes(x, of, word, &alone)) return !are_equal(&alone, without);
  for (uint32_t k = 0; words[k] != NULL; k++) {
    if (!key_word_is_released(key, k) || strcmp(words[k], word) == 0 ||
        !find_sizes(x, of, words[k], &other))
      continue;
    if (find_sizes(x, of, arena_printf(x->memory, "%s,%s", words[k], word), &both))
      return !are_equal(&both, &other);
  }
  return false;
}

/* Words that a framework knows and that change the plan; `none`: the choice without any. */
static word_list useful_words(choosing *x, setting_key key, choice_of_words *of,
                              choice_of_words *none)
{
  const char *const *words = key_rows[key].words;
  uint32_t all = 0;
  while (words[all] != NULL)
    all++;
  word_list found = { .words = ARENA_ARRAY(x->memory, const char *, all) };
  plan_sizes without;
  if (!find_sizes(x, none, "", &without)) without = (plan_sizes){ .ops = -1 };
  for (uint32_t i = 0; i < all; i++)
    if (key_word_is_released(key, i) && is_of_use(x, key, of, words[i], &without))
      found.words[found.count++] = words[i];
  assert(found.count <= MOST_WORDS);
  return found;
}

static const char *joined(const choosing *x, const word_list *l, uint32_t set_of_words)
{
  const char *text = "";
  for (uint32_t i = 0; i < l->count; i++)
    if (set_of_words >> i & 1)
      text = arena_printf(x->memory, "%s%s%s", text, *text == '\0' ? "" : ",", l->words[i]);
  return text;
}

/* ---- recomputation ---- */

static space_choice recompute(choosing *x, const char *granularity, const char *method,
                              int64_t layers)
{
  space_choice c = { 0 };
  set(x, &c, KEY_recompute_recompute_granularity, granularity);
  set(x, &c, KEY_recompute_recompute_method, method);
  if (layers > 0)
    set(x, &c, KEY_recompute_recompute_num_layers, number(x, layers));
  else if (x->given->recompute.recompute_num_layers != UNSET)
    set(x, &c, KEY_recompute_recompute_num_layers, "");
  return c;
}

static space_choice recompute_modules(choosing *x, const char *words)
{
  space_choice c = recompute(x, "selective", "", 0);
  set(x, &c, KEY_recompute_recompute_modules, words);
  return c;
}

static space_choice recompute_nothing(choosing *x, const char *words)
{
  (void)words;
  return recompute(x, "", "", 0);
}

static int64_t layers_of_stage(const settings *resolved)
{
  int64_t most = 1, stages = resolved->derived.virtual_stages *
                             resolved->parallel.pipeline_model_parallel_size;
  for (int64_t i = 0; i < stages; i++)
    most = max_i64(most, resolved->derived.stages[i].layer_count);
  return most;
}

static void add_recomputes(choosing *x)
{
  int64_t layers = layers_of_stage(x->resolved);
  add(x, recompute(x, "", "", 0));
  word_list words =
      useful_words(x, KEY_recompute_recompute_modules, recompute_modules, recompute_nothing);
  for (uint32_t i = 1; i < UINT32_C(1) << words.count; i++)
    add(x, recompute_modules(x, joined(x, &words, i)));
  for (int64_t n = 1; n < layers; n++)
    add(x, recompute(x, "full", "block", n));
  for (int64_t n = 1; n <= layers; n *= 2)
    add(x, recompute(x, "full", "uniform", n));
}

/* ---- offload system planned ---- */

enum { PLANNED_LEVELS = 6, PLANNED_LAYER_STEPS = 4, PLANNED_MLP_STEPS = 16 };

/* What is computed again, of `layers` of the model's, spread evenly. */
typedef enum checkpoints {
  CHECKPOINTS_GIVEN, /* as the settings, or another axis, say */
  CHECKPOINTS_NONE,
  CHECKPOINTS_ALL,         /* everything of these layers, nothing of the others */
  CHECKPOINTS_ATTENTION,   /* ... but attention */
  CHECKPOINTS_PRODUCTS,    /* ... but attention and matrix products */
  CHECKPOINTS_NORMS,       /* norms before attention, and before these layers' MLPs */
  CHECKPOINTS_ACTIVATIONS, /* all norms, and of these layers' MLPs all but products */
  CHECKPOINTS_BUT_MLP /* all but attention and products, but of MLPs' only those of these layers */
} checkpoints;

static const char *const kept_words[] = {
  [CHECKPOINTS_ATTENTION] = "attention",        [CHECKPOINTS_PRODUCTS] = "attention,aten::mm",
  [CHECKPOINTS_NORMS] = "attention,aten::mm",   [CHECKPOINTS_ACTIVATIONS] = "attention,aten::mm",
  [CHECKPOINTS_BUT_MLP] = "attention,aten::mm",
};

/* `count` of the model's layers, as recompute_layers says it, or the others: spread evenly, the first a fifth
 * of the distance from the start and the last four fifths from the end. Copies of what they keep begin early,
 * and have time to end before backward. */
static const char *spread_layers(const choosing *x, int64_t count, bool others)
{
  int64_t layers = x->resolved->model.num_layers;
  const char *text = "(";
  assert(count >= 0 && count <= layers);
  for (int64_t i = 0; i < layers; i++) {
    bool chosen = (5 * (i + 1) * count + 4 * layers) / (5 * layers) >
                  (5 * i * count + 4 * layers) / (5 * layers);
    text = arena_printf(x->memory, "%s%c%d", text, i == 0 ? '[' : ',', chosen != others);
  }
  return arena_printf(x->memory, "%s])", text);
}

/* A negative level: nothing moves. */
static space_choice planned(choosing *x, int64_t level_bytes, checkpoints kind, int64_t layers)
{
  space_choice c = { 0 };
  set(x, &c, KEY_offload_system, level_bytes < 0 ? "none" : "planned");
  if (level_bytes >= 0) set(x, &c, KEY_offload_planned_device_bytes, number(x, level_bytes));
  set(x, &c, KEY_offload_fine_grained_activation_offloading, "false");
  set(x, &c, KEY_offload_cpu_offloading, "false");
  set(x, &c, KEY_offload_cpu_offloading_num_layers, "0");
  if (kind == CHECKPOINTS_GIVEN) return c;
  set(x, &c, KEY_recompute_recompute_granularity, kind == CHECKPOINTS_NONE ? "" : "full");
  if (kind == CHECKPOINTS_NONE) return c;
  set(x, &c, KEY_recompute_recompute_method, "uniform");
  set(x, &c, KEY_recompute_recompute_num_layers, "1");
  if (kind == CHECKPOINTS_NORMS)
    set(x, &c, KEY_recompute_recompute_mlp_layers, spread_layers(x, layers, false));
  else if (kind == CHECKPOINTS_ACTIVATIONS || kind == CHECKPOINTS_BUT_MLP)
    set(x, &c, KEY_recompute_recompute_mlp_layers, "1");
  else if (layers < x->resolved->model.num_layers)
    set(x, &c, KEY_recompute_recompute_layers, spread_layers(x, layers, false));
  if (kind == CHECKPOINTS_ALL) return c;
  set(x, &c, KEY_recompute_selective_checkpointing, "true");
  set(x, &c, KEY_recompute_selective_checkpointing_save, kept_words[kind]);
  if (kind == CHECKPOINTS_NORMS)
    set(x, &c, KEY_recompute_selective_checkpointing_activation_layers, "1");
  if (kind == CHECKPOINTS_ACTIVATIONS)
    set(x, &c, KEY_recompute_selective_checkpointing_activation_layers,
        spread_layers(x, layers, true));
  if (kind == CHECKPOINTS_BUT_MLP)
    set(x, &c, KEY_recompute_selective_checkpointing_mlp_layers, spread_layers(x, layers, false));
  return c;
}

static int64_t bound_of(choosing *x, const space_choice *choice)
{
  settings s;
  arena scratch = { 0 };
  diag quiet = { .quiet = true };
  int64_t bytes = -1;
  if (settings_with(x, choice, &s) && !allocated_bound(&bytes, &s, &scratch, &quiet)) bytes = -1;
  arena_release(&scratch);
  return bytes;
}

/* The highest level with which no more than `most_bytes` are allocated, to 16 MiB; 0: none. */
static int64_t filling_level(choosing *x, checkpoints kind, int64_t layers, int64_t most_bytes)
{
  int64_t fits = 0, beyond = x->device_bytes;
  while (beyond - fits > 16 * MIB) {
    int64_t level = fits + (beyond - fits) / 2;
    space_choice choice = planned(x, level, kind, layers);
    int64_t bytes = bound_of(x, &choice);
    if (bytes < 0 || bytes > most_bytes)
      beyond = level;
    else
      fits = level;
  }
  return fits;
}

/* Segments take more than tensors do: levels with which tensors take the device or a little less. */
static void add_filling_levels(choosing *x, checkpoints kind, int64_t layers)
{
  static const int64_t parts_of_64[] = { 59, 60, 61, 62, 63, 64 };
  for (size_t i = 0; i < sizeof parts_of_64 / sizeof *parts_of_64; i++) {
    int64_t level = filling_level(x, kind, layers, muldiv_i64(x->device_bytes, parts_of_64[i], 64));
    if (level > 0) add(x, planned(x, level, kind, layers));
  }
}

static void add_levels(choosing *x, checkpoints kind, int64_t layers, int64_t most_bytes)
{
  add(x, planned(x, -1, kind, layers));
  if (most_bytes <= 0) return;
  for (int64_t level = 0; level < PLANNED_LEVELS; level++)
    add(x, planned(x, muldiv_i64(most_bytes, level, PLANNED_LEVELS), kind, layers));
  add_filling_levels(x, kind, layers);
}

/* Checkpoints of all kinds; levels from what the layer that saves most saves for each micro-batch in
 * flight, which planned_device_bytes 0 means, to what all save. */
static void add_planned(choosing *x)
{
  space_choice least = planned(x, 0, CHECKPOINTS_NONE, 0),
               most = planned(x, -1, CHECKPOINTS_NONE, 0);
  int64_t least_bytes = bound_of(x, &least), most_bytes = bound_of(x, &most);
  int64_t between_bytes = least_bytes < 0 ? 0 : most_bytes - least_bytes;
  int64_t layers = x->resolved->model.num_layers;
  add_levels(x, CHECKPOINTS_NONE, 0, between_bytes);
  for (checkpoints kind = CHECKPOINTS_ALL; kind <= CHECKPOINTS_BUT_MLP; kind++) {
    bool of_mlp = kind == CHECKPOINTS_ACTIVATIONS || kind == CHECKPOINTS_BUT_MLP;
    int64_t steps = of_mlp ? PLANNED_MLP_STEPS : PLANNED_LAYER_STEPS;
    int64_t before = of_mlp || kind == CHECKPOINTS_NORMS ? -1 : 0;
    for (int64_t step = 0; step <= steps; step++) {
      int64_t count = layers * step / steps;
      if (count > before) add_levels(x, kind, count, between_bytes);
      before = count;
    }
  }
}

/* Of Megatron-LM's models: the default, levels up to what all save, and levels with which tensors take the
 * device or a little less. There a byte of the level is a byte of the device. */
static void add_planned_beside_recompute(choosing *x)
{
  static const int64_t less_of_128[] = { 0, 1, 2, 3, 4, 6, 8, 10 };
  space_choice least = planned(x, 1, CHECKPOINTS_GIVEN, 0),
               most = planned(x, -1, CHECKPOINTS_GIVEN, 0);
  int64_t least_bytes = bound_of(x, &least), between_bytes = bound_of(x, &most) - least_bytes;
  if (least_bytes < 0 || between_bytes <= 0) return;
  for (int64_t level = 0; level < PLANNED_LEVELS; level++)
    add(x, planned(x, muldiv_i64(between_bytes, level, PLANNED_LEVELS), CHECKPOINTS_GIVEN, 0));
  int64_t filling = filling_level(x, CHECKPOINTS_GIVEN, 0, x->device_bytes);
  for (size_t i = 0; i < sizeof less_of_128 / sizeof *less_of_128; i++) {
    int64_t level = filling - muldiv_i64(x->device_bytes, less_of_128[i], 128);
    if (level > 0 && level < between_bytes) add(x, planned(x, level, CHECKPOINTS_GIVEN, 0));
  }
}

/* ---- offload ---- */

static space_choice offload(choosing *x, bool modules, int64_t layers)
{
  space_choice c = { 0 };
  set(x, &c, KEY_offload_system, "");
  set(x, &c, KEY_offload_fine_grained_activation_offloading, modules ? "true" : "false");
  set(x, &c, KEY_offload_cpu_offloading, layers > 0 ? "true" : "false");
  set(x, &c, KEY_offload_cpu_offloading_num_layers, number(x, layers));
  if (modules) set(x, &c, KEY_software_nvte_cpu_offload_v1, "true");
  return c;
}

static space_choice offload_modules(choosing *x, const char *words)
{
  space_choice c = offload(x, true, 0);
  set(x, &c, KEY_offload_offload_modules, words);
  return c;
}

static space_choice offload_nothing(choosing *x, const char *words)
{
  (void)words;
  return offload(x, false, 0);
}

static void add_offloads(choosing *x)
{
  static const char *const fractions[] = { "1", "0.75", "0.5", "0.25" };
  int64_t layers = layers_of_stage(x->resolved);
  add(x, offload(x, false, 0));
  word_list words = useful_words(x, KEY_offload_offload_modules, offload_modules, offload_nothing);
  for (uint32_t i = 1; i < UINT32_C(1) << words.count; i++)
    for (size_t f = 0; f < sizeof fractions / sizeof *fractions; f++) {
      space_choice c = offload_modules(x, joined(x, &words, i));
      set(x, &c, KEY_offload_activation_offload_fraction, fractions[f]);
      add(x, c);
    }
  for (int64_t n = 1; n < layers; n++)
    add(x, offload(x, false, n));
  add_planned_beside_recompute(x);
}

/* Of Hugging Face's models: systems with their recomputations, and without. */
static void add_systems(choosing *x)
{
  uint32_t count;
  const candidate *systems = candidates_of_systems(x->given, x->resolved, &count, x->memory);
  for (uint32_t i = 0; i < count; i++) {
    if (candidate_is_for_others(x->resolved, &systems[i], x->memory) != NULL) continue;
    space_choice c = { ARENA_ARRAY(x->memory, const char *, systems[i].set_count),
                       systems[i].set_count };
    for (uint32_t k = 0; k < c.set_count; k++)
      c.sets[k] = systems[i].sets[k];
    add(x, c);
  }
}

/* ---- the axes ---- */

static void add_segments(choosing *x)
{
  space_choice off = { 0 }, on = { 0 };
  set(x, &off, KEY_software_expandable_segments, "false");
  set(x, &on, KEY_software_expandable_segments, "true");
  add(x, off);
  add(x, on);
}

static bool varies_recompute(const space *s)
{
  return space_varies(s, KEY_recompute_recompute_granularity) ||
         space_varies(s, KEY_recompute_recompute_method) ||
         space_varies(s, KEY_recompute_recompute_modules) ||
         space_varies(s, KEY_recompute_recompute_num_layers) ||
         space_varies(s, KEY_recompute_recompute_layers);
}

static bool varies_offload(const space *s)
{
  return space_varies(s, KEY_offload_system) || space_varies(s, KEY_offload_planned_device_bytes) ||
         space_varies(s, KEY_offload_offload_modules) ||
         space_varies(s, KEY_offload_fine_grained_activation_offloading) ||
         space_varies(s, KEY_offload_activation_offload_fraction) ||
         space_varies(s, KEY_offload_cpu_offloading) ||
         space_varies(s, KEY_offload_cpu_offloading_num_layers);
}

/* NULL: it is not possible, or saved tensors may go to other GPUs. */
static const settings *keep_all_of(choosing *x)
{
  if (x->resolved->recompute.distribute_saved_activations) return NULL;
  settings *s = ARENA_NEW(x->memory, settings);
  space_choice c =
      uses_hf(x->resolved) ? planned(x, -1, CHECKPOINTS_NONE, 0) : recompute_nothing(x, "");
  if (!settings_with(x, &c, s)) return NULL;
  *s = settings_without_offload(s);
  return s;
}

bool choices_add(space *to, const settings *given, const settings *resolved, int64_t device_bytes,
                 const settings **keep_all, arena *a, diag *d)
{
  choosing x = { .given = given, .resolved = resolved, .device_bytes = device_bytes, .memory = a };
  *keep_all = to->axis_count == 0 ? keep_all_of(&x) : NULL;
  bool recomputes = !varies_recompute(to), offloads = !varies_offload(to);
  /* verl's workers turn them on themselves */
  bool of_workers = given->derived.of_verl && given->software.expandable_segments;
  bool segments = !of_workers && !space_varies(to, KEY_software_expandable_segments);
  if (uses_hf(resolved)) {
    if (recomputes && offloads) {
      add_systems(&x);
      add_planned(&x);
    }
  } else {
    if (recomputes) add_recomputes(&x);
    if (!take_axis(&x, to, d)) return false;
    if (offloads) add_offloads(&x);
  }
  if (!take_axis(&x, to, d)) return false;
  if (segments) add_segments(&x);
  return take_axis(&x, to, d);
}
