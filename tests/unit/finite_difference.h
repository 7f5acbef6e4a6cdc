/*
 * Backward kernels against central differences of the forward ones. A test links
 * //ref/kernels:kernels_double, lays out fp64 arrays, and says how to run forward and backward on
 * them.
 *
 * With L = sum over outputs of y gy, a backward that is right gives gx = dL/dx for every input
 * element. The harness runs backward once, then forward twice for each element of each input.
 *
 *     static void forward(void *state) { run_kernel(KERNEL_X, ...); }
 *     ...
 *     assert_gradients((gradient_check){
 *         .forward = forward, .backward = backward, .state = &t,
 *         .outputs = { { y, gy, 12 } },
 *         .inputs = { { x, gx, 12 }, { gamma, ggamma, 4 } } });
 */
#ifndef OFFSIM_TESTS_UNIT_FINITE_DIFFERENCE_H
#define OFFSIM_TESTS_UNIT_FINITE_DIFFERENCE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ref/kernels/kernel.h"

enum { GRADIENT_TENSORS = 8 };

/* Of an output: its values and the gradient that comes in. Of an input: its values and where
 * backward leaves the gradient. */
typedef struct checked_tensor {
  double *value;
  const double *gradient;
  int64_t count; /* 0 ends a list */
} checked_tensor;

typedef struct gradient_check {
  void (*forward)(void *state);
  void (*backward)(void *state);
  void *state;
  checked_tensor outputs[GRADIENT_TENSORS];
  checked_tensor inputs[GRADIENT_TENSORS];
} gradient_check;

/* ---- filling and calling --------------------------------------------------------------------- */

/* Numbers in (-1, 1) that depend on nothing but `seed` and their index. */
static inline void fill_with_noise(double *x, int64_t count, uint64_t seed)
{
  for (int64_t i = 0; i < count; i++) {
    uint64_t z = (seed + (uint64_t)i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    x[i] = (double)((z ^ z >> 31) >> 11) * 0x1p-52 - 1;
  }
}

/* A contiguous tensor; dimensions that are 0 end the shape. */
static inline exec_tensor tensor_of(void *data, dtype type, int64_t d0, int64_t d1, int64_t d2,
                                    int64_t d3)
{
  const int64_t shape[4] = { d0, d1, d2, d3 };
  exec_tensor t = { .data = data, .type = (uint8_t)type };
  while (t.rank < 4 && shape[t.rank] != 0) {
    t.shape[t.rank] = shape[t.rank];
    t.rank++;
  }
  int64_t next = 1;
  for (int d = t.rank; d-- > 0; next *= t.shape[d])
    t.strides[d] = next;
  return t;
}

static inline exec_tensor numbers(double *data, int64_t d0, int64_t d1)
{
  return tensor_of(data, DTYPE_FP64, d0, d1, 0, 0);
}

/* A kernel's arguments besides its operands: those of the plan's call. */
typedef struct kernel_call {
  kernel_kind kind;
  int64_t dims[PLAN_DIMS];
  double scalars[PLAN_SCALARS];
} kernel_call;

/* As rank 0 of groups of one, in step 0; operands without data end their list. */
static inline void run_kernel(kernel_call k, const exec_tensor *reads, const exec_tensor *writes)
{
  plan_call call = { .kind = (uint8_t)k.kind };
  exec_rank rank = { .global = 0 };
  exec_step step = { .seed = 1 };
  plan_site site = { .module = "tested", .layer = 0 };
  exec_call c = { .call = &call, .reads = reads, .writes = writes, .site = &site };
  c.rank = &rank;
  c.step = &step;
  memcpy(call.dims, k.dims, sizeof call.dims);
  memcpy(call.scalars, k.scalars, sizeof call.scalars);
  for (int i = 0; i < COMM_GROUPS; i++)
    rank.group[i].size = 1;
  while (reads[c.read_count].data != NULL)
    c.read_count++;
  while (writes[c.write_count].data != NULL)
    c.write_count++;
  assert_non_null(ref_kernels[k.kind]);
  ref_kernels[k.kind](&c);
}

/* ---- differences ----------------------------------------------------------------------------- */

static inline double weighted_outputs(const gradient_check *check)
{
  double sum = 0;
  check->forward(check->state);
  for (int o = 0; o < GRADIENT_TENSORS && check->outputs[o].count != 0; o++)
    for (int64_t i = 0; i < check->outputs[o].count; i++)
      sum += check->outputs[o].value[i] * check->outputs[o].gradient[i];
  return sum;
}

static inline double central_difference(const gradient_check *check, double *x)
{
  const double kept = *x, step = 0x1p-16 * (kept * kept > 1 ? (kept > 0 ? kept : -kept) : 1);
  *x = kept + step;
  double above = weighted_outputs(check);
  *x = kept - step;
  double below = weighted_outputs(check);
  *x = kept;
  return (above - below) / (2 * step);
}

static inline double magnitude_of(double x)
{
  return x < 0 ? -x : x;
}

/* For every input: max |analytic - numeric| <= 1e-6 max |numeric|. An input without any gradient
 * must have been given one of zeros. */
static inline void assert_gradients(gradient_check check)
{
  check.forward(check.state);
  check.backward(check.state);
  for (int n = 0; n < GRADIENT_TENSORS && check.inputs[n].count != 0; n++) {
    const checked_tensor *t = &check.inputs[n];
    double largest = 0, error = 0;
    int64_t at = 0;
    for (int64_t i = 0; i < t->count; i++) {
      double numeric = central_difference(&check, &t->value[i]);
      double off = magnitude_of(t->gradient[i] - numeric);
      if (!(off <= error)) {
        at = i;
        error = off;
      }
      if (magnitude_of(numeric) > largest) largest = magnitude_of(numeric);
    }
    if (!(error <= 1e-6 * largest || (largest < 1e-9 && error < 1e-9)))
      fail_msg("input %d, element %lld: gradient %.12g is off by %.3g, largest is %.3g", n,
               (long long)at, t->gradient[at], error, largest);
  }
  check.forward(check.state);
}

#endif
