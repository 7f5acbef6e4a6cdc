#include "cuda/recorder/kernels.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/recorder/allocations.h"
#include "cuda/recorder/rows_file.h"

enum {
  TENSOR_MAP_BYTES = 128,
  TENSOR_MAP_ALIGNMENT = 64,
  TABLE_BYTES = 1024, /* TensorIterator's largest arguments have 700 bytes */
  NAME_BYTES = 4096
};

typedef struct parameter {
  uint32_t offset, bytes;
} parameter;

typedef struct kernel {
  CUfunction function; /* NULL: a free slot */
  parameter *parameters;
  uint32_t count, name;
  bool known; /* the driver said what its parameters are */
} kernel;

/* Open addressing; at most half of the slots are taken. */
static struct {
  pthread_mutex_t lock;
  kernel *slots;
  uint32_t slot_count, count;
} kernels = { .lock = PTHREAD_MUTEX_INITIALIZER };

static kernel *slot_of(CUfunction function)
{
  uint64_t hash = (uint64_t)(uintptr_t)function * 0x9e3779b97f4a7c15U;
  uint32_t at = (uint32_t)(hash >> 32) & (kernels.slot_count - 1);
  while (kernels.slots[at].function != NULL && kernels.slots[at].function != function)
    at = (at + 1) & (kernels.slot_count - 1);
  return &kernels.slots[at];
}

static void grow(void)
{
  kernel *old = kernels.slots;
  uint32_t old_count = kernels.slot_count;
  kernels.slot_count = old_count == 0 ? 1024 : 2 * old_count;
  kernels.slots = calloc(kernels.slot_count, sizeof *kernels.slots);
  if (kernels.slots == NULL) abort();
  for (uint32_t i = 0; i < old_count; i++)
    if (old[i].function != NULL) *slot_of(old[i].function) = old[i];
  free(old);
}

/* A launch takes a CUfunction or a CUkernel. False: neither, or an old driver. */
static bool parameter_of(CUfunction f, size_t i, size_t *offset, size_t *bytes, bool *ended)
{
  CUresult of_function = driver.cuFuncGetParamInfo == NULL
                             ? CUDA_ERROR_NOT_FOUND
                             : driver.cuFuncGetParamInfo(f, i, offset, bytes);
  if (of_function == CUDA_SUCCESS) return true;
  CUresult of_kernel = driver.cuKernelGetParamInfo == NULL
                           ? CUDA_ERROR_NOT_FOUND
                           : driver.cuKernelGetParamInfo((CUkernel)f, i, offset, bytes);
  if (of_kernel == CUDA_SUCCESS) return true;
  *ended = of_function == CUDA_ERROR_INVALID_VALUE || of_kernel == CUDA_ERROR_INVALID_VALUE;
  return false;
}

static void read_parameters(kernel *k)
{
  size_t offset = 0, bytes = 0;
  uint32_t capacity = 0;
  while (parameter_of(k->function, k->count, &offset, &bytes, &k->known)) {
    if (k->count == capacity) {
      capacity = capacity == 0 ? 8 : 2 * capacity;
      k->parameters = realloc(k->parameters, capacity * sizeof *k->parameters);
      if (k->parameters == NULL) abort();
    }
    k->parameters[k->count++] = (parameter){ (uint32_t)offset, (uint32_t)bytes };
  }
}

static kernel kernel_of(const kernel_launch *l)
{
  pthread_mutex_lock(&kernels.lock);
  if (2 * kernels.count >= kernels.slot_count) grow();
  kernel *k = slot_of(l->function);
  if (k->function == NULL) {
    const char *name = l->symbol == NULL ? "kernel" : l->symbol;
    size_t length = strlen(name);
    *k = (kernel){ .function = l->function, .name = kernels.count++ };
    read_parameters(k);
    rows_put(ISSUED_NAME, 0, &(uint64_t){ k->name }, 1, name,
             length < NAME_BYTES ? length : NAME_BYTES);
  }
  kernel result = *k;
  pthread_mutex_unlock(&kernels.lock);
  return result;
}

static uint32_t find_in(const void *bytes, size_t offset, size_t size, uint64_t *pointers,
                        uint32_t count)
{
  size_t skip = (8 - offset % 8) % 8;
  if (size < skip + 8) return count;
  return (uint32_t)allocations_find((const uint8_t *)bytes + skip, (size - skip) / 8, pointers,
                                    count, KERNEL_POINTERS);
}

/* A tensor map is in the arguments by value, and encoded: if its address is not found, nothing is
 * known of what the kernel touches through it. */
static bool may_be_tensor_map(const parameter *p)
{
  return p->bytes == TENSOR_MAP_BYTES && p->offset % TENSOR_MAP_ALIGNMENT == 0;
}

/* A table of many tensors by value, of which a launch fills the first entries (concatenation, fused
 * optimizers). The others are left over on the host's stack, often pointers of earlier launches. */
static bool may_be_table(const parameter *p)
{
  return p->bytes > TABLE_BYTES;
}

/* The whole of the arguments in one buffer: key, value, key, value, CU_LAUNCH_PARAM_END. */
static uint32_t find_in_extra(void **extra, uint64_t *pointers, bool *seen)
{
  const void *buffer = NULL;
  size_t bytes = 0;
  for (size_t i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
    if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = extra[i + 1];
    if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = *(const size_t *)extra[i + 1];
  }
  *seen = buffer != NULL;
  return buffer == NULL ? 0 : find_in(buffer, 0, bytes, pointers, 0);
}

uint32_t kernel_pointers(const kernel_launch *l, uint64_t *pointers, uint32_t *name, bool *seen)
{
  kernel k = kernel_of(l);
  uint32_t count = 0;
  *name = k.name;
  if (l->parameters == NULL && l->extra != NULL) return find_in_extra(l->extra, pointers, seen);
  *seen = k.known;
  for (uint32_t i = 0; i < k.count && l->parameters != NULL; i++) {
    const parameter *p = &k.parameters[i];
    uint32_t before = count;
    if (may_be_table(p)) {
      *seen = false;
      continue;
    }
    count = find_in(l->parameters[i], p->offset, p->bytes, pointers, count);
    if (may_be_tensor_map(p) && count == before) *seen = false;
  }
  *seen = *seen && count < KERNEL_POINTERS;
  return count;
}
