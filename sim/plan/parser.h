/*
 * The reader of plan texts: what its files share.
 *
 *   parse.c          lines, the head of the text, ranks; rows of the plan's tables, one for each
 *                    content
 *   parse_ops.c      the lines of a rank: ops, phases, residents
 *   parse_calls.c    kernels and collectives with their shapes, and views of operands
 *
 * Every function that returns bool returns false after a diag error.
 */
#ifndef OFFSIM_SIM_PLAN_PARSER_H
#define OFFSIM_SIM_PLAN_PARSER_H

#include "sim/plan/intern.h"
#include "sim/plan/line.h"
#include "sim/plan/plan.h"
#include "sim/plan/validate.h"

enum { OPERANDS = 2 * UINT8_MAX };

typedef struct parser {
  plan *plan;
  arena *memory; /* for what the plan keeps */
  diag *d;
  plan_line line;
  rank_plan *rank; /* the current rank; NULL before the first */
  uint32_t rank_index;
  source_pos rank_at;
  bool in_ops; /* the list of residents has ended */
  const char *stream_names[STREAMS];
  /* Lines of the rank were wrong; one of them may have made what others use, so from then on only the
   * words of a line are checked. */
  bool wrong, lost;
  plan_validator validator;
  intern_table names, sites, tensors; /* numbers of the last two: rows of the plan */
  source_pos operand_at[OPERANDS];
  plan_view views[OPERANDS]; /* of the op's operands */
} parser;

/* Reads a line of a rank after its first word, which is at `at`. */
bool parse_op(parser *p, op_kind kind, source_pos at);
bool parse_mark(parser *p, mark_kind kind);
bool parse_resident(parser *p, source_pos at);

/* "gemm bf16 m=4096 n=5120 k=2048 62914560 bytes", "all_reduce tp of 8 stride 1 8388608 bytes". */
bool parse_kernel(parser *p, plan_call *call);
bool parse_collective(parser *p, plan_call *call);
/* The text after an operand's number: "{fp32+1024:4096x8/3072x1}" (plan_view), or nothing: the
 * whole buffer. */
bool parse_view(parser *p, const plan_word *text, plan_view *view);

/* The row of a site. plan.sites[0] is nowhere: layer -1 of no module, so request that one first. */
uint32_t site_row(parser *p, int32_t layer, const plan_word *module);
uint32_t tensor_row(parser *p, const plan_word *name, const plan_tensor *described);

/* The type of that name, or DTYPES. */
dtype word_dtype(const plan_word *w);

#endif
