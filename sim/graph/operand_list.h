/* The operands of a kernel with a varying number of them. */
#ifndef OFFSIM_SIM_GRAPH_OPERAND_LIST_H
#define OFFSIM_SIM_GRAPH_OPERAND_LIST_H

#include <assert.h>

#include "sim/graph/emitter.h"

enum { OPERANDS = NODE_INPUTS + NODE_SAVED + 4 };

/* Appending skips zeros; a zero follows the last operand. */
typedef struct operand_list {
  ref items[OPERANDS];
  uint32_t count;
} operand_list;

static inline void operands_append(operand_list *l, ref r)
{
  if (r == 0) return;
  assert(l->count + 1 < OPERANDS);
  l->items[l->count++] = r;
}

/* All inputs of the operator, or all tensors that it has saved. */
static inline operand_list operands_of_inputs(emitter *e, const graph_node *n)
{
  operand_list reads = { 0 };
  for (uint32_t i = 0; i < NODE_INPUTS && n->inputs[i] != 0; i++)
    operands_append(&reads, emit_input(e, n->inputs[i]));
  return reads;
}

/* Bytes for the kernel's own use; 0: none. */
static inline ref emit_scratch(emitter *e, const char *name, int64_t bytes)
{
  return bytes > 0 ? emit_temporary(e, name, DTYPE_BYTE, bytes, 0, 0, 0, CLASS_TRANSIENT) : 0;
}

#endif
