/*
 * Equal chunks of rows in another order: ref/kernels/moe_layout.c. What is read, seen chunk by
 * chunk in the order in which they are written, is copied as one tensor, in pieces as wide as
 * chunks allow.
 */
#include "cuda/kernels/fast/copy.cuh"

enum { CHUNK_ROWS, CHUNK_WIDTH, CHUNK_OUTER, CHUNK_INNER }; /* dims */
enum { NUMBER_THREADS = 256 };

/* [outer, inner, ..] as [inner, outer, ..]. */
static bool turned(const tensor &from, int64_t outer, int64_t inner, tensor *x)
{
  *x = from;
  if (elements_of(from) % (outer * inner) != 0) return false;
  if (outer == 1 || inner == 1) return true;
  int64_t chunk = elements_of(from) / (outer * inner);
  x->rank = 3;
  x->shape[0] = inner;
  x->shape[1] = outer;
  x->shape[2] = chunk;
  x->strides[0] = chunk;
  x->strides[1] = inner * chunk;
  x->strides[2] = 1;
  return is_contiguous(from);
}

/* Everything that is written, with what is copied there; NULL: numbers of rows. False at the first
 * that `visit` refuses. */
template <class F> static bool for_each_write(const exec_call *c, bool backward, F visit)
{
  const int64_t *dims = c->call->dims;
  int64_t outer = dims[backward ? CHUNK_INNER : CHUNK_OUTER];
  int64_t inner = dims[backward ? CHUNK_OUTER : CHUNK_INNER];
  uint32_t next = 0;
  if (outer <= 0 || inner <= 0 || dims[CHUNK_ROWS] % (outer * inner) != 0) return false;
  for (uint32_t i = 0; i < c->write_count; i++) {
    const tensor &to = c->writes[i];
    bool numbers = !backward && to.type == DTYPE_INT32;
    tensor from;
    if (!numbers && (next == c->read_count || !turned(c->reads[next++], outer, inner, &from)))
      return false;
    if (!visit(numbers ? NULL : &from, to)) return false;
  }
  return true;
}

static bool suits(const exec_call *c, bool backward)
{
  return for_each_write(c, backward, [](const tensor *from, const tensor &to) {
    layout l;
    if (from == NULL) return layout_of(to, 1, 1, &l);
    return elements_of(*from) == elements_of(to) && fast_copy_pair_suits(from, &to);
  });
}

__global__ void __launch_bounds__(NUMBER_THREADS) numbers_kernel(layout to, uint32_t count)
{
  uint32_t i = blockIdx.x * NUMBER_THREADS + threadIdx.x;
  if (i < count) store_index(to, i, i);
}

static void write_numbers(cuda_call *c, const tensor &to)
{
  int64_t count = elements_of(to);
  layout l;
  if (count == 0 || c->failure != NULL || !layout_of(to, 1, 1, &l)) return;
  numbers_kernel<<<blocks_of(count, NUMBER_THREADS), NUMBER_THREADS, 0, stream_of(c)>>>(
      l, (uint32_t)count);
  launched(c);
}

static void sort_chunks(cuda_call *c, bool backward)
{
  for_each_write(c->of, backward, [c](const tensor *from, const tensor &to) {
    if (from != NULL)
      fast_copy_pair(c, from, &to);
    else
      write_numbers(c, to);
    return true;
  });
}

KERNEL_SUITS(moe_sort_chunks_forward)
{
  return suits(c, false);
}

KERNEL_LAUNCH(moe_sort_chunks_forward)
{
  sort_chunks(c, false);
}

KERNEL_SUITS(moe_sort_chunks_backward)
{
  return suits(c, true);
}

KERNEL_LAUNCH(moe_sort_chunks_backward)
{
  sort_chunks(c, true);
}
