#include "cuda/kernels/fast/libraries.h"

#include <pthread.h>
#include <stdlib.h>

#include "cuda/kernels/fast/handles.h"

static const library cublaslt_library = {
  .name = "cuBLASLt",
  .files = { "libcublasLt.so.13", "libcublasLt.so.12" },
  .advice = "install the CUDA toolkit's cuBLAS, or add its folder to LD_LIBRARY_PATH",
  .functions = { CUBLASLT_FUNCTIONS(LIBRARY_NAME) },
};

/* Functions are looked up once for all ranks. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const cublaslt_functions *cublaslt(diag *d)
{
  static cublaslt_functions functions;
  static bool found;
  (void)pthread_mutex_lock(&lock);
  if (!found) found = library_open(&cublaslt_library, &functions, d);
  (void)pthread_mutex_unlock(&lock);
  return found ? &functions : NULL;
}

#ifdef OFFSIM_WITH_CUDNN

static const library cudnn_library = {
  .name = "cuDNN",
  .files = { "libcudnn.so.9" },
  .functions = { CUDNN_FUNCTIONS(LIBRARY_NAME) },
};

static const cudnn_functions *cudnn(void)
{
  static cudnn_functions functions;
  static bool tried, found;
  (void)pthread_mutex_lock(&lock);
  if (!tried) found = library_open(&cudnn_library, &functions, NULL);
  tried = true;
  (void)pthread_mutex_unlock(&lock);
  return found ? &functions : NULL;
}

static void open_cudnn(cuda_libraries *l)
{
  l->cudnn = cudnn();
  if (l->cudnn != NULL && l->cudnn->cudnnCreate(&l->cudnn_handle) != CUDNN_STATUS_SUCCESS)
    l->cudnn = NULL;
}

static void close_cudnn(cuda_libraries *l)
{
  if (l->cudnn != NULL) (void)l->cudnn->cudnnDestroy(l->cudnn_handle);
}

#else

static void open_cudnn(cuda_libraries *l)
{
  (void)l;
}

static void close_cudnn(cuda_libraries *l)
{
  (void)l;
}

#endif

cuda_libraries *cuda_libraries_new(diag *d)
{
  const cublaslt_functions *functions = cublaslt(d);
  if (functions == NULL) return NULL;
  cuda_libraries *l = calloc(1, sizeof *l);
  if (l == NULL) die_refused("no memory for the handles of CUDA libraries");
  l->cublaslt = functions;
  cublasStatus_t status = functions->cublasLtCreate(&l->cublaslt_handle);
  if (status != CUBLAS_STATUS_SUCCESS) {
    (void)diag_refused(d, "cuBLASLt does not start: %s",
                       functions->cublasLtGetStatusString(status));
    free(l);
    return NULL;
  }
  open_cudnn(l);
  return l;
}

static void forget(cuda_libraries *l, kernel_memory *m)
{
  if (m->items != NULL) m->release(l, m->items);
}

void cuda_libraries_release(cuda_libraries *l)
{
  if (l == NULL) return;
  forget(l, &l->products);
  forget(l, &l->attention);
  close_cudnn(l);
  (void)l->cublaslt->cublasLtDestroy(l->cublaslt_handle);
  free(l);
}
