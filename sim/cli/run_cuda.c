#include "sim/cli/run_cuda.h"

/* What stands behind the table's `void *`. */
typedef struct execution {
  run_cuda *run;
  cuda_exec *exec;
} execution;

static run_cuda *run_of(const train_executor *of)
{
  return (run_cuda *)(uintptr_t)of->options;
}

static void *create(const train_executor *of, const ref_layout *layout, const ref_hooks *hooks,
                    diag *d)
{
  run_cuda *run = run_of(of);
  run->layout = layout;
  run->steps_ps = ARENA_ARRAY(run->memory_of, int64_t, run->steps);
  run->memory = ARENA_ARRAY(run->memory_of, cuda_memory, run->ranks);
  execution *x = ARENA_ARRAY(run->memory_of, execution, 1);
  *x = (execution){ run, cuda_exec_new(layout, &run->options, hooks, d) };
  return x->exec != NULL ? x : NULL;
}

static cuda_exec *exec_of(const void *x)
{
  return ((const execution *)x)->exec;
}

static void release(void *x)
{
  cuda_exec_release(exec_of(x));
}

static bool fits(const void *x, const plan *p, diag *d)
{
  const execution *of = x;
  return cuda_exec_knows(p, &of->run->options, d) && cuda_exec_fits(of->exec, p, d);
}

static ref_outcome iteration(void *x, const plan *p, const ref_order *order, const ref_step *step,
                             diag *d)
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

static ref_tally tally(const void *x, uint32_t rank)
{
  return cuda_exec_tally(exec_of(x), rank);
}

static train_digest digest(void *x, uint32_t rank, uint32_t buffer, const plan_view *view)
{
  cuda_digest of = cuda_exec_digest(exec_of(x), rank, buffer, view);
  return (train_digest){ of.print, of.squares };
}

/* ---- what was measured ----------------------------------------------------------------------- */

static void iteration_done(const train_executor *of, const void *x, uint32_t step, const plan *p)
{
  run_cuda *run = run_of(of);
  for (uint32_t rank = 0; rank < run->ranks; rank++)
    run->memory[rank] = cuda_exec_memory(exec_of(x), rank);
  run->steps_ps[step] = cuda_exec_times(exec_of(x), 0).step_ps;
  bool measured = cuda_measures(&run->options, step);
  if (run->step_done != NULL && (measured || step + 1 == run->steps))
    run->step_done(run, exec_of(x), step, p, run->context);
}

train_executor train_on_cuda(run_cuda *run)
{
  train_executor e = { .options = run,
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
