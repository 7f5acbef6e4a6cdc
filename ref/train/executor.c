#include "ref/train/executor.h"

static void *create(const train_executor *of, const ref_layout *layout, const ref_hooks *hooks,
                    diag *d)
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

static ref_outcome iteration(void *e, const plan *p, const ref_order *order, const ref_step *step,
                             diag *d)
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

static ref_tally tally(const void *e, uint32_t rank)
{
  return ref_exec_tally(e, rank);
}

train_executor train_on_ref(const ref_options *options)
{
  return (train_executor){ .options = options,
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
