#include <pthread.h>
#include <stdlib.h>

#include "cuda/device/cuda_driver.h"
#include "cuda/device/cuda_entries.h"
#include "cuda/device/failure.h"
#include "sim/base/array.h"

enum { PIECE_BYTES = 2 << 20 }; /* the granularity of device memory */

typedef struct piece {
  int64_t offset, bytes;
} piece;

/* The mappings of a space, in no order: its range can be freed only when it has none. */
typedef struct piece_list {
  piece *items;
  uint32_t count, capacity;
} piece_list;

const char *cuda_space_new(uint32_t device, int64_t bytes, gpu_space *space)
{
  const cuda_entries *driver;
  CUdeviceptr base;
  const char *failure = cuda_find_entries(&driver);
  if (failure != NULL) return failure;
  CUresult result = driver->cuMemAddressReserve_entry(&base, (size_t)bytes, PIECE_BYTES, 0, 0);
  if (result != CUDA_SUCCESS)
    return cuda_entry_said(result, "cuMemAddressReserve of %lld bytes", (long long)bytes);
  piece_list *pieces = calloc(1, sizeof *pieces);
  if (pieces == NULL) {
    driver->cuMemAddressFree_entry(base, (size_t)bytes);
    return gpu_failure("a list of mapped memory: out of memory");
  }
  *space = (gpu_space){
    .base = (void *)(uintptr_t)base, .bytes = bytes, .device = device, .own = pieces
  };
  return NULL;
}

static CUdeviceptr address(const gpu_space *space, int64_t offset)
{
  return (CUdeviceptr)(uintptr_t)space->base + (CUdeviceptr)offset;
}

static const char *give_access(const cuda_entries *driver, uint32_t device, CUdeviceptr at,
                               int64_t bytes)
{
  CUmemAccessDesc access[CUDA_DEVICES_MAX];
  cuda_devices users = cuda_users_of(device);
  for (uint32_t i = 0; i < users.count; i++) {
    access[i].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access[i].location.id = (int)users.numbers[i];
    access[i].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  return cuda_entry_said(driver->cuMemSetAccess_entry(at, (size_t)bytes, access, users.count),
                         "cuMemSetAccess of %lld bytes for %u devices", (long long)bytes,
                         users.count);
}

/* The handle is released at once: memory lives as long as it is mapped. */
static const char *map_new(const cuda_entries *driver, uint32_t device, CUdeviceptr at,
                           int64_t bytes)
{
  CUmemGenericAllocationHandle memory;
  CUmemAllocationProp properties = { 0 };
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = (int)device;
  CUresult result = driver->cuMemCreate_entry(&memory, (size_t)bytes, &properties, 0);
  if (result != CUDA_SUCCESS)
    return cuda_entry_said(result, "cuMemCreate of %lld bytes", (long long)bytes);
  result = driver->cuMemMap_entry(at, (size_t)bytes, 0, memory, 0);
  driver->cuMemRelease_entry(memory);
  return cuda_entry_said(result, "cuMemMap of %lld bytes", (long long)bytes);
}

const char *cuda_space_map(gpu_space *space, int64_t offset, int64_t bytes)
{
  const cuda_entries *driver;
  piece_list *pieces = space->own;
  CUdeviceptr at = address(space, offset);
  const char *failure = cuda_find_entries(&driver);
  if (failure == NULL) failure = map_new(driver, space->device, at, bytes);
  if (failure != NULL) return failure;
  failure = give_access(driver, space->device, at, bytes);
  if (failure != NULL)
    driver->cuMemUnmap_entry(at, (size_t)bytes);
  else
    *ARRAY_PUSH(pieces) = (piece){ offset, bytes };
  return failure;
}

const char *cuda_space_unmap(gpu_space *space, int64_t offset, int64_t bytes)
{
  const cuda_entries *driver;
  piece_list *pieces = space->own;
  const char *failure = cuda_find_entries(&driver);
  if (failure != NULL) return failure;
  for (uint32_t i = 0; i < pieces->count; i++)
    if (pieces->items[i].offset == offset) {
      pieces->items[i] = pieces->items[--pieces->count];
      break;
    }
  return cuda_entry_said(driver->cuMemUnmap_entry(address(space, offset), (size_t)bytes),
                         "cuMemUnmap of %lld bytes", (long long)bytes);
}

void cuda_space_delete(gpu_space *space)
{
  const cuda_entries *driver;
  piece_list *pieces = space->own;
  if (pieces == NULL || cuda_find_entries(&driver) != NULL) return;
  for (uint32_t i = 0; i < pieces->count; i++)
    driver->cuMemUnmap_entry(address(space, pieces->items[i].offset),
                             (size_t)pieces->items[i].bytes);
  driver->cuMemAddressFree_entry(address(space, 0), (size_t)space->bytes);
  ARRAY_FREE(pieces);
  free(pieces);
  *space = (gpu_space){ 0 };
}

const char *cuda_allocate(void **memory, int64_t bytes)
{
  return cuda_said(cudaMalloc(memory, (size_t)bytes), "cudaMalloc of %lld bytes", (long long)bytes);
}

/* Portable: every device may copy to and from it. */
const char *cuda_allocate_pinned(void **memory, int64_t bytes)
{
  return cuda_said(cudaHostAlloc(memory, (size_t)bytes, cudaHostAllocPortable),
                   "cudaHostAlloc of %lld bytes", (long long)bytes);
}

/* ---- release ---- */

typedef struct freeing {
  const char *(*free)(void *memory);
  void *memory;
} freeing;

/*
 * cudaFree and cudaFreeHost wait for all streams of the device, and hold a lock that other threads
 * need to issue anything. If a stream is at a gate that one of these threads has yet to open, they
 * would wait forever.
 */
static struct {
  pthread_mutex_t lock;
  int32_t gates;
  struct {
    freeing *items;
    uint32_t count, capacity;
  } put_off;
} releases = { .lock = PTHREAD_MUTEX_INITIALIZER };

static const char *release(const char *(*free)(void *memory), void *memory)
{
  if (memory == NULL) return NULL;
  pthread_mutex_lock(&releases.lock);
  bool put_off = releases.gates > 0;
  if (put_off) *ARRAY_PUSH(&releases.put_off) = (freeing){ free, memory };
  pthread_mutex_unlock(&releases.lock);
  return put_off ? NULL : free(memory);
}

void cuda_gates_add(int32_t change)
{
  pthread_mutex_lock(&releases.lock);
  releases.gates += change;
  for (uint32_t i = 0; releases.gates == 0 && i < releases.put_off.count; i++)
    releases.put_off.items[i].free(releases.put_off.items[i].memory);
  if (releases.gates == 0) ARRAY_FREE(&releases.put_off);
  pthread_mutex_unlock(&releases.lock);
}

static const char *free_device(void *memory)
{
  return cuda_said(cudaFree(memory), "cudaFree");
}

static const char *free_pinned(void *memory)
{
  return cuda_said(cudaFreeHost(memory), "cudaFreeHost");
}

const char *cuda_release(void *memory)
{
  return release(free_device, memory);
}

const char *cuda_release_pinned(void *memory)
{
  return release(free_pinned, memory);
}

/* ---- the pool ---- */

const char *cuda_allocate_async(void **memory, int64_t bytes, gpu_stream *stream)
{
  return cuda_said(cudaMallocAsync(memory, (size_t)bytes, cuda_stream(stream)),
                   "cudaMallocAsync of %lld bytes", (long long)bytes);
}

const char *cuda_release_async(void *memory, gpu_stream *stream)
{
  return cuda_said(cudaFreeAsync(memory, cuda_stream(stream)), "cudaFreeAsync");
}

static const char *pool_of(uint32_t device, cudaMemPool_t *pool)
{
  return cuda_said(cudaDeviceGetDefaultMemPool(pool, (int)device),
                   "cudaDeviceGetDefaultMemPool of device %u", device);
}

static const char *pool_bytes(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, int64_t *bytes)
{
  uint64_t value = 0;
  const char *failure =
      cuda_said(cudaMemPoolGetAttribute(pool, attribute, &value), "cudaMemPoolGetAttribute");
  *bytes = (int64_t)value;
  return failure;
}

const char *cuda_pool_used(uint32_t device, int64_t *now_bytes, int64_t *high_bytes)
{
  cudaMemPool_t pool;
  const char *failure = pool_of(device, &pool);
  if (failure == NULL) failure = pool_bytes(pool, cudaMemPoolAttrUsedMemCurrent, now_bytes);
  if (failure == NULL) failure = pool_bytes(pool, cudaMemPoolAttrUsedMemHigh, high_bytes);
  return failure;
}

const char *cuda_pool_reset_high(uint32_t device)
{
  cudaMemPool_t pool;
  uint64_t zero = 0; /* the only allowed value: resets the mark to the current use */
  const char *failure = pool_of(device, &pool);
  if (failure != NULL) return failure;
  return cuda_said(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &zero),
                   "cudaMemPoolSetAttribute");
}
