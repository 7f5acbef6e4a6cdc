#include "cuda/exec/executor.h"

#include <assert.h>

/* The table's `void *`. */
typedef struct started_run {
  cuda_run *run;
  cuda_exec *exec;
} started_run;

static cuda_run *run_of(const executor *of)
{
  assert(of->options != NULL);
  return (cuda_run *)(uintptr_t)of->options;
}

static bool knows(const executor *of, const plan *p, diag *d)
{
  return cuda_exec_knows(p, &run_of(of)->options, d);
}

static void *create(const executor *of, const exec_layout *layout, const exec_hooks *hooks, diag *d)
{
  cuda_run *run = run_of(of);
  assert(run->ranks == layout->rank_count);
  run->layout = layout;
  run->steps_ps = ARENA_ARRAY(run->memory_of, int64_t, run->steps);
  run->memory = ARENA_ARRAY(run->memory_of, cuda_memory, run->ranks);
  started_run *x = ARENA_NEW(run->memory_of, started_run);
  *x = (started_run){ run, cuda_exec_new(layout, &run->options, hooks, d) };
  return x->exec != NULL ? x : NULL;
}

static cuda_exec *exec_of(const void *x)
{
  assert(((const started_run *)x)->run->layout != NULL);
  return ((const started_run *)x)->exec;
}

static void release(void *x)
{
  cuda_exec_release(exec_of(x));
}

static bool fits(const void *x, const plan *p, diag *d)
{
  const started_run *of = x;
  assert(of->run->ranks == of->run->layout->rank_count);
  return cuda_exec_knows(p, &of->run->options, d) && cuda_exec_fits(of->exec, p, d);
}

static exec_outcome iteration(void *x, const plan *p, const exec_order *order,
                              const exec_step *step, diag *d)
{
  (void)order; /* streams of a GPU choose their own */
  return cuda_exec_iteration(exec_of(x), p, step, d);
}

static const char *finding(const void *x)
{
  return cuda_exec_finding(exec_of(x));
}

static void *data(void *x, uint32_t rank, uint32_t buffer)
{
  return cuda_exec_data(exec_of(x), rank, buffer);
}

static int64_t bytes(const void *x, uint32_t rank, uint32_t buffer)
{
  return cuda_exec_bytes(exec_of(x), rank, buffer);
}

static bool is_scratch(const void *x, uint32_t rank, uint32_t buffer)
{
  return cuda_exec_is_scratch(exec_of(x), rank, buffer);
}

static exec_tally tally(const void *x, uint32_t rank)
{
  return cuda_exec_tally(exec_of(x), rank);
}

static exec_digest digest(void *x, uint32_t rank, uint32_t buffer, const plan_view *view)
{
  return cuda_exec_digest(exec_of(x), rank, buffer, view);
}

/* ---- what was measured ----------------------------------------------------------------------- */

static void iteration_done(const executor *of, const void *x, uint32_t step, const plan *p)
{
  cuda_run *run = run_of(of);
  assert(step < run->steps);
  for (uint32_t rank = 0; rank < run->ranks; rank++)
    run->memory[rank] = cuda_exec_memory(exec_of(x), rank);
  run->steps_ps[step] = cuda_exec_times(exec_of(x), 0).step_ps;
  bool measured = cuda_measures(&run->options, step);
  if (run->step_done != NULL && (measured || step + 1 == run->steps))
    run->step_done(run, exec_of(x), step, p, run->context);
}

executor cuda_executor(cuda_run *run)
{
  executor e = { .options = run,
                 .knows = knows,
                 .create = create,
                 .release = release,
                 .fits = fits,
                 .iteration = iteration,
                 .finding = finding,
                 .data = data,
                 .bytes = bytes,
                 .is_scratch = is_scratch,
                 .tally = tally,
                 .iteration_done = iteration_done };
  if (run->options.arithmetic == CUDA_FAST) e.digest = digest;
  return e;
}
