/* Tensors that a transformer of eager PyTorch derives from positions: angles of its rotary tables,
 * causal masks. */
#include <assert.h>

#include "ref/kernels/functions.h"
#include "ref/kernels/real_math.h"
#include "ref/kernels/storage.h"

/* Writes the angles, and, where there is a second write, the angles twice side by side, in rows of
 * `width` columns. Rows are the sequences' positions one after the other: position (1 / base^(2 i /
 * width)), i = 0 .. width / 2 - 1. */
void ref_rotary_angles(const exec_call *c)
{
  enum { BASE, POSITIONS, WIDTH };
  const exec_tensor *once = &c->writes[0], *twice = &c->writes[1];
  int64_t positions = (int64_t)c->call->scalars[POSITIONS];
  int64_t width = (int64_t)c->call->scalars[WIDTH], half = width / 2;
  bool doubles = c->write_count > 1;
  assert(2 * exec_elements(once) == exec_dim(c, 0));
  assert(!doubles || exec_elements(twice) == exec_dim(c, 0));
  for (int64_t k = 0; k < exec_elements(once); k++) {
    int64_t row = k / half, i = k % half;
    real power = real_pow(ref_scalar(c, BASE), (real)(2 * i) / (real)width);
    real angle = (real)(row % positions) * (1 / power);
    ref_store(once, k, angle);
    if (!doubles) continue;
    ref_store(twice, row * width + i, angle);
    ref_store(twice, row * width + half + i, angle);
  }
}

/* Reads angles, writes the cosine and the sine of each. */
void ref_rotary_polar(const exec_call *c)
{
  assert(c->read_count == 1 && 2 * exec_elements(&c->reads[0]) == exec_dim(c, 0));
  assert(REF_WRITES(c, exec_dim(c, 0)));
  for (int64_t i = 0; i < exec_elements(&c->reads[0]); i++) {
    real angle = ref_load(&c->reads[0], i);
    ref_store(&c->writes[0], 2 * i, real_cos(angle));
    ref_store(&c->writes[0], 2 * i + 1, real_sin(angle));
  }
}

/* (x0 + i x1) (y0 + i y1), or with -y1. Reads x, y; the result may be x. */
void ref_complex_multiply(const exec_call *c)
{
  int64_t elements = exec_dim(c, 0);
  bool conjugate = c->call->scalars[0] != 0;
  assert(REF_READS(c, elements, elements) && REF_WRITES(c, elements) && elements % 2 == 0);
  for (int64_t i = 0; i < elements; i += 2) {
    real x[2] = { ref_load(&c->reads[0], i), ref_load(&c->reads[0], i + 1) };
    real y[2] = { ref_load(&c->reads[1], i), ref_load(&c->reads[1], i + 1) };
    if (conjugate) y[1] = -y[1];
    ref_store(&c->writes[0], i, x[0] * y[0] - x[1] * y[1]);
    ref_store(&c->writes[0], i + 1, x[0] * y[1] + x[1] * y[0]);
  }
}

/* Whole numbers up to the number of positions: they are exact. */
void ref_position_scale(const exec_call *c)
{
  enum { SCALE, LENGTH, FIRST };
  assert(c->read_count == 0 && REF_WRITES(c, exec_dim(c, 0)));
  for (int64_t i = 0; i < exec_dim(c, 0); i++) {
    real position = (real)i + ref_scalar(c, FIRST);
    int64_t whole = (int64_t)(position / ref_scalar(c, LENGTH));
    ref_store(&c->writes[0], i, 1 + ref_scalar(c, SCALE) * real_log((real)(1 + whole)));
  }
}

/* torch.finfo(type).min */
static real lowest(uint8_t type)
{
  if (type == DTYPE_BF16) return (real)-0x1.fep127;
  if (type == DTYPE_FP16) return (real)-0x1.ffcp15;
  return (real)-0x1.fffffep127;
}

/* Rows of the sequences, one after the other: a row's position is its number modulo the number of
 * columns. */
void ref_causal_mask(const exec_call *c)
{
  int64_t rows = exec_dim(c, 0), columns = exec_dim(c, 1);
  const exec_tensor *mask = &c->writes[0];
  assert(exec_elements(mask) == rows * columns);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t k = 0; k < columns; k++)
      ref_store(mask, i * columns + k, k <= i % columns ? 0 : lowest(mask->type));
}
