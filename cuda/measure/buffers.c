#include "cuda/measure/buffers.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/array.h"

enum { BUFFER_BYTES = 4 << 20, PREPARED = 8 };

typedef struct buffer {
  uint8_t *bytes;
  size_t filled;
} buffer;

typedef struct buffer_array {
  buffer *items;
  uint32_t count, capacity;
} buffer_array;

static struct {
  pthread_mutex_t lock;
  buffer_array empty, full;
} buffers = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* NULL: memory is refused; CUPTI drops the record and counts it. */
static uint8_t *new_buffer(void)
{
  uint8_t *bytes = aligned_alloc(64, BUFFER_BYTES);
  if (bytes != NULL) memset(bytes, 0, BUFFER_BYTES);
  return bytes;
}

void buffers_prepare(void)
{
  for (int i = 0; i < PREPARED; i++) {
    uint8_t *bytes = new_buffer();
    if (bytes == NULL) return;
    *ARRAY_PUSH(&buffers.empty) = (buffer){ bytes, 0 };
  }
}

static void release(buffer_array *array)
{
  for (uint32_t i = 0; i < array->count; i++)
    free(array->items[i].bytes);
  ARRAY_FREE(array);
}

void buffers_release(void)
{
  pthread_mutex_lock(&buffers.lock);
  release(&buffers.empty);
  release(&buffers.full);
  pthread_mutex_unlock(&buffers.lock);
}

void CUPTIAPI buffers_give(uint8_t **bytes, size_t *size, size_t *records_max)
{
  pthread_mutex_lock(&buffers.lock);
  bool prepared = buffers.empty.count > 0;
  *bytes = prepared ? buffers.empty.items[--buffers.empty.count].bytes : NULL;
  pthread_mutex_unlock(&buffers.lock);
  if (!prepared) *bytes = new_buffer();
  *size = *bytes == NULL ? 0 : BUFFER_BYTES;
  *records_max = 0; /* as many as fit */
}

void CUPTIAPI buffers_take(CUcontext context, uint32_t stream, uint8_t *bytes, size_t size,
                           size_t filled)
{
  (void)context;
  (void)stream;
  (void)size;
  pthread_mutex_lock(&buffers.lock);
  *ARRAY_PUSH(&buffers.full) = (buffer){ bytes, filled };
  pthread_mutex_unlock(&buffers.lock);
}

void buffers_read(void (*read)(void *context, uint8_t *bytes, size_t filled), void *context)
{
  pthread_mutex_lock(&buffers.lock);
  for (uint32_t i = 0; i < buffers.full.count; i++) {
    buffer b = buffers.full.items[i];
    read(context, b.bytes, b.filled);
    memset(b.bytes, 0, b.filled);
    *ARRAY_PUSH(&buffers.empty) = (buffer){ b.bytes, 0 };
  }
  buffers.full.count = 0;
  pthread_mutex_unlock(&buffers.lock);
}
