#include "ref/exec/exec.h"

static bool knows(const executor *of, const plan *p, diag *d)
{
  return ref_exec_knows(p, of->options, d);
}

static void *create(const executor *of, const exec_layout *layout, const exec_hooks *hooks, diag *d)
{
  (void)d;
  return ref_exec_new(layout, of->options, hooks);
}

static void release(void *e)
{
  ref_exec_release(e);
}

static bool fits(const void *e, const plan *p, diag *d)
{
  return ref_exec_fits(e, p, d);
}

static exec_outcome iteration(void *e, const plan *p, const exec_order *order,
                              const exec_step *step, diag *d)
{
  return ref_exec_iteration(e, p, order, step, d);
}

static const char *finding(const void *e)
{
  return ref_exec_finding(e);
}

static void *data(void *e, uint32_t rank, uint32_t buffer)
{
  return ref_exec_data(e, rank, buffer);
}

static int64_t bytes(const void *e, uint32_t rank, uint32_t buffer)
{
  return ref_exec_bytes(e, rank, buffer);
}

static bool is_scratch(const void *e, uint32_t rank, uint32_t buffer)
{
  return ref_exec_is_scratch(e, rank, buffer);
}

static exec_tally tally(const void *e, uint32_t rank)
{
  return ref_exec_tally(e, rank);
}

executor ref_executor(const ref_options *options)
{
  return (executor){ .options = options,
                     .knows = knows,
                     .create = create,
                     .release = release,
                     .fits = fits,
                     .iteration = iteration,
                     .finding = finding,
                     .data = data,
                     .bytes = bytes,
                     .is_scratch = is_scratch,
                     .tally = tally };
}
