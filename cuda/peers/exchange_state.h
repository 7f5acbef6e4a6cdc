/*
 * The state of an exchange, for its files. Shared state is read and written under `lock`; only a
 * rank's host thread uses the rank's state while hosts issue.
 */
#ifndef OFFSIM_CUDA_PEERS_EXCHANGE_STATE_H
#define OFFSIM_CUDA_PEERS_EXCHANGE_STATE_H

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>

#include "cuda/peers/exchange.h"
#include "cuda/peers/peer_library.h"
#include "sim/base/arena.h"
#include "sim/base/array.h"
#include "sim/world/world.h"

/* A rank's stream that waits for others and that others wait for. Its posts (collectives, and
 * exchanges of messages) are numbered; gates are opened up to a post's number. */
typedef struct rendezvous_point {
  uint32_t *arrived;  /* the stream has reached post number ... */
  uint32_t **passed;  /* [slots] ... may go on, for a collective or a message */
  gpu_stream **lanes; /* [slots]; NULL for the first slot, which uses the stream itself */
  uint32_t slots;     /* most messages of an exchange; 0: no exchanges here */
  uint32_t posts;     /* so far */
} rendezvous_point;

/* A post, as seen by others. */
typedef struct post {
  uint32_t rank, op, stream;
  uint32_t slot, number;
} post;

/* A member that has reached a collective. The call is a copy, with its operands. */
typedef struct member {
  post at;
  cuda_call call;
  exec_call of;
  exec_tensor *operands;
} member;

/* A collective that some members have reached. */
typedef struct rendezvous {
  const exec_members *who;
  uint32_t group, stream, number; /* the n-th of the group on the stream */
  uint32_t present;
  member *members; /* [who->count]; call.of NULL: not arrived yet */
} rendezvous;

/* One side of a message whose other side has not arrived yet. */
typedef struct message_side {
  post at;
  void *data;
  bool waits;
} message_side;

/* Messages of an exchange that the host has not issued completely. */
typedef struct pending_message {
  uint32_t op;
  void *data;
} pending_message;

typedef struct rank_exchange {
  const stage *stage;
  rendezvous_point points[DEVICE_STREAMS];
  uint32_t collectives[COMM_GROUPS][DEVICE_STREAMS]; /* so far in this iteration */
  struct {
    pending_message *items;
    uint32_t count, capacity;
  } pending[DEVICE_STREAMS];
} rank_exchange;

struct exchange {
  exchange_setup setup;
  const plan *plan;
  rank_exchange *ranks;
  const peer_library *library; /* NULL: none */
  void *peers;                 /* its handle */

  pthread_mutex_t lock; /* of all from here on */
  struct {
    rendezvous **items;
    uint32_t count, capacity;
  } rendezvous;
  message_side *sides; /* [ranks, messages]: by the sending rank */
  arena texts;

  atomic_bool stopped, released;
  bool opener_runs;
  pthread_t opener;
};

/* Whether this process has the rank. */
static inline bool is_here(const exchange *x, uint32_t rank)
{
  return world_has(rank, x->setup.layout->rank_count);
}

/* Other processes would have to report their arrivals. */
static inline bool is_spread(void)
{
  return world_of().processes > 1;
}

static inline uint32_t *passed_gate(const exchange *x, const post *p)
{
  const rendezvous_point *point = &x->ranks[p->rank].points[p->stream];
  assert(p->slot < point->slots && "gates_prepare has seen the plan");
  return point->passed[p->slot];
}

static inline uint32_t *arrived_gate(const exchange *x, const post *p)
{
  const rendezvous_point *point = &x->ranks[p->rank].points[p->stream];
  assert(point->slots > 0 && "gates_prepare has seen the plan");
  return point->arrived;
}

/* With the members' operands. */
void rendezvous_release(rendezvous *m);

/* ---- gates.c ----------------------------------------------------------------------- */

/* Gates and lanes for the rank's plan. */
const char *gates_prepare(exchange *x, uint32_t rank);
void gates_release(exchange *x, uint32_t rank);
void lanes_synchronize(exchange *x, uint32_t rank);
/* Number of streams of a rank's plan, with lanes; 0: it has no exchanges. */
uint32_t streams_of(const stage *s);
/* "rank 0: op 5 (all_reduce @ ...)"; under the lock. */
const char *post_text(exchange *x, const post *p);

#endif
