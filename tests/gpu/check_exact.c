/*
 * Holds exact kernels (cuda/kernels/exact) against ref's: runs training steps of a scenario on the
 * CPU as `offsim run --on ref` does, and beside every kernel and collective the exact one on a copy
 * of its operands. Afterwards all bytes of both must be the same: those written, those read, those
 * between, and those of the guard zones around.
 *
 *     check_exact [--gpu] [--steps N] [OPTION...] SCENARIO.yaml
 *
 * Prints a line for every row that ref has: how often it was compared, how often there was no exact
 * kernel, and how often something differed, and the first difference of each. Exit status 1: one
 * differed; with a row missing it is 0.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda/kernels/kernel.h"
#include "ref/exec/exec.h"
#include "sim/compile/compile.h"
#include "sim/load/load.h"
#include "sim/train/train.h"
#include "tests/gpu/operand_copies.h"

typedef struct row_count {
  int64_t compared, missing, different;
} row_count;

typedef struct checker {
  load_options load;
  bool gpu;
  int64_t steps;
  const gpu_driver *driver;
  const cuda_kernel_row *kernels;
  const cuda_collective_row *collectives;
  operand_copies copies;
  row_count of_kernels[KERNEL_KINDS], of_collectives[COLLECTIVE_KINDS];
} checker;

/* Kernels get nothing but their call. */
static checker the;

/* ---- what differs ---------------------------------------------------------------------------- */

static int64_t place_of(const exec_tensor *t, int64_t i)
{
  int64_t place = 0;
  for (int d = t->rank; d-- > 0; i /= t->shape[d])
    place += i % t->shape[d] * t->strides[d];
  return place;
}

/* The element of `t` that has the byte, -1: none. */
static int64_t element_at(const exec_tensor *t, const unsigned char *byte)
{
  int64_t size = dtype_bytes((dtype)t->type);
  for (int64_t i = 0; i < exec_elements(t); i++) {
    const unsigned char *first = (const unsigned char *)t->data + place_of(t, i) * size;
    if (byte >= first && byte < first + size) return i;
  }
  return -1;
}

static void tell_operands(const char *kind, const exec_tensor *tensors, uint32_t count,
                          const operand_difference *d)
{
  for (uint32_t i = 0; i < count; i++) {
    int64_t element = element_at(&tensors[i], d->here);
    if (element < 0) continue;
    printf("  %s %" PRIu32 ", %s[", kind, i, dtype_name((dtype)tensors[i].type));
    for (int n = 0; n < tensors[i].rank; n++)
      printf("%s%" PRId64, n > 0 ? ", " : "", tensors[i].shape[n]);
    printf("]: element %" PRId64 "\n", element);
  }
}

static void tell_call(const exec_call *c)
{
  printf("  rank %" PRIu32 ", layer %" PRId32 " %s; dims", c->rank->global, c->site->layer,
         c->site->module);
  for (int i = 0; i < PLAN_DIMS; i++)
    printf(" %" PRId64, c->call->dims[i]);
  printf("; scalars");
  for (int i = 0; i < PLAN_SCALARS; i++)
    printf(" %g", c->call->scalars[i]);
  putchar('\n');
}

static void tell(const char *name, const exec_call *const *calls, uint32_t count,
                 const operand_difference *d)
{
  printf("%s differs in %" PRId64 " bytes; the first is %02x and should be %02x%s\n", name,
         d->bytes, d->found, d->expected, d->here == NULL ? ", in a guard zone" : "");
  for (uint32_t i = 0; i < count; i++) {
    if (i == 0) tell_call(calls[i]);
    if (d->here == NULL) continue;
    tell_operands("read", calls[i]->reads, calls[i]->read_count, d);
    tell_operands("written", calls[i]->writes, calls[i]->write_count, d);
  }
}

/* ---- the same call on the device ------------------------------------------------------------- */

typedef struct device_call {
  exec_call of;
  cuda_call call;
} device_call;

static const exec_tensor *on_device(const exec_tensor *tensors, uint32_t count, arena *a)
{
  exec_tensor *copies = ARENA_ARRAY(a, exec_tensor, count);
  for (uint32_t i = 0; i < count; i++)
    copies[i] = copies_tensor(&the.copies, &tensors[i]);
  return copies;
}

static void upload(const exec_call *const *calls, uint32_t count, int64_t *left_out,
                   int64_t scratch_bytes)
{
  copies_begin(&the.copies);
  copies_add_bytes(&the.copies, left_out, sizeof *left_out);
  for (uint32_t i = 0; i < count; i++) {
    copies_add(&the.copies, calls[i]->reads, calls[i]->read_count);
    copies_add(&the.copies, calls[i]->writes, calls[i]->write_count);
  }
  copies_upload(&the.copies, scratch_bytes);
}

static void fill_call(device_call *d, const exec_call *c, int64_t *left_out, arena *a)
{
  d->of = *c;
  d->of.reads = on_device(c->reads, c->read_count, a);
  d->of.writes = on_device(c->writes, c->write_count, a);
  d->call = (cuda_call){ .of = &d->of,
                         .stream = the.copies.stream,
                         .scratch = copies_scratch(&the.copies),
                         .scratch_bytes = the.copies.scratch_bytes,
                         .left_out = copies_address(&the.copies, left_out) };
}

static void finish(const char *name, const device_call *calls, uint32_t count)
{
  for (uint32_t i = 0; i < count; i++)
    if (calls[i].call.failure != NULL) die_refused("%s: %s", name, calls[i].call.failure);
  check_driver(&the.copies, name, the.driver->last_error());
  check_driver(&the.copies, name, the.driver->stream_synchronize(the.copies.stream));
  copies_download(&the.copies);
}

static void compare(const char *name, row_count *row, const exec_call *const *calls, uint32_t count)
{
  operand_difference d = copies_difference(&the.copies);
  row->compared++;
  if (d.exists && row->different++ == 0) tell(name, calls, count, &d);
}

/* The run's counter corresponds to the one on the device: both must grow alike. */
static void checked_kernel(const exec_call *c)
{
  kernel_kind kind = (kernel_kind)c->call->kind;
  const cuda_kernel_row *row = &the.kernels[kind];
  row_count *count = &the.of_kernels[kind];
  if (row->launch == NULL) {
    count->missing++;
    ref_kernels[kind](c);
    return;
  }
  arena a = { 0 };
  device_call d;
  upload(&c, 1, c->step->left_out, row->scratch != NULL ? row->scratch(c) : 0);
  fill_call(&d, c, c->step->left_out, &a);
  row->launch(&d.call);
  finish(kernel_name(kind), &d, 1);
  ref_kernels[kind](c);
  compare(kernel_name(kind), count, &c, 1);
  arena_release(&a);
}

static void checked_collective(const exec_call *const *members, uint32_t members_count)
{
  collective_kind kind = (collective_kind)members[0]->call->kind;
  const cuda_collective_row *row = &the.collectives[kind];
  row_count *count = &the.of_collectives[kind];
  if (row->launch == NULL) {
    count->missing++;
    ref_collectives[kind](members, members_count);
    return;
  }
  arena a = { 0 };
  device_call *d = ARENA_ARRAY(&a, device_call, members_count);
  cuda_call **calls = ARENA_ARRAY(&a, cuda_call *, members_count);
  int64_t *left_out = members[0]->step->left_out;
  upload(members, members_count, left_out,
         row->scratch != NULL ? row->scratch(members, members_count) : 0);
  for (uint32_t i = 0; i < members_count; i++) {
    fill_call(&d[i], members[i], left_out, &a);
    calls[i] = &d[i].call;
  }
  row->launch(calls, members_count);
  finish(collective_name(kind), d, members_count);
  ref_collectives[kind](members, members_count);
  compare(collective_name(kind), count, members, members_count);
  arena_release(&a);
}

/* ---- the run --------------------------------------------------------------------------------- */

static bool train(const train_input *in, arena *a, diag *d)
{
  ref_kernel *kernels[KERNEL_KINDS] = { NULL };
  ref_collective *collectives[COLLECTIVE_KINDS] = { NULL };
  for (int i = 0; i < KERNEL_KINDS; i++)
    if (ref_kernels[i] != NULL) kernels[i] = checked_kernel;
  for (int i = 0; i < COLLECTIVE_KINDS; i++)
    if (ref_collectives[i] != NULL) collectives[i] = checked_collective;
  executor checking =
      ref_executor(&(ref_options){ .kernels = kernels, .collectives = collectives });
  train_options options = {
    .seed = 1, .steps = (uint32_t)the.steps, .learning_rate = 1e-3, .executor = &checking
  };
  train_result result;
  if (!train_knows(in, &checking, d) ||
      !token_stream_open(&options.tokens, in->settings, NULL, 0, options.seed, false, d))
    return false;
  bool ok = train_run(in, &options, &result, a, d);
  if (result.finding != NULL) diag_error(d, (source_pos){ 0 }, "%s", result.finding);
  return ok;
}

static bool run_scenario(arena *a, diag *d)
{
  settings s;
  const machine *m;
  compilation first, steady;
  if (!load_settings(&the.load, &s, &m, a, d)) return false;
  if (!compile(&first, &s, ITERATION_WARMUP, a, d)) {
    compilation_release(&first);
    return false;
  }
  bool ok = compile(&steady, &s, ITERATION_STEADY, a, d) &&
            train(&(train_input){ &s, &first.plan, &steady.plan }, a, d);
  compilation_release(&first);
  compilation_release(&steady);
  return ok;
}

static void open_device(void)
{
  the.driver = &gpu_driver_host;
  the.kernels = host_exact_kernels;
  the.collectives = host_exact_collectives;
#ifdef OFFSIM_WITH_CUDA
  if (the.gpu) {
    the.driver = &gpu_driver_cuda;
    the.kernels = cuda_exact_kernels;
    the.collectives = cuda_exact_collectives;
  }
#endif
  the.copies.driver = the.driver;
  check_driver(&the.copies, "use", the.driver->use(0));
  check_driver(&the.copies, "a stream", the.driver->stream_new(&the.copies.stream));
}

static void close_device(void)
{
  copies_release(&the.copies);
  the.driver->stream_delete(the.copies.stream);
}

static int64_t print_row(const char *name, const row_count *row)
{
  printf("%-32s compared %6" PRId64 "  missing %6" PRId64 "  different %6" PRId64 "\n", name,
         row->compared, row->missing, row->different);
  return row->different;
}

static int64_t print_counts(void)
{
  int64_t different = 0;
  for (int i = 0; i < KERNEL_KINDS; i++)
    if (ref_kernels[i] != NULL)
      different += print_row(kernel_name((kernel_kind)i), &the.of_kernels[i]);
  for (int i = 0; i < COLLECTIVE_KINDS; i++)
    if (ref_collectives[i] != NULL)
      different += print_row(collective_name((collective_kind)i), &the.of_collectives[i]);
  return different;
}

#define OPTIONS checker
static const option_row rows[] = {
  FLAG("gpu", gpu, "on a GPU"),
  WHOLE("steps", "N", steps, 1, INT64_MAX, "of training (default 2)"),
  { .name = NULL },
};

int main(int argc, char **argv)
{
  const verb_syntax v = { "check_exact",
                          "usage: check_exact [--gpu] [--steps N] [OPTION...] SCENARIO\n\n",
                          { { load_rows, &the.load }, { rows, &the } } };
  arena a = { 0 };
  diag d = { 0 };
  int64_t different = 0;
  the.steps = 2;
  if (load_command(&the.load, &v, argc, argv, &a, &d) == PARSED) {
    open_device();
    if (run_scenario(&a, &d)) different = print_counts();
    close_device();
  }
  arena_release(&a);
  int status = diag_finish(&d);
  return status == 0 && different > 0 ? 1 : status;
}
