/*
 * What offsim takes of <pthread.h>, for wasm32-wasi, which has no threads: none starts, so the one that
 * there is does all the work, and no lock is ever taken.
 */
#ifndef OFFSIM_BUILD_WASM_PTHREAD_H
#define OFFSIM_BUILD_WASM_PTHREAD_H

#include <errno.h>

typedef int pthread_t;
typedef int pthread_mutex_t;

#define PTHREAD_MUTEX_INITIALIZER 0

static inline int pthread_create(pthread_t *thread, const void *how, void *(*run)(void *), void *of)
{
  (void)thread, (void)how, (void)run, (void)of;
  return EAGAIN;
}

static inline int pthread_join(pthread_t thread, void **result)
{
  (void)thread, (void)result;
  return EINVAL;
}

static inline int pthread_mutex_init(pthread_mutex_t *lock, const void *how)
{
  (void)how;
  *lock = PTHREAD_MUTEX_INITIALIZER;
  return 0;
}

static inline int pthread_mutex_lock(pthread_mutex_t *lock)
{
  (void)lock;
  return 0;
}

static inline int pthread_mutex_unlock(pthread_mutex_t *lock)
{
  (void)lock;
  return 0;
}

static inline int pthread_mutex_destroy(pthread_mutex_t *lock)
{
  (void)lock;
  return 0;
}

#endif
