#include "sim/compile/collectives.h"

#include <assert.h>
#include <string.h>

static void set_group(const settings *s, comm_group group, plan_call *call)
{
  assert(group < COMM_GROUPS);
  const struct parallel_settings *p = &s->parallel;
  int64_t tp = p->tensor_model_parallel_size, cp = p->context_parallel_size;
  int64_t pp = p->pipeline_model_parallel_size;
  int64_t ep = p->expert_model_parallel_size, etp = p->expert_tensor_parallel_size;
  const struct {
    int64_t size, stride;
  } groups[COMM_GROUPS] = {
    [GROUP_TP] = { tp, 1 },
    [GROUP_CP] = { cp, tp },
    [GROUP_TP_CP] = { tp * cp, 1 },
    [GROUP_TP_DP] = { tp * cp * s->derived.data_parallel_size, 1 },
    [GROUP_EP] = { ep, etp },
    [GROUP_ETP] = { etp, 1 },
    [GROUP_TP_EP] = { etp * ep, 1 },
    [GROUP_DP] = { s->derived.data_parallel_size * cp, tp },
    [GROUP_EDP] = { s->derived.expert_data_parallel_size, etp * ep },
    [GROUP_WORLD] = { p->world_size, 1 },
    [GROUP_EMBD] = { pp > 1 ? 2 : 1, (pp - 1) * (p->world_size / pp) },
  };
  assert(groups[group].size >= 1 && groups[group].size <= UINT32_MAX &&
         groups[group].stride <= UINT32_MAX);
  call->group = (uint8_t)group;
  call->group_size = (uint32_t)groups[group].size;
  call->group_stride = (uint32_t)groups[group].stride;
}

plan_call collective_call(const settings *s, collective_kind kind, comm_group group, int64_t bytes)
{
  plan_call call;
  assert(bytes >= 0);
  memset(&call, 0, sizeof call); /* compared as bytes */
  call.is_collective = 1;
  call.kind = (uint8_t)kind;
  set_group(s, group, &call);
  call.bytes = bytes;
  return call;
}
