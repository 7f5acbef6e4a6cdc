/*
 * What a rank's host thread spends on each op: the costs of kinds of ops, and the state on which a cost
 * depends. The engine walks a plan with it, and so does whoever compares a plan with host calls.
 */
#ifndef OFFSIM_SIM_ENGINE_HOST_WALK_H
#define OFFSIM_SIM_ENGINE_HOST_WALK_H

#include "sim/base/units.h"
#include "sim/machine/machine.h"
#include "sim/plan/plan.h"

typedef struct host_costs {
  int64_t issue_ps[OP_KINDS]; /* of copies: with the hooks of an offload system */
  int64_t copy_ps;            /* ... without: one operator */
  int64_t entry_ps[MARK_KINDS], phase_ps[MARK_KINDS]; /* sim/machine/host_work.h */
  int64_t batch_ps;
} host_costs;

host_costs host_costs_of(const machine *m);

typedef struct host_walk {
  bool first_stage, last_stage;
  uint32_t last_chunk;                    /* of those that the rank runs */
  mark_kind phase;                        /* the last mark */
  const plan_mark *last_mark[MARK_KINDS]; /* of each kind; NULL: there was none */
  uint32_t site;                          /* of the last op that works */
} host_walk;

/* At the beginning of a rank. */
host_walk host_walk_of(const plan *p, uint32_t rank);

/* The model's first chunk embeds tokens, and its last one compares them with labels; the stages between
 * get no batch (Megatron-LM, pretrain_gpt.py get_batch). */
static inline bool host_takes_batch(const host_walk *w, const plan_mark *m)
{
  bool first = w->first_stage && m->chunk == 0;
  bool last = w->last_stage && m->chunk == w->last_chunk;
  return m->kind == MARK_FORWARD && (first || last);
}

/* Passes in turns (overlap_moe_expert_parallel_comm) have several marks, but one is prepared once. */
static inline int64_t host_begin_phase_ps(const host_costs *c, host_walk *w, const plan_mark *m)
{
  const plan_mark *last = w->last_mark[m->kind];
  bool again = last != NULL && last->microbatch == m->microbatch && last->chunk == m->chunk;
  w->phase = (mark_kind)m->kind;
  w->site = 0;
  w->last_mark[m->kind] = m;
  return again ? 0 : c->phase_ps[m->kind] + (host_takes_batch(w, m) ? c->batch_ps : 0);
}

/* An op of a stream; `call_ps`: the host time of its call, if it is a kernel or collective. */
static inline int64_t host_issue_ps(const host_costs *c, host_walk *w, const plan_op *o,
                                    int64_t call_ps)
{
  bool is_call = op_is_call((op_kind)o->kind);
  bool plain = o->stream == STREAM_WEIGHTS || o->stream == STREAM_WEIGHTS_ODD ||
               (o->stream == STREAM_COMPUTE && w->phase == MARK_OPTIMIZER);
  bool copies = o->kind == OP_D2H || o->kind == OP_H2D;
  if (!is_call) return copies && plain ? c->copy_ps : c->issue_ps[o->kind];
  bool enters = o->site != w->site;
  w->site = o->site;
  return call_ps + (enters ? c->entry_ps[w->phase] : 0);
}

/* An OP_HOST_WORK. */
static inline int64_t host_work_ps(const host_costs *c, uint32_t operators)
{
  return capped_mul(operators, c->issue_ps[OP_HOST_WORK]);
}

/* The host time of each op of a rank, of which `call_ps` has that of the plan's calls; waits take none, and
 * so does page-locking. `op_ps`: [ops]. */
void host_walk_rank(const host_costs *c, const plan *p, uint32_t rank, const int64_t *call_ps,
                    int64_t *op_ps);

#endif
