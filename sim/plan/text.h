/*
 * The exact text form of a plan, one op a line. docs/reference/plan.md is its grammar.
 *
 *     offsim-plan 1
 *     ranks 1
 *
 *     rank 0
 *       resident   compute  %0 weights bf16[1048576] 2097152 bytes weight
 *     forward m0 c0
 *       alloc      compute  %1 query bf16[4096,1,512] 4194304 bytes saved @ layer 3 self_attention
 *       kernel     compute  gemm bf16 m=4096 n=512 k=2048 batch=1 23068672 bytes %0 -> %1 @ layer 3
 *       record     compute  e0
 *       wait       d2h      e0
 *       host_alloc host     %2 query bf16[4096,1,512] 4194304 bytes pinned_host key 1
 *       d2h        d2h      %1 -> %2
 *       free       compute  %1 after d2h
 *
 * Exact: a printed text reads back as a plan that prints the same bytes and simulates the same.
 * Rows of the shared tables (calls, sites, tensors) are written out where they are used, so equal
 * rows become one row and unused rows vanish; a message keeps its number.
 *
 * The text numbers a rank's buffers in order of allocation and its events in order of recording, as
 * the compile walk does.
 */
#ifndef OFFSIM_SIM_PLAN_TEXT_H
#define OFFSIM_SIM_PLAN_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "sim/plan/plan.h"

/* Limits of a text. The first is for file_read; a plan of this length has about 700 000 ops. */
enum {
  PLAN_TEXT_LIMIT_BYTES = 64 << 20,
  PLAN_TEXT_RANKS = 4096,
  PLAN_TEXT_MESSAGES = 1 << 22,
  PLAN_TEXT_OPERATORS = 1 << 20, /* of one host_work */
  PLAN_TEXT_POOL_KEYS = 1 << 20  /* tables of pools are as long as the largest key */
};

/* `ranks[r]`: print rank r; NULL: all. A rank without buffers and ops is omitted. */
void plan_print(FILE *out, const plan *p, const bool *ranks);

/* One op's line, as in the text. */
void plan_print_op(FILE *out, const plan *p, uint32_t rank, uint32_t op);
/* The part of a line for its kernel or collective: a blank, then name, type, sizes, bytes. */
void plan_print_call(FILE *out, const plan_call *c);
/* The text of a buffer's allocation, from its number on. */
void plan_print_buffer(FILE *out, const plan *p, uint32_t rank, uint32_t buffer);

/*
 * Reads the call at the beginning of `text`, in the form of a plan's line: "gemm bf16 m=4096 ...
 * 62914560 bytes". *rest is the text after it. `at` is the place of the text in its file. The call's
 * operands are whole. False after a diag error; *rest is then of no use.
 */
bool plan_parse_call(plan_call *call, const char *text, source_pos at, const char **rest, diag *d);

/*
 * Reads a plan from its text and checks it as validate.h describes. Its names are in `a`, which
 * must outlive it; the caller releases the plan. False after a diag error at file:line:column, with
 * nothing to release. A text may omit ranks, which then have no buffers and ops.
 */
bool plan_parse(plan *p, const char *file, const char *text, size_t length, arena *a, diag *d);

#endif
