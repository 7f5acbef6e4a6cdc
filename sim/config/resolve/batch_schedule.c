/*
 * The batch of an iteration if a schedule changes it
 * (megatron/core/num_microbatches_calculator.py: StepBatchsizeNumMicroBatchesCalculator, and
 * RampupBatchsizeNumMicroBatchesCalculator of earlier releases; d98e8a64 ignores rampup_batch_size).
 *
 * A schedule is a list of steps: a number of consumed samples, and the batch from there on. Every
 * iteration consumes the batch that it runs.
 */
#include <inttypes.h>
#include <string.h>

#include "sim/config/resolve/steps.h"
#include "sim/text/scalar.h"

typedef struct batch_step {
  int64_t from_samples;
  int64_t batch;
} batch_step;

typedef struct batch_schedule {
  setting_key key;
  batch_step *steps; /* [count], the first from 0 samples, strictly ascending */
  int64_t count;
} batch_schedule;

enum { MOST_STEPS = 4096 };

static bool wrong(const settings *s, setting_key key, diag *d, const char *what)
{
  return diag_error(d, s->at[key], "%s is \"%.200s\"; %s", key_rows[key].name,
                    *(const char *const *)key_member_const(s, key), what);
}

/* The next word of a list separated by blanks, commas or brackets; NULL at the end. */
static const char *next_word(const char **text, arena *a)
{
  const char *separators = " \t\n,[]";
  const char *word = *text + strspn(*text, separators);
  size_t length = strcspn(word, separators);
  *text = word + length;
  return length == 0 ? NULL : arena_strndup(a, word, length);
}

/* ---- step_batch_size_schedule: "0:384 200B:768", a batch from a number of tokens on ---- */

/* A decimal fraction, perhaps with K, M, B or T after it. */
static bool suffixed_number(const char *text, arena *a, int64_t *value)
{
  static const char suffixes[] = "KMBT";
  size_t length = strlen(text);
  double factor = 1, number;
  const char *found = NULL;
  if (length > 0) {
    char last = text[length - 1];
    found = strchr(suffixes, last >= 'a' && last <= 'z' ? last - 'a' + 'A' : last);
  }
  if (found != NULL) {
    length--;
    for (const char *c = suffixes; c <= found; c++)
      factor *= 1e3;
  }
  if (!scalar_double(arena_strndup(a, text, length), &number) || number < 0 ||
      number * factor >= 9e18) {
    return false;
  }
  *value = (int64_t)(number * factor);
  return true;
}

static bool read_step(const settings *s, const char *word, batch_step *step, arena *a)
{
  const char *colon = strchr(word, ':');
  int64_t tokens;
  if (colon == NULL ||
      !suffixed_number(arena_strndup(a, word, (size_t)(colon - word)), a, &tokens) ||
      !suffixed_number(colon + 1, a, &step->batch)) {
    return false;
  }
  step->from_samples = tokens / s->training.seq_length;
  return step->batch >= 1 && step->batch <= key_rows[KEY_training_global_batch_size].most;
}

/* Megatron sorts the steps. */
static void insert_sorted(batch_schedule *b, batch_step step)
{
  int64_t i = b->count++;
  for (; i > 0 && b->steps[i - 1].from_samples > step.from_samples; i--)
    b->steps[i] = b->steps[i - 1];
  b->steps[i] = step;
}

static bool read_steps(const settings *s, batch_schedule *b, arena *a, diag *d)
{
  const char *text = s->training.step_batch_size_schedule;
  *b = (batch_schedule){ .key = KEY_training_step_batch_size_schedule,
                         .steps = ARENA_ARRAY(a, batch_step, strlen(text) / 2 + 1) };
  for (const char *word; (word = next_word(&text, a)) != NULL;) {
    batch_step step;
    if (!read_step(s, word, &step, a) || b->count == MOST_STEPS)
      return wrong(s, b->key, d, "steps \"TOKENS:BATCH\" are needed, as in \"0:384 200B:768\"");
    insert_sorted(b, step);
  }
  if (b->count == 0 || b->steps[0].from_samples != 0)
    return wrong(s, b->key, d, "its first step must begin at 0");
  for (int64_t i = 1; i < b->count; i++)
    if (b->steps[i].from_samples == b->steps[i - 1].from_samples)
      return wrong(s, b->key, d, "two steps begin at the same sample");
  return true;
}

/* ---- rampup_batch_size: start, increment, and the samples until global_batch_size ---- */

static bool three_numbers(const char *text, int64_t numbers[3], arena *a)
{
  for (int i = 0; i < 3; i++) {
    const char *word = next_word(&text, a);
    if (word == NULL || !scalar_i64(word, &numbers[i]) || numbers[i] < (i < 2)) return false;
  }
  return next_word(&text, a) == NULL;
}

static bool read_rampup(const settings *s, batch_schedule *b, arena *a, diag *d)
{
  int64_t numbers[3], last = s->training.global_batch_size;
  *b = (batch_schedule){ .key = KEY_training_rampup_batch_size };
  if (!three_numbers(s->training.rampup_batch_size, numbers, a) || numbers[2] > (INT64_C(1) << 40))
    return wrong(s, b->key, d, "the first batch, the increment and the samples are needed");
  if (last == UNSET)
    return diag_error(d, s->at[b->key],
                      "rampup_batch_size needs global_batch_size, the batch at its end");
  int64_t start = numbers[0], increment = numbers[1], samples = numbers[2];
  if (start > last || (last - start) % increment != 0)
    return diag_error(d, s->at[b->key],
                      "rampup_batch_size begins at %" PRId64 "; global_batch_size (%" PRId64
                      ") must be that and a multiple of the increment (%" PRId64 ")",
                      start, last, increment);
  int64_t increments = (last - start) / increment;
  if (increments >= MOST_STEPS) return wrong(s, b->key, d, "at most 4095 increments are possible");
  b->steps = ARENA_ARRAY(a, batch_step, (size_t)increments + 1);
  for (int64_t i = 0; i <= increments; i++) {
    /* the first whole number of samples after i parts of all */
    int64_t from = i == 0 ? 0 : (i * samples + increments - 1) / increments;
    /* several increments may begin at once; the last counts */
    if (b->count > 0 && b->steps[b->count - 1].from_samples == from) b->count--;
    b->steps[b->count++] = (batch_step){ from, start + i * increment };
  }
  return true;
}

/* ---- the batch of an iteration ---- */

/* The batch that runs: with decrease_batch_size_if_needed a multiple of what the ranks can share. */
static int64_t running(const settings *s, int64_t batch)
{
  int64_t per_step = s->training.micro_batch_size * s->derived.data_parallel_size;
  return s->training.decrease_batch_size_if_needed && batch >= per_step
             ? batch / per_step * per_step
             : batch;
}

/* Whole runs of iterations within one step are one leap. */
static int64_t batch_at(const settings *s, const batch_schedule *b, int64_t iteration)
{
  int64_t consumed = 0, left = iteration - 1;
  for (int64_t i = 0; i + 1 < b->count; i++) {
    int64_t until = b->steps[i + 1].from_samples, batch = running(s, b->steps[i].batch);
    if (consumed >= until) continue;
    int64_t iterations = (until - consumed - 1) / batch + 1;
    if (left < iterations) return batch;
    left -= iterations;
    consumed += iterations * batch;
  }
  return running(s, b->steps[b->count - 1].batch);
}

static void take_batch(settings *s, const batch_schedule *b, diag *d)
{
  struct training_settings *t = &s->training;
  bool last = t->iteration == UNSET;
  t->global_batch_size =
      last ? running(s, b->steps[b->count - 1].batch) : batch_at(s, b, t->iteration);
  s->at[KEY_training_global_batch_size] = s->at[b->key];
  s->given[KEY_training_global_batch_size] = true;
  if (last)
    diag_note(d, s->at[b->key],
              "global_batch_size is %" PRId64 ", the last of %s; --iteration N takes another",
              t->global_batch_size, key_rows[b->key].name);
  else
    diag_note(d, s->at[b->key],
              "global_batch_size is %" PRId64 ", that of iteration %" PRId64 " by %s",
              t->global_batch_size, t->iteration, key_rows[b->key].name);
}

/* decrease_batch_size_if_needed without a schedule. */
static void decrease_batch(settings *s, diag *d)
{
  struct training_settings *t = &s->training;
  int64_t batch = t->global_batch_size;
  if (batch == UNSET || running(s, batch) == batch) return;
  t->global_batch_size = running(s, batch);
  diag_note(d, s->at[KEY_training_decrease_batch_size_if_needed],
            "global_batch_size is decreased from %" PRId64 " to %" PRId64
            ", a multiple of micro_batch_size x data parallel size",
            batch, t->global_batch_size);
}

bool resolve_batch_schedule(settings *s, arena *a, diag *d)
{
  struct training_settings *t = &s->training;
  bool steps = *t->step_batch_size_schedule != '\0', rampup = *t->rampup_batch_size != '\0';
  batch_schedule b;
  setting_key by = KEY_training_step_batch_size_schedule;

  if (!need(s, d, !steps || !rampup, by, by,
            "step_batch_size_schedule and rampup_batch_size cannot both be given") ||
      !need(s, d, !steps || !t->decrease_batch_size_if_needed, by, by,
            "step_batch_size_schedule does not work with decrease_batch_size_if_needed") ||
      !need(s, d, !steps || t->global_batch_size == UNSET, KEY_training_global_batch_size, by,
            "global_batch_size cannot be given with step_batch_size_schedule, which lists every "
            "batch; --iteration N picks one"))
    return false;
  if (steps && !read_steps(s, &b, a, d)) return false;
  if (rampup && !read_rampup(s, &b, a, d)) return false;
  if (steps || rampup)
    take_batch(s, &b, d);
  else
    decrease_batch(s, d);
  t->step_batch_size_schedule = t->rampup_batch_size = "";
  t->decrease_batch_size_if_needed = false;
  t->iteration = UNSET;
  return true;
}
