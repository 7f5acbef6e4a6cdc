/*
 * The arithmetic of ops. Before an op, every element that it reads must have been written. After
 * it, the guard zones of its operands must be intact, and the elements of its written views count
 * as written.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "ref/exec/state.h"
#include "sim/exec/runs.h"

/* A running op of one rank. */
typedef struct job {
  rank_state *rank;
  const plan_op *op;
  uint32_t number, count; /* the op's number; number of its operands */
  plan_view *views;       /* [count] */
  exec_tensor *tensors;   /* [count] */
  exec_call call;
} job;

static uint32_t operand(const job *j, uint32_t i)
{
  assert(i < j->count);
  return stage_operand(j->rank->stage, j->op, i);
}

static ref_cell *cell_of(const job *j, uint32_t i)
{
  assert(operand(j, i) < j->rank->stage->ops_of->buffers.count);
  return j->rank->buffers[operand(j, i)].cell;
}

static bool check_reach(ref_exec *e, const job *j, uint32_t i)
{
  int64_t reach = view_reach(&j->views[i]) * dtype_bytes((dtype)j->views[i].dtype);
  const rank_state *r = j->rank;
  assert(j->views[i].offset >= 0 && j->views[i].rank <= PLAN_VIEW_DIMS);
  if (reach > cell_of(j, i)->bytes)
    exec_wrong(e, "rank %u: %s sees %" PRId64 " bytes of %s, which has %" PRId64, r->number,
               stage_op_text(r->stage, j->number, &e->lasting), reach,
               stage_buffer_text(r->stage, operand(j, i), &e->lasting), cell_of(j, i)->bytes);
  return is_going(e);
}

/* ---- begin and end ------------------------------------------------------------------------- */

static void fill_call(const ref_exec *e, job *j)
{
  const stage *s = j->rank->stage;
  assert(s->mark_of[j->number] < s->ops_of->marks.count);
  const plan_mark *phase = &s->ops_of->marks.items[s->mark_of[j->number]];
  j->call = (exec_call){ .reads = j->tensors,
                         .writes = j->tensors + j->op->reads,
                         .read_count = j->op->reads,
                         .write_count = j->op->writes,
                         .site = &e->plan->sites.items[j->op->site],
                         .microbatch = phase->microbatch,
                         .is_forward = phase->kind == MARK_FORWARD,
                         .rank = &e->layout->ranks[j->rank->number],
                         .step = e->step };
  if (op_is_call((op_kind)j->op->kind)) j->call.call = &e->plan->calls.items[j->op->arg];
}

/* Everything before the arithmetic. False after a finding. */
static bool begin(ref_exec *e, job *j, rank_state *r, uint32_t op)
{
  *j = (job){ .rank = r, .op = stage_op(r->stage, op), .number = op };
  assert(op_works((op_kind)j->op->kind) && op < r->issued);
  j->count = (uint32_t)j->op->reads + j->op->writes;
  j->views = SCRATCH_ARRAY(&e->scratch, plan_view, j->count);
  j->tensors = SCRATCH_ARRAY(&e->scratch, exec_tensor, j->count);
  for (uint32_t i = 0; i < j->count; i++) {
    assert(cell_of(j, i) != NULL && "the plan uses a live buffer");
    j->views[i] = stage_rank_view(r->stage, &e->layout->ranks[r->number], j->op, i);
    const ref_cell *c = cell_of(j, i);
    j->tensors[i] = exec_tensor_of(c->block != NULL ? cell_data(c) : NULL, &j->views[i]);
    if (!check_reach(e, j, i)) return false;
  }
  for (uint32_t i = 0; i < j->op->reads; i++)
    if (!buffer_check_read(e, r, operand(j, i), op, &j->views[i])) return false;
  for (uint32_t i = j->op->reads; i < j->count; i++)
    buffer_begin_write(e, r, operand(j, i), op);
  fill_call(e, j);
  return is_going(e);
}

static bool check_guards(ref_exec *e, const job *j)
{
  assert(e->options.arithmetic == REF_EXACT);
  for (uint32_t i = 0; i < j->count; i++)
    if (!cell_guards_hold(cell_of(j, i)))
      exec_wrong(e, "rank %u: %s writes outside of %s", j->rank->number,
                 stage_op_text(j->rank->stage, j->number, &e->lasting),
                 stage_buffer_text(j->rank->stage, operand(j, i), &e->lasting));
  return is_going(e);
}

/* XXH3, 128 bits, of the elements in logical order. */
static void print_add(XXH3_state_t *hash, const exec_tensor *t)
{
  int64_t size = dtype_bytes((dtype)t->type), at;
  plan_view v = { .dtype = t->type, .rank = t->rank };
  assert(t->data != NULL || exec_elements(t) == 0);
  for (int i = 0; i < t->rank; i++) {
    v.shape[i] = t->shape[i];
    v.strides[i] = t->strides[i];
  }
  for (view_runs w = runs_of(&v); runs_next(&w, &at);)
    XXH3_128bits_update(hash, (const unsigned char *)t->data + at * size,
                        (size_t)(w.length * size));
}

/* Does not read files: a write to a file has the fingerprint of its source. */
static exec_fingerprint print_of(const ref_exec *e, const job *j)
{
  bool reads = j->op->writes == 0 || j->op->kind == OP_DISK_WRITE;
  if (!e->options.fingerprints) return (exec_fingerprint){ 0 };
  XXH3_state_t hash;
  XXH3_128bits_reset(&hash);
  for (uint32_t i = reads ? 0 : j->op->reads; i < (reads ? j->op->reads : j->count); i++)
    if (!stage_is_scratch(j->rank->stage, operand(j, i))) print_add(&hash, &j->tensors[i]);
  XXH128_hash_t h = XXH3_128bits_digest(&hash);
  return (exec_fingerprint){ .low = h.low64, .high = h.high64 };
}

void work_done(ref_exec *e, rank_state *r, uint32_t op, exec_fingerprint print)
{
  const plan_op *o = stage_op(r->stage, op);
  assert(op < r->issued && op_works((op_kind)o->kind));
  r->prints[op] = print;
  if (e->sequence != NULL) {
    e->sequence[e->done][0] = r->number;
    e->sequence[e->done][1] = op;
  }
  e->done++;
  if (e->hooks.op_done != NULL) e->hooks.op_done(e->hooks.context, r->number, op, print);
  for (uint32_t i = 0; i < (uint32_t)o->reads + o->writes; i++)
    buffer_used(e, r, stage_operand(r->stage, o, i));
}

static void end(ref_exec *e, const job *j)
{
  assert(is_going(e) && j->count == (uint32_t)j->op->reads + j->op->writes);
  for (uint32_t i = j->op->reads; i < j->count; i++)
    shadow_mark_view(&cell_of(j, i)->written, &j->views[i]);
  if (check_guards(e, j)) work_done(e, j->rank, j->number, print_of(e, j));
}

/* ---- copies -------------------------------------------------------------------------------- */

/* The elements of a view, one after the other. */
static int64_t bytes_of(const plan_view *v)
{
  assert(!v->whole);
  return view_elements(v) * dtype_bytes((dtype)v->dtype);
}

/* Between the elements of a view, in order, and contiguous bytes. */
static void copy_elements(unsigned char *seen, unsigned char *contiguous, const plan_view *v,
                          bool out)
{
  int64_t size = dtype_bytes((dtype)v->dtype), at;
  unsigned char *next = contiguous;
  for (view_runs w = runs_of(v); runs_next(&w, &at); next += w.length * size)
    memcpy(out ? next : seen + at * size, out ? seen + at * size : next, (size_t)(w.length * size));
  assert(next == contiguous + bytes_of(v) && "every element once");
}

static void run_copy(ref_exec *e, const job *j)
{
  const ref_cell *from = cell_of(j, 0), *to = cell_of(j, 1);
  assert(!(from->is_file && to->is_file) && "a file is copied through the host");
  assert(bytes_of(&j->views[0]) == bytes_of(&j->views[1]));
  if (to->is_file) {
    if (!disk_write(&e->disk, to->file_at, cell_data(from), from->bytes, e->d)) exec_refused(e);
  } else if (from->is_file) {
    if (!disk_read(&e->disk, from->file_at, cell_data(to), to->bytes, e->d)) exec_refused(e);
  } else {
    bool out = copy_device_operand(j->op) == 0;
    const plan_view *host = &j->views[out];
    unsigned char *contiguous = cell_data(out ? to : from);
    contiguous += host->offset * dtype_bytes((dtype)host->dtype);
    copy_elements(cell_data(out ? from : to), contiguous, &j->views[!out], out);
  }
}

/* ---- ops ----------------------------------------------------------------------------------- */

static void compute(ref_exec *e, const job *j)
{
  if (j->op->kind != OP_KERNEL) {
    assert(op_is_copy((op_kind)j->op->kind) && j->count == 2);
    run_copy(e, j);
    return;
  }
  ref_kernel *kernel = e->options.kernels[j->call.call->kind];
  assert(kernel != NULL && "ref_exec_knows has refused plans without arithmetic");
  kernel(&j->call);
}

void work_run(ref_exec *e, rank_state *r, uint32_t op)
{
  assert(op < r->issued && stage_op(r->stage, op)->kind != OP_COLLECTIVE);
  if (e->options.arithmetic == REF_OPAQUE) {
    opaque_run(e, r, op);
    return;
  }
  scratch_mark before = scratch_here(&e->scratch);
  job j;
  if (begin(e, &j, r, op)) {
    compute(e, &j);
    if (is_going(e)) end(e, &j);
  }
  scratch_back(&e->scratch, before);
}

/* All members must make the same call, or the library would hang or corrupt memory. */
static bool are_alike(ref_exec *e, const job *jobs, uint32_t count)
{
  assert(count > 0 && jobs[0].op->kind == OP_COLLECTIVE);
  for (uint32_t i = 1; i < count; i++)
    if (jobs[i].call.call->kind != jobs[0].call.call->kind)
      exec_wrong(e, "rank %u: %s meets rank %u: %s", jobs[0].rank->number,
                 stage_op_text(jobs[0].rank->stage, jobs[0].number, &e->lasting),
                 jobs[i].rank->number,
                 stage_op_text(jobs[i].rank->stage, jobs[i].number, &e->lasting));
  return is_going(e);
}

static void compute_together(ref_exec *e, const job *jobs, uint32_t count)
{
  assert(count > 0 && e->options.collectives[jobs[0].call.call->kind] != NULL);
  const exec_call **calls = SCRATCH_ARRAY(&e->scratch, const exec_call *, count);
  for (uint32_t i = 0; i < count; i++)
    calls[i] = &jobs[i].call;
  e->options.collectives[calls[0]->call->kind](calls, count);
}

void work_collective(ref_exec *e, rank_state **members, const uint32_t *ops, uint32_t count)
{
  if (e->options.arithmetic == REF_OPAQUE) {
    for (uint32_t i = 0; i < count && is_going(e); i++)
      opaque_run(e, members[i], ops[i]);
    return;
  }
  assert(count > 0);
  assert(stage_op(members[0]->stage, ops[0])->kind == OP_COLLECTIVE);
  scratch_mark before = scratch_here(&e->scratch);
  job *jobs = SCRATCH_ARRAY(&e->scratch, job, count);
  bool ready = true;
  for (uint32_t i = 0; i < count && ready; i++)
    ready = begin(e, &jobs[i], members[i], ops[i]);
  if (ready && are_alike(e, jobs, count)) {
    compute_together(e, jobs, count);
    for (uint32_t i = 0; i < count && is_going(e); i++)
      end(e, &jobs[i]);
  }
  scratch_back(&e->scratch, before);
}

void work_message(ref_exec *e, rank_state *from, uint32_t send, rank_state *to, uint32_t receive)
{
  if (e->options.arithmetic == REF_OPAQUE) {
    opaque_message(e, from, send, to, receive);
    return;
  }
  assert(stage_op(from->stage, send)->arg == stage_op(to->stage, receive)->arg);
  scratch_mark before = scratch_here(&e->scratch);
  job sent, received;
  if (begin(e, &sent, from, send) && begin(e, &received, to, receive)) {
    assert(sent.count == 1 && received.count == 1);
    assert(received.views[0].shape[0] == sent.views[0].shape[0]);
    memcpy(received.tensors[0].data, sent.tensors[0].data, (size_t)sent.views[0].shape[0]);
    end(e, &sent);
    if (is_going(e)) end(e, &received);
  }
  scratch_back(&e->scratch, before);
}
