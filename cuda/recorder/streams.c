#include "cuda/recorder/streams.h"

#include <pthread.h>
#include <stdlib.h>

#include "cuda/recorder/rows_file.h"

typedef struct known_stream {
  CUstream handle;
  const void *thread; /* of a thread's own stream; NULL: of all */
  uint32_t context, number;
} known_stream;

/* Tens of them are used; the last one found is at the front. */
static struct {
  pthread_mutex_t lock;
  known_stream *items;
  uint32_t count, capacity, numbers;
} streams = { .lock = PTHREAD_MUTEX_INITIALIZER };

static uint64_t kind_of(CUstream stream)
{
  unsigned flags = 0;
  if (stream == CU_STREAM_LEGACY) return ISSUED_LEGACY;
  if (stream == CU_STREAM_PER_THREAD) return ISSUED_BLOCKING;
  if (driver.cuStreamGetFlags == NULL || driver.cuStreamGetFlags(stream, &flags) != CUDA_SUCCESS)
    return 0; /* fewer edges than there may be */
  return (flags & CU_STREAM_NON_BLOCKING) != 0 ? 0 : ISSUED_BLOCKING;
}

static known_stream *find(uint32_t context, CUstream stream)
{
  static _Thread_local char self;
  const void *thread = stream == CU_STREAM_PER_THREAD ? &self : NULL;
  for (uint32_t i = 0; i < streams.count; i++) {
    known_stream *s = &streams.items[i];
    if (s->handle == stream && s->context == context && s->thread == thread) {
      known_stream found = *s;
      *s = streams.items[0];
      streams.items[0] = found;
      return &streams.items[0];
    }
  }
  if (streams.count == streams.capacity) {
    streams.capacity = streams.capacity == 0 ? 64 : 2 * streams.capacity;
    streams.items = realloc(streams.items, streams.capacity * sizeof *streams.items);
    if (streams.items == NULL) abort();
  }
  known_stream *s = &streams.items[streams.count++];
  *s = (known_stream){ stream, thread, context, streams.numbers++ };
  ROWS_PUT(ISSUED_STREAM, 0, s->number, context, kind_of(stream));
  return s;
}

uint32_t stream_number(uint32_t context, CUstream stream)
{
  pthread_mutex_lock(&streams.lock);
  uint32_t number = find(context, stream)->number;
  pthread_mutex_unlock(&streams.lock);
  return number;
}

void stream_forget(uint32_t context, CUstream stream)
{
  pthread_mutex_lock(&streams.lock);
  for (uint32_t i = 0; i < streams.count; i++)
    if (streams.items[i].handle == stream && streams.items[i].context == context)
      streams.items[i] = streams.items[--streams.count];
  pthread_mutex_unlock(&streams.lock);
}
