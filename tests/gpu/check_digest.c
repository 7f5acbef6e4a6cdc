/*
 * The digest of a view (cuda/kernels/digest.h) on a GPU against the same on the CPU, and how fast
 * it is: check_digest [--gpu]. Without --gpu the CPU is used instead. Exit status 1: they differ.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda/kernels/digest.h"
#include "sim/base/diag.h"
#include "sim/plan/plan.h"

enum { TIMED_BYTES = 1 << 30, TIMES = 5 };

/* Where it runs. */
typedef struct place {
  const gpu_driver *driver;
  cuda_kernel *digest;
  gpu_stream *stream;
  unsigned char *data, *scratch;
  uint64_t *result;
} place;

typedef struct digest {
  uint64_t words[3];
} digest;

static void ok(const char *failure)
{
  if (failure != NULL) die_refused("check_digest: %s", failure);
}

static place place_new(const gpu_driver *driver, cuda_kernel *kernel, int64_t bytes)
{
  place p = { .driver = driver, .digest = kernel };
  void *memory;
  ok(driver->use(0));
  ok(driver->stream_new(&p.stream));
  ok(driver->allocate(&memory, bytes));
  p.data = memory;
  ok(driver->allocate(&memory, DIGEST_SCRATCH_BYTES));
  p.scratch = memory;
  ok(driver->allocate(&memory, sizeof(digest)));
  p.result = memory;
  return p;
}

static void place_delete(place *p)
{
  ok(p->driver->release(p->data));
  ok(p->driver->release(p->scratch));
  ok(p->driver->release(p->result));
  p->driver->stream_delete(p->stream);
}

static digest digest_of(const place *p, exec_tensor t)
{
  digest found;
  exec_tensor to = { p->result, DTYPE_FP64, 1, { 3 }, { 1 } };
  t.data = p->data + (uintptr_t)t.data;
  exec_call of = { .reads = &t, .writes = &to, .read_count = 1, .write_count = 1 };
  cuda_call call = {
    .of = &of, .stream = p->stream, .scratch = p->scratch, .scratch_bytes = DIGEST_SCRATCH_BYTES
  };
  p->digest(&call);
  ok(call.failure);
  ok(p->driver->copy(&found, p->result, sizeof found, GPU_D2H, p->stream));
  ok(p->driver->stream_synchronize(p->stream));
  return found;
}

static int64_t place_bytes(const exec_tensor *t)
{
  int64_t last = 0;
  for (int d = 0; d < t->rank; d++)
    last += (t->shape[d] - 1) * t->strides[d];
  return (last + 1) * dtype_bytes((dtype)t->type);
}

/* Any bits, but for numbers no NaN and nothing whose square is not finite. */
static void fill(unsigned char *data, int64_t bytes, uint8_t type)
{
  uint64_t state = 1;
  for (int64_t i = 0; i < bytes; i++) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    data[i] = (unsigned char)(state >> 56);
    bool is_top = i % dtype_bytes((dtype)type) == dtype_bytes((dtype)type) - 1;
    if (is_top) data[i] &= 0xbf;
  }
}

static bool check(const place *here, const place *there, exec_tensor t)
{
  int64_t bytes = (int64_t)(uintptr_t)t.data + place_bytes(&t);
  fill(here->data, bytes, t.type);
  ok(there->driver->copy(there->data, here->data, bytes, GPU_H2D, there->stream));
  digest a = digest_of(here, t), b = digest_of(there, t);
  if (memcmp(&a, &b, sizeof a) == 0) return true;
  printf("%s %" PRId64 " x %" PRId64 ": %016" PRIx64 "%016" PRIx64 " %016" PRIx64
         " on the CPU, %016" PRIx64 "%016" PRIx64 " %016" PRIx64 " on %s\n",
         dtype_name((dtype)t.type), t.shape[0], t.shape[1], a.words[1], a.words[0], a.words[2],
         b.words[1], b.words[0], b.words[2], there->driver->name);
  return false;
}

static exec_tensor rows_of(uint8_t type, int64_t rows, int64_t columns, int64_t gap, bool turned,
                           int64_t offset_bytes)
{
  exec_tensor t = {
    (void *)(uintptr_t)offset_bytes, type, 2, { rows, columns }, { columns + gap, 1 }
  };
  if (turned) t = (exec_tensor){ t.data, type, 2, { columns, rows }, { 1, columns + gap } };
  return t;
}

static int check_all(const place *here, const place *there)
{
  const int64_t sizes[][2] = { { 1, 1 }, { 1, 3 }, { 5, 7 }, { 129, 515 }, { 1500, 1001 } };
  int checked = 0, different = 0;
  for (uint8_t type = 0; type < DTYPES; type++)
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
      for (int way = 0; way < 8; way++, checked++) {
        exec_tensor t = rows_of(type, sizes[s][0], sizes[s][1], way & 1 ? 3 : 0, way & 2,
                                way & 4 ? dtype_bytes((dtype)type) : 0);
        different += !check(here, there, t);
      }
  printf("digests: %d compared, %d different\n", checked, different);
  return different;
}

static double seconds_now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void time_it(const place *there, uint8_t type, int64_t bytes)
{
  exec_tensor t = { NULL, type, 1, { bytes / dtype_bytes((dtype)type) }, { 1 } };
  double best = 1e9;
  ok(there->driver->fill(there->data, 1, bytes, there->stream));
  ok(there->driver->stream_synchronize(there->stream));
  for (int i = 0; i < TIMES; i++) {
    double begin = seconds_now();
    digest_of(there, t);
    double took = seconds_now() - begin;
    best = took < best ? took : best;
  }
  printf("%-5s %" PRId64 " MiB: %.3f ms\n", dtype_name((dtype)type), bytes >> 20, best * 1e3);
}

int main(int argc, char **argv)
{
  bool gpu = argc > 1 && strcmp(argv[1], "--gpu") == 0;
  int64_t bytes = gpu ? TIMED_BYTES : 1 << 26;
  place here = place_new(&gpu_driver_host, host_exact_digest, 1 << 26), there = here;
#ifdef OFFSIM_WITH_CUDA
  if (gpu) there = place_new(&gpu_driver_cuda, cuda_exact_digest, bytes);
#endif
  int different = check_all(&here, &there);
  time_it(&there, DTYPE_FP32, bytes);
  time_it(&there, DTYPE_BF16, bytes);
  time_it(&there, DTYPE_FP32, 1 << 16);
  if (there.stream != here.stream) place_delete(&there);
  place_delete(&here);
  return different > 0;
}
