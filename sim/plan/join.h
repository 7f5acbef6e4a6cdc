/*
 * Ranks of one plan that are compiled side by side: tables of their own for some of them, and one table for
 * all in the end. Its rows are numbered in the order in which the ranks, one after the other, need them, so
 * the plan is the same however its ranks were divided.
 *
 *     plan apart = plan_apart(p, &memory);                  // p's ranks, its messages, no rows
 *     ...                                                   // some ranks are compiled with these tables
 *     plan_rows rows = plan_join(p, &apart, &memory);       // by order of the ranks
 *     plan_renumber(&p->ranks[i], &rows);                   // each of them
 */
#ifndef OFFSIM_SIM_PLAN_JOIN_H
#define OFFSIM_SIM_PLAN_JOIN_H

#include "sim/plan/plan.h"

/* The rows of separate tables, as rows of the plan. */
typedef struct plan_rows {
  uint32_t *calls, *views; /* by row; of a list of views: by its first */
  uint32_t sites, tensors; /* rows that come before them; sites[0], nowhere, stays */
} plan_rows;

/* Its names and tables are in `a`. */
plan plan_apart(const plan *p, arena *a);

/* Puts the rows of `apart`, with copies of their names, into the plan. Maps are in `a`. */
plan_rows plan_join_rows(plan *p, const plan *apart, arena *a);

/* The same with the messages of its ranks; releases `apart`. */
plan_rows plan_join(plan *p, plan *apart, arena *a);

void plan_renumber(rank_plan *r, const plan_rows *rows);

static inline uint32_t plan_site_joined(const plan_rows *rows, uint32_t site)
{
  return site == 0 ? 0 : site + rows->sites;
}

#endif
