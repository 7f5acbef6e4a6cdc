/*
 * Which collectives meet which: a communicator's collectives end on none of its ranks before all of
 * them have reached it.
 *
 * The members of a group have global ranks (plan_call), of which each rank of the plan represents
 * several (plan.global_ranks). Members on the same rank of the plan do the same at the same time;
 * only those on other ranks can be late. A library such as NCCL pairs the collectives of a
 * communicator in the order in which each rank's host thread issues them.
 */
#ifndef OFFSIM_SIM_VERIFY_COMMUNICATORS_H
#define OFFSIM_SIM_VERIFY_COMMUNICATORS_H

#include "sim/verify/gap.h"

/* The collectives of one communicator that one rank issues. */
typedef struct roster {
  uint32_t *ops;   /* in the order of the host thread */
  uint32_t *peers; /* the other ranks of the plan that have members, without those that the plan
                    * omits; ascending */
  uint32_t count, peer_count;
} roster;

typedef struct communicators {
  uint32_t count;
  uint32_t *of_call; /* by call: its communicator, NO_COMMUNICATOR for kernels */
  roster **rosters;  /* [rank][communicator] */
  uint64_t *unmet;   /* [rank]: its collectives that have members outside of the plan */
} communicators;

#define NO_COMMUNICATOR UINT32_MAX

/* Of the ops that are not left out. */
communicators communicators_of(const plan *p, const op_gap *gaps, arena *a);

/* The position of one of its ops. */
uint32_t roster_turn(const roster *r, uint32_t op);

/* Whether the plan has the rank's ops; a text may omit ranks. */
static inline bool rank_is_present(const plan *p, uint32_t rank)
{
  return p->ranks[rank].ops.count > 0;
}

/* The first op of a rank that its communicator pairs with one of another kind, type, size or tensor
 * on the next lower rank that is a member. False: none. */
bool find_mismatch(const communicators *c, const plan *p, uint32_t rank, uint32_t *op,
                   uint32_t *other_rank, uint32_t *other_op);

#endif
