/*
 * A library that the driver loads into a process (CUDA_INJECTION64_PATH) and that writes what the
 * process gives to its GPUs into $OFFSIM_RECORD. The runtime's calls arrive as the driver's, which
 * it makes.
 */
#include <cupti.h>
#include <dlfcn.h>
#include <stdlib.h>

#include "cuda/recorder/calls.h"
#include "cuda/recorder/driver.h"
#include "cuda/recorder/rows_file.h"
#include "cuda/recorder/torch.h"

int InitializeInjection(void);

enum { MOST_CALLS = 4096 };

static const call_row *rows_by_id[MOST_CALLS];
static _Thread_local bool busy; /* the recorder's own calls are not recorded */

static void on_call(const CUpti_CallbackData *data, uint32_t id)
{
  const call_row *row = id < MOST_CALLS ? rows_by_id[id] : NULL;
  if (row == NULL || row->at_begin != (data->callbackSite == CUPTI_API_ENTER)) return;
  if (!row->at_begin && *(const CUresult *)data->functionReturnValue != CUDA_SUCCESS) return;
  row->take(&(driver_call){ data->functionParams, data->contextUid,
                            row->per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY,
                            data->symbolName });
}

static void CUPTIAPI on_callback(void *ignored, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                                 const void *data)
{
  (void)ignored;
  if (busy) return;
  busy = true;
  if (domain == CUPTI_CB_DOMAIN_DRIVER_API)
    on_call(data, id);
  else
    torch_watch(); /* a context was made */
  busy = false;
}

/* The process may have loaded CUPTI already, PyTorch has its own: the name finds that one. */
static bool subscribe(void)
{
  CUpti_SubscriberHandle subscriber;
  void *library = dlopen("libcupti.so.13", RTLD_NOW);
  if (library == NULL) library = dlopen("/usr/local/cuda/lib64/libcupti.so.13", RTLD_NOW);
  if (library == NULL) {
    rows_message("%s; NVIDIA's CUPTI 13 is needed, which is part of the CUDA toolkit", dlerror());
    return false;
  }
  CUptiResult (*begin)(CUpti_SubscriberHandle *, CUpti_CallbackFunc, void *);
  CUptiResult (*enable)(uint32_t, CUpti_SubscriberHandle, CUpti_CallbackDomain, CUpti_CallbackId);
  *(void **)(void *)&begin = dlsym(library, "cuptiSubscribe");
  *(void **)(void *)&enable = dlsym(library, "cuptiEnableCallback");
  if (begin == NULL || enable == NULL || begin(&subscriber, on_callback, NULL) != CUPTI_SUCCESS) {
    rows_message("CUPTI serves another profiler in this process; nothing is recorded");
    return false;
  }
  for (uint32_t i = 0; i < call_row_count; i++) {
    rows_by_id[call_rows[i].id] = &call_rows[i];
    if (enable(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, call_rows[i].id) != CUPTI_SUCCESS)
      rows_message("CUPTI does not report the driver's call %u", call_rows[i].id);
  }
  enable(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_CONTEXT_CREATED);
  return true;
}

static void at_end(void)
{
  ROWS_PUT(ISSUED_END, 0, 0);
  rows_close();
}

/* The driver calls it when it is initialised. A process that cannot be recorded goes on. */
__attribute__((visibility("default"))) int InitializeInjection(void)
{
  const char *path = getenv("OFFSIM_RECORD");
  if (path == NULL || !rows_open(path)) return 1;
  driver_find();
  if (!subscribe()) return 1;
  atexit(at_end);
  torch_watch();
  return 1;
}
