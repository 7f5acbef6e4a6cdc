#include "sim/train/train.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "sim/train/layout.h"
#include "sim/train/weights.h"

#define NO_TENSOR UINT32_MAX

typedef struct training {
  const settings *settings;
  const plan *plan; /* of the current iteration */
  const train_options *options;
  train_result *result;
  exec_layout layout;
  execution runner;
  train_parameter_list *parameters; /* by rank, in `plan` */
  /* by stage, in `plan`: the tensor whose gradient backward begins with, NO_TENSOR */
  uint32_t *losses;
  bool **is_read;      /* by stage and buffer: an op of `plan` reads it */
  float *micro_losses; /* [micro-batch][data and context parallel index] */
  exec_step step;
  train_step *now;
  arena *memory;
} training;

/* ---- losses ---------------------------------------------------------------------------------- */

static bool begins_backward(const plan *p, const rank_plan *r, const plan_op *o, bool in_backward)
{
  assert(o->kind != OP_KERNEL || o->arg < p->calls.count);
  const plan_call *call = &p->calls.items[o->arg];
  if (!in_backward || o->kind != OP_KERNEL || call->kind != KERNEL_FILL) return false;
  const plan_buffer *b = &r->buffers.items[r->operands.items[o->operands]];
  return call->dims[0] == 1 && call->scalars[0] != 0 && b->purpose == CLASS_TRANSIENT;
}

static uint32_t loss_of_stage(const plan *p, uint32_t stage)
{
  assert(stage < p->rank_count);
  const rank_plan *r = &p->ranks[stage];
  bool in_backward = false;
  for (uint32_t i = 0; i < r->ops.count; i++) {
    const plan_op *o = &r->ops.items[i];
    if (o->kind == OP_MARK) in_backward = r->marks.items[o->arg].kind == MARK_BACKWARD;
    if (begins_backward(p, r, o, in_backward))
      return r->buffers.items[r->operands.items[o->operands]].tensor;
  }
  return NO_TENSOR;
}

static uint32_t ranks_of_data(const training *t)
{
  return t->layout.ranks[0].group[GROUP_DP].size;
}

/* The loss buffer that an op, a kernel of the forward, writes; NO_BUFFER: none. */
static uint32_t loss_written(const training *t, const exec_rank *rank, uint32_t op)
{
  const rank_plan *r = &t->plan->ranks[rank->stage];
  const plan_op *o = &r->ops.items[op];
  uint32_t tensor = t->losses[rank->stage];
  if (tensor == NO_TENSOR || rank->group[GROUP_TP].index != 0 || o->kind != OP_KERNEL)
    return NO_BUFFER;
  for (uint32_t i = o->reads; i < (uint32_t)o->reads + o->writes; i++) {
    uint32_t buffer = r->operands.items[o->operands + i];
    const plan_buffer *b = &r->buffers.items[buffer];
    if (b->tensor == tensor && r->marks.items[b->mark].kind == MARK_FORWARD) return buffer;
  }
  return NO_BUFFER;
}

static void take_loss(training *t, const exec_rank *rank, uint32_t op)
{
  assert(rank->stage < t->plan->rank_count);
  uint32_t buffer = loss_written(t, rank, op);
  if (buffer == NO_BUFFER) return;
  const rank_plan *r = &t->plan->ranks[rank->stage];
  const plan_mark *mark = &r->marks.items[r->buffers.items[buffer].mark];
  const float *loss = t->runner.by->data(t->runner.exec, rank->global, buffer);
  assert(mark->microbatch < t->settings->derived.num_microbatches);
  if (loss != NULL)
    t->micro_losses[mark->microbatch * ranks_of_data(t) + rank->group[GROUP_DP].index] = *loss;
}

static void op_done(void *context, uint32_t rank, uint32_t op, exec_fingerprint print)
{
  assert(rank < ((const training *)context)->layout.rank_count);
  training *t = context;
  const exec_rank *at = &t->layout.ranks[rank];
  take_loss(t, at, op);
  if (t->options->trace != NULL)
    train_record_op(t->options->trace, &t->runner, t->step.number, at, op);
  if (t->options->op_done != NULL) t->options->op_done(t->options->context, rank, op, print);
}

static bool watches(void *context, uint32_t rank, uint32_t op)
{
  const training *t = context;
  return loss_written(t, &t->layout.ranks[rank], op) != NO_BUFFER;
}

/* Megatron-LM's losses have been divided by the number of micro-batches already. */
static void sum_losses(training *t)
{
  uint32_t ranks = ranks_of_data(t);
  assert(t->settings->derived.num_microbatches > 0 && ranks > 0);
  uint32_t micro_batches = (uint32_t)t->settings->derived.num_microbatches;
  double divisor = uses_hf(t->settings) ? (double)ranks * micro_batches : ranks;
  double sum = 0;
  for (uint32_t i = 0; i < micro_batches * ranks; i++)
    sum += (double)t->micro_losses[i];
  t->now->loss = (float)(sum / divisor);
  XXH128_hash_t h =
      XXH3_128bits(t->micro_losses, (size_t)micro_batches * ranks * sizeof *t->micro_losses);
  t->now->losses = (exec_fingerprint){ h.low64, h.high64 };
}

/* ---- what is there at the beginning ---------------------------------------------------------- */

/* A rank's buffer in the plan. */
typedef struct buffer_place {
  const exec_rank *rank;
  const plan_tensor *tensor;
  const plan_mark *mark;
  bool is_data;  /* a tensor of the micro-batch that an op reads; unread masks can be large */
  bool is_state; /* weights and optimizer states */
} buffer_place;

static buffer_place place_of(const training *t, uint32_t rank, uint32_t buffer)
{
  const exec_rank *at = &t->layout.ranks[rank];
  const rank_plan *r = &t->plan->ranks[at->stage];
  assert(buffer < r->buffers.count);
  const plan_buffer *b = &r->buffers.items[buffer];
  buffer_place p = { .rank = at,
                     .tensor = &t->plan->tensors.items[b->tensor],
                     .mark = &r->marks.items[b->mark] };
  p.is_data = strcmp(t->plan->sites.items[p.tensor->site].module, "data") == 0 &&
              t->is_read[at->stage][buffer];
  bool is_weight = b->purpose == CLASS_WEIGHT && p.mark->kind == MARK_SETUP;
  bool on_host = b->filled && class_side((buffer_class)b->purpose) == ON_HOST;
  p.is_state = !p.is_data && (is_weight || b->purpose == CLASS_OPTIMIZER || on_host);
  return p;
}

static bool fill(void *context, uint32_t rank, uint32_t buffer, void *data, int64_t bytes)
{
  training *t = context;
  buffer_place p = place_of(t, rank, buffer);
  if (p.is_data)
    return token_stream_fill(&t->options->tokens, t->settings, p.rank, p.tensor, t->step.number,
                             p.mark->microbatch, data);
  if (!p.is_state) return false;
  assert(bytes >= 0);
  memset(data, 0, (size_t)bytes);
  if (!quantized_fill(t->settings, t->plan, p.rank->stage, buffer, t->options->seed, data))
    weights_fill(t->plan, p.rank->stage, &t->parameters[rank], buffer, data);
  return true;
}

/* The mask of whole sequences is large, so the device draws it instead of copying it from the
 * host. */
static bool draw_mask(training *t, const buffer_place *p, const exec_drawn **parts)
{
  int64_t length = t->settings->training.seq_length;
  if (strcmp(p->tensor->name, "attention_mask") != 0 || p->rank->group[GROUP_CP].size > 1)
    return false;
  exec_drawn *mask = ARENA_NEW(t->memory, exec_drawn);
  *mask = (exec_drawn){ .count = t->settings->training.micro_batch_size * length * length,
                        .mask_columns = length };
  *parts = mask;
  return true;
}

static bool draw(void *context, uint32_t rank, uint32_t buffer, const exec_drawn **parts,
                 uint32_t *count)
{
  training *t = context;
  buffer_place p = place_of(t, rank, buffer);
  *count = 1;
  if (p.is_data) return draw_mask(t, &p, parts);
  if (!p.is_state || quantized_is(t->plan, p.rank->stage, buffer)) return false;
  *count = weights_drawn(t->plan, p.rank->stage, &t->parameters[rank], buffer, parts, t->memory);
  return true;
}

/* ---- a step ---------------------------------------------------------------------------------- */

static bool gather(training *t, model_kind kind)
{
  assert(t->runner.by->digest == NULL && "without digest contents are copied to the host");
  return model_gather(&t->result->model, kind, &t->runner, t->plan, &t->layout, t->parameters,
                      &t->result->finding, t->memory);
}

/* Whether an earlier rank has the same part of the same tensor. */
static bool is_replica(const training *t, uint32_t rank, uint32_t parameter)
{
  assert(rank < t->layout.rank_count && parameter < t->parameters[rank].count);
  uint32_t **tensor_of = t->result->model.tensor_of;
  uint32_t index = t->parameters[rank].items[parameter].part.index;
  for (uint32_t r = 0; r < rank; r++)
    for (uint32_t i = 0; i < t->parameters[r].count; i++) {
      const train_parameter *p = &t->parameters[r].items[i];
      if (p->trained && tensor_of[r][i] == tensor_of[rank][parameter] && p->part.index == index)
        return true;
    }
  return false;
}

/* Digests the ranks' parts of a kind on their devices, rank by rank. */
static exec_digest digest(training *t, model_kind kind)
{
  uint32_t most = 0, count = 0;
  exec_digest all = { .squares = 0 };
  for (uint32_t r = 0; r < t->layout.rank_count; r++)
    most += t->parameters[r].count;
  exec_fingerprint *prints = ARENA_ARRAY(t->memory, exec_fingerprint, most);
  for (uint32_t r = 0; r < t->layout.rank_count; r++)
    for (uint32_t i = 0; i < t->parameters[r].count; i++) {
      const train_home *home = parameter_home(&t->parameters[r].items[i], kind);
      if (!t->parameters[r].items[i].trained || home->buffer == NO_BUFFER) continue;
      exec_digest one = t->runner.by->digest(t->runner.exec, r, home->buffer, &home->view);
      prints[count++] = one.print;
      if (!is_replica(t, r, i)) all.squares += one.squares;
    }
  assert(count <= most);
  XXH128_hash_t h = XXH3_128bits(prints, count * sizeof *prints);
  all.print = (exec_fingerprint){ h.low64, h.high64 };
  return all;
}

static bool measure_gradients(training *t)
{
  if (t->runner.by->digest != NULL) {
    exec_digest all = digest(t, MODEL_GRADIENT);
    t->now->gradients = all.print;
    t->now->gradient_norm = sqrt(all.squares);
    return true;
  }
  if (!gather(t, MODEL_GRADIENT)) return false;
  t->now->gradients = model_fingerprint(&t->result->model, MODEL_GRADIENT);
  t->now->gradient_norm = model_norm(&t->result->model, MODEL_GRADIENT);
  return true;
}

static void before_optimizer(void *context)
{
  training *t = context;
  double limit = t->settings->training.clip_grad;
  assert(t->now != NULL);
  if (!measure_gradients(t)) return;
  double norm = t->now->gradient_norm;
  t->step.clip_coefficient = limit > 0 && norm > limit ? (float)(limit / (norm + 1e-6)) : 1;
}

static bool *buffers_read(const rank_plan *r, arena *a)
{
  bool *is_read = ARENA_ARRAY(a, bool, r->buffers.count);
  for (uint32_t i = 0; i < r->ops.count; i++)
    for (uint32_t k = 0; k < r->ops.items[i].reads; k++)
      is_read[r->operands.items[r->ops.items[i].operands + k]] = true;
  return is_read;
}

static void take_plan(training *t, const plan *p)
{
  assert(p->rank_count <= t->layout.rank_count);
  t->plan = p;
  t->is_read = ARENA_ARRAY(t->memory, bool *, p->rank_count);
  for (uint32_t stage = 0; stage < p->rank_count; stage++)
    t->is_read[stage] = buffers_read(&p->ranks[stage], t->memory);
  if (t->options->trace != NULL) recorder_plan(t->options->trace, p);
  t->parameters = ARENA_ARRAY(t->memory, train_parameter_list, t->layout.rank_count);
  for (uint32_t r = 0; r < t->layout.rank_count; r++)
    t->parameters[r] =
        train_parameters_of(t->settings, p, &t->layout.ranks[r], t->options->seed, t->memory);
  t->losses = ARENA_ARRAY(t->memory, uint32_t, p->rank_count);
  for (uint32_t stage = 0; stage < p->rank_count; stage++)
    t->losses[stage] = loss_of_stage(p, stage);
}

static exec_fingerprint joined(exec_fingerprint a, exec_fingerprint b)
{
  exec_fingerprint both[] = { a, b };
  XXH128_hash_t h = XXH3_128bits(both, sizeof both);
  return (exec_fingerprint){ h.low64, h.high64 };
}

static void note_peaks(training *t)
{
  for (uint32_t r = 0; r < t->layout.rank_count; r++) {
    int64_t peak = t->runner.by->tally(t->runner.exec, r).peak_bytes;
    assert(peak >= 0);
    if (peak > t->result->peak_bytes[r]) t->result->peak_bytes[r] = peak;
  }
}

static bool measure_parameters(training *t)
{
  const train_model *m = &t->result->model;
  if (t->options->no_prints) return true;
  if (t->runner.by->digest != NULL) {
    t->now->parameters = joined(digest(t, MODEL_WEIGHT).print, digest(t, MODEL_MAIN).print);
    return true;
  }
  if (!gather(t, MODEL_WEIGHT) || !gather(t, MODEL_MAIN)) return false;
  t->now->parameters = joined(model_fingerprint(m, MODEL_WEIGHT), model_fingerprint(m, MODEL_MAIN));
  return true;
}

static bool run_step(training *t, uint32_t number, diag *d)
{
  train_result *result = t->result;
  const executor *by = t->runner.by;
  assert(number == result->done && number < t->options->steps);
  t->now = &result->steps[number];
  t->step.number = number;
  result->outcome = by->iteration(t->runner.exec, t->plan, &t->options->order, &t->step, d);
  if (result->outcome == EXEC_WRONG)
    result->finding = arena_strdup(t->memory, by->finding(t->runner.exec));
  if (result->outcome != EXEC_DONE) return false;
  if (by->iteration_done != NULL) by->iteration_done(by, t->runner.exec, number, t->plan);
  if (result->finding != NULL || !measure_parameters(t)) {
    result->outcome = EXEC_WRONG;
    return false;
  }
  sum_losses(t);
  note_peaks(t);
  result->done = number + 1;
  if (t->options->step_done != NULL) t->options->step_done(t->options->context, number, t->now);
  return true;
}

static training training_new(const train_input *in, const train_options *options,
                             train_result *result, arena *a)
{
  training t = { .settings = in->settings, .options = options, .result = result, .memory = a };
  t.layout = layout_of_settings(in->settings, a);
  t.step = (exec_step){ .seed = options->seed,
                        .learning_rate = (float)options->learning_rate,
                        .left_out = &result->left_out,
                        .clip_coefficient = 1 };
  t.micro_losses =
      ARENA_ARRAY(a, float, (size_t)in->settings->derived.num_microbatches *ranks_of_data(&t));
  return t;
}

bool train_run(const train_input *in, const train_options *options, train_result *result, arena *a,
               diag *d)
{
  *result = (train_result){ .steps = ARENA_ARRAY(a, train_step, options->steps) };
  training t = training_new(in, options, result, a);
  take_plan(&t, in->first);
  result->model = model_of(&t.layout, t.parameters, a);
  result->rank_count = t.layout.rank_count;
  result->peak_bytes = ARENA_ARRAY(a, int64_t, t.layout.rank_count);
  exec_hooks hooks = {
    .context = &t, .fill = fill, .draw = draw, .op_done = op_done, .watches = watches
  };
  if (!options->no_prints || in->settings->training.clip_grad > 0)
    hooks.before_optimizer = before_optimizer;
  assert(options->executor != NULL);
  t.runner.by = options->executor;
  t.runner.exec = t.runner.by->create(t.runner.by, &t.layout, &hooks, d);
  bool ok = t.runner.exec != NULL && t.runner.by->fits(t.runner.exec, in->first, d) &&
            (options->steps == 1 || t.runner.by->fits(t.runner.exec, in->steady, d));
  if (!ok) result->outcome = EXEC_REFUSED;
  for (uint32_t i = 0; i < options->steps && ok; i++) {
    if (i == 1) take_plan(&t, in->steady);
    ok = run_step(&t, i, d);
  }
  if (t.runner.exec != NULL) t.runner.by->release(t.runner.exec);
  return ok;
}

/* ---- the model alone ------------------------------------------------------------------------- */

train_model train_initial_model(const train_input *in, uint64_t seed, arena *a)
{
  train_options options = { .seed = seed };
  train_result result = { 0 };
  training t = training_new(in, &options, &result, a);
  take_plan(&t, in->first);
  train_model m = model_of(&t.layout, t.parameters, a);
  for (uint32_t r = 0; r < t.layout.rank_count; r++)
    for (uint32_t i = 0; i < t.parameters[r].count; i++) {
      const train_parameter *p = &t.parameters[r].items[i];
      if (!p->trained) continue;
      model_tensor *to = &m.tensors[m.tensor_of[r][i]];
      if (to->data[MODEL_WEIGHT] == NULL)
        to->data[MODEL_WEIGHT] = ARENA_ARRAY(a, float, (size_t)tensor_count(to));
      to->type[MODEL_WEIGHT] = DTYPE_FP32;
      weights_put(in->first, t.layout.ranks[r].stage, p, to->data[MODEL_WEIGHT]);
    }
  return m;
}
