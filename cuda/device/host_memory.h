/* Devices and memory of the host driver. Functions are those of the table gpu_driver. */
#ifndef OFFSIM_CUDA_DEVICE_HOST_MEMORY_H
#define OFFSIM_CUDA_DEVICE_HOST_MEMORY_H

#include "cuda/device/device.h"

const char *host_count(uint32_t *devices);
const char *host_use(uint32_t device);
const char *host_describe(uint32_t device, char *name, size_t size);
const char *host_memory(uint32_t device, int64_t *free_bytes, int64_t *total_bytes);
const char *host_connect(const uint32_t *devices, uint32_t n);

const char *host_space_new(uint32_t device, int64_t bytes, gpu_space *space);
const char *host_space_map(gpu_space *space, int64_t offset, int64_t bytes);
const char *host_space_unmap(gpu_space *space, int64_t offset, int64_t bytes);
void host_space_delete(gpu_space *space);
const char *host_allocate(void **memory, int64_t bytes);
const char *host_release(void *memory);
const char *host_allocate_async(void **memory, int64_t bytes, gpu_stream *stream);
const char *host_release_async(void *memory, gpu_stream *stream);
const char *host_pool_used(uint32_t device, int64_t *now_bytes, int64_t *high_bytes);
const char *host_pool_reset_high(uint32_t device);
const char *host_allocate_pinned(void **memory, int64_t bytes);
const char *host_release_pinned(void *memory);

#endif
