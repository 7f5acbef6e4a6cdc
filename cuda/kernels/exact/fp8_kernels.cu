/* ref/kernels/fp8_kernels.c for GPUs. */
#include "cuda/kernels/exact/fp8.cuh"

enum { FP8_ELEMENTS };                               /* dims of both */
enum { FP8_COLUMNS, QUANTIZE_FP8, QUANTIZE_COPIES }; /* scalars; the first of both */

static int64_t columns_of(const exec_call *c)
{
  return (int64_t)c->call->scalars[FP8_COLUMNS];
}

static fp8_view rows_of(const exec_call *c)
{
  int64_t columns = columns_of(c);
  fp8_view rows = { read_of(c, 0), dim_of(c, FP8_ELEMENTS) / columns, columns, columns, 1 };
  return rows;
}

/* An operand that is already in fp8 may be quantised in place: then its numbers are copied
 * first. */
static fp8_view numbers_of(cuda_call *c, const exec_call *of, scratch_arena *room)
{
  fp8_view rows = rows_of(of);
  if (rows.t.type != DTYPE_FP8) return rows;
  int64_t elements = dim_of(of, FP8_ELEMENTS);
  float *copy = take<float>(room, elements);
  tensor from = rows.t, to = { copy, DTYPE_FP32, 1, { elements }, { 1 } };
  rows.t = to;
  if (c != NULL)
    for_each(
        c, elements, KERNEL_LAMBDA(int64_t i) { copy[i] = load(from, i); });
  return rows;
}

/* Magnitudes, of one copy after the other. */
static uint32_t *take_magnitudes(scratch_arena *a, const exec_call *c)
{
  int code = (int)c->call->scalars[QUANTIZE_FP8];
  fp8_view rows = rows_of(c);
  int64_t by_row = fp8_tiles_of(code, false, rows.outer, rows.inner).count;
  int64_t by_column = fp8_tiles_of(code, false, rows.inner, rows.outer).count;
  return take<uint32_t>(a, by_row > by_column ? by_row : by_column);
}

extern "C" int64_t EXACT(quantize_scratch)(const exec_call *c)
{
  scratch_arena a = arena_of_nothing();
  (void)take_magnitudes(&a, c);
  (void)numbers_of(NULL, c, &a);
  return a.used;
}

static void write_copies(cuda_call *c, fp8_view rows, fp8_copies copies, tensor to,
                         uint32_t *largest)
{
  int code = (int)c->of->call->scalars[QUANTIZE_FP8];
  uint8_t *copy = fp8_buffer_of(to).data;
  if (copies & FP8_ROWWISE) {
    fp8_quantize(c, code, rows, copy, largest);
    copy += fp8_copy_bytes(fp8_scaling_of(code), rows.outer, rows.inner);
  }
  if (copies & FP8_COLUMNWISE) fp8_quantize(c, code, fp8_turned(rows), copy, largest);
}

extern "C" void EXACT(quantize)(cuda_call *c)
{
  scratch_arena room = arena_of(c);
  int copies = (int)c->of->call->scalars[QUANTIZE_COPIES];
  uint32_t *largest = take_magnitudes(&room, c->of);
  fp8_view rows = numbers_of(c, c->of, &room);
  assert(c->of->read_count == 1 && elements_of(c->of->reads[0]) == dim_of(c->of, FP8_ELEMENTS));
  for (uint32_t i = 0; i < c->of->write_count; i++, copies /= FP8_COPIES_SECOND)
    write_copies(c, rows, (fp8_copies)(copies % FP8_COPIES_SECOND), c->of->writes[i], largest);
}

extern "C" void EXACT(fp8_transpose)(cuda_call *c)
{
  fp8_buffer from = fp8_buffer_of(c->of->reads[0]), to = fp8_buffer_of(c->of->writes[0]);
  int64_t columns = columns_of(c->of), rows = dim_of(c->of, FP8_ELEMENTS) / columns / from.parts;
  assert(from.parts == to.parts && from.part_bytes == to.part_bytes);
  for_each(
      c, from.parts * from.part_bytes, KERNEL_LAMBDA(int64_t n) {
        int64_t part = n / from.part_bytes, i = n % from.part_bytes;
        int64_t source = i < rows * columns ? i % rows * columns + i / rows : i;
        to.data[n] = from.data[part * from.part_bytes + source];
      });
}
