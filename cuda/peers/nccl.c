/* The library NCCL: see peer_library.h. */
#include <assert.h>
#include <stdlib.h>
#include <time.h>

#include "cuda/device/failure.h"
#include "cuda/peers/nccl_state.h"
#include "cuda/peers/turns.h"

static const library nccl_library = {
  .name = "NCCL",
  .files = { "libnccl.so.2" },
  .advice = "install NVIDIA NCCL 2, or add its folder to LD_LIBRARY_PATH",
  .functions = { NCCL_FUNCTIONS(LIBRARY_NAME) },
};

/* ---- from new to release --------------------------------------------------------------------- */

/* Before NCCL reads them. Algorithms are connected when a communicator is created, not at their
 * first use, where hosts would wait for each other. Sums in a switch (NVLS) have no known order. */
static void choose(void)
{
  setenv("NCCL_RUNTIME_CONNECT", "0", 1);
  setenv("NCCL_NVLS_ENABLE", "0", 1);
}

static void *open_library(const exchange_setup *setup, diag *d)
{
  uint32_t ranks = setup->layout->rank_count;
  assert(setup->nccl && ranks > 0);
  nccl *n = calloc(1, sizeof *n);
  if (n == NULL) die_refused("no memory for NCCL's communicators");
  n->setup = *setup;
  choose();
  if (!library_open(&nccl_library, &n->f, d)) {
    free(n);
    return NULL;
  }
  communicators_begin(&n->communicators, setup->layout);
  n->communicators.open = nccl_open_communicator;
  n->communicators.context = n;
  n->bytes = calloc(ranks, sizeof *n->bytes);
  if (n->bytes == NULL) die_refused("no memory for %u ranks", ranks);
  pthread_rwlock_init(&n->use, NULL);
  return n;
}

static void close_communicator(const nccl *n, communicator *c)
{
  assert(c->own != NULL && "nccl_open_communicator has seen it");
  for (uint32_t i = 0; i < c->count; i++)
    if (handles_of(c)[i] != NULL) (void)n->f.ncclCommDestroy(handles_of(c)[i]);
  free(c->own);
}

static void release(void *peers)
{
  nccl *n = peers;
  for (uint32_t i = 0; i < n->communicators.count; i++)
    close_communicator(n, &n->communicators.items[i]);
  communicators_release(&n->communicators);
  pthread_rwlock_destroy(&n->use);
  free(n->bytes);
  free(n);
}

static bool prepare(void *peers, const plan *p, const stage *stages, diag *d)
{
  nccl *n = peers;
  if (!turns_agree(p, stages, d)) return false;
  const char *failure = communicators_prepare(&n->communicators, p, stages);
  return failure == NULL || diag_refused(d, "NCCL cannot connect the ranks: %s", failure);
}

/* A host may be blocked in a call by the streams that are to be released, so the wait for it is
 * short. */
static void wait_for_callers(nccl *n)
{
  struct timespec end;
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_sec++;
  if (pthread_rwlock_timedwrlock(&n->use, &end) == 0) pthread_rwlock_unlock(&n->use);
}

static void abort_all(void *peers)
{
  nccl *n = peers;
  if (atomic_exchange(&n->aborted, true)) return;
  wait_for_callers(n);
  for (uint32_t i = 0; i < n->communicators.count; i++)
    for (uint32_t k = 0; k < n->communicators.items[i].count; k++) {
      ncclComm_t *handle = &handles_of(&n->communicators.items[i])[k];
      if (*handle != NULL) (void)n->f.ncclCommAbort(*handle);
      *handle = NULL;
    }
}

static int64_t bytes_of(const void *peers, uint32_t rank)
{
  const nccl *n = peers;
  assert(rank < n->setup.layout->rank_count);
  return n->bytes[rank];
}

/* ---- collectives ----------------------------------------------------------------------------- */

/* Elements that are only moved are sent as bytes. */
static ncclDataType_t type_of(dtype type)
{
  switch (type) {
  case DTYPE_BF16: return ncclBfloat16;
  case DTYPE_FP16: return ncclFloat16;
  case DTYPE_FP32: return ncclFloat32;
  case DTYPE_FP64: return ncclFloat64;
  case DTYPE_INT32: return ncclInt32;
  case DTYPE_INT64: return ncclInt64;
  case DTYPE_BYTE:
  case DTYPE_FP8:
  case DTYPES: break;
  }
  return ncclUint8;
}

/* One rank's part of a buffer. */
typedef struct part {
  const nccl *n;
  ncclComm_t handle;
  uint32_t members;
  cudaStream_t stream;
  uint32_t own; /* the rank's index among the members */
} part;

static const char *all_to_all(const part *p, const exec_tensor *read, const exec_tensor *write)
{
  assert(exec_elements(read) % p->members == 0 && "nccl_suits has seen it");
  int64_t each = exec_elements(read) / p->members * dtype_bytes((dtype)read->type);
  const char *failure = read->data == write->data ? gpu_failure("an all_to_all in place") : NULL;
  for (uint32_t i = 0; i < p->members && failure == NULL; i++) {
    const char *from = (const char *)read->data + i * each;
    char *to = (char *)write->data + i * each;
    failure = nccl_said(
        p->n, p->n->f.ncclSend(from, (size_t)each, ncclUint8, (int)i, p->handle, p->stream),
        "ncclSend");
    if (failure == NULL)
      failure = nccl_said(
          p->n, p->n->f.ncclRecv(to, (size_t)each, ncclUint8, (int)i, p->handle, p->stream),
          "ncclRecv");
  }
  return failure;
}

static const char *shift(const part *p, int64_t by, const exec_tensor *read,
                         const exec_tensor *write)
{
  size_t bytes = (size_t)(exec_elements(read) * dtype_bytes((dtype)read->type));
  uint32_t to = (p->own + (uint32_t)by) % p->members;
  uint32_t from = (p->own + p->members - (uint32_t)by) % p->members;
  const char *failure =
      nccl_said(p->n, p->n->f.ncclSend(read->data, bytes, ncclUint8, (int)to, p->handle, p->stream),
                "ncclSend");
  if (failure != NULL) return failure;
  return nccl_said(p->n,
                   p->n->f.ncclRecv(write->data, bytes, ncclUint8, (int)from, p->handle, p->stream),
                   "ncclRecv");
}

static const char *operand(const part *p, const plan_call *call, const exec_tensor *read,
                           const exec_tensor *write)
{
  const nccl_functions *f = &p->n->f;
  ncclDataType_t type = type_of((dtype)read->type);
  assert(p->handle != NULL && "this process has the rank");
  size_t sent = (size_t)exec_elements(read), received = (size_t)exec_elements(write);
  switch ((collective_kind)call->kind) {
  case COLLECTIVE_ALL_REDUCE:
    return nccl_said(
        p->n, f->ncclAllReduce(read->data, write->data, sent, type, ncclSum, p->handle, p->stream),
        "ncclAllReduce");
  case COLLECTIVE_ALL_REDUCE_MAX:
    return nccl_said(
        p->n, f->ncclAllReduce(read->data, write->data, sent, type, ncclMax, p->handle, p->stream),
        "ncclAllReduce");
  case COLLECTIVE_ALL_GATHER:
    return nccl_said(p->n,
                     f->ncclAllGather(read->data, write->data, sent, type, p->handle, p->stream),
                     "ncclAllGather");
  case COLLECTIVE_REDUCE_SCATTER:
    return nccl_said(p->n,
                     f->ncclReduceScatter(read->data, write->data, received, type, ncclSum,
                                          p->handle, p->stream),
                     "ncclReduceScatter");
  case COLLECTIVE_ALL_TO_ALL: return all_to_all(p, read, write);
  case COLLECTIVE_SHIFT: return shift(p, call->dims[COLLECTIVE_DETAIL], read, write);
  case COLLECTIVE_KINDS: break;
  }
  return NULL;
}

static const char *run_parts(const part *p, const exec_call *c)
{
  assert(c->read_count == c->write_count && "nccl_is_direct, or packed rows");
  const char *failure = nccl_said(p->n, p->n->f.ncclGroupStart(), "ncclGroupStart");
  for (uint32_t i = 0; i < c->read_count && failure == NULL; i++)
    failure = operand(p, c->call, &c->reads[i], &c->writes[i]);
  const char *end =
      nccl_said(p->n, p->n->f.ncclGroupEnd(), collective_name((collective_kind)c->call->kind));
  return failure != NULL ? failure : end;
}

static exec_tensor row_of(const exec_tensor *operands, uint32_t count, void *data)
{
  assert(count > 0 && data != NULL);
  return (exec_tensor){ .data = data,
                        .type = operands[0].type,
                        .rank = 1,
                        .shape = { nccl_row_elements(operands, count) },
                        .strides = { 1 } };
}

static const char *run_packed(const part *p, const cuda_call *given)
{
  cuda_call c = *given;
  assert(c.scratch_bytes >= nccl_scratch(c.of));
  char *from = c.scratch, *to = from + nccl_row_bytes(c.of->reads, c.of->read_count);
  exec_tensor read = row_of(c.of->reads, c.of->read_count, from);
  exec_tensor write = row_of(c.of->writes, c.of->write_count, to);
  exec_call rows = {
    .call = c.of->call, .reads = &read, .writes = &write, .read_count = 1, .write_count = 1
  };
  cuda_exact_pack(&c, from);
  const char *failure = c.failure != NULL ? c.failure : run_parts(p, &rows);
  if (failure == NULL) cuda_exact_unpack(&c, to);
  return failure != NULL ? failure : c.failure;
}

/* Holds `use` until part_end. False: the library was aborted. */
static bool part_begin(nccl *n, uint32_t rank, uint32_t purpose, uint32_t number,
                       gpu_stream *stream, part *p)
{
  pthread_rwlock_rdlock(&n->use);
  if (atomic_load(&n->aborted)) return false;
  const communicator *c = communicators_find(&n->communicators, rank, purpose, number);
  assert(c->own != NULL && c->count > 1);
  *p = (part){ .n = n,
               .handle = handles_of(c)[communicator_rank(c, rank)],
               .members = c->count,
               .stream = (cudaStream_t)(void *)stream,
               .own = communicator_rank(c, rank) };
  return true;
}

static void part_end(nccl *n)
{
  pthread_rwlock_unlock(&n->use);
}

static const char *collective(void *peers, uint32_t rank, uint32_t number, const cuda_call *c)
{
  nccl *n = peers;
  part p;
  const char *failure = NULL;
  if (part_begin(n, rank, c->of->call->group, number, c->stream, &p))
    failure = nccl_is_direct(c->of) ? run_parts(&p, c->of) : run_packed(&p, c);
  part_end(n);
  return failure;
}

/* ---- messages -------------------------------------------------------------------------------- */

static const char *message(const part *p, const peer_message *m, uint32_t peer)
{
  size_t bytes = (size_t)m->bytes;
  assert(p->handle != NULL && m->bytes >= 0);
  const nccl_functions *f = &p->n->f;
  if (m->sends)
    return nccl_said(p->n, f->ncclSend(m->data, bytes, ncclUint8, (int)peer, p->handle, p->stream),
                     "ncclSend");
  return nccl_said(p->n, f->ncclRecv(m->data, bytes, ncclUint8, (int)peer, p->handle, p->stream),
                   "ncclRecv");
}

static const char *exchange_messages(void *peers, uint32_t rank, uint32_t number,
                                     const peer_message *messages, uint32_t count,
                                     gpu_stream *stream)
{
  nccl *n = peers;
  part p;
  const char *failure = NULL;
  assert(count > 0 && "an exchange has messages");
  if (part_begin(n, rank, FOR_MESSAGES, number, stream, &p)) {
    const communicator *c = communicators_find(&n->communicators, rank, FOR_MESSAGES, number);
    failure = nccl_said(n, n->f.ncclGroupStart(), "ncclGroupStart");
    for (uint32_t i = 0; i < count && failure == NULL; i++)
      failure = message(&p, &messages[i], communicator_rank(c, messages[i].peer));
    const char *end = nccl_said(n, n->f.ncclGroupEnd(), "ncclGroupEnd of an exchange");
    if (failure == NULL) failure = end;
  }
  part_end(n);
  return failure;
}

const peer_library peer_library_nccl = {
  .open = open_library,
  .release = release,
  .prepare = prepare,
  .bytes = bytes_of,
  .suits = nccl_suits,
  .scratch = nccl_scratch,
  .collective = collective,
  .exchange = exchange_messages,
  .abort = abort_all,
};
