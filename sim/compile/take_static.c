#include "sim/compile/take_static.h"

#include <assert.h>
#include <string.h>

uint32_t static_tensor(walk *w, const static_allocation *what)
{
  int64_t elements = what->bytes / dtype_bytes((dtype)what->type);
  assert(what->bytes % dtype_bytes((dtype)what->type) == 0);
  *ARRAY_PUSH(&w->plan->tensors) = (plan_tensor){ .name = arena_strdup(w->plan->names, what->name),
                                                  .dtype = what->type,
                                                  .rank = 1,
                                                  .shape = { elements } };
  return w->plan->tensors.count - 1;
}

static bool is_on_host(const static_allocation *what)
{
  return class_side((buffer_class)what->purpose) == ON_HOST;
}

/* What the host keeps of the optimizer: zeros, or parameters that are loaded; steps write gradients. */
static uint32_t take_on_host(walk *w, const static_allocation *what)
{
  assert(what->bytes > 0 && is_on_host(what));
  uint32_t made = walk_host_alloc(w, what->bytes, static_tensor(w, what), 0);
  w->rank->buffers.items[made].purpose = what->purpose;
  if (strcmp(what->name, "main_param.grad") != 0) walk_fill(w, made);
  return made;
}

uint32_t take_static(walk *w, const static_allocation *what)
{
  assert(what->bytes > 0);
  if (is_on_host(what)) return take_on_host(w, what);
  uint32_t made = walk_alloc(w, what->bytes, static_tensor(w, what), (buffer_class)what->purpose,
                             STREAM_COMPUTE);
  /* moments begin as zeros; main parameters are initialised with the model */
  bool is_main = what->phase == STATIC_BUILD && strstr(what->name, "main_") != NULL;
  if (what->purpose == CLASS_OPTIMIZER && !is_main) walk_fill(w, made);
  return made;
}

uint32_t take_static_resident(walk *w, const static_allocation *what)
{
  assert(w->iteration == ITERATION_STEADY && what->bytes > 0);
  return walk_resident(w,
                       (plan_buffer){ .bytes = what->bytes,
                                      .tensor = static_tensor(w, what),
                                      .purpose = what->purpose,
                                      .stream = is_on_host(what) ? STREAM_HOST : STREAM_COMPUTE });
}
