/*
 * Tries fast kernels on a GPU: against ref's kernel of the same row, which computes the same
 * operands on the CPU in fp32 and stores what it writes as fp32; against themselves, twice; and for
 * speed.
 *
 *     check_fast [TEXT...]        the cases whose name, or whose row's, contains one of the texts
 *
 * A line for every case: the error as a part of the result's size (the root of the mean square, and
 * the largest), whether two runs gave the same bits, the time, and TFLOP/s or GB/s. Exit status 1:
 * a kernel failed, two runs differ, or an error is above what bf16 explains.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda/kernels/fast/libraries.h"
#include "cuda/kernels/kernel.h"
#include "ref/kernels/storage.h"
#include "ref/kernels/threads.h"
#include "sim/base/array.h"
#include "sim/base/units.h"
#include "tests/gpu/fast_data.h"

static const double error_limit = 0.02, wanted_ms = 10;

/* ---- one case -------------------------------------------------------------------------------- */

typedef struct trial {
  const fast_case *of;
  const fast_operand *operands[FAST_OPERANDS + WRITES]; /* reads, then writes */
  exec_tensor reads[FAST_OPERANDS], writes[WRITES];     /* on the device */
  void *before[WRITES]; /* initial contents of the writes, on the device */
  exec_call call;
  cuda_call on_device;
} trial;

static exec_rank rank;
static const exec_step step = {
  .seed = 1, .number = 1, .learning_rate = 1e-3f, .clip_coefficient = 1
};
static const plan_site site = { "check", 0 };

static void prepare(trial *t, const fast_case *c, cudaStream_t stream, cuda_libraries *libraries,
                    const results *r)
{
  const cuda_fast_row *row = &cuda_fast_kernels[c->call.kind];
  *t = (trial){ .of = c };
  for (uint32_t i = 0; i < c->read_count; i++) {
    t->reads[i] = c->reads[i].tensor;
    t->reads[i].data = device_memory(bytes_in(&t->reads[i]));
    fill(&c->reads[i], t->reads[i].data, r);
  }
  for (uint32_t i = 0; i < c->write_count; i++) {
    t->writes[i] = c->writes[i].tensor;
    t->writes[i].data = device_memory(bytes_in(&t->writes[i]));
    t->before[i] = device_memory(bytes_in(&t->writes[i]));
    fill(&c->writes[i], t->before[i], r);
  }
  t->call = (exec_call){ .call = &c->call,
                         .reads = t->reads,
                         .writes = t->writes,
                         .read_count = c->read_count,
                         .write_count = c->write_count,
                         .site = &site,
                         .rank = &rank,
                         .step = &step };
  t->on_device = (cuda_call){ .of = &t->call,
                              .stream = (gpu_stream *)stream,
                              .scratch_bytes = row->scratch != NULL ? row->scratch(&t->call) : 0,
                              .left_out = device_memory(sizeof(int64_t)),
                              .libraries = libraries };
  t->on_device.scratch = device_memory(t->on_device.scratch_bytes);
}

/* What it wrote stays, as a result. */
static void clean_up(trial *t, results *r)
{
  for (uint32_t i = 0; i < t->of->read_count; i++)
    must(cudaFree(t->reads[i].data), "free");
  for (uint32_t i = 0; i < t->of->write_count; i++) {
    must(cudaFree(t->before[i]), "free");
    r->writes[i] = t->writes[i].data;
    r->bytes[i] = bytes_in(&t->writes[i]);
  }
  must(cudaFree(t->on_device.scratch), "free");
  must(cudaFree(t->on_device.left_out), "free");
}

/* False: it said so, or the GPU did. */
static bool launch(trial *t)
{
  for (uint32_t i = 0; i < t->of->write_count; i++)
    must(cudaMemcpy(t->writes[i].data, t->before[i], (size_t)bytes_in(&t->writes[i]),
                    cudaMemcpyDeviceToDevice),
         "copy");
  must(cudaMemset(t->on_device.scratch, 0xa5, (size_t)t->on_device.scratch_bytes), "fill");
  must(cudaDeviceSynchronize(), "filling operands");
  cuda_fast_kernels[t->of->call.kind].launch(&t->on_device);
  if (t->on_device.failure != NULL) return false;
  must(cudaDeviceSynchronize(), t->of->name);
  return true;
}

static void *to_host(const void *device, int64_t bytes)
{
  void *host = host_memory(bytes);
  must(cudaMemcpy(host, device, (size_t)bytes, cudaMemcpyDeviceToHost), "copy");
  return host;
}

static bool same_twice(trial *t)
{
  void *first[WRITES];
  bool same = true;
  for (uint32_t i = 0; i < t->of->write_count; i++)
    first[i] = to_host(t->writes[i].data, bytes_in(&t->writes[i]));
  if (!launch(t)) return false;
  for (uint32_t i = 0; i < t->of->write_count; i++) {
    int64_t bytes = bytes_in(&t->writes[i]);
    void *second = to_host(t->writes[i].data, bytes);
    same = same && memcmp(first[i], second, (size_t)bytes) == 0;
    free(second);
    free(first[i]);
  }
  return same;
}

static double milliseconds(trial *t, int64_t times)
{
  cudaEvent_t begin, end;
  cudaStream_t stream = (cudaStream_t)t->on_device.stream;
  float passed = 0;
  must(cudaEventCreate(&begin), "event");
  must(cudaEventCreate(&end), "event");
  must(cudaEventRecord(begin, stream), "event");
  for (int64_t i = 0; i < times; i++)
    cuda_fast_kernels[t->of->call.kind].launch(&t->on_device);
  must(cudaEventRecord(end, stream), "event");
  must(cudaEventSynchronize(end), t->of->name);
  must(cudaEventElapsedTime(&passed, begin, end), "event");
  must(cudaEventDestroy(begin), "event");
  must(cudaEventDestroy(end), "event");
  return passed / (double)times;
}

/* ---- against the CPU ------------------------------------------------------------------------- */

typedef struct deviation {
  double mean, largest; /* of the size of the result, the root of its mean square */
} deviation;

static bool is_number(const exec_tensor *t)
{
  return t->type == DTYPE_BF16 || t->type == DTYPE_FP16 || t->type == DTYPE_FP32;
}

/* The same elements, in fp32 if they are numbers; contiguous. */
static exec_tensor widened(const exec_tensor *device, const void *data)
{
  exec_tensor from = *device, to = *device;
  int64_t next = 1;
  from.data = to_host(data, bytes_in(device));
  if (is_number(device)) to.type = DTYPE_FP32;
  for (int d = to.rank; d-- > 0; next *= to.shape[d])
    to.strides[d] = next;
  to.data = host_memory(next * dtype_bytes((dtype)to.type));
  ref_copy_row(&from, 0, &to, 0, next);
  free(from.data);
  return to;
}

static deviation compare(const exec_tensor *device, const exec_tensor *right)
{
  exec_tensor found = widened(device, device->data);
  double squares = 0, errors = 0, largest = 0;
  int64_t count = exec_elements(right);
  for (int64_t i = 0; i < count; i++) {
    bool floats = is_number(right);
    double x = floats ? (double)ref_load(&found, i) : (double)ref_load_int(&found, i);
    double y = floats ? (double)ref_load(right, i) : (double)ref_load_int(right, i);
    double error = fabs(x - y);
    if (!(error <= largest)) largest = error; /* a NaN stays */
    squares += y * y;
    errors += error * error;
  }
  free(found.data);
  double size = sqrt(squares / (double)count);
  if (size == 0) size = 1;
  return (deviation){ sqrt(errors / (double)count) / size, largest / size };
}

static deviation against_cpu(const trial *t)
{
  exec_tensor reads[FAST_OPERANDS], writes[WRITES];
  exec_call call = t->call;
  deviation worst = { 0, 0 };
  for (uint32_t i = 0; i < t->of->read_count; i++) {
    reads[i] = t->reads[i];
    reads[i].data = to_host(t->reads[i].data, bytes_in(&t->reads[i]));
  }
  for (uint32_t i = 0; i < t->of->write_count; i++)
    writes[i] = widened(&t->writes[i], t->before[i]);
  call.reads = reads;
  call.writes = writes;
  ref_kernels[t->of->call.kind](&call);
  for (uint32_t i = 0; i < t->of->write_count; i++) {
    deviation d = compare(&t->writes[i], &writes[i]);
    if (!(d.mean <= worst.mean)) worst.mean = d.mean;
    if (!(d.largest <= worst.largest)) worst.largest = d.largest;
    free(writes[i].data);
  }
  for (uint32_t i = 0; i < t->of->read_count; i++)
    free(reads[i].data);
  return worst;
}

/* ---- all ------------------------------------------------------------------------------------- */

static bool try_case(trial *t)
{
  const fast_case *c = t->of;
  const cuda_fast_row *row = &cuda_fast_kernels[c->call.kind];
  bool good = true;
  printf("%-52s ", c->name);
  if (row->launch == NULL || !row->suits(&t->call)) {
    printf("%s\n", row->launch == NULL ? "no fast kernel" : "does not suit");
    return true;
  }
  if (!launch(t)) {
    printf("FAILED: %s\n", t->on_device.failure);
    return false;
  }
  if (c->timed_only) {
    printf("%19s", "");
  } else {
    deviation d = against_cpu(t);
    good = d.mean <= error_limit;
    printf("%8.1e %8.1e%s ", d.mean, d.largest, good ? " " : "!");
  }
  bool same = same_twice(t);
  double once = milliseconds(t, 2);
  int64_t times = max_i64(2, min_i64(100, (int64_t)(wanted_ms / once)));
  double ms = milliseconds(t, times), amount = c->flops > 0 ? c->flops / 1e9 : c->bytes / 1e6;
  printf("%s %9.1f us", same ? "same" : "DIFFERS", ms * 1e3);
  if (amount > 0) printf(" %7.1f %s", amount / ms, c->flops > 0 ? "TFLOP/s" : "GB/s");
  printf("\n");
  return good && same;
}

static bool is_wanted(const fast_case *c, int count, char **texts)
{
  for (int i = 0; i < count; i++)
    if (strstr(c->name, texts[i]) != NULL ||
        strstr(kernel_name((kernel_kind)c->call.kind), texts[i]) != NULL)
      return true;
  return count == 0;
}

int main(int argc, char **argv)
{
  fast_cases cases = { 0 };
  diag d = { 0 };
  cudaStream_t stream;
  bool good = true;
#define ADD_FAMILY(name) add_##name##_cases(&cases);
  FAST_FAMILIES(ADD_FAMILY)
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "no GPU");
  cuda_libraries *libraries = cuda_libraries_new(&d);
  if (libraries == NULL) return diag_finish(&d);
  for (int g = 0; g < COMM_GROUPS; g++)
    rank.group[g].size = 1;
  ref_set_threads((uint32_t)sysconf(_SC_NPROCESSORS_ONLN));
  results *done = calloc(cases.count, sizeof *done);
  trial *t = malloc(sizeof *t);
  if (done == NULL || t == NULL) die_refused("no memory for the cases");
  for (uint32_t i = 0; i < cases.count; i++) {
    if (!is_wanted(&cases.items[i], argc - 1, argv + 1)) continue;
    prepare(t, &cases.items[i], stream, libraries, &done[i]);
    good = try_case(t) && good;
    (void)fflush(stdout);
    clean_up(t, &done[i]);
    for (uint32_t w = 0; i >= 3 && w < WRITES; w++) { /* no case reads earlier results */
      must(cudaFree(done[i - 3].writes[w]), "free");
      done[i - 3].writes[w] = NULL;
    }
  }
  cuda_libraries_release(libraries);
  ARRAY_FREE(&cases);
  free(done);
  free(t);
  return good ? 0 : 1;
}
