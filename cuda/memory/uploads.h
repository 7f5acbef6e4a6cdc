/*
 * Contents of device buffers that come from the host: the caller writes them to an area of host
 * memory; from there they go through a ring of page-locked staging buffers, in the order of the
 * buffer's stream, so that the host waits only when it is a whole ring ahead.
 */
#ifndef OFFSIM_CUDA_MEMORY_UPLOADS_H
#define OFFSIM_CUDA_MEMORY_UPLOADS_H

#include "cuda/memory/held.h"
#include "cuda/queue/queue.h"

typedef struct upload_slot {
  unsigned char *data;
  gpu_event *event; /* the copy from it is done */
  bool used;
} upload_slot;

enum { UPLOAD_SLOTS = 64 };
typedef struct upload_ring {
  rank_queue *queue;
  unsigned char *memory; /* NULL until needed */
  upload_slot slots[UPLOAD_SLOTS];
  uint32_t next;
  void *area;
  int64_t area_bytes;
} upload_ring;

/* Host memory of at least `bytes`, until the next call. NULL after a refusal. */
void *upload_area(upload_ring *u, int64_t bytes);
/* Copies the area on the buffer's stream. The area may be written again at once. */
void upload(upload_ring *u, const held_buffer *to);
/* The queue's streams are done. */
void uploads_release(upload_ring *u);

#endif
