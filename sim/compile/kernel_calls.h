/* Calls of kernels that no operator of a graph makes, and views of elements in a row of a buffer. */
#ifndef OFFSIM_SIM_COMPILE_KERNEL_CALLS_H
#define OFFSIM_SIM_COMPILE_KERNEL_CALLS_H

#include <assert.h>
#include <string.h>

#include "sim/plan/plan.h"

/* Without dims, scalars and views, which the caller adds. */
static inline plan_call kernel_call(kernel_kind kind, dtype type, int64_t bytes)
{
  plan_call call;
  assert(bytes >= 0);
  memset(&call, 0, sizeof call); /* compared as bytes */
  call.kind = (uint8_t)kind;
  call.dtype = (uint8_t)type;
  call.bytes = bytes;
  return call;
}

/* `count` elements of a buffer, from number `first` on. */
static inline plan_view elements_from(dtype type, int64_t first, int64_t count)
{
  assert(first >= 0 && count > 0);
  return (plan_view){
    .dtype = (uint8_t)type, .rank = 1, .offset = first, .shape = { count }, .strides = { 1 }
  };
}

#endif
