/*
 * quantize: reads rows of floats, writes copies of them in fp8, one operand or two.
 * fp8_transpose: reads rowwise copies with one scale or none, one or several, and writes columnwise
 * ones of the same codes.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "ref/kernels/fp8.h"
#include "ref/kernels/functions.h"
#include "ref/kernels/storage.h"

enum { FP8_ELEMENTS };                               /* dims of both */
enum { FP8_COLUMNS, QUANTIZE_FP8, QUANTIZE_COPIES }; /* scalars; the first of both */

static int64_t columns_of(const exec_call *c)
{
  return (int64_t)c->call->scalars[FP8_COLUMNS];
}

static void write_copies(int code, fp8_matrix rows, fp8_copies copies, const exec_tensor *to)
{
  fp8_matrix columns = fp8_transposed(rows);
  fp8_buffer b = fp8_buffer_of(to);
  if (copies & FP8_ROWWISE) {
    fp8_quantize(code, &rows, b.data);
    b.data += fp8_copy_bytes(fp8_scaling_of(code), rows.outer, rows.inner);
  }
  if (copies & FP8_COLUMNWISE) fp8_quantize(code, &columns, b.data);
}

static int64_t copies_bytes(int code, fp8_matrix rows, fp8_copies copies)
{
  fp8_scaling s = fp8_scaling_of(code);
  return (copies & FP8_ROWWISE ? fp8_copy_bytes(s, rows.outer, rows.inner) : 0) +
         (copies & FP8_COLUMNWISE ? fp8_copy_bytes(s, rows.inner, rows.outer) : 0);
}

void ref_quantize(const exec_call *c)
{
  int code = (int)c->call->scalars[QUANTIZE_FP8], copies = (int)c->call->scalars[QUANTIZE_COPIES];
  int64_t columns = columns_of(c), elements = exec_dim(c, FP8_ELEMENTS);
  assert(c->read_count == 1 && exec_elements(&c->reads[0]) == elements);
  fp8_matrix rows = { ref_reals(elements), elements / columns, columns, columns, 1 };
  ref_load_row(&c->reads[0], 0, elements, rows.data);
  for (uint32_t i = 0; i < c->write_count; i++, copies /= FP8_COPIES_SECOND) {
    fp8_copies these = (fp8_copies)(copies % FP8_COPIES_SECOND);
    assert(exec_elements(&c->writes[i]) == copies_bytes(code, rows, these));
    write_copies(code, rows, these, &c->writes[i]);
  }
  free(rows.data);
}

void ref_fp8_transpose(const exec_call *c)
{
  fp8_buffer from = fp8_buffer_of(&c->reads[0]), to = fp8_buffer_of(&c->writes[0]);
  int64_t columns = columns_of(c), rows = exec_dim(c, FP8_ELEMENTS) / columns / from.parts;
  assert(from.parts == to.parts && from.part_bytes == to.part_bytes);
  for (int64_t p = 0; p < from.parts; p++) {
    const uint8_t *source = from.data + p * from.part_bytes;
    uint8_t *target = to.data + p * to.part_bytes;
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < columns; j++)
        target[j * rows + i] = source[i * columns + j];
    memcpy(target + rows * columns, source + rows * columns,
           (size_t)(from.part_bytes - rows * columns));
  }
}
