/*
 * Which kernels of a scenario's plan fast arithmetic leaves to the exact kernels, without a GPU:
 *
 *     check_suits [OPTION...] SCENARIO.yaml
 *
 * A line for every row of the plan's table: how many ops have a fast kernel, how many have none,
 * and the bytes and FLOPs of those, with the first op of each row that has none. Exit status 1: a
 * product or attention has none.
 */
#include <inttypes.h>
#include <stdio.h>

#include "cuda/kernels/kernel.h"
#include "sim/compile/compile.h"
#include "sim/load/load.h"

enum { OPERANDS = 1024, PLACE = 512 /* where the allocator's blocks begin */ };

typedef struct row_count {
  int64_t fast, exact, bytes;
} row_count;

static load_options load;
static row_count counts[KERNEL_KINDS];

static exec_tensor tensor_of(const plan_view *v)
{
  int64_t place = (int64_t)PLACE * PLACE + v->offset * dtype_bytes((dtype)v->dtype);
  exec_tensor t = { .data = (void *)(uintptr_t)place, .type = v->dtype, .rank = v->rank };
  for (int d = 0; d < v->rank; d++) {
    t.shape[d] = v->shape[d];
    t.strides[d] = v->strides[d];
  }
  return t;
}

/* What an op that sees all of a buffer sees. */
static exec_tensor whole(const plan *p, const rank_plan *r, const plan_op *o, uint32_t operand)
{
  const plan_buffer *b = &r->buffers.items[r->operands.items[o->operands + operand]];
  const plan_tensor *t = &p->tensors.items[b->tensor];
  plan_view v = { .dtype = t->dtype, .rank = t->rank };
  int64_t next = 1;
  for (int d = t->rank; d-- > 0; next *= t->shape[d]) {
    v.shape[d] = t->shape[d];
    v.strides[d] = next;
  }
  return tensor_of(&v);
}

static void print_operand(const exec_tensor *t)
{
  printf("    %s +%" PRIu64, dtype_name((dtype)t->type),
         (uint64_t)(uintptr_t)t->data - (uint64_t)PLACE * PLACE);
  for (int d = 0; d < t->rank; d++)
    printf(" %" PRId64 "/%" PRId64, t->shape[d], t->strides[d]);
  putchar('\n');
}

static void print_call(const exec_call *c)
{
  printf("%s, layer %d %s: dims", kernel_name((kernel_kind)c->call->kind), (int)c->site->layer,
         c->site->module);
  for (int i = 0; i < PLAN_DIMS; i++)
    printf(" %" PRId64, c->call->dims[i]);
  printf("; scalars");
  for (int i = 0; i < PLAN_SCALARS; i++)
    printf(" %g", c->call->scalars[i]);
  putchar('\n');
  for (uint32_t i = 0; i < c->read_count; i++)
    print_operand(&c->reads[i]);
  printf("   ->\n");
  for (uint32_t i = 0; i < c->write_count; i++)
    print_operand(&c->writes[i]);
}

static void look_at(const plan *p, const rank_plan *r, const plan_op *o, const exec_rank *rank)
{
  static exec_tensor tensors[OPERANDS];
  static const exec_step step = { .seed = 1 };
  const plan_call *call = &p->calls.items[o->arg];
  const cuda_fast_row *row = &cuda_fast_kernels[call->kind];
  for (uint32_t i = 0; i < (uint32_t)o->reads + o->writes; i++) {
    plan_view v = plan_op_view(p, o, i);
    tensors[i] = v.whole ? whole(p, r, o, i) : tensor_of(&v);
  }
  exec_call c = { .call = call,
                  .reads = tensors,
                  .writes = tensors + o->reads,
                  .read_count = o->reads,
                  .write_count = o->writes,
                  .site = &p->sites.items[o->site],
                  .is_forward = 1,
                  .rank = rank,
                  .step = &step };
  row_count *count = &counts[call->kind];
  if (row->launch != NULL && row->suits(&c)) {
    count->fast++;
    return;
  }
  if (count->exact++ == 0) print_call(&c);
  count->bytes += call->bytes;
}

static bool look_at_plan(const plan *p)
{
  exec_rank rank = { 0 };
  bool good = true;
  for (int g = 0; g < COMM_GROUPS; g++)
    rank.group[g].size = 1;
  for (uint32_t r = 0; r < p->rank_count; r++)
    for (uint32_t i = 0; i < p->ranks[r].ops.count; i++)
      if (p->ranks[r].ops.items[i].kind == OP_KERNEL)
        look_at(p, &p->ranks[r], &p->ranks[r].ops.items[i], &rank);
  for (int i = 0; i < KERNEL_KINDS; i++) {
    const row_count *n = &counts[i];
    bool heavy = i == KERNEL_GEMM || i == KERNEL_GROUPED_GEMM || i == KERNEL_SCALED_GEMM ||
                 i == KERNEL_ATTENTION_FORWARD || i == KERNEL_ATTENTION_BACKWARD;
    if (n->fast + n->exact > 0)
      printf("%-32s fast %6" PRId64 "  exact %6" PRId64 "  of %10.1f MB\n",
             kernel_name((kernel_kind)i), n->fast, n->exact, (double)n->bytes / 1e6);
    good = good && !(heavy && n->exact > 0);
  }
  return good;
}

int main(int argc, char **argv)
{
  const verb_syntax v = { "check_suits",
                          "usage: check_suits [OPTION...] SCENARIO.yaml\n\n",
                          { { load_rows, &load } } };
  arena a = { 0 };
  diag d = { 0 };
  settings s;
  const machine *m;
  compilation steady;
  bool good = true;
  if (load_command(&load, &v, argc, argv, &a, &d) == PARSED &&
      load_settings(&load, &s, &m, &a, &d)) {
    if (compile(&steady, &s, ITERATION_STEADY, &a, &d)) good = look_at_plan(&steady.plan);
    compilation_release(&steady);
  }
  arena_release(&a);
  int status = diag_finish(&d);
  return status == 0 && !good ? 1 : status;
}
