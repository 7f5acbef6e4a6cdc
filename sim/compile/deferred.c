#include "sim/compile/deferred.h"

#include <assert.h>

static bool is_parameter(uint32_t operand)
{
  assert((operand & OPERAND_PARAMETER) == 0 || (operand & OPERAND_PARAMETER_GRADIENT) == 0);
  return (operand & (OPERAND_PARAMETER | OPERAND_PARAMETER_GRADIENT)) != 0;
}

static void stash(walk *w, uint32_t buffer)
{
  if (buffer == NO_BUFFER) return;
  assert(walk_references(w, buffer) > 0 && "a product reads a live buffer");
  walk_refer(w, buffer);
  *ARRAY_PUSH(&w->stashed) = buffer;
}

static int64_t deferred_products(const walk *w)
{
  assert(w->deferred.count == 0 || w->backward_seen);
  int64_t count = 0;
  for (uint32_t i = 0; i < w->deferred.count; i++)
    count += w->deferred.items[i].step.op == OP_KERNEL;
  return count;
}

bool deferred_take(walk *w, const chunk_program *p, const instance *in, const program_step *step)
{
  int64_t limit = w->settings->training.wgrad_deferral_limit;
  if (limit > 0 && deferred_products(w) >= limit) return false;
  if (p->input != 0) stash(w, in->buffer_of[p->input]);
  w->stashing = true;
  uint32_t count = (uint32_t)step->reads + step->writes;
  assert(count <= DEFERRED_OPERANDS);
  deferred_step *stashed = ARRAY_PUSH(&w->deferred);
  *stashed = (deferred_step){ .step = *step };
  for (uint32_t i = 0; i < count; i++) {
    uint32_t operand = p->operands.items[step->operands + i];
    stashed->buffers[i] = walk_operand(in, operand);
    assert(i < step->reads || is_parameter(operand));
    if (!is_parameter(operand)) stash(w, stashed->buffers[i]);
  }
  return true;
}

void deferred_backward_done(walk *w, instance_id i)
{
  assert(w->backward_seen);
  place_id gradient = walk_program(w, i)->input_gradient;
  if (w->stashing && gradient != 0) stash(w, walk_instance(w, i)->buffer_of[gradient]);
  w->stashing = false;
}

void deferred_drain(walk *w)
{
  assert(!w->stashing && "every backward has ended");
  for (uint32_t i = 0; i < w->deferred.count; i++)
    walk_emit_step(w, &w->deferred.items[i].step, w->deferred.items[i].buffers);
  for (uint32_t i = 0; i < w->stashed.count; i++)
    walk_drop_reference(w, w->stashed.items[i]);
  ARRAY_FREE(&w->deferred);
  ARRAY_FREE(&w->stashed);
}
