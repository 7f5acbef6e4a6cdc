#include "cuda/device/device.h"

void host_stream_run(gpu_stream *stream, void (*work)(void *context), const void *context,
                     size_t bytes)
{
  (void)stream;
  (void)bytes;
  work((void *)(uintptr_t)context);
}
