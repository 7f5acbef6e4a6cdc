/* An execution's life: GPUs, drivers and ranks. */
#include "cuda/exec/exec.h"

#include <assert.h>
#include <stdlib.h>

#include "cuda/exec/state.h"
#ifdef OFFSIM_WITH_CUDA
#include "cuda/kernels/fast/libraries.h"
#endif

/* ---- what runs it ---------------------------------------------------------------------------- */

static bool choose_driver(cuda_exec *e, diag *d)
{
  assert(e->driver == NULL);
  e->driver = &gpu_driver_host;
  e->kernels = host_exact_kernels;
  e->collectives = host_exact_collectives;
  if (e->options.gpus == 0) return true;
#ifdef OFFSIM_WITH_CUDA
  e->driver = &gpu_driver_cuda;
  e->kernels = cuda_exact_kernels;
  e->collectives = cuda_exact_collectives;
  (void)d;
  return true;
#else
  return diag_refused(d, "this offsim was built without CUDA; --gpus 0 runs on the CPU instead");
#endif
}

static bool count_gpus(cuda_exec *e, diag *d)
{
  uint32_t there = 0, *asked = &e->options.gpus, ranks = ranks_here(e);
  assert(e->driver != NULL && ranks > 0 && ranks <= e->layout->rank_count);
  const char *why = *asked == 0 ? NULL : e->driver->count(&there);
  if (why != NULL)
    return diag_refused(d, "no GPU can be used: %s; --gpus 0 runs on the CPU instead", why);
  if (there == 0 && *asked > 0)
    return diag_refused(d, "there is no GPU; --gpus 0 runs on the CPU instead");
  if (*asked == CUDA_ALL_GPUS) *asked = there < ranks ? there : ranks;
  if (*asked > ranks)
    return diag_refused(d, "cuda: %u GPUs requested for %u ranks; a rank uses one", *asked, ranks);
  /* Processes of one host take the first GPUs, the next ones, and so on. */
  e->first_gpu = world_of().on_host * *asked;
  return e->first_gpu + *asked <= there || *asked == 0 ||
         diag_refused(d, "cuda: %u GPUs requested; the machine has %u", e->first_gpu + *asked,
                      there);
}

static bool connect_gpus(const cuda_exec *e, diag *d)
{
  uint32_t asked = e->options.gpus;
  assert(asked <= ranks_here(e));
  if (asked < 2) return true;
  uint32_t *devices = calloc(asked, sizeof *devices);
  if (devices == NULL) die_refused("cuda: no memory for %u numbers", asked);
  for (uint32_t i = 0; i < asked; i++)
    devices[i] = e->first_gpu + i;
  const char *why = e->driver->connect(devices, asked);
  free(devices);
  return why == NULL || diag_refused(d, "cuda: %s", why);
}

static bool has_own_gpus(const cuda_exec *e)
{
  return e->options.gpus == ranks_here(e);
}

/* NCCL does not support two ranks on one GPU; a single rank has no peers. */
static bool open_exchange(cuda_exec *e, diag *d)
{
  assert(e->exchange == NULL && e->ranks != NULL && e->collectives != NULL);
  exchange_setup setup = { .driver = e->driver,
                           .layout = e->layout,
                           .gpu_of = e->gpu_of,
                           .collectives = e->collectives,
                           .nccl = e->options.arithmetic == CUDA_FAST && has_own_gpus(e) &&
                                   e->layout->rank_count > 1 };
  e->exchange = exchange_new(&setup, d);
  return e->exchange != NULL;
}

/* ---- ranks ----------------------------------------------------------------------------------- */

static bool open_libraries(rank_run *r, diag *d)
{
  assert(r->libraries == NULL && is_here(r));
#ifdef OFFSIM_WITH_CUDA
  if (r->exec->options.arithmetic == CUDA_FAST && r->exec->options.gpus > 0) {
    r->libraries = cuda_libraries_new(d);
    return r->libraries != NULL;
  }
#endif
  (void)r;
  (void)d;
  return true;
}

/* Runs that inspect memory between ops have no graphs. Neither have runs with the driver's
 * stream-ordered allocations, which would become part of the graph. */
static bool captures_graphs(const cuda_options *o)
{
  return !o->guards && !o->every_op && o->backing == CUDA_CACHING;
}

static void init_rank(rank_run *r)
{
  const cuda_options *o = &r->exec->options;
  assert(is_here(r) == (r->gpu != NO_GPU));
  assert(r->sink.context == NULL && "its queue and memory keep pointers to it");
  rank_sink_init(r);
  r->queue = (rank_queue){ .driver = r->driver,
                           .sink = &r->sink,
                           .rank = r->number,
                           .captures = captures_graphs(o),
                           .issue_later = issue_stream_op,
                           .context = r };
  r->device = (device_memory){ .queue = &r->queue,
                               .gpu = r->gpu,
                               .expandable_segments = o->expandable_segments,
                               .guards = o->guards };
  r->scratch.queue = r->uploads.queue = &r->queue;
}

static bool open_rank(rank_run *r, diag *d)
{
  void *counter = NULL, *digest = NULL;
  const cuda_exec *e = r->exec;
  assert(r->left_out == NULL && r->digest == NULL && r->sink.context == r);
  host_memory_new(&r->host, &r->queue);
  bool good =
      rank_ok(r, r->driver->use(r->gpu)) &&
      device_memory_new(&r->device, e->options.backing == CUDA_CACHING, e->layout->rank_count) &&
      rank_ok(r, r->driver->allocate(&counter, sizeof *r->left_out)) &&
      rank_ok(r, r->driver->allocate(&digest, DIGEST_BYTES + DIGEST_SCRATCH_BYTES));
  r->left_out = counter;
  r->digest = digest;
  if (!good) return diag_refused(d, "cuda: %s", e->finding);
  return open_libraries(r, d);
}

static bool open_ranks(cuda_exec *e, diag *d)
{
  uint32_t count = e->layout->rank_count, gpus = e->options.gpus;
  assert(e->ranks == NULL && gpus <= count);
  e->ranks = ARENA_ARRAY(&e->lasting, rank_run, count);
  e->gpu_of = ARENA_ARRAY(&e->lasting, uint32_t, count);
  for (uint32_t i = 0, here = 0; i < count; i++) {
    bool own = world_has(i, count);
    assert(!own || here < ranks_here(e));
    e->gpu_of[i] = own ? e->first_gpu + here++ * gpus / ranks_here(e) : NO_GPU;
    e->ranks[i] = (rank_run){ .exec = e,
                              .driver = e->driver,
                              .number = i,
                              .gpu = e->gpu_of[i],
                              .watches = { .telling = NO_OP } };
    init_rank(&e->ranks[i]);
  }
  for (uint32_t i = 0; i < count; i++)
    if (is_here(&e->ranks[i]) && !open_rank(&e->ranks[i], d)) return false;
  return true;
}

static void close_rank(rank_run *r)
{
  assert(is_here(r) && r->watches.telling == NO_OP);
  (void)r->driver->use(r->gpu);
#ifdef OFFSIM_WITH_CUDA
  cuda_libraries_release(r->libraries);
#endif
  queue_release(&r->queue); /* nothing uses memory from here on */
  scratch_memory_release(&r->scratch);
  device_memory_release(&r->device);
  host_memory_release(&r->host);
  uploads_release(&r->uploads);
  watches_release(r);
  if (r->left_out != NULL) (void)r->driver->release(r->left_out);
  if (r->digest != NULL) (void)r->driver->release(r->digest);
  ARRAY_FREE(&r->rehearsed);
  free(r->contents);
}

/* The allocators of sim/memory release their blocks; all other memory is released with its
 * buffer. */
static void free_survivors(rank_run *r)
{
  (void)r->driver->use(r->gpu);
  for (uint32_t b = 0; r->stage != NULL && b < r->stage->ops_of->buffers.count; b++) {
    const held_buffer *h = &r->buffers[b];
    assert(h->state != FREED || h->stream < STREAMS);
    if (h->state != HELD) continue;
    if (stage_buffer(r->stage, b)->purpose == CLASS_PAGEABLE_HOST) free(h->data);
    if (side_of(r->stage, b) == ON_DEVICE && r->device.blocks == NULL)
      device_give(&r->device, h, 0, 0);
  }
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* CUPTI must be loaded before the first GPU is used. */
static bool open_all(cuda_exec *e, diag *d)
{
  if (!choose_driver(e, d)) return false;
  if (e->layout->rank_count > 1) e->driver->expect_gates();
  assert(e->layout->rank_count > 0);
  if (e->options.times && e->options.gpus > 0) {
    e->measure = measure_open(d);
    if (e->measure == NULL) return false;
  }
  return count_gpus(e, d) && connect_gpus(e, d) && open_ranks(e, d) && open_exchange(e, d);
}

cuda_exec *cuda_exec_new(const exec_layout *layout, const cuda_options *options,
                         const exec_hooks *hooks, diag *d)
{
  cuda_exec *e = calloc(1, sizeof *e);
  if (e == NULL) die_refused("cuda: no memory for an execution");
  assert(layout->rank_count > 0);
  *e = (cuda_exec){ .layout = layout, .options = *options, .d = d };
  if (hooks != NULL) e->hooks = *hooks;
  pthread_mutex_init(&e->lock, NULL);
  pthread_mutex_init(&e->disk_lock, NULL);
  pthread_mutex_init(&e->hook_lock, NULL);
  pthread_cond_init(&e->changed, NULL);
  e->patience = patience_new(e);
  if (open_all(e, d)) return e;
  cuda_exec_release(e);
  return NULL;
}

void cuda_exec_release(cuda_exec *e)
{
  if (e == NULL) return;
  patience_release(e->patience);
  for (uint32_t i = 0; e->ranks != NULL && i < e->layout->rank_count; i++)
    if (is_here(&e->ranks[i])) free_survivors(&e->ranks[i]);
  if (e->exchange != NULL) exchange_release(e->exchange);
  for (uint32_t i = 0; e->ranks != NULL && i < e->layout->rank_count; i++)
    if (is_here(&e->ranks[i])) close_rank(&e->ranks[i]);
  if (e->measure != NULL) measure_close(e->measure);
  disk_release(&e->disk);
  pthread_mutex_destroy(&e->lock);
  pthread_mutex_destroy(&e->disk_lock);
  pthread_mutex_destroy(&e->hook_lock);
  pthread_cond_destroy(&e->changed);
  arena_release(&e->iteration);
  arena_release(&e->prepared);
  arena_release(&e->lasting);
  free(e);
}
