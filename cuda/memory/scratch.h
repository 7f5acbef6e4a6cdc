/* Scratch memory of a rank's streams: kernels of a stream use it one after the other. */
#ifndef OFFSIM_CUDA_MEMORY_SCRATCH_H
#define OFFSIM_CUDA_MEMORY_SCRATCH_H

#include "cuda/queue/queue.h"

typedef struct scratch_area {
  void *data;
  int64_t bytes;
} scratch_area;

typedef struct scratch_memory {
  rank_queue *queue;
  scratch_area areas[DEVICE_STREAMS];
} scratch_memory;

/* At least `bytes` for a stream; the old contents may be lost. False after a refusal. CUDA frees
 * memory only when the whole GPU is idle, which it is not while another rank's stream is at a gate:
 * so an iteration requests the most that it needs before it begins. */
bool scratch_reserve(scratch_memory *m, uint32_t stream, int64_t bytes);
int64_t scratch_bytes(const scratch_memory *m);
/* The queue's streams are done. */
void scratch_memory_release(scratch_memory *m);

#endif
