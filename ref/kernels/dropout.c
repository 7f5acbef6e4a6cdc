/* Dropout alone, and with a bias before and a residual after it. */
#include "ref/kernels/dropout.h"

#include <assert.h>
#include <stdlib.h>

#include "ref/kernels/functions.h"
#include "ref/kernels/storage.h"

/* The output function of splitmix64. */
static uint64_t mixed(uint64_t z)
{
  z += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

uint64_t ref_dropout_key(const exec_call *c)
{
  uint64_t key = mixed(c->step->seed);
  key = mixed(key ^ c->step->number);
  key = mixed(key ^ c->microbatch);
  key = mixed(key ^ c->rank->group[GROUP_DP].index);
  key = mixed(key ^ (uint32_t)c->site->layer);
  for (const char *letter = c->site->module; *letter != '\0'; letter++)
    key = mixed(key ^ (unsigned char)*letter);
  return key;
}

bool ref_is_kept(uint64_t key, uint64_t element, double probability)
{
  return (double)(mixed(key ^ element) >> 11) * 0x1p-53 >= probability;
}

/* Kept elements are multiplied by this. */
static real kept_factor(const exec_call *c)
{
  assert(c->call->scalars[0] >= 0 && c->call->scalars[0] < 1);
  return 1 / (1 - ref_scalar(c, 0));
}

/* The number of the rank's element `i` in the whole tensor, which has `split` blocks (a scalar; 0:
 * all ranks have the whole tensor). The TP ranks have equal parts of each block, in order. */
static uint64_t element_of_all(const exec_call *c, int64_t count, int64_t i)
{
  uint64_t blocks = (uint64_t)c->call->scalars[1], k = (uint64_t)i;
  if (blocks == 0) return k;
  exec_position of = c->rank->group[GROUP_TP];
  uint64_t part = (uint64_t)count / blocks;
  return (k / part * of.size + of.index) * part + k % part;
}

static real dropped_out(real x, bool kept, real factor)
{
  return kept ? x * factor : 0;
}

/* reads x, writes y and the mask: 1 for kept elements. */
void ref_dropout_forward(const exec_call *c)
{
  int64_t count = exec_elements(&c->reads[0]);
  uint64_t key = ref_dropout_key(c);
  real factor = kept_factor(c);
  assert(REF_WRITES(c, count, count));
  for (int64_t i = 0; i < count; i++) {
    bool kept = ref_is_kept(key, element_of_all(c, count, i), c->call->scalars[0]);
    ref_store(&c->writes[0], i, dropped_out(ref_load(&c->reads[0], i), kept, factor));
    ref_store_int(&c->writes[1], i, kept);
  }
}

/* reads gy[, mask], writes gx = gy 1/(1 - p) where kept. */
void ref_dropout_backward(const exec_call *c)
{
  int64_t count = exec_elements(&c->reads[0]);
  real factor = c->read_count > 1 ? kept_factor(c) : 1;
  assert(REF_WRITES(c, count));
  assert(c->read_count == 1 || exec_elements(&c->reads[1]) == count);
  for (int64_t i = 0; i < count; i++) {
    bool kept = c->read_count == 1 || ref_load_int(&c->reads[1], i) != 0;
    ref_store(&c->writes[0], i, dropped_out(ref_load(&c->reads[0], i), kept, factor));
  }
}

/* Drops elements of the row of x that begins with element `first`, and writes their mask. */
static void drop_row(const exec_call *c, int64_t first, int64_t width, real *x)
{
  int64_t count = exec_elements(&c->reads[0]);
  uint64_t key = ref_dropout_key(c);
  real factor = kept_factor(c);
  for (int64_t i = 0; i < width; i++) {
    bool kept = ref_is_kept(key, element_of_all(c, count, first + i), c->call->scalars[0]);
    x[i] = dropped_out(x[i], kept, factor);
    ref_store_int(&c->writes[1], first + i, kept);
  }
}

/* y = dropout(x + bias) + residual, rounded once. reads x, residual[, bias], writes y[, mask];
 * without a mask nothing is dropped. */
void ref_bias_dropout_add_forward(const exec_call *c)
{
  int64_t count = exec_elements(&c->reads[0]);
  bool has_bias = c->read_count > 2, has_mask = c->write_count > 1;
  int64_t width = has_bias ? exec_elements(&c->reads[2]) : count;
  real *x = ref_reals(3 * width), *residual = x + width, *bias = residual + width;
  assert(exec_elements(&c->reads[1]) == count && exec_elements(&c->writes[0]) == count);
  assert(count % width == 0 && (!has_mask || exec_elements(&c->writes[1]) == count));
  if (has_bias) ref_load_row(&c->reads[2], 0, width, bias);
  for (int64_t first = 0; first < count; first += width) {
    ref_load_row(&c->reads[0], first, width, x);
    ref_load_row(&c->reads[1], first, width, residual);
    for (int64_t i = 0; has_bias && i < width; i++)
      x[i] += bias[i];
    if (has_mask) drop_row(c, first, width, x);
    for (int64_t i = 0; i < width; i++)
      x[i] += residual[i];
    ref_store_row(&c->writes[0], first, width, x);
  }
  free(x);
}
