/*
 * Which kernels and copies of a trace are which ops of a plan. Private to sim/fit.
 *
 * Both sides are sequences in the order in which their hosts issue. Within a pass the cheapest alignment of
 * products, attentions and copies is taken (dynamic programming): an op takes consecutive kernels of its
 * class, as many as its kind may have. That costs how far their time is from the predicted one, relative to
 * all of the class in the pass, and each other kernel that is issued between them. Copies must have the op's
 * bytes. Where the plan has other kernels between two ops, the kernels of the two do not join. An op or a
 * kernel may stay alone, which costs more. Communication is at the borders of passes, so it is aligned over
 * the whole step.
 */
#ifndef OFFSIM_SIM_FIT_ALIGN_H
#define OFFSIM_SIM_FIT_ALIGN_H

#include "sim/base/median.h"
#include "sim/fit/issues.h"
#include "sim/predict/prediction.h"

typedef struct token {
  uint32_t at;   /* the op; the issue */
  uint32_t pass; /* forward and backward passes, then the rest of the step */
  fit_class class;
  int64_t ps;    /* of its kernel, alone; of an op that is none 0 */
  int64_t bytes; /* of a copy */
  uint32_t most; /* of an op: the kernels that it may take */
  bool apart;    /* kernels that are no tokens come between the token before and this one */
} token;

typedef struct token_list {
  token *items;
  uint32_t count, capacity;
} token_list;

/* An op, and the tokens of the trace that it is. */
typedef struct match {
  uint32_t op, first, count;
} match;

typedef struct matches {
  token_list predicted, measured; /* by issue; communication after all others */
  match *items;                   /* by op */
  uint32_t count;
  bool passes_agree;
  uint32_t *alone_ops,
      *alone_issues; /* [ops + 1], [issues + 1]: tokens before, but communication, without a match */
} matches;

/* Whether something in [op, op_end) or [work, work_end) has no match. */
static inline bool match_misses(const matches *m, uint32_t op, uint32_t op_end, uint32_t work,
                                uint32_t work_end)
{
  return m->alone_ops[op] != m->alone_ops[op_end] ||
         m->alone_issues[work] != m->alone_issues[work_end];
}

/* False after a diag error: the two are too long to be aligned. */
bool match_rank(matches *m, const prediction *p, const machine *own, uint32_t rank, const issues *x,
                arena *a, diag *d);
void matches_release(matches *m);

#endif
