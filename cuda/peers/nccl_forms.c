/* The collectives that NCCL supports, and those for which it needs rows. */
#include <assert.h>

#include "cuda/peers/nccl_state.h"
#include "sim/base/units.h"

int64_t nccl_row_elements(const exec_tensor *operands, uint32_t count)
{
  int64_t elements = 0;
  for (uint32_t i = 0; i < count; i++)
    elements += exec_elements(&operands[i]);
  return elements;
}

static bool are_of_type(const exec_tensor *operands, uint32_t count, uint8_t type)
{
  for (uint32_t i = 0; i < count; i++)
    if (operands[i].type != type) return false;
  return true;
}

static bool is_integer(const exec_tensor *t)
{
  return t->type == DTYPE_INT32 || t->type == DTYPE_INT64;
}

bool nccl_suits(const exec_call *c, uint32_t members)
{
  collective_kind kind = (collective_kind)c->call->kind;
  assert(c->read_count > 0 && c->write_count > 0);
  bool moves =
      kind == COLLECTIVE_ALL_GATHER || kind == COLLECTIVE_ALL_TO_ALL || kind == COLLECTIVE_SHIFT;
  uint32_t times = kind == COLLECTIVE_ALL_GATHER ? members : 1;
  uint32_t over = kind == COLLECTIVE_REDUCE_SCATTER ? members : 1;
  int64_t read = nccl_row_elements(c->reads, c->read_count);
  /* Rows that are routed by an index (ref/kernels/moe_exchange.h, moe_flex.h). */
  if (c->read_count > 1 && is_integer(&c->reads[1])) return false;
  if (members < 2 || (!moves && c->reads[0].type == DTYPE_FP8)) return false;
  return are_of_type(c->reads, c->read_count, c->reads[0].type) &&
         are_of_type(c->writes, c->write_count, c->reads[0].type) &&
         read * times == nccl_row_elements(c->writes, c->write_count) * over &&
         (kind != COLLECTIVE_ALL_TO_ALL || read % members == 0);
}

/* Operands are a row (ref/kernels/collectives.c): several are exchanged one by one only if that has
 * the same result. */
bool nccl_is_direct(const exec_call *c)
{
  collective_kind kind = (collective_kind)c->call->kind;
  bool reduces = kind == COLLECTIVE_ALL_REDUCE || kind == COLLECTIVE_ALL_REDUCE_MAX;
  bool direct = c->read_count == c->write_count && (reduces || c->read_count == 1);
  for (uint32_t i = 0; direct && i < c->read_count; i++)
    direct = exec_is_contiguous(&c->reads[i]) && exec_is_contiguous(&c->writes[i]) &&
             (!reduces || exec_elements(&c->reads[i]) == exec_elements(&c->writes[i]));
  return direct;
}

int64_t nccl_row_bytes(const exec_tensor *operands, uint32_t count)
{
  const int64_t alignment = 256;
  assert(count > 0);
  return round_up(nccl_row_elements(operands, count) * dtype_bytes((dtype)operands[0].type),
                  alignment);
}

int64_t nccl_scratch(const exec_call *c)
{
  if (nccl_is_direct(c)) return 0;
  return nccl_row_bytes(c->reads, c->read_count) + nccl_row_bytes(c->writes, c->write_count);
}
