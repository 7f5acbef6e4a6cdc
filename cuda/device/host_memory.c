#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include "cuda/device/host_memory.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cuda/device/failure.h"

enum {
  DEVICES_MAX = 64,
  ALIGNMENT = 256,  /* of every allocation, as cudaMalloc's */
  UNWRITTEN = 0xA5, /* bytes of unwritten memory */
};

static struct {
  pthread_mutex_t lock;
  uint32_t devices;
  int64_t device_bytes; /* of each; also the limit of page-locked memory */
  struct {
    int64_t used_bytes, pool_bytes, pool_high_bytes;
  } of[DEVICES_MAX];
} host = { .lock = PTHREAD_MUTEX_INITIALIZER, .devices = 1, .device_bytes = (int64_t)1 << 40 };

static _Thread_local uint32_t device_of_thread;

/* ---- devices ---- */

void host_set_devices(uint32_t count, int64_t bytes)
{
  assert(count > 0 && count <= DEVICES_MAX && bytes > 0);
  host.devices = count;
  host.device_bytes = bytes;
}

const char *host_count(uint32_t *devices)
{
  *devices = host.devices;
  return NULL;
}

static const char *check_device(uint32_t device)
{
  return device < host.devices ? NULL
                               : gpu_failure("device %u: there are %u", device, host.devices);
}

const char *host_use(uint32_t device)
{
  const char *failure = check_device(device);
  if (failure == NULL) device_of_thread = device;
  return failure;
}

const char *host_describe(uint32_t device, char *name, size_t size)
{
  snprintf(name, size, "CPU instead of a GPU");
  return check_device(device);
}

/* Allocates bytes of a device, or frees them. */
static const char *take(uint32_t device, int64_t bytes, const char *what)
{
  pthread_mutex_lock(&host.lock);
  bool fits = bytes <= host.device_bytes - host.of[device].used_bytes;
  if (fits) host.of[device].used_bytes += bytes;
  pthread_mutex_unlock(&host.lock);
  return fits ? NULL : gpu_failure("%s of %lld bytes: out of memory", what, (long long)bytes);
}

static void give_back(uint32_t device, int64_t bytes)
{
  take(device, -bytes, "");
}

const char *host_memory(uint32_t device, int64_t *free_bytes, int64_t *total_bytes)
{
  pthread_mutex_lock(&host.lock);
  *free_bytes = host.device_bytes - host.of[device].used_bytes;
  *total_bytes = host.device_bytes;
  pthread_mutex_unlock(&host.lock);
  return NULL;
}

const char *host_connect(const uint32_t *devices, uint32_t n)
{
  const char *failure = NULL;
  for (uint32_t i = 0; i < n && failure == NULL; i++)
    failure = check_device(devices[i]);
  return failure;
}

/*
 * ---- address space ----
 * A range without access, of which parts are mapped. `own` counts mapped bytes.
 */

static void *map(void *at, int64_t bytes, int protection, int flags)
{
  return mmap(at, (size_t)bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags,
              -1, 0);
}

const char *host_space_new(uint32_t device, int64_t bytes, gpu_space *space)
{
  void *base = map(NULL, bytes, PROT_NONE, 0);
  if (base == MAP_FAILED)
    return gpu_failure("mmap of %lld bytes of address space: %s", (long long)bytes,
                       strerror(errno));
  int64_t *mapped_bytes = calloc(1, sizeof *mapped_bytes);
  *space = (gpu_space){ .base = base, .bytes = bytes, .device = device, .own = mapped_bytes };
  return mapped_bytes == NULL ? gpu_failure("an address space: out of memory") : NULL;
}

const char *host_space_map(gpu_space *space, int64_t offset, int64_t bytes)
{
  unsigned char *at = (unsigned char *)space->base + offset;
  const char *failure = take(space->device, bytes, "mapped memory");
  if (failure != NULL) return failure;
  if (map(at, bytes, PROT_READ | PROT_WRITE, MAP_FIXED) == MAP_FAILED) {
    give_back(space->device, bytes);
    return gpu_failure("mmap of %lld bytes: %s", (long long)bytes, strerror(errno));
  }
  memset(at, UNWRITTEN, (size_t)bytes);
  *(int64_t *)space->own += bytes;
  return NULL;
}

const char *host_space_unmap(gpu_space *space, int64_t offset, int64_t bytes)
{
  unsigned char *at = (unsigned char *)space->base + offset;
  if (map(at, bytes, PROT_NONE, MAP_FIXED) == MAP_FAILED)
    return gpu_failure("releasing %lld bytes: %s", (long long)bytes, strerror(errno));
  *(int64_t *)space->own -= bytes;
  give_back(space->device, bytes);
  return NULL;
}

void host_space_delete(gpu_space *space)
{
  if (space->base == NULL) return;
  munmap(space->base, (size_t)space->bytes);
  give_back(space->device, *(int64_t *)space->own);
  free(space->own);
  *space = (gpu_space){ 0 };
}

/* ---- blocks: ALIGNMENT bytes before each say what it is ---- */

typedef struct block {
  int64_t bytes;
  uint32_t device;
} block;

static block *block_of(void *memory)
{
  return (block *)(void *)((unsigned char *)memory - ALIGNMENT);
}

static const char *allocate_block(void **memory, int64_t bytes, const char *what)
{
  block *b;
  int error = posix_memalign((void **)&b, ALIGNMENT, (size_t)bytes + ALIGNMENT);
  if (error != 0)
    return gpu_failure("%s of %lld bytes: %s", what, (long long)bytes, strerror(error));
  *b = (block){ bytes, device_of_thread };
  *memory = (unsigned char *)b + ALIGNMENT;
  memset(*memory, UNWRITTEN, (size_t)bytes);
  return NULL;
}

static const char *allocate_on_device(void **memory, int64_t bytes, const char *what)
{
  const char *failure = take(device_of_thread, bytes, what);
  if (failure != NULL) return failure;
  failure = allocate_block(memory, bytes, what);
  if (failure != NULL) give_back(device_of_thread, bytes);
  return failure;
}

const char *host_allocate(void **memory, int64_t bytes)
{
  return allocate_on_device(memory, bytes, "device memory");
}

const char *host_release(void *memory)
{
  if (memory == NULL) return NULL;
  give_back(block_of(memory)->device, block_of(memory)->bytes);
  free(block_of(memory));
  return NULL;
}

/* The pool counts when it is called, not when the stream gets there, so its figures are the same in
 * every run. */
static void count_in_pool(uint32_t device, int64_t bytes)
{
  pthread_mutex_lock(&host.lock);
  int64_t now = host.of[device].pool_bytes += bytes;
  if (now > host.of[device].pool_high_bytes) host.of[device].pool_high_bytes = now;
  pthread_mutex_unlock(&host.lock);
}

const char *host_allocate_async(void **memory, int64_t bytes, gpu_stream *stream)
{
  (void)stream;
  const char *failure = allocate_on_device(memory, bytes, "pool memory");
  if (failure == NULL) count_in_pool(device_of_thread, bytes);
  return failure;
}

static void run_free(void *context)
{
  free(*(block **)context);
}

const char *host_release_async(void *memory, gpu_stream *stream)
{
  block *b = block_of(memory);
  count_in_pool(b->device, -b->bytes);
  give_back(b->device, b->bytes);
  host_stream_run(stream, run_free, &b, sizeof b);
  return NULL;
}

const char *host_pool_used(uint32_t device, int64_t *now_bytes, int64_t *high_bytes)
{
  pthread_mutex_lock(&host.lock);
  *now_bytes = host.of[device].pool_bytes;
  *high_bytes = host.of[device].pool_high_bytes;
  pthread_mutex_unlock(&host.lock);
  return NULL;
}

const char *host_pool_reset_high(uint32_t device)
{
  pthread_mutex_lock(&host.lock);
  host.of[device].pool_high_bytes = host.of[device].pool_bytes;
  pthread_mutex_unlock(&host.lock);
  return NULL;
}

const char *host_allocate_pinned(void **memory, int64_t bytes)
{
  if (bytes > host.device_bytes)
    return gpu_failure("page-locked memory of %lld bytes: out of memory", (long long)bytes);
  return allocate_block(memory, bytes, "page-locked memory");
}

const char *host_release_pinned(void *memory)
{
  if (memory != NULL) free(block_of(memory));
  return NULL;
}
