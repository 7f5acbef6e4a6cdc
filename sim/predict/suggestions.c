#include "sim/predict/suggestions.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/array.h"
#include "sim/base/units.h"
#include "sim/config/key_table.h"
#include "sim/predict/bounds.h"
#include "sim/predict/safety_summary.h"

/* ==== candidates ==== */

typedef enum source_kind {
  FROM_SETS,   /* the sets alone */
  FROM_WORDS,  /* one for each word of a list that is not in it: the list with it */
  FROM_LEAST,  /* the least value of a number that fits */
  FROM_DOUBLE, /* twice a number */
  FROM_SYSTEMS /* every offload system, with all modules that the model has */
} source_kind;

/* The changes that are tried. Those that usually save most come first, as a search may end early. Full
 * recomputation replaces Megatron-LM's offloading (sim/offload/megatron.c says why).
 * `sets`: with blanks between them. */
static const struct source {
  const char *name; /* but of FROM_SETS with %s for the value */
  source_kind kind;
  setting_key key;
  const char *sets;
} sources[] = {
  { "expandable segments", FROM_SETS, 0, "expandable_segments=true" },
  { "full recompute (gradient checkpointing)", FROM_SETS, 0,
    "recompute_granularity=full recompute_method=uniform recompute_num_layers=1 "
    "fine_grained_activation_offloading=false" },
  { "offload by %s", FROM_SYSTEMS, 0, "" },
  { "distributed optimizer", FROM_SETS, 0, "use_distributed_optimizer=true" },
  { "sequence parallelism", FROM_SETS, 0, "sequence_parallel=true" },
  { "micro-batches of one sequence", FROM_SETS, 0, "micro_batch_size=1" },
  { "TP %s", FROM_DOUBLE, KEY_parallel_tensor_model_parallel_size, "" },
  { "CP %s", FROM_DOUBLE, KEY_parallel_context_parallel_size, "" },
  { "PP %s", FROM_DOUBLE, KEY_parallel_pipeline_model_parallel_size, "" },
  { "EP %s", FROM_DOUBLE, KEY_parallel_expert_model_parallel_size, "" },
  { "FSDP2", FROM_SETS, 0, "fsdp=fsdp2" },
  { "resharding after forward", FROM_SETS, 0, "fsdp_reshard_after_forward=true" },
  { "bf16 shards", FROM_SETS, 0, "fsdp_model_dtype=bf16" },
  { "offload of %s", FROM_WORDS, KEY_offload_offload_modules,
    "fine_grained_activation_offloading=true offload.system= "
    "nvte_cpu_offload_v1=true" },
  { "recomputed %s", FROM_WORDS, KEY_recompute_recompute_modules,
    "recompute_granularity=selective" },
  { "full recompute, layers of a stage: %s", FROM_LEAST, KEY_recompute_recompute_num_layers,
    "recompute_granularity=full recompute_method=block fine_grained_activation_offloading=false" },
  { "offload, layers: %s", FROM_LEAST, KEY_offload_cpu_offloading_num_layers, "" },
  { "flash attention", FROM_SETS, 0, "attention_backend=flash" },
  { "flash attention 2", FROM_SETS, 0, "attn_implementation=flash_attention_2" },
  { "fused cross entropy", FROM_SETS, 0, "cross_entropy_loss_fusion=true" },
  { "Liger's output layer and loss", FROM_SETS, 0, "liger_fused_linear_cross_entropy=true" },
  { "gradients in bf16", FROM_SETS, 0, "grad_reduce_in_bf16=true" },
  { "optimizer moments in bf16", FROM_SETS, 0,
    "use_precision_aware_optimizer=true exp_avg_dtype=bf16 "
    "exp_avg_sq_dtype=bf16" },
  { "optimizer states on the host", FROM_SETS, 0, "optimizer_cpu_offload=true" },
  { "8-bit AdamW", FROM_SETS, 0, "optimizer=adamw_8bit" },
  { "paged 8-bit AdamW", FROM_SETS, 0, "optimizer=paged_adamw_8bit" },
};

/* A name of the table with its value in place of %s. */
static const char *name_with(const char *name, const char *value, arena *a)
{
  const char *at = strstr(name, "%s");
  assert((at != NULL) == (value != NULL));
  return at == NULL ? name : arena_printf(a, "%.*s%s%s", (int)(at - name), name, value, at + 2);
}

static bool is_set(const settings *s, setting_key key, const char *word)
{
  uint32_t choice;
  const key_row *row = &key_rows[key];
  if (row->type == KEY_TYPE_CHOICE)
    return choice_find(key, word, &choice) && *(const uint32_t *)key_member_const(s, key) == choice;
  return row->type == KEY_TYPE_FLAG &&
         *(const bool *)key_member_const(s, key) == (strcmp(word, "true") == 0);
}

/* Calls `use` for each set of a text of the table. */
typedef void set_use(void *to, const char *key, const char *value, arena *a);

static void each_set(const char *sets, set_use *use, void *to, arena *a)
{
  for (const char *at = sets; *at != '\0';) {
    size_t key = strcspn(at, "="), all = strcspn(at, " ");
    assert(key < all);
    use(to, arena_strndup(a, at, key), arena_strndup(a, at + key + 1, all - key - 1), a);
    at += all + (at[all] == ' ');
  }
}

typedef struct adding {
  candidate *to;
  const settings *given;
} adding;

/* What is already so needs no --set. */
static void add_set(void *to, const char *key, const char *value, arena *a)
{
  adding *x = to;
  setting_key found = key_find(key);
  assert(found < KEY_COUNT);
  if (!is_set(x->given, found, value)) candidate_set(x->to, key, value, a);
}

/* A step does the same work on as many GPUs: what was derived of other sizes stays what it is. */
static void keep_work(candidate *c, const settings *given, const settings *resolved, arena *a)
{
  int64_t sequences = resolved->training.global_batch_size, gpus = resolved->parallel.world_size;
  if (given->training.global_batch_size != sequences)
    candidate_set(c, "global_batch_size", arena_printf(a, "%" PRId64, sequences), a);
  if (given->training.gradient_accumulation_steps != UNSET)
    candidate_set(c, "gradient_accumulation_steps", "", a);
  if (given->parallel.world_size != gpus)
    candidate_set(c, "world_size", arena_printf(a, "%" PRId64, gpus), a);
}

static bool changes_split(const struct source *of)
{
  return of->kind == FROM_DOUBLE || strcmp(of->sets, "micro_batch_size=1") == 0;
}

/* ---- the list of them ---- */

/* One that is tried; of FROM_LEAST `is` is made when the number is known. */
typedef struct attempt {
  const struct source *of; /* NULL: a system */
  candidate is;
} attempt;

typedef struct attempt_array {
  attempt *items;
  uint32_t count, capacity;
} attempt_array;

typedef struct suggestion_array {
  suggestion *items;
  uint32_t count, capacity;
} suggestion_array;

typedef struct suggesting {
  const settings *given, *resolved;
  const machine *machine;
  suggestion asked; /* the run itself */
  attempt_array attempts;
  struct {
    const char **items;
    uint32_t count, capacity;
  } seen; /* resolved settings that were predicted, as text */
  suggestion_array found;
  suggestion_array ruled_out; /* by their bound: what is missing is the least that may be */
  int64_t limit_bytes;        /* what allocates more is of no use */
  int64_t asked_ops;          /* of a step of the run itself */
  int64_t ops;                /* simulated so far */
  arena *memory;
} suggesting;

static candidate new_candidate(const suggesting *x, const struct source *of, const char *value,
                               const char *shown)
{
  candidate c = { .name = name_with(of->name, shown, x->memory) };
  each_set(of->sets, add_set, &(adding){ &c, x->given }, x->memory);
  if (value != NULL) candidate_set(&c, key_rows[of->key].name, value, x->memory);
  if (changes_split(of)) keep_work(&c, x->given, x->resolved, x->memory);
  return c;
}

static void add_attempt(suggesting *x, const struct source *of, candidate is)
{
  is.order = x->attempts.count;
  *ARRAY_PUSH(&x->attempts) = (attempt){ of, is };
}

/* The list counts if its first set, which turns it on, is already so. */
static bool list_counts(const suggesting *x, const struct source *of)
{
  size_t key = strcspn(of->sets, "="), all = strcspn(of->sets, " ");
  setting_key found = key_find(arena_strndup(x->memory, of->sets, key));
  return is_set(x->resolved, found, arena_strndup(x->memory, of->sets + key + 1, all - key - 1));
}

static void add_words(suggesting *x, const struct source *of)
{
  const choice_list *now = key_member_const(x->resolved, of->key);
  const char *before = "";
  bool counts = list_counts(x, of);
  for (uint32_t i = 0; counts && i < now->count; i++)
    before = arena_printf(x->memory, "%s%s,", before, choice_word(of->key, now->items[i]));
  for (uint32_t i = 0; key_rows[of->key].words[i] != NULL; i++) {
    const char *word = key_rows[of->key].words[i];
    if (!key_word_is_released(of->key, i) || (counts && has_choice(now, i))) continue;
    add_attempt(x, of, new_candidate(x, of, arena_printf(x->memory, "%s%s", before, word), word));
  }
}

/* Of a run that recomputes everything. */
static bool saves_less(const suggesting *x, const struct source *of)
{
  return x->resolved->recompute.recompute_granularity == GRANULARITY_FULL &&
         of->key == KEY_recompute_recompute_modules;
}

static const char *twice(const suggesting *x, setting_key key)
{
  const int64_t *now = key_member_const(x->resolved, key);
  return arena_printf(x->memory, "%" PRId64, *now > INT64_MAX / 2 ? *now : 2 * *now);
}

/* Hugging Face's models have planned as a hook (docs/systems/planned.md); Megatron-LM has nothing like it. */
static bool may_be_had(const suggesting *x, system_choice system)
{
  assert(system != SYSTEM_EMPTY);
  return system != SYSTEM_none && (system != SYSTEM_planned || uses_hf(x->resolved));
}

static void add_systems(suggesting *x, const struct source *of)
{
  settings without_modules = *x->given;
  without_modules.offload.offload_modules = (choice_list){ 0 };
  uint32_t count;
  const candidate *systems =
      candidates_of_systems(&without_modules, x->resolved, &count, x->memory);
  for (uint32_t i = 0; i < count; i++) {
    candidate c = systems[i];
    if (candidate_is_for_others(x->resolved, &c, x->memory) != NULL) continue;
    c.name = name_with(of->name, c.name, x->memory);
    if (may_be_had(x, c.system)) add_attempt(x, NULL, c);
  }
}

static void add_source(suggesting *x, const struct source *of)
{
  const char *value;
  if (saves_less(x, of)) return;
  switch (of->kind) {
  case FROM_SETS: add_attempt(x, of, new_candidate(x, of, NULL, NULL)); return;
  case FROM_WORDS: add_words(x, of); return;
  case FROM_LEAST: add_attempt(x, of, (candidate){ .name = of->name }); return;
  case FROM_DOUBLE:
    value = twice(x, of->key);
    add_attempt(x, of, new_candidate(x, of, value, value));
    return;
  case FROM_SYSTEMS: add_systems(x, of); return;
  }
  assert(0 && "kind out of range");
}

/* ==== predictions ==== */

typedef enum outcome { OF_NO_USE, RULED_OUT, DOES_NOT_FIT, FITS } outcome;

/* Marks them as seen. */
static bool is_seen(suggesting *x, const settings *s)
{
  const char *text = settings_text(s, x->memory);
  for (uint32_t i = 0; i < x->seen.count; i++)
    if (strcmp(x->seen.items[i], text) == 0) return true;
  *ARRAY_PUSH(&x->seen) = text;
  return false;
}

static int64_t ops_of(const plan *p)
{
  int64_t ops = 0;
  for (uint32_t i = 0; i < p->rank_count; i++)
    ops += p->ranks[i].ops.count;
  return ops;
}

static suggestion suggestion_of(const candidate *c, const prediction *p)
{
  suggestion s = { .tried = *c,
                   .step_ps = p->result.step_ps,
                   .speed = p->speed,
                   .host_pinned_total_bytes = p->host_pinned_total_bytes,
                   .short_of = prediction_shortage(p) };
  for (uint32_t i = 0; i < p->rank_count; i++) {
    const rank_prediction *r = &p->result.ranks[i];
    s.allocated_peak_bytes = max_i64(s.allocated_peak_bytes, r->allocated_peak_bytes);
    s.reserved_peak_bytes = max_i64(s.reserved_peak_bytes, r->reserved_peak_bytes);
  }
  return s;
}

/* Of a run that fits, what reserves less is of use; of one that does not, what changes anything. */
static bool is_of_use(const suggestion *asked, const suggestion *s)
{
  if (asked->short_of.cause == SHORT_OF_NOTHING)
    return s->short_of.cause == SHORT_OF_NOTHING &&
           s->reserved_peak_bytes < asked->reserved_peak_bytes;
  return s->step_ps != asked->step_ps || s->allocated_peak_bytes != asked->allocated_peak_bytes ||
         s->short_of.missing_bytes != asked->short_of.missing_bytes;
}

static bool asked_fits(const suggesting *x)
{
  return x->asked.short_of.cause == SHORT_OF_NOTHING;
}

/* ---- bounds ---- */

/* Twice what fills the pipeline: every rank reaches its peak. */
static int64_t enough_microbatches(const settings *s)
{
  int64_t group = max_i64(s->parallel.pipeline_model_parallel_size,
                          s->parallel.microbatch_group_size_per_vp_stage);
  assert(group >= 1);
  return 2 * group;
}

/* Steps with fewer micro-batches cost little only if they are much fewer. */
enum { WORTH_CUTTING = 4 };

/* The candidate with just enough micro-batches. False: it has few, or other settings depend on them. */
static bool cut_settings(settings *few, const suggesting *x, const candidate *c, const settings *s,
                         arena *a, diag *d)
{
  int64_t all = s->derived.num_microbatches, enough = enough_microbatches(s);
  int64_t sequences = s->training.global_batch_size / all * enough;
  candidate cut = *c;
  if (all < WORTH_CUTTING * enough) return false;
  candidate_set(&cut, "global_batch_size", arena_printf(a, "%" PRId64, sequences), a);
  if (x->given->training.gradient_accumulation_steps != UNSET)
    candidate_set(&cut, "gradient_accumulation_steps", "", a);
  return candidate_settings(few, x->given, &cut, "--suggest", a, d) &&
         few->derived.num_microbatches == enough &&
         few->parallel.world_size == s->parallel.world_size;
}

/* What the candidate allocates at least: a step with fewer micro-batches has no higher peak. 0: not
 * known. */
static int64_t least_allocated_bytes(suggesting *x, const candidate *c, const settings *s)
{
  arena scratch = { 0 };
  diag quiet = { .quiet = true };
  settings few;
  int64_t bytes = 0;
  if (cut_settings(&few, x, c, s, &scratch, &quiet)) {
    x->ops += muldiv_i64(x->asked_ops, few.derived.num_microbatches, s->derived.num_microbatches);
    if (!allocated_bound(&bytes, &few, &scratch, &quiet)) bytes = 0;
  }
  arena_release(&scratch);
  return bytes;
}

/* ---- one candidate ---- */

static outcome predict_candidate(suggesting *x, const candidate *c, const settings *s,
                                 suggestion *found, arena *scratch, diag *d)
{
  prediction p;
  outcome out = OF_NO_USE;
  if (predict_alone(&p, s, x->machine, scratch, d)) {
    *found = suggestion_of(c, &p);
    if (is_of_use(&x->asked, found))
      out = found->short_of.cause == SHORT_OF_NOTHING ? FITS : DOES_NOT_FIT;
    x->ops += ops_of(&p.steady.plan);
  }
  prediction_release(&p);
  return out;
}

/* What the rules of the settings or of the system refuse is not possible here. */
static outcome try_candidate(suggesting *x, const candidate *c, suggestion *found)
{
  arena scratch = { 0 };
  diag quiet = { .quiet = true };
  settings s;
  outcome out = OF_NO_USE;
  if (candidate_settings(&s, x->given, c, "--suggest", &scratch, &quiet) && !is_seen(x, &s)) {
    int64_t least = least_allocated_bytes(x, c, &s);
    if (least <= x->limit_bytes) {
      out = predict_candidate(x, c, &s, found, &scratch, &quiet);
    } else {
      *found = (suggestion){
        .tried = *c, .short_of = { SHORT_BY_ALLOCATION, .missing_bytes = least - x->limit_bytes }
      };
      out = RULED_OUT;
    }
  }
  arena_release(&scratch);
  return out;
}

static int64_t most_of(const settings *resolved, setting_key key)
{
  int64_t most = 0;
  const struct derived_settings *derived = &resolved->derived;
  if (key != KEY_recompute_recompute_num_layers) return resolved->model.num_layers - 1;
  int64_t stages = derived->virtual_stages * resolved->parallel.pipeline_model_parallel_size;
  for (int64_t k = 0; k < stages; k++)
    most = max_i64(most, derived->stages[k].layer_count);
  return most;
}

static outcome try_number(suggesting *x, const attempt *t, int64_t value, suggestion *found)
{
  const char *text = arena_printf(x->memory, "%" PRId64, value);
  candidate c = new_candidate(x, t->of, text, text);
  c.order = t->is.order;
  return try_candidate(x, &c, found);
}

/* More of it saves more: halving the range finds the least that fits, if the most does. */
static outcome try_least(suggesting *x, const attempt *t, suggestion *found)
{
  int64_t fits = most_of(x->resolved, t->of->key), does_not = 0;
  outcome out = fits < 1 ? OF_NO_USE : try_number(x, t, fits, found);
  while (out == FITS && fits - does_not > 1) {
    int64_t middle = does_not + (fits - does_not) / 2;
    suggestion less;
    if (try_number(x, t, middle, &less) == FITS) {
      *found = less;
      fits = middle;
    } else {
      does_not = middle;
    }
  }
  return out;
}

/* Under another name: of offload by the modules of a system all but one may move nothing. */
static bool is_found(const suggesting *x, const suggestion *s)
{
  for (uint32_t i = 0; i < x->found.count; i++) {
    const suggestion *other = &x->found.items[i];
    if (s->step_ps == other->step_ps && s->allocated_peak_bytes == other->allocated_peak_bytes &&
        s->reserved_peak_bytes == other->reserved_peak_bytes)
      return true;
  }
  return false;
}

static first_error error_of(const suggesting *x, const candidate *c)
{
  arena scratch = { 0 };
  diag quiet = { .quiet = true };
  settings s;
  bool ok = candidate_settings(&s, x->given, c, "--suggest", &scratch, &quiet);
  assert(ok && "it has been predicted");
  first_error found = settings_first_error(&s, &quiet);
  arena_release(&scratch);
  return found;
}

static void add_found(suggesting *x, suggestion *found)
{
  if (is_found(x, found)) return;
  found->unsafe = error_of(x, &found->tried);
  *ARRAY_PUSH(&x->found) = *found;
}

static void try_attempt(suggesting *x, const attempt *t)
{
  suggestion found;
  bool least = t->of != NULL && t->of->kind == FROM_LEAST;
  outcome out = least ? try_least(x, t, &found) : try_candidate(x, &t->is, &found);
  if (out == RULED_OUT && !asked_fits(x)) *ARRAY_PUSH(&x->ruled_out) = found;
  if (out == DOES_NOT_FIT || out == FITS) add_found(x, &found);
}

/* ==== the whole ==== */

/* Some ten seconds. */
#define MOST_OPS INT64_C(15000000)

static int by_use(const void *left, const void *right)
{
  const suggestion *a = left, *b = right;
  bool a_fits = a->short_of.cause == SHORT_OF_NOTHING;
  bool b_fits = b->short_of.cause == SHORT_OF_NOTHING;
  if (a_fits != b_fits) return a_fits ? -1 : 1;
  if (a->short_of.missing_bytes != b->short_of.missing_bytes)
    return a->short_of.missing_bytes < b->short_of.missing_bytes ? -1 : 1;
  if (a->step_ps != b->step_ps) return a->step_ps < b->step_ps ? -1 : 1;
  assert(a == b || a->tried.order != b->tried.order);
  return a->tried.order < b->tried.order ? -1 : 1;
}

/* ---- the nearest, if none fits ---- */

static int64_t least_missing(const suggesting *x)
{
  int64_t least = INT64_MAX;
  for (uint32_t i = 0; i < x->found.count; i++)
    least = min_i64(least, x->found.items[i].short_of.missing_bytes);
  return least;
}

static void predict_ruled_out(suggesting *x, suggestion *s)
{
  arena scratch = { 0 };
  diag quiet = { .quiet = true };
  settings of;
  const candidate c = s->tried;
  int64_t least = s->short_of.missing_bytes;
  if (candidate_settings(&of, x->given, &c, "--suggest", &scratch, &quiet) &&
      predict_candidate(x, &c, &of, s, &scratch, &quiet) != OF_NO_USE) {
    assert(s->short_of.missing_bytes >= least && "its bound has ruled it out");
    add_found(x, s);
  }
  arena_release(&scratch);
}

/* Predicts what was ruled out as long as it may miss no more than what was found. Returns how many. */
static uint32_t find_nearest(suggesting *x)
{
  uint32_t done = 0;
  if (x->ruled_out.count > 0)
    qsort(x->ruled_out.items, x->ruled_out.count, sizeof *x->ruled_out.items, by_use);
  while (done < x->ruled_out.count &&
         x->ruled_out.items[done].short_of.missing_bytes <= least_missing(x))
    predict_ruled_out(x, &x->ruled_out.items[done++]);
  return done;
}

static void finish(suggesting *x, suggestions *found, uint32_t tried)
{
  uint32_t predicted = least_missing(x) > 0 ? find_nearest(x) : 0;
  *found = (suggestions){ .count = x->found.count,
                          .ruled_out = x->ruled_out.count - predicted,
                          .left_out = x->attempts.count - tried };
  found->items = ARENA_ARRAY(x->memory, suggestion, found->count);
  for (uint32_t i = 0; i < found->count; i++) {
    found->items[i] = x->found.items[i];
    found->fitting_count += found->items[i].short_of.cause == SHORT_OF_NOTHING;
  }
  qsort(found->items, found->count, sizeof *found->items, by_use);
  ARRAY_FREE(&x->attempts);
  ARRAY_FREE(&x->seen);
  ARRAY_FREE(&x->found);
  ARRAY_FREE(&x->ruled_out);
}

void suggest(suggestions *found, const settings *given, const prediction *asked, bool all,
             candidate_progress *progress, arena *a)
{
  suggesting x = { .given = given,
                   .resolved = asked->settings,
                   .machine = asked->machine,
                   .asked = suggestion_of(&(candidate){ 0 }, asked),
                   .asked_ops = ops_of(&asked->steady.plan),
                   .memory = a };
  x.limit_bytes = asked_fits(&x) ? x.asked.reserved_peak_bytes - 1 : asked->capacity_bytes;
  for (size_t i = 0; i < sizeof sources / sizeof *sources; i++)
    add_source(&x, &sources[i]);
  is_seen(&x, x.resolved);
  uint32_t tried = 0;
  for (; tried < x.attempts.count && (all || x.ops < MOST_OPS); tried++) {
    if (progress != NULL) progress(tried, x.attempts.count, x.attempts.items[tried].is.name);
    try_attempt(&x, &x.attempts.items[tried]);
  }
  finish(&x, found, tried);
}
