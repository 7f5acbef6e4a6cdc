#include "tests/gpu/fast_data.h"

#include <math.h>
#include <stdlib.h>

#include "ref/kernels/fp8.h"
#include "ref/kernels/storage.h"
#include "sim/base/diag.h"
#include "sim/base/units.h"

enum {
  POOL = 1048583 /* a prime: rows of matrices differ */,
  KINDS = DATA_RESULT,
  ALIGNMENT = 256
};

void must(cudaError_t error, const char *what)
{
  if (error != cudaSuccess) die_refused("%s: %s", what, cudaGetErrorString(error));
}

void *device_memory(int64_t bytes)
{
  void *memory = NULL;
  must(cudaMalloc(&memory, (size_t)max_i64(bytes, ALIGNMENT)), "device memory");
  return memory;
}

void *host_memory(int64_t bytes)
{
  return ref_bytes(max_i64(bytes, 1));
}

static uint64_t random_state = 1;

static double uniform(void)
{
  random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return ((double)(random_state >> 40) + 0.5) / 16777216.0;
}

static double normal(void)
{
  return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform());
}

static double number_of(fast_data kind)
{
  switch (kind) {
  case DATA_NORMAL: return normal();
  case DATA_SMALL: return normal() / 32;
  case DATA_POSITIVE: return 0.5 + uniform();
  case DATA_ZERO:
  case DATA_INTEGERS:
  case DATA_COUNTS:
  case DATA_FP8:
  case DATA_RESULT: break;
  }
  return 0;
}

/* POOL elements on the device, of a type and kind. */
static const char *pool_of(dtype type, fast_data kind)
{
  static char *pools[DTYPES][KINDS];
  if (pools[type][kind] == NULL) {
    int64_t bytes = POOL * dtype_bytes(type);
    exec_tensor t = { host_memory(bytes), (uint8_t)type, 1, { POOL }, { 1 } };
    for (int64_t i = 0; i < POOL; i++)
      ref_store(&t, i, (float)number_of(kind));
    pools[type][kind] = device_memory(bytes);
    must(cudaMemcpy(pools[type][kind], t.data, (size_t)bytes, cudaMemcpyHostToDevice), "copy");
    free(t.data);
  }
  return pools[type][kind];
}

static int64_t elements_in(const exec_tensor *t)
{
  int64_t last = 0;
  for (int d = 0; d < t->rank; d++)
    last += (t->shape[d] - 1) * t->strides[d];
  return last + 1;
}

int64_t bytes_in(const exec_tensor *t)
{
  return elements_in(t) * dtype_bytes((dtype)t->type);
}

static void fill_numbers(const fast_operand *o, void *to)
{
  static int64_t place;
  int64_t size = dtype_bytes((dtype)o->tensor.type), left = elements_in(&o->tensor);
  const char *pool = pool_of((dtype)o->tensor.type, o->holds);
  char *next = to;
  place = (place + 40503) % POOL;
  while (left > 0) {
    int64_t count = min_i64(left, POOL - place);
    must(cudaMemcpyAsync(next, pool + place * size, (size_t)(count * size),
                         cudaMemcpyDeviceToDevice, NULL),
         "copy");
    next += count * size;
    left -= count;
    place = 0;
  }
}

/* Uneven numbers that add up to `limit`. */
static void make_counts(const fast_operand *o, exec_tensor *host)
{
  int64_t experts = elements_in(&o->tensor), left = o->limit;
  for (int64_t e = 0; e < experts; e++) {
    int64_t share = left / (experts - e), count = e + 1 < experts ? share / 2 : left;
    if (e % 3 == 1) count = share * 3 / 2;
    count = e + 1 < experts ? min_i64(count, left) : left;
    ref_store_int(host, e, count);
    left -= count;
  }
}

static void make_copy(const fast_operand *o, exec_tensor *host)
{
  int code = (int)o->limit;
  int64_t outer = 1, bytes = elements_in(&o->tensor);
  while (fp8_copy_bytes(fp8_scaling_of(code), outer, o->inner) < bytes)
    outer++;
  fp8_matrix m = { ref_reals(outer * o->inner), outer, o->inner, o->inner, 1 };
  for (int64_t i = 0; i < outer * o->inner; i++)
    m.data[i] = (float)normal();
  fp8_quantize(code, &m, host->data);
  free(m.data);
}

static void fill_integers(const fast_operand *o, void *to)
{
  exec_tensor host = o->tensor;
  int64_t bytes = bytes_in(&o->tensor);
  host.data = host_memory(bytes);
  if (o->holds == DATA_FP8) make_copy(o, &host);
  if (o->holds == DATA_COUNTS) make_counts(o, &host);
  for (int64_t i = 0; o->holds == DATA_INTEGERS && i < exec_elements(&host); i++)
    ref_store_int(&host, i, min_i64((int64_t)(uniform() * (double)o->limit), o->limit - 1));
  must(cudaMemcpy(to, host.data, (size_t)bytes, cudaMemcpyHostToDevice), "copy");
  free(host.data);
}

void fill(const fast_operand *o, void *to, const results *before)
{
  int64_t bytes = bytes_in(&o->tensor);
  switch (o->holds) {
  case DATA_ZERO: must(cudaMemset(to, 0, (size_t)bytes), "fill"); break;
  case DATA_NORMAL:
  case DATA_SMALL:
  case DATA_POSITIVE: fill_numbers(o, to); break;
  case DATA_INTEGERS:
  case DATA_COUNTS:
  case DATA_FP8: fill_integers(o, to); break;
  case DATA_RESULT: {
    const results *r = before - o->from_case;
    if (r->writes[o->from_write] == NULL || r->bytes[o->from_write] != bytes)
      die_refused("a case reads a result that there is not");
    must(cudaMemcpy(to, r->writes[o->from_write], (size_t)bytes, cudaMemcpyDeviceToDevice), "copy");
  }
  }
}
