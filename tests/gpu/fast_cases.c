#include "tests/gpu/fast_cases.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/array.h"

fast_case *add_case(fast_cases *cases, const char *name, kernel_kind kind)
{
  fast_case *c = ARRAY_PUSH(cases);
  memset(c, 0, sizeof *c);
  (void)snprintf(c->name, sizeof c->name, "%s", name);
  c->call.kind = (uint8_t)kind;
  return c;
}

void set_dims(fast_case *c, int count, ...)
{
  va_list dims;
  va_start(dims, count);
  for (int i = 0; i < count; i++)
    c->call.dims[i] = va_arg(dims, int64_t);
  va_end(dims);
}

static exec_tensor contiguous(dtype type, int rank, va_list sizes)
{
  exec_tensor t = { .type = (uint8_t)type, .rank = (uint8_t)rank };
  int64_t next = 1;
  for (int d = 0; d < rank; d++)
    t.shape[d] = va_arg(sizes, int64_t);
  for (int d = rank; d-- > 0; next *= t.shape[d])
    t.strides[d] = next;
  return t;
}

fast_operand *add_read(fast_case *c, dtype type, fast_data holds, int rank, ...)
{
  va_list sizes;
  assert(c->read_count < FAST_OPERANDS);
  fast_operand *o = &c->reads[c->read_count++];
  va_start(sizes, rank);
  *o = (fast_operand){ .tensor = contiguous(type, rank, sizes), .holds = holds };
  va_end(sizes);
  return o;
}

fast_operand *add_write(fast_case *c, dtype type, int rank, ...)
{
  va_list sizes;
  assert(c->write_count < sizeof c->writes / sizeof c->writes[0]);
  fast_operand *o = &c->writes[c->write_count++];
  va_start(sizes, rank);
  *o = (fast_operand){ .tensor = contiguous(type, rank, sizes), .holds = DATA_ZERO };
  va_end(sizes);
  return o;
}
