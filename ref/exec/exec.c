#include "ref/exec/exec.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "ref/exec/state.h"
#include "sim/base/units.h"

enum { DEFAULT_POISON = 0xA5 };

/* Linux's available memory without swap: what can be allocated without ending other programs. */
static int64_t available_memory(void)
{
  int64_t kibibytes = INT64_MAX;
  FILE *f = fopen("/proc/meminfo", "r");
  if (f == NULL) return INT64_MAX;
  for (char line[128]; fgets(line, sizeof line, f) != NULL;)
    if (sscanf(line, "MemAvailable: %" SCNd64, &kibibytes) == 1) break;
  fclose(f);
  return kibibytes > INT64_MAX / 1024 ? INT64_MAX : kibibytes * 1024;
}

/* A container may have less than its machine. */
static int64_t memory_of_machine(void)
{
  int64_t all = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE), limit = all;
  FILE *limits = fopen("/sys/fs/cgroup/memory.max", "r");
  if (limits != NULL && fscanf(limits, "%" SCNd64, &limit) != 1) limit = all;
  if (limits != NULL) fclose(limits);
  return min_i64(min_i64(all, limit), available_memory());
}

static ref_kernel *const *kernels_of(const ref_options *o)
{
  return o->kernels != NULL ? o->kernels : ref_kernels;
}

static ref_collective *const *collectives_of(const ref_options *o)
{
  return o->collectives != NULL ? o->collectives : ref_collectives;
}

ref_exec *ref_exec_new(const exec_layout *layout, const ref_options *options,
                       const exec_hooks *hooks)
{
  assert(layout->rank_count > 0 && options->memory_limit_bytes >= 0);
  ref_exec *e = calloc(1, sizeof *e);
  if (e == NULL) die_refused("ref: no memory for an execution");
  *e = (ref_exec){ .layout = layout,
                   .options = *options,
                   .disk = { .folder = options->disk_dir },
                   .limit_bytes = options->memory_limit_bytes };
  e->options.kernels = kernels_of(options);
  e->options.collectives = collectives_of(options);
  if (hooks != NULL) e->hooks = *hooks;
  if (e->limit_bytes == 0) e->limit_bytes = memory_of_machine();
  assert(e->limit_bytes >= 0);
  if (e->options.poison == 0) e->options.poison = DEFAULT_POISON;
  e->ranks = ARENA_ARRAY(&e->lasting, rank_state, layout->rank_count);
  for (uint32_t r = 0; r < layout->rank_count; r++)
    e->ranks[r].number = r;
  return e;
}

void ref_exec_release(ref_exec *e)
{
  if (e == NULL) return;
  carry_release(e);
  assert(e->array_bytes == 0 && "every array is freed");
  disk_release(&e->disk);
  scratch_release(&e->scratch);
  arena_release(&e->iteration);
  arena_release(&e->prepared);
  arena_release(&e->lasting);
  free(e);
}

void exec_wrong(ref_exec *e, const char *format, ...)
{
  char text[2048];
  va_list arguments;
  if (!is_going(e)) return;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  assert(e->finding == NULL && text[0] != '\0');
  e->finding = arena_strdup(&e->lasting, text);
  e->outcome = EXEC_WRONG;
}

void exec_refused(ref_exec *e)
{
  assert(e->d != NULL);
  if (is_going(e)) e->outcome = EXEC_REFUSED;
}

static bool all_are_done(const ref_exec *e)
{
  for (uint32_t i = 0; i < e->layout->rank_count; i++)
    for (uint32_t s = 0; s < STREAMS; s++)
      if (!actor_is_done(&e->ranks[i], s)) return false;
  return true;
}

/* Freed buffers are checked at their free. */
static void check_survivors(ref_exec *e, const rank_state *r)
{
  assert(r->stage != NULL && is_going(e));
  for (uint32_t b = 0; b < r->stage->ops_of->buffers.count; b++)
    if (r->buffers[b].cell != NULL && !cell_guards_hold(r->buffers[b].cell))
      exec_wrong(e, "rank %u: a kernel wrote outside of %s", r->number,
                 stage_buffer_text(r->stage, b, &e->lasting));
}

/* The iteration ends the live buffers. */
static void end_of_survivors(const rank_state *r)
{
  assert(r->issued == r->stage->ops_of->ops.count);
  for (uint32_t b = 0; b < r->stage->ops_of->buffers.count; b++)
    if (r->buffers[b].cell != NULL)
      r->last_contents[b] = contents_hash_all(&r->buffers[b].cell->contents);
}

static void finish(ref_exec *e)
{
  if (is_going(e) && !all_are_done(e)) report_deadlock(e);
  for (uint32_t i = 0; i < e->layout->rank_count && is_going(e); i++)
    check_survivors(e, &e->ranks[i]);
  for (uint32_t i = 0; i < e->layout->rank_count && is_going(e); i++)
    end_of_survivors(&e->ranks[i]);
}

exec_outcome ref_exec_iteration(ref_exec *e, const plan *p, const exec_order *order,
                                const exec_step *step, diag *d)
{
  assert(is_going(e) && "no iteration may follow an error");
  assert(e->layout->rank_count >= p->rank_count);
  assert(e->options.arithmetic == REF_EXACT || !e->hooks.fill);
  e->d = d;
  e->step = step;
  e->optimizer_reached = false;
  e->done = 0;
  carry_begin(e, p);
  if (is_going(e) && order->interleaved)
    run_interleaved(e, order->seed);
  else
    run_in_program_order(e);
  finish(e);
  assert(e->plan == p && (e->finding != NULL) == (e->outcome == EXEC_WRONG));
  return e->outcome;
}

/* ---- what it tells ------------------------------------------------------------------------- */

static const stage *stage_of(const ref_exec *e, uint32_t rank)
{
  assert(rank < e->layout->rank_count && e->plan != NULL);
  return e->ranks[rank].stage;
}

const char *ref_exec_finding(const ref_exec *e)
{
  assert((e->finding != NULL) == (e->outcome == EXEC_WRONG));
  return e->finding;
}

void *ref_exec_data(ref_exec *e, uint32_t rank, uint32_t buffer)
{
  assert(buffer < stage_of(e, rank)->ops_of->buffers.count);
  const ref_cell *c = e->ranks[rank].buffers[buffer].cell;
  return c == NULL ? NULL : cell_data(c);
}

const exec_fingerprint *ref_exec_fingerprints(const ref_exec *e, uint32_t rank)
{
  assert(rank < e->layout->rank_count);
  return e->ranks[rank].prints;
}

exec_tally ref_exec_tally(const ref_exec *e, uint32_t rank)
{
  assert(rank < e->layout->rank_count);
  const rank_state *r = &e->ranks[rank];
  return (exec_tally){ .peak_bytes = r->device_peak_bytes, .after_op = r->after_op };
}

/* ---- before it runs ------------------------------------------------------------------------ */

static bool has_arithmetic(const plan *p, const plan_op *o, const ref_options *options)
{
  uint32_t kind = p->calls.items[o->arg].kind;
  assert(kind < (o->kind == OP_KERNEL ? (uint32_t)KERNEL_KINDS : (uint32_t)COLLECTIVE_KINDS));
  return o->kind == OP_KERNEL ? kernels_of(options)[kind] != NULL
                              : collectives_of(options)[kind] != NULL;
}

static bool knows_stage(const plan *p, uint32_t number, const ref_options *options, diag *d)
{
  assert(number < p->rank_count);
  arena scratch = { 0 };
  stage s = { .plan = p, .ops_of = &p->ranks[number] };
  for (uint32_t i = 0; i < s.ops_of->ops.count && diag_ok(d); i++) {
    const plan_op *o = stage_op(&s, i);
    if (op_is_call((op_kind)o->kind) && !has_arithmetic(p, o, options))
      diag_error(d, (source_pos){ 0 }, "ref has no arithmetic for rank %u's %s", number,
                 stage_op_text(&s, i, &scratch));
  }
  arena_release(&scratch);
  return diag_ok(d);
}

bool ref_exec_knows(const plan *p, const ref_options *options, diag *d)
{
  for (uint32_t r = 0; r < p->rank_count; r++)
    if (!knows_stage(p, r, options, d)) return false;
  return true;
}

/* The least memory of an iteration: one that is far too large is refused before it begins. */
static int64_t array_bytes_of(const plan_buffer *b)
{
  assert(b->bytes >= 0);
  return class_side((buffer_class)b->purpose) == ON_DISK ? 0 : b->bytes;
}

static int64_t residents_of(const rank_plan *r)
{
  int64_t bytes = 0;
  assert(r->residents <= r->buffers.count);
  for (uint32_t i = 0; i < r->residents; i++)
    bytes += array_bytes_of(&r->buffers.items[i]);
  return bytes;
}

/* The most bytes in addition to the residents. */
static int64_t rise_of(const rank_plan *r)
{
  int64_t now = 0, most = 0, residents = residents_of(r);
  for (uint32_t i = 0; i < r->ops.count; i++) {
    const plan_op *o = &r->ops.items[i];
    bool takes = o->kind == OP_ALLOC || o->kind == OP_HOST_ALLOC;
    if (takes) now += array_bytes_of(&r->buffers.items[o->arg]);
    if (o->kind == OP_FREE || o->kind == OP_HOST_FREE)
      now -= array_bytes_of(&r->buffers.items[o->arg]);
    assert(now + residents >= 0 && "no more is freed than was allocated");
    if (now > most) most = now;
  }
  return most;
}

/* Ranks need not be at their peaks at the same time: all have their residents, and one is at its
 * peak. */
static int64_t least_bytes(const ref_exec *e, const plan *p)
{
  int64_t residents = 0, rise = 0;
  for (uint32_t i = 0; i < e->layout->rank_count; i++) {
    const rank_plan *r = &p->ranks[e->layout->ranks[i].stage];
    int64_t own = rise_of(r);
    residents += residents_of(r);
    if (own > rise) rise = own;
  }
  assert(residents >= 0 && rise >= 0);
  return residents + rise;
}

/* ---- the interface of all executors --------------------------------------------------------- */

static bool knows(const executor *of, const plan *p, diag *d)
{
  return ref_exec_knows(p, of->options, d);
}

static void *create(const executor *of, const exec_layout *layout, const exec_hooks *hooks, diag *d)
{
  assert(((const ref_options *)of->options)->memory_limit_bytes >= 0);
  (void)d;
  return ref_exec_new(layout, of->options, hooks);
}

static void release(void *e)
{
  ref_exec_release(e);
}

static bool fits(const void *x, const plan *p, diag *d)
{
  const ref_exec *e = x;
  assert(e->limit_bytes > 0 && p->rank_count <= e->layout->rank_count);
  int64_t least = e->options.arithmetic == REF_OPAQUE ? 0 : least_bytes(e, p);
  return least <= e->limit_bytes ||
         diag_refused(d,
                      "ref: %u ranks need at least %" PRId64 " bytes of memory together; there are "
                      "%" PRId64,
                      e->layout->rank_count, least, e->limit_bytes);
}

static exec_outcome iteration(void *e, const plan *p, const exec_order *order,
                              const exec_step *step, diag *d)
{
  return ref_exec_iteration(e, p, order, step, d);
}

static const char *finding(const void *e)
{
  return ref_exec_finding(e);
}

static void *data(void *e, uint32_t rank, uint32_t buffer)
{
  return ref_exec_data(e, rank, buffer);
}

static int64_t bytes(const void *e, uint32_t rank, uint32_t buffer)
{
  assert(buffer < stage_of(e, rank)->ops_of->buffers.count);
  return stage_of(e, rank)->bytes[buffer];
}

static bool is_scratch(const void *e, uint32_t rank, uint32_t buffer)
{
  assert(buffer < stage_of(e, rank)->ops_of->buffers.count);
  return stage_is_scratch(stage_of(e, rank), buffer);
}

static exec_tally tally(const void *e, uint32_t rank)
{
  return ref_exec_tally(e, rank);
}

executor ref_executor(const ref_options *options)
{
  return (executor){ .options = options,
                     .knows = knows,
                     .create = create,
                     .release = release,
                     .fits = fits,
                     .iteration = iteration,
                     .finding = finding,
                     .data = data,
                     .bytes = bytes,
                     .is_scratch = is_scratch,
                     .tally = tally };
}
