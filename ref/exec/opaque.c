/*
 * Ops without arithmetic (contents.h). What an op writes is a hash of the op and of all its reads,
 * so an op that reads something different in another order also writes something different.
 */
#include <assert.h>

#include "ref/exec/state.h"

static exec_fingerprint print_of(uint64_t hash)
{
  return (exec_fingerprint){ hash, contents_mixed(hash ^ UINT64_C(0x9E3779B97F4A7C15)) };
}

/* What the op's operand number `i` sees of its buffer. */
static byte_range operand_range(const ref_exec *e, const contents *c, const plan_op *o, uint32_t i)
{
  byte_range range = contents_all(c);
  plan_view v = plan_op_view(e->plan, o, i);
  bool fits = v.whole || plan_view_bytes(&v, &range);
  assert(fits && "validated");
  (void)fits;
  return range;
}

/* Hashes the op and its reads. False after a finding. */
static bool hash_reads(ref_exec *e, rank_state *r, uint32_t op, uint64_t *hash)
{
  assert(op < r->issued);
  const plan_op *o = stage_op(r->stage, op);
  *hash = contents_mixed((uint64_t)r->number << 32 | op);
  for (uint32_t i = 0; i < o->reads; i++) {
    uint32_t buffer = stage_operand(r->stage, o, i);
    if (!buffer_check_read(e, r, buffer, op, NULL)) return false;
    const contents *c = &r->buffers[buffer].cell->contents;
    *hash = contents_mixed(*hash ^ contents_hash(c, operand_range(e, c, o, i)));
  }
  return true;
}

static void hash_writes(ref_exec *e, rank_state *r, uint32_t op, uint64_t hash)
{
  const plan_op *o = stage_op(r->stage, op);
  assert(op < r->issued && op_works((op_kind)o->kind));
  for (uint32_t i = 0; i < o->writes; i++) {
    uint32_t buffer = stage_operand(r->stage, o, o->reads + i);
    buffer_begin_write(e, r, buffer, op);
    ref_cell *c = r->buffers[buffer].cell;
    assert(c->owner == buffer || !is_going(e));
    plan_view v = plan_op_view(e->plan, o, o->reads + i);
    contents_write(&c->contents, operand_range(e, &c->contents, o, o->reads + i),
                   contents_mixed(hash + i + 1), v.whole || view_is_contiguous(&v));
  }
}

void opaque_run(ref_exec *e, rank_state *r, uint32_t op)
{
  uint64_t hash;
  assert(e->options.arithmetic == REF_OPAQUE);
  if (!hash_reads(e, r, op, &hash)) return;
  hash_writes(e, r, op, hash);
  work_done(e, r, op, print_of(hash));
}

void opaque_message(ref_exec *e, rank_state *from, uint32_t send, rank_state *to, uint32_t receive)
{
  uint64_t sent;
  assert(stage_op(from->stage, send)->kind == OP_SEND);
  assert(stage_op(to->stage, receive)->kind == OP_RECV);
  if (!hash_reads(e, from, send, &sent)) return;
  hash_writes(e, to, receive, sent);
  work_done(e, from, send, print_of(sent));
  if (is_going(e)) work_done(e, to, receive, print_of(sent));
}
