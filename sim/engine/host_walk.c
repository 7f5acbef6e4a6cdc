#include "sim/engine/host_walk.h"

#include <assert.h>

#include "sim/base/units.h"
#include "sim/machine/host_work.h"

host_costs host_costs_of(const machine *m)
{
  host_costs c = { .issue_ps = { 0 } };
  int64_t launch_ns = m->issue.kernel_ns + m->issue.framework_ns;
  c.issue_ps[OP_SEND] = c.issue_ps[OP_RECV] = (launch_ns + m->issue.collective_ns) * PS_PER_NS;
  c.issue_ps[OP_RECORD] = c.issue_ps[OP_WAIT] = m->issue.event_ns * PS_PER_NS;
  int64_t copy_ns = m->issue.copy_ns + m->issue.framework_ns;
  c.copy_ps = (copy_ns + m->issue.operator_ns) * PS_PER_NS;
  c.issue_ps[OP_D2H] = (copy_ns + m->issue.offload_out_ns) * PS_PER_NS;
  c.issue_ps[OP_H2D] = (copy_ns + m->issue.offload_in_ns) * PS_PER_NS;
  c.issue_ps[OP_GRAPH_BEGIN] = (m->issue.graph_launch_ns + m->issue.framework_ns) * PS_PER_NS;
  c.issue_ps[OP_ALLOC] = c.issue_ps[OP_FREE] = m->issue.alloc_ns * PS_PER_NS;
  c.issue_ps[OP_HOST_WORK] = m->issue.operator_ns * PS_PER_NS;
  c.batch_ps = m->issue.batch_ns * PS_PER_NS;
  assert(c.batch_ps >= 0);
  for (int kind = 0; kind < OP_KINDS; kind++)
    assert(c.issue_ps[kind] >= 0 && "time never goes back");
  for (int phase = 0; phase < MARK_KINDS; phase++) {
    c.entry_ps[phase] = host_entry_ns(m, (mark_kind)phase) * PS_PER_NS;
    c.phase_ps[phase] = host_phase_ns(m, (mark_kind)phase) * PS_PER_NS;
    assert(c.entry_ps[phase] >= 0 && c.phase_ps[phase] >= 0);
  }
  return c;
}

host_walk host_walk_of(const plan *p, uint32_t rank)
{
  const plan_mark *marks = p->ranks[rank].marks.items;
  host_walk w = { .first_stage = rank == 0, .last_stage = rank + 1 == p->rank_count };
  for (uint32_t i = 0; i < p->ranks[rank].marks.count; i++)
    if (marks[i].kind == MARK_FORWARD && marks[i].chunk > w.last_chunk)
      w.last_chunk = marks[i].chunk;
  return w;
}

void host_walk_rank(const host_costs *c, const plan *of, uint32_t rank, const int64_t *call_ps,
                    int64_t *op_ps)
{
  const rank_plan *p = &of->ranks[rank];
  host_walk w = host_walk_of(of, rank);
  bool in_graph = false;
  for (uint32_t i = 0; i < p->ops.count; i++) {
    const plan_op *o = &p->ops.items[i];
    bool is_call = op_is_call((op_kind)o->kind);
    op_ps[i] = 0;
    if (o->kind == OP_MARK)
      op_ps[i] = host_begin_phase_ps(c, &w, &p->marks.items[o->arg]);
    else if (o->kind == OP_GRAPH_BEGIN)
      op_ps[i] = c->issue_ps[OP_GRAPH_BEGIN];
    else if (o->kind == OP_HOST_WORK)
      op_ps[i] = host_work_ps(c, o->arg);
    else if (o->stream != STREAM_HOST && !in_graph)
      op_ps[i] = host_issue_ps(c, &w, o, is_call ? call_ps[o->arg] : 0);
    in_graph = o->kind == OP_GRAPH_BEGIN || (in_graph && o->kind != OP_GRAPH_END);
    assert(op_ps[i] >= 0);
  }
}
