#include "sim/operators/fp8.h"

#include <assert.h>

#include "sim/graph/fp8.h"

static int64_t quantized_bytes(const emitter *e, int code, const fp8_source *from, ref first,
                               ref second)
{
  int64_t read = emit_bytes(e, from->x), written = emit_bytes(e, first);
  bool finds_amax = code % FP8_SCALINGS == FP8_TENSOR && !from->has_amax;
  if (second != 0) written += emit_bytes(e, second);
  return read + written + (finds_amax ? read : 0);
}

void emit_quantize(emitter *e, int code, fp8_source from, fp8_target first, fp8_target second)
{
  assert(from.rows > 0 && from.columns > 0 && (first.buffer != 0 || second.buffer != 0));
  if (first.buffer == 0) {
    first = second;
    second = (fp8_target){ 0, FP8_NO_COPY };
  }
  if (second.buffer == 0) second.copies = FP8_NO_COPY; /* equal calls move equal bytes */
  int copies = (int)first.copies + FP8_COPIES_SECOND * (int)second.copies;
  emit_kernel(
      e,
      (kernel_shape){ .kind = KERNEL_QUANTIZE,
                      .type = DTYPE_FP8,
                      .dims = { from.rows * from.columns, from.experts },
                      .scalars = { (double)from.columns, code, copies },
                      .bytes = quantized_bytes(e, code, &from, first.buffer, second.buffer) },
      (ref[]){ from.x, 0 }, (ref[]){ first.buffer, second.buffer, 0 });
}

fp8_gradient emit_quantize_gradient(emitter *e, fp8_source gradient, ref buffer)
{
  const settings *s = emit_settings(e);
  fp8_copies copies = fp8_gradient_copies(s);
  int64_t rowwise = fp8_rowwise_bytes(s, gradient.rows, gradient.columns);
  int64_t columnwise = fp8_gradient_bytes(s, gradient.rows, gradient.columns) - rowwise;
  assert((copies == FP8_BOTH) == (columnwise > 0));
  emit_quantize(e, fp8_code(s, true), gradient, (fp8_target){ buffer, copies },
                (fp8_target){ 0, FP8_NO_COPY });
  ref first = emit_strided(e, buffer, DTYPE_FP8, 0, 1, &rowwise, NULL);
  if (copies != FP8_BOTH) return (fp8_gradient){ first, first };
  return (fp8_gradient){ first, emit_strided(e, buffer, DTYPE_FP8, rowwise, 1, &columnwise, NULL) };
}
