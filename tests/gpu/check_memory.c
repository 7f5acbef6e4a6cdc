/*
 * Fast kernels that memory bounds, on a GPU: small calls against ref's arithmetic on the CPU, all
 * of them twice for equal bits, large ones for the rate at which they move their operands.
 *
 *   check_memory [small] [NAME]   no large ones; only the rows whose name begins so
 */
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/kernels/kernel.h"
#include "ref/kernels/storage.h"
#include "tests/gpu/memory_cases.h"

enum { MOST_OPERANDS = 160, TURNS = 10, PATTERN = 1 << 20, MOST_LOOKED_AT = 1 << 24 };

static void require(cudaError_t error, const char *what)
{
  if (error == cudaSuccess) return;
  fprintf(stderr, "check_memory: %s: %s\n", what, cudaGetErrorString(error));
  exit(3);
}

/* ---- operands -------------------------------------------------------------------------------- */

typedef struct operand {
  exec_tensor host, device;
  int64_t bytes;  /* of the buffer */
  int64_t offset; /* ... where the tensor begins */
  int64_t limit;  /* integers below it */
  bool ignores, positive, shared;
  char *first;  /* what is in the buffer before the call */
  void *memory; /* on the device */
  char *memory_on_host;
} operand;

static const char *parse_number(const char *s, int64_t *n)
{
  char *end;
  *n = strtoll(s, &end, 10);
  return end;
}

static const char *parse_operand(const char *s, operand *o)
{
  static const char *const names[DTYPES] = {
#define X(row, name, ...) [DTYPE_##row] = name,
    PLAN_DTYPES(X)
#undef X
  };
  exec_tensor *t = &o->host;
  int64_t offset = 0, last = 0, next = 1;
  memset(o, 0, sizeof *o);
  for (int i = 0; i < DTYPES; i++)
    if (strncmp(s, names[i], strlen(names[i])) == 0 && s[strlen(names[i])] == ':')
      t->type = (uint8_t)i;
  s = strchr(s, ':');
  do
    s = parse_number(s + 1, &t->shape[t->rank++]);
  while (*s == 'x');
  for (int d = t->rank; d-- > 0; next *= t->shape[d])
    t->strides[d] = next;
  for (int d = 0; *s == '/' || (d > 0 && *s == 'x'); d++)
    s = parse_number(s + 1, &t->strides[d]);
  if (*s == '+') s = parse_number(s + 1, &offset);
  o->limit = 2;
  if (*s == '<') s = parse_number(s + 1, &o->limit);
  if (*s == '!') o->ignores = true, s++;
  if (*s == '>') o->positive = true, s++;
  for (int d = 0; d < t->rank; d++)
    last += (t->shape[d] - 1) * t->strides[d];
  o->bytes = (offset + last + 1) * dtype_bytes((dtype)t->type);
  o->offset = offset * dtype_bytes((dtype)t->type);
  return s;
}

static int parse_operands(const char *s, operand *o, const operand *read)
{
  int count = 0;
  while (*s != '\0') {
    if (*s == '=') {
      int64_t which;
      s = parse_number(s + 1, &which);
      o[count] = read[which];
      o[count++].shared = true;
    } else {
      s = parse_operand(s, &o[count++]);
    }
    while (*s == ' ')
      s++;
  }
  return count;
}

static uint64_t random_state = 1;

static uint64_t random_bits(void)
{
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state;
}

static double random_number(void)
{
  double sum = 0;
  for (int i = 0; i < 4; i++)
    sum += (double)(random_bits() >> 11) * 0x1p-53;
  return (sum - 2) * 1.7320508;
}

static void put(char *to, const operand *o, int64_t i)
{
  double x = o->positive ? 0.5 + fabs(random_number()) : random_number();
  int64_t n = (int64_t)(random_bits() % (uint64_t)o->limit);
  if (o->ignores && random_bits() % 8 == 0) n = -100;
  switch (o->host.type) {
  case DTYPE_BF16: ((uint16_t *)(void *)to)[i] = bf16_code((float)x); break;
  case DTYPE_FP32: ((float *)(void *)to)[i] = (float)x; break;
  case DTYPE_INT64: ((int64_t *)(void *)to)[i] = n; break;
  case DTYPE_INT32: ((int32_t *)(void *)to)[i] = (int32_t)n; break;
  default: ((uint8_t *)to)[i] = (uint8_t)n; break;
  }
}

/* The first elements of the buffer at random, the others as those again. */
static void make(operand *o)
{
  int64_t size = dtype_bytes((dtype)o->host.type), count = o->bytes / size;
  int64_t pattern = count < PATTERN ? count : PATTERN;
  o->first = malloc((size_t)(pattern * size));
  for (int64_t i = 0; i < pattern; i++)
    put(o->first, o, i);
  require(cudaMalloc(&o->memory, (size_t)o->bytes), "memory");
}

static void upload(operand *o)
{
  int64_t size = dtype_bytes((dtype)o->host.type), pattern = PATTERN * size;
  for (int64_t at = 0; at < o->bytes; at += pattern) {
    size_t bytes = (size_t)(o->bytes - at < pattern ? o->bytes - at : pattern);
    if (at == 0)
      require(cudaMemcpy(o->memory, o->first, bytes, cudaMemcpyHostToDevice), "upload");
    else
      require(cudaMemcpy((char *)o->memory + at, o->memory, bytes, cudaMemcpyDeviceToDevice),
              "upload");
  }
}

static int64_t moved_bytes(const exec_tensor *t)
{
  int64_t elements = 1;
  for (int d = 0; d < t->rank; d++)
    if (t->strides[d] != 0) elements *= t->shape[d];
  return elements * dtype_bytes((dtype)t->type);
}

/* ---- a call ---------------------------------------------------------------------------------- */

typedef struct check {
  const memory_case *of;
  kernel_kind kind;
  operand reads[MOST_OPERANDS], writes[MOST_OPERANDS];
  int read_count, write_count;
  plan_call call;
  exec_tensor tensors[2 * MOST_OPERANDS];
  exec_call c;
  int64_t bytes;
} check;

static void parse_values(const char *s, double *to)
{
  char *end;
  for (int i = 0; *s != '\0'; i++, s = end)
    to[i] = strtod(s, &end);
}

static bool find_kind(const char *name, kernel_kind *kind)
{
  for (int i = 0; i < KERNEL_KINDS; i++)
    if (strcmp(kernel_name((kernel_kind)i), name) == 0) return *kind = (kernel_kind)i, true;
  return false;
}

static exec_rank rank;
static exec_step step = {
  .seed = 7, .number = 3, .learning_rate = 1e-2F, .clip_coefficient = 0.5F
};
static const plan_site site = { .module = "mlp", .layer = 1 };

static bool prepare(check *k, const memory_case *of)
{
  double dims[PLAN_DIMS] = { 0 };
  memset(k, 0, sizeof *k);
  k->of = of;
  if (!find_kind(of->row, &k->kind)) return false;
  parse_values(of->dims, dims);
  parse_values(of->scalars, k->call.scalars);
  for (int i = 0; i < PLAN_DIMS; i++)
    k->call.dims[i] = (int64_t)dims[i];
  k->call.kind = (uint8_t)k->kind;
  k->read_count = parse_operands(of->reads, k->reads, NULL);
  for (int i = 0; i < k->read_count; i++)
    make(&k->reads[i]);
  k->write_count = parse_operands(of->writes, k->writes, k->reads);
  for (int i = 0; i < k->write_count; i++)
    if (!k->writes[i].shared) make(&k->writes[i]);
  for (int i = 0; i < k->read_count; i++)
    k->bytes += moved_bytes(&k->reads[i].host);
  for (int i = 0; i < k->write_count; i++)
    k->bytes += moved_bytes(&k->writes[i].host);
  k->c = (exec_call){ .call = &k->call,
                      .reads = k->tensors,
                      .writes = k->tensors + k->read_count,
                      .read_count = (uint32_t)k->read_count,
                      .write_count = (uint32_t)k->write_count,
                      .site = &site,
                      .microbatch = 1,
                      .is_forward = 1,
                      .rank = &rank,
                      .step = &step };
  return true;
}

static operand *operand_of(check *k, int i)
{
  return i < k->read_count ? &k->reads[i] : &k->writes[i - k->read_count];
}

static void point_to_device(check *k)
{
  for (int i = 0; i < k->read_count + k->write_count; i++) {
    operand *o = operand_of(k, i);
    k->tensors[i] = o->host;
    k->tensors[i].data = (char *)o->memory + o->offset;
  }
}

static void upload_all(check *k)
{
  for (int i = 0; i < k->read_count + k->write_count; i++)
    if (!operand_of(k, i)->shared) upload(operand_of(k, i));
}

static const char *launch(check *k, void *scratch)
{
  cuda_call c = { .of = &k->c, .scratch = scratch };
  cuda_fast_kernels[k->kind].launch(&c);
  return c.failure;
}

/* What is compared: of a large buffer its begin. */
static size_t looked_at(const operand *o)
{
  return (size_t)(o->bytes < MOST_LOOKED_AT ? o->bytes : MOST_LOOKED_AT);
}

static char *download(const operand *o)
{
  char *bytes = malloc(looked_at(o));
  require(cudaMemcpy(bytes, o->memory, looked_at(o), cudaMemcpyDeviceToHost), "download");
  return bytes;
}

/* ---- what it found --------------------------------------------------------------------------- */

static double value_of(const char *data, uint8_t type, int64_t i)
{
  switch (type) {
  case DTYPE_BF16: return (double)bf16_value(((const uint16_t *)(const void *)data)[i]);
  case DTYPE_FP32: return (double)((const float *)(const void *)data)[i];
  case DTYPE_INT64: return (double)((const int64_t *)(const void *)data)[i];
  case DTYPE_INT32: return ((const int32_t *)(const void *)data)[i];
  default: return ((const uint8_t *)data)[i];
  }
}

/* |difference| over |reference|, of all elements of the buffer together. */
static double error_of(const operand *o, const char *got, const char *wanted)
{
  int64_t count = o->bytes / dtype_bytes((dtype)o->host.type);
  double difference = 0, whole = 0;
  for (int64_t i = 0; i < count; i++) {
    double a = value_of(got, o->host.type, i), b = value_of(wanted, o->host.type, i);
    if (a == b || (isnan(a) && isnan(b))) {
      whole += isfinite(b) ? b * b : 0;
      continue;
    }
    difference += (a - b) * (a - b);
    whole += b * b;
  }
  if (isnan(difference)) return INFINITY;
  return difference == 0 ? 0 : sqrt(difference / whole);
}

static double allowed(uint8_t type)
{
  return type == DTYPE_BF16 ? 2e-3 : type == DTYPE_FP32 ? 3e-5 : 0;
}

/* Against ref; the device has done the call once. */
static int compare(check *k, char *const *got)
{
  int bad = 0;
  for (int i = 0; i < k->read_count + k->write_count; i++) {
    operand *o = operand_of(k, i);
    if (!o->shared) {
      o->memory_on_host = malloc((size_t)o->bytes);
      memcpy(o->memory_on_host, o->first, (size_t)o->bytes);
    } else {
      for (int r = 0; r < k->read_count; r++)
        if (k->reads[r].memory == o->memory) o->memory_on_host = k->reads[r].memory_on_host;
    }
    k->tensors[i] = o->host;
    k->tensors[i].data = o->memory_on_host + o->offset;
  }
  ref_kernels[k->kind](&k->c);
  printf(" error");
  for (int i = 0; i < k->write_count; i++) {
    const operand *o = &k->writes[i];
    double error = error_of(o, got[i], o->memory_on_host);
    if (k->write_count <= 6 || error > allowed(o->host.type)) printf(" %.1e", error);
    bad += !(error <= allowed(o->host.type));
  }
  if (bad > 0) printf(" WRONG");
  return bad;
}

static bool is_small(const check *k)
{
  int64_t most = 0;
  for (int i = 0; i < k->read_count; i++)
    most = k->reads[i].bytes > most ? k->reads[i].bytes : most;
  for (int i = 0; i < k->write_count; i++)
    most = k->writes[i].bytes > most ? k->writes[i].bytes : most;
  return most <= PATTERN;
}

static void time_it(check *k, void *scratch)
{
  cudaEvent_t from, to;
  float ms, best = INFINITY;
  require(cudaEventCreate(&from), "event");
  require(cudaEventCreate(&to), "event");
  launch(k, scratch);
  for (int repeat = 0; repeat < 3; repeat++) {
    require(cudaEventRecord(from, 0), "event");
    for (int i = 0; i < TURNS; i++)
      launch(k, scratch);
    require(cudaEventRecord(to, 0), "event");
    require(cudaEventSynchronize(to), "run");
    require(cudaEventElapsedTime(&ms, from, to), "event");
    best = ms < best ? ms : best;
  }
  printf(" %9.1f us %6.0f GB/s", (double)best / TURNS * 1e3,
         (double)k->bytes / ((double)best / TURNS * 1e-3) / 1e9);
  cudaEventDestroy(from);
  cudaEventDestroy(to);
}

static int run(check *k, bool small)
{
  char *once[MOST_OPERANDS], *again[MOST_OPERANDS];
  void *scratch = NULL;
  int bad = 0;
  const char *failure;
  if (small && !is_small(k)) {
    printf(" -\n");
    return 0;
  }
  point_to_device(k);
  if (!cuda_fast_kernels[k->kind].suits(&k->c)) {
    printf(" UNSUITED\n");
    return 1;
  }
  if (cuda_fast_kernels[k->kind].scratch != NULL)
    require(cudaMalloc(&scratch, (size_t)cuda_fast_kernels[k->kind].scratch(&k->c) + 256),
            "scratch");
  upload_all(k);
  if ((failure = launch(k, scratch)) != NULL) {
    printf(" FAILED %s\n", failure);
    return 1;
  }
  require(cudaDeviceSynchronize(), "run");
  for (int i = 0; i < k->write_count; i++)
    once[i] = download(&k->writes[i]);
  upload_all(k);
  launch(k, scratch);
  require(cudaDeviceSynchronize(), "run");
  for (int i = 0; i < k->write_count; i++) {
    again[i] = download(&k->writes[i]);
    if (memcmp(once[i], again[i], looked_at(&k->writes[i])) != 0) bad++, printf(" OTHER BITS");
  }
  if (is_small(k))
    bad += compare(k, once);
  else
    time_it(k, scratch);
  printf("\n");
  for (int i = 0; i < k->write_count; i++)
    free(once[i]), free(again[i]);
  cudaFree(scratch);
  return bad;
}

static void release(check *k)
{
  for (int i = 0; i < k->read_count + k->write_count; i++) {
    operand *o = operand_of(k, i);
    if (o->shared) continue;
    cudaFree(o->memory);
    free(o->first);
    free(o->memory_on_host);
  }
}

static void copy_rate(void)
{
  void *a, *b;
  const size_t bytes = (size_t)1 << 30;
  cudaEvent_t from, to;
  float ms;
  require(cudaMalloc(&a, bytes), "memory");
  require(cudaMalloc(&b, bytes), "memory");
  require(cudaEventCreate(&from), "event");
  require(cudaEventCreate(&to), "event");
  for (int turn = 0; turn < 2; turn++) {
    require(cudaEventRecord(from, 0), "event");
    for (int i = 0; i < TURNS; i++)
      require(cudaMemcpyAsync(b, a, bytes, cudaMemcpyDeviceToDevice, 0), "copy");
    require(cudaEventRecord(to, 0), "event");
    require(cudaEventSynchronize(to), "copy");
    require(cudaEventElapsedTime(&ms, from, to), "event");
  }
  printf("cudaMemcpy of 1 GiB: %.0f GB/s\n",
         2.0 * (double)bytes * TURNS / ((double)ms * 1e-3) / 1e9);
  cudaFree(a);
  cudaFree(b);
}

int main(int argc, char **argv)
{
  static check k;
  int bad = 0, done = 0;
  bool small = argc > 1 && strcmp(argv[1], "small") == 0;
  const char *only = argc > 1 + small ? argv[1 + small] : "";
  for (int g = 0; g < COMM_GROUPS; g++)
    rank.group[g] = (exec_position){ .index = 0, .size = 1 };
  if (!small) copy_rate();
  for (size_t i = 0; i < memory_case_count; i++) {
    if (strncmp(memory_cases[i].row, only, strlen(only)) != 0) continue;
    if (!prepare(&k, &memory_cases[i])) {
      printf("%s: no such row\n", memory_cases[i].row);
      bad++;
      continue;
    }
    printf("%-25s %-32.32s", memory_cases[i].row,
           memory_cases[i].dims[0] != '\0' ? memory_cases[i].dims : memory_cases[i].reads);
    fflush(stdout);
    if (cuda_fast_kernels[k.kind].launch == NULL)
      bad++, printf(" NO KERNEL\n");
    else
      bad += run(&k, small);
    release(&k);
    done++;
  }
  printf("%d calls, %d wrong\n", done, bad);
  return bad > 0;
}
