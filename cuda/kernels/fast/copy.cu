/*
 * Copies. Between equal types bits move unchanged, in pieces as wide as all operands allow;
 * otherwise each number is converted. Several operands count as one row of elements.
 */
#include "cuda/kernels/fast/copy.cuh"
#include "cuda/kernels/fast/map.cuh"

enum { MOVE_THREADS = 256 };

template <class P>
__global__ void __launch_bounds__(MOVE_THREADS) move_kernel(layout from, layout to, uint32_t units)
{
  uint32_t i = blockIdx.x * MOVE_THREADS + threadIdx.x;
  if (i < units) ((P *)to.data)[place_of(to, i)] = ((const P *)from.data)[place_of(from, i)];
}

/* Strides in pieces of `by` elements. */
static void in_pieces(layout *l, int64_t by)
{
  for (int d = 0; d < l->rank; d++)
    l->stride[d] /= by;
}

/* The widest pieces, in bytes, that both can be cut into; 0: none. */
static int64_t pieces_of(const tensor &from, const tensor &to, layout *source, layout *target)
{
  int64_t size = size_of(from);
  for (int64_t bytes = 16; bytes >= size; bytes /= 2) {
    int64_t unit = bytes / size;
    if (layout_of(from, unit, unit, source) && layout_of(to, unit, unit, target)) {
      in_pieces(source, unit);
      in_pieces(target, unit);
      return bytes;
    }
  }
  return 0;
}

template <class P> static void move(cuda_call *c, const layout &from, const layout &to, int64_t n)
{
  uint32_t units = (uint32_t)n;
  move_kernel<P><<<blocks_of(n, MOVE_THREADS), MOVE_THREADS, 0, stream_of(c)>>>(from, to, units);
  launched(c);
}

struct same_number {
  __device__ void operator()(const float *x, float *y) const
  {
    y[0] = x[0];
  }
};

static bool pair_suits(const tensor &from, const tensor &to)
{
  layout source, target;
  if (from.type == to.type) return pieces_of(from, to, &source, &target) > 0;
  return map_suits<1, 1>(&from, &to);
}

static void copy_pair(cuda_call *c, const tensor &from, const tensor &to)
{
  layout source, target;
  int64_t bytes = elements_of(from) * size_of(from);
  if (bytes == 0 || c->failure != NULL) return;
  if (from.type != to.type) return map<1, 1>(c, &from, &to, same_number{});
  int64_t piece = pieces_of(from, to, &source, &target);
  switch (piece) {
  case 16: return move<uint4>(c, source, target, bytes / piece);
  case 8: return move<uint2>(c, source, target, bytes / piece);
  case 4: return move<uint32_t>(c, source, target, bytes / piece);
  case 2: return move<uint16_t>(c, source, target, bytes / piece);
  default: return move<uint8_t>(c, source, target, bytes / piece);
  }
}

extern "C" bool fast_copy_pair_suits(const tensor *from, const tensor *to)
{
  return pair_suits(*from, *to);
}

extern "C" void fast_copy_pair(cuda_call *c, const tensor *from, const tensor *to)
{
  copy_pair(c, *from, *to);
}

/* Elements first .. first + count - 1 of `t` as a tensor, if they are one. */
static bool part_of(const tensor &t, int64_t first, int64_t count, tensor *part)
{
  int64_t elements = elements_of(t);
  *part = t;
  if (count == elements) return true;
  if (is_contiguous(t)) {
    part->rank = 1;
    part->shape[0] = count;
    part->strides[0] = 1;
    part->data = (char *)t.data + first * size_of(t);
    return true;
  }
  int64_t row = elements / t.shape[0];
  part->shape[0] = count / row;
  part->data = (char *)t.data + first / row * t.strides[0] * size_of(t);
  return first % row == 0 && count % row == 0;
}

/* The parts of reads and writes that belong together, one after the other; false at the first that
 * `visit` refuses. */
template <class F> static bool for_each_pair(const exec_call *c, F visit)
{
  uint32_t r = 0, w = 0;
  int64_t from = 0, to = 0;
  while (r < c->read_count && w < c->write_count) {
    int64_t left = elements_of(c->reads[r]) - from, room = elements_of(c->writes[w]) - to;
    int64_t count = left < room ? left : room;
    tensor source, target;
    if (count > 0 && (!part_of(c->reads[r], from, count, &source) ||
                      !part_of(c->writes[w], to, count, &target) || !visit(source, target)))
      return false;
    from = left == count ? 0 : from + count;
    to = room == count ? 0 : to + count;
    r += left == count;
    w += room == count;
  }
  return true;
}

KERNEL_SUITS(copy)
{
  return for_each_pair(c, pair_suits);
}

KERNEL_LAUNCH(copy)
{
  for_each_pair(c->of, [c](const tensor &from, const tensor &to) {
    copy_pair(c, from, to);
    return true;
  });
}

/* ---- parts of a tensor ----------------------------------------------------------------------- */

static bool own_part(const exec_call *c, tensor *part)
{
  const exec_position *own = &c->rank->group[(int)c->call->scalars[0]];
  int64_t count = elements_of(c->writes[0]);
  return part_of(c->reads[0], count * own->index, count, part);
}

KERNEL_SUITS(own_part)
{
  tensor part;
  return own_part(c, &part) && pair_suits(part, c->writes[0]);
}

KERNEL_LAUNCH(own_part)
{
  tensor part;
  if (own_part(c->of, &part)) copy_pair(c, part, c->of->writes[0]);
}

/* ---- rows side by side ----------------------------------------------------------------------- */

enum { JOIN_ROWS, JOIN_WIDTHS, JOIN_MOST = PLAN_DIMS - JOIN_WIDTHS };

struct nothing {
  __device__ void operator()(const float *, float *y) const
  {
    y[0] = 0;
  }
};

/* Each part of what is written with what is read for it; NULL: zeros. */
template <class F> static bool for_each_part(const exec_call *c, F visit)
{
  const int64_t *width = c->call->dims + JOIN_WIDTHS;
  int64_t rows = c->call->dims[JOIN_ROWS], first = 0;
  uint32_t read = 0;
  for (uint32_t k = 0; k < JOIN_MOST; first += width[k++]) {
    bool missing = (uint32_t)c->call->scalars[0] >> k & 1;
    if (width[k] == 0) continue;
    if (!visit(missing ? NULL : &c->reads[read], row_columns(c->writes[0], rows, first, width[k])))
      return false;
    read += !missing;
  }
  return true;
}

KERNEL_SUITS(join)
{
  return is_contiguous(c->writes[0]) && for_each_part(c, [](const tensor *from, const tensor &to) {
           return from != NULL ? pair_suits(*from, to) : map_suits<1, 1>(&to, &to);
         });
}

KERNEL_LAUNCH(join)
{
  for_each_part(c->of, [c](const tensor *from, const tensor &to) {
    if (from != NULL)
      copy_pair(c, *from, to);
    else
      map<1, 1>(c, &to, &to, nothing{});
    return true;
  });
}

/* ---- rows several times ---------------------------------------------------------------------- */

static bool repeated(const exec_call *c, tensor *x)
{
  int64_t times = (int64_t)c->call->scalars[0], width = (int64_t)c->call->scalars[1];
  *x = c->reads[0];
  x->rank = 3;
  x->shape[0] = elements_of(c->reads[0]) / width;
  x->shape[1] = times;
  x->shape[2] = width;
  x->strides[0] = width;
  x->strides[1] = 0;
  x->strides[2] = 1;
  return is_contiguous(c->reads[0]);
}

KERNEL_SUITS(repeat_forward)
{
  tensor x;
  return repeated(c, &x) && pair_suits(x, c->writes[0]);
}

KERNEL_LAUNCH(repeat_forward)
{
  tensor x;
  if (repeated(c->of, &x)) copy_pair(c, x, c->of->writes[0]);
}
