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
  arena *memory; /* of what the plan keeps */
  diag *d;
  plan_line line;
  rank_plan *rank; /* NULL before the first */
  uint32_t rank_index;
  source_pos rank_at;
  bool in_ops; /* the residents are over */
  plan_validator validator;
  intern_table names, sites, tensors; /* numbers of the last two: rows of the plan */
  source_pos operand_at[OPERANDS];
  plan_view views[OPERANDS]; /* of the op's operands */
} parser;

/* A line of a rank whose first word, at `at`, has been read. */
bool parse_op(parser *p, op_kind kind, source_pos at);
bool parse_mark(parser *p, mark_kind kind);
bool parse_resident(parser *p, source_pos at);

/* "gemm bf16 m=4096 n=5120 k=2048 62914560 bytes", "all_reduce tp of 8 stride 1 8388608 bytes". */
bool parse_kernel(parser *p, plan_call *call);
bool parse_collective(parser *p, plan_call *call);
/* What stands behind an operand's number: "{fp32+1024:4096x8/3072x1}" (plan_view), or nothing: the
 * whole. */
bool parse_view(parser *p, const plan_word *text, plan_view *view);

/* plan.sites[0] is nowhere: layer -1 of no module, which must be asked for first. */
uint32_t site_row(parser *p, int32_t layer, const plan_word *module);
uint32_t tensor_row(parser *p, const plan_word *name, const plan_tensor *described);

/* The type that `w` names, or DTYPES. */
dtype word_dtype(const plan_word *w);

#endif
