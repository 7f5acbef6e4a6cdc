#include "ref/kernels/storage.h"

#include <assert.h>
#include <stdlib.h>

#include "sim/base/diag.h"
#include "sim/base/units.h"

bool ref_have(const exec_tensor *t, uint32_t count, const int64_t *elements, size_t elements_count)
{
  if (count != elements_count) return false;
  for (uint32_t i = 0; i < count; i++)
    if (exec_elements(&t[i]) != elements[i]) return false;
  return true;
}

/* The place of element `i`, in elements from `data`. */
static int64_t place_of(const exec_tensor *t, int64_t i)
{
  int64_t place = 0;
  int d = t->rank;
  while (d-- > 0 && i >= t->shape[d]) {
    place += i % t->shape[d] * t->strides[d];
    i /= t->shape[d];
  }
  assert((d >= 0 || i == 0) && "an element after the last");
  return d < 0 ? place : place + i * t->strides[d];
}

/* ---- one element at a place ------------------------------------------------------------------ */

static real load_at(const void *data, dtype type, int64_t place)
{
  return (real)number_load(data, type, place);
}

static uint16_t real_to_bf16(real x)
{
  return sizeof x == sizeof(float) ? bf16_code((float)x)
                                   : (uint16_t)format_code(format_bf16(), (double)x);
}

static void store_at(void *data, dtype type, int64_t place, real x)
{
  if (type == DTYPE_BF16)
    ((uint16_t *)data)[place] = real_to_bf16(x);
  else
    number_store(data, type, place, (double)x);
}

real ref_load(const exec_tensor *t, int64_t i)
{
  return load_at(t->data, (dtype)t->type, place_of(t, i));
}

void ref_store(const exec_tensor *t, int64_t i, real x)
{
  store_at(t->data, (dtype)t->type, place_of(t, i), x);
}

static bool is_integer(dtype type)
{
  return type == DTYPE_BYTE || type == DTYPE_FP8 || type == DTYPE_INT32 || type == DTYPE_INT64;
}

int64_t ref_load_int(const exec_tensor *t, int64_t i)
{
  int64_t place = place_of(t, i);
  assert(is_integer((dtype)t->type));
  if (t->type == DTYPE_INT64) return ((const int64_t *)t->data)[place];
  if (t->type == DTYPE_INT32) return ((const int32_t *)t->data)[place];
  return ((const uint8_t *)t->data)[place];
}

void ref_store_int(const exec_tensor *t, int64_t i, int64_t x)
{
  int64_t place = place_of(t, i);
  assert(is_integer((dtype)t->type));
  if (t->type == DTYPE_INT64)
    ((int64_t *)t->data)[place] = x;
  else if (t->type == DTYPE_INT32)
    ((int32_t *)t->data)[place] = (int32_t)x;
  else
    ((uint8_t *)t->data)[place] = (uint8_t)x;
}

void ref_copy(const exec_tensor *from, int64_t i, const exec_tensor *to, int64_t k)
{
  size_t size = (size_t)dtype_bytes((dtype)from->type);
  if (from->type == to->type)
    memcpy((char *)to->data + (size_t)place_of(to, k) * size,
           (const char *)from->data + (size_t)place_of(from, i) * size, size);
  else if (is_integer((dtype)to->type))
    ref_store_int(to, k, ref_load_int(from, i));
  else
    ref_store(to, k,
              is_integer((dtype)from->type) ? (real)ref_load_int(from, i) : ref_load(from, i));
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* The places of consecutive elements, one after the other. */
typedef struct walk {
  const exec_tensor *t;
  int64_t index[PLAN_VIEW_DIMS];
  int64_t place;
} walk;

static walk walk_from(const exec_tensor *t, int64_t i)
{
  walk w = { .t = t, .place = place_of(t, i) };
  for (int d = t->rank; d-- > 0; i /= t->shape[d])
    w.index[d] = i % t->shape[d];
  return w;
}

static void walk_on(walk *w)
{
  for (int d = w->t->rank; d-- > 0;) {
    w->place += w->t->strides[d];
    if (++w->index[d] < w->t->shape[d]) return;
    w->place -= w->t->shape[d] * w->t->strides[d];
    w->index[d] = 0;
  }
}

/* Loads contiguous elements, with one look at the type. */
static void load_run(const exec_tensor *t, int64_t place, int64_t count, real *to)
{
  const char *data = (const char *)t->data + place * dtype_bytes((dtype)t->type);
  if (t->type == DTYPE_FP32)
    for (int64_t i = 0; i < count; i++)
      to[i] = (real)((const float *)(const void *)data)[i];
  else if (t->type == DTYPE_BF16)
    for (int64_t i = 0; i < count; i++)
      to[i] = (real)bf16_value(((const uint16_t *)(const void *)data)[i]);
  else
    for (int64_t i = 0; i < count; i++)
      to[i] = load_at(data, (dtype)t->type, i);
}

static void store_run(const exec_tensor *t, int64_t place, int64_t count, const real *from)
{
  char *data = (char *)t->data + place * dtype_bytes((dtype)t->type);
  if (t->type == DTYPE_FP32)
    for (int64_t i = 0; i < count; i++)
      ((float *)(void *)data)[i] = (float)from[i];
  else if (t->type == DTYPE_BF16)
    for (int64_t i = 0; i < count; i++)
      ((uint16_t *)(void *)data)[i] = real_to_bf16(from[i]);
  else
    for (int64_t i = 0; i < count; i++)
      store_at(data, (dtype)t->type, i, from[i]);
}

/* The number of contiguous elements from `first` on, at most `count`; 0: elements of the tensor's
 * last dimension are not contiguous. */
static int64_t run_length(const exec_tensor *t, int64_t first, int64_t count)
{
  if (exec_is_contiguous(t)) return count;
  int64_t last = t->shape[t->rank - 1];
  int64_t left = last - first % last;
  return t->strides[t->rank - 1] != 1 ? 0 : left < count ? left : count;
}

void ref_load_row(const exec_tensor *t, int64_t first, int64_t count, real *to)
{
  if (count == 0) return;
  assert(first >= 0 && first + count <= exec_elements(t));
  if (run_length(t, first, count) == 0) {
    walk w = walk_from(t, first);
    for (int64_t i = 0; i < count; i++, walk_on(&w))
      to[i] = load_at(t->data, (dtype)t->type, w.place);
    return;
  }
  for (int64_t done = 0, n; done < count; done += n) {
    n = run_length(t, first + done, count - done);
    load_run(t, place_of(t, first + done), n, to + done);
  }
}

void ref_store_row(const exec_tensor *t, int64_t first, int64_t count, const real *from)
{
  if (count == 0) return;
  assert(first >= 0 && first + count <= exec_elements(t));
  if (run_length(t, first, count) == 0) {
    walk w = walk_from(t, first);
    for (int64_t i = 0; i < count; i++, walk_on(&w))
      store_at(t->data, (dtype)t->type, w.place, from[i]);
    return;
  }
  for (int64_t done = 0, n; done < count; done += n) {
    n = run_length(t, first + done, count - done);
    store_run(t, place_of(t, first + done), n, from + done);
  }
}

void ref_fill_row(const exec_tensor *t, int64_t first, int64_t count, real x)
{
  real some[256];
  const int64_t most = sizeof some / sizeof some[0];
  for (int64_t i = 0; i < most && i < count; i++)
    some[i] = x;
  for (int64_t done = 0, n; done < count; done += n) {
    n = min_i64(count - done, most);
    ref_store_row(t, first + done, n, some);
  }
}

void ref_clear(const exec_tensor *t)
{
  if (is_integer((dtype)t->type))
    for (int64_t i = 0; i < exec_elements(t); i++)
      ref_store_int(t, i, 0);
  else
    ref_fill_row(t, 0, exec_elements(t), 0);
}

/* Copies bits unchanged. */
static void copy_bits(const exec_tensor *from, int64_t i, const exec_tensor *to, int64_t k,
                      int64_t count)
{
  size_t size = (size_t)dtype_bytes((dtype)from->type);
  const char *source = from->data;
  char *target = to->data;
  walk s = walk_from(from, i), t = walk_from(to, k);
  if (run_length(from, i, count) == count && run_length(to, k, count) == count) {
    memmove(target + (size_t)t.place * size, source + (size_t)s.place * size, (size_t)count * size);
    return;
  }
  for (int64_t n = 0; n < count; n++, walk_on(&s), walk_on(&t))
    memcpy(target + (size_t)t.place * size, source + (size_t)s.place * size, size);
}

static void convert(const exec_tensor *from, int64_t i, const exec_tensor *to, int64_t k,
                    int64_t count)
{
  real some[256];
  const int64_t most = sizeof some / sizeof some[0];
  for (int64_t done = 0, n; done < count; done += n) {
    n = min_i64(count - done, most);
    ref_load_row(from, i + done, n, some);
    ref_store_row(to, k + done, n, some);
  }
}

void ref_copy_row(const exec_tensor *from, int64_t i, const exec_tensor *to, int64_t k,
                  int64_t count)
{
  if (count == 0) return;
  assert(i + count <= exec_elements(from) && k + count <= exec_elements(to));
  if (from->type == to->type)
    copy_bits(from, i, to, k, count);
  else if (is_integer((dtype)from->type))
    for (int64_t n = 0; n < count; n++)
      ref_copy(from, i + n, to, k + n);
  else
    convert(from, i, to, k, count);
}

void *ref_bytes(int64_t count)
{
  void *bytes = malloc((size_t)(count > 0 ? count : 1));
  if (bytes == NULL)
    die_refused("memory: a kernel requested %lld bytes, the system has none left",
                (long long)count);
  return bytes;
}

real *ref_reals(int64_t count)
{
  return ref_bytes(count * (int64_t)sizeof(real));
}
