/*
 * The memory of a plan's buffer.
 *
 *     NOT_HELD --allocation--> HELD --free--> FREED      its address stays for ops that are issued
 *                               |                        later (cuda/queue)
 *                               `--next iteration--> PASSED_ON    a resident of it has it now
 */
#ifndef OFFSIM_CUDA_MEMORY_HELD_H
#define OFFSIM_CUDA_MEMORY_HELD_H

#include <assert.h>
#include <stdint.h>

typedef enum held_state { NOT_HELD, HELD, FREED, PASSED_ON } held_state;

typedef struct held_buffer {
  unsigned char *data; /* device or host memory; NULL: a file, or nothing */
  int64_t bytes;       /* of the buffer, by dtypes and shapes */
  int64_t file_at;     /* files: offset in the file that contains all files */
  uint32_t handle;     /* the caching allocator's block, or the pinned pool's handle */
  uint8_t stream;      /* plan_stream whose pool it came from */
  uint8_t state;       /* held_state */
} held_buffer;

static inline void held_become(held_buffer *h, held_state next)
{
  assert(next != NOT_HELD && h->state == (next == HELD ? NOT_HELD : HELD));
  h->state = (uint8_t)next;
}

#endif
