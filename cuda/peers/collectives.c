/* Collectives: the last member to arrive computes for all. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/peers/exchange_state.h"

static const exchange_trouble no_trouble;

static const exec_members *members_of(const exchange *x, uint32_t rank, const exec_call *c)
{
  assert(c->call->group < COMM_GROUPS && rank < x->setup.layout->rank_count);
  return &x->setup.layout->groups[c->call->group][rank];
}

static uint32_t index_of(const exec_members *who, uint32_t rank)
{
  uint32_t i = 0;
  while (i < who->count && who->ranks[i] != rank)
    i++;
  assert(i < who->count && "a rank is a member of its own groups");
  return i;
}

/* The same for all members. */
static bool goes_by_library(const exchange *x, uint32_t rank, const exec_call *c)
{
  return x->library != NULL && x->library->suits(c, members_of(x, rank, c)->count);
}

/* Whether all members are like this one. */
static int64_t scratch_of(const cuda_collective_row *row, const exec_call *c, uint32_t count)
{
  assert(row->scratch != NULL && count > 0);
  const exec_call **all = malloc(count * sizeof *all);
  if (all == NULL) die_refused("no memory for the %u members of a group", count);
  for (uint32_t i = 0; i < count; i++)
    all[i] = c;
  int64_t bytes = row->scratch(all, count);
  free(all);
  return bytes;
}

int64_t exchange_scratch(const exchange *x, uint32_t rank, const exec_call *c)
{
  assert(c->call->kind < COLLECTIVE_KINDS);
  const cuda_collective_row *row = &x->setup.collectives[c->call->kind];
  if (goes_by_library(x, rank, c) && x->library->scratch != NULL) return x->library->scratch(c);
  return row->scratch == NULL ? 0 : scratch_of(row, c, members_of(x, rank, c)->count);
}

/* ---- members --------------------------------------------------------------------------------- */

static void copy_member(member *m, const post *at, const cuda_call *c)
{
  uint32_t reads = c->of->read_count, count = reads + c->of->write_count;
  assert(m->call.of == NULL && "a member comes once");
  m->at = *at;
  m->call = *c;
  m->of = *c->of;
  m->operands = malloc((count > 0 ? count : 1) * sizeof *m->operands);
  if (m->operands == NULL) die_refused("no memory for %u operands of a collective", count);
  if (reads > 0) memcpy(m->operands, c->of->reads, reads * sizeof *m->operands);
  if (count > reads)
    memcpy(m->operands + reads, c->of->writes, (count - reads) * sizeof *m->operands);
  m->of.reads = m->operands;
  m->of.writes = m->operands + reads;
  m->call.of = &m->of;
}

void rendezvous_release(rendezvous *m)
{
  assert(m->present <= m->who->count);
  for (uint32_t i = 0; i < m->who->count; i++)
    free(m->members[i].operands);
  free(m->members);
  free(m);
}

/* ---- rendezvous, under the lock ------------------------------------------------------------- */

static rendezvous *rendezvous_new(const exec_members *who)
{
  assert(who->count > 0);
  rendezvous *m = calloc(1, sizeof *m);
  member *members = calloc(who->count, sizeof *members);
  if (m == NULL || members == NULL) die_refused("no memory for a collective of %u", who->count);
  m->who = who;
  m->members = members;
  return m;
}

static bool is_same(const rendezvous *a, const rendezvous *b)
{
  return a->who->ranks[0] == b->who->ranks[0] && a->group == b->group && a->stream == b->stream &&
         a->number == b->number;
}

/* Its index among the open collectives; opens it if necessary. */
static uint32_t find_rendezvous(exchange *x, const rendezvous *like)
{
  uint32_t i = 0;
  while (i < x->rendezvous.count && !is_same(x->rendezvous.items[i], like))
    i++;
  if (i < x->rendezvous.count) return i;
  rendezvous *m = rendezvous_new(like->who);
  assert(like->group < COMM_GROUPS && like->stream < DEVICE_STREAMS && m->present == 0);
  m->group = like->group;
  m->stream = like->stream;
  m->number = like->number;
  *ARRAY_PUSH(&x->rendezvous) = m;
  return i;
}

/* All members must make the same call, or the library would hang or corrupt memory. */
static const char *check_alike(exchange *x, const rendezvous *m, uint32_t index)
{
  const member *own = &m->members[index];
  assert(own->call.of != NULL);
  for (uint32_t i = 0; i < m->who->count; i++) {
    const member *other = &m->members[i];
    if (other->call.of == NULL || other->of.call->kind == own->of.call->kind) continue;
    const member *first = i < index ? other : own, *second = i < index ? own : other;
    return arena_printf(&x->texts, "%s is paired with %s", post_text(x, &first->at),
                        post_text(x, &second->at));
  }
  return NULL;
}

/* Adds a member; if it was the last one, *complete is the rendezvous, which the caller then
 * owns. */
static const char *join(exchange *x, const post *at, const cuda_call *c, rendezvous **complete)
{
  uint32_t group = c->of->call->group;
  const exec_members *who = members_of(x, at->rank, c->of);
  rendezvous like = { .who = who,
                      .group = group,
                      .stream = at->stream,
                      .number = x->ranks[at->rank].collectives[group][at->stream]++ };
  uint32_t at_row = find_rendezvous(x, &like), index = index_of(who, at->rank);
  rendezvous *m = x->rendezvous.items[at_row];
  copy_member(&m->members[index], at, c);
  m->present++;
  assert(m->present <= who->count);
  const char *finding = check_alike(x, m, index);
  if (finding != NULL || m->present < who->count) return finding;
  x->rendezvous.items[at_row] = x->rendezvous.items[--x->rendezvous.count];
  *complete = m;
  return NULL;
}

/* ---- what streams are given ------------------------------------------------------------------ */

static const char *wait_to_pass(const exchange *x, const post *at, gpu_stream *stream)
{
  const gpu_driver *driver = x->setup.driver;
  assert(at->number > 0 && "gates are open for post 0");
  const char *failure = driver->gate_open(stream, arrived_gate(x, at), at->number);
  return failure != NULL ? failure : driver->gate_wait(stream, passed_gate(x, at), at->number);
}

static const char *launch(const exchange *x, const rendezvous *m, const cuda_call *issuer)
{
  cuda_call *all = malloc(m->who->count * sizeof *all);
  cuda_call **calls = malloc(m->who->count * sizeof *calls);
  if (all == NULL || calls == NULL) die_refused("no memory for the members of a group");
  for (uint32_t i = 0; i < m->who->count; i++) {
    assert(m->members[i].call.of != NULL && "all have come");
    all[i] = *issuer;
    all[i].of = m->members[i].call.of;
    calls[i] = &all[i];
  }
  calls[0]->failure = NULL;
  x->setup.collectives[issuer->of->call->kind].launch(calls, m->who->count);
  const char *failure = calls[0]->failure;
  free(calls);
  free(all);
  return failure;
}

/* Runs it on the stream of the last member. */
static const char *run(const exchange *x, const rendezvous *m, const post *own, const cuda_call *c)
{
  const gpu_driver *driver = x->setup.driver;
  const char *failure = NULL;
  assert(m->present == m->who->count);
  for (uint32_t i = 0; i < m->who->count && failure == NULL; i++) {
    const post *p = &m->members[i].at;
    if (p->rank != own->rank) failure = driver->gate_wait(c->stream, arrived_gate(x, p), p->number);
  }
  if (failure == NULL) failure = launch(x, m, c);
  for (uint32_t i = 0; i < m->who->count && failure == NULL; i++) {
    const post *p = &m->members[i].at;
    if (p->rank != own->rank) failure = driver->gate_open(c->stream, passed_gate(x, p), p->number);
  }
  return failure;
}

/* This process does not know when the members of other processes arrive. */
static exchange_trouble spread_collective(exchange *x, const post *own, const cuda_call *c)
{
  assert(x->library != NULL && "processes without a library were refused");
  if (!goes_by_library(x, own->rank, c->of))
    return (exchange_trouble){ .failure = "processes cannot exchange this" };
  return (exchange_trouble){ .failure =
                                 x->library->collective(x->peers, own->rank, own->stream, c) };
}

exchange_trouble exchange_collective(exchange *x, uint32_t rank, uint32_t op, const cuda_call *c)
{
  exchange_trouble trouble = no_trouble;
  rendezvous *complete = NULL;
  if (atomic_load(&x->stopped)) return no_trouble;
  assert(stage_op(x->ranks[rank].stage, op)->kind == OP_COLLECTIVE);
  uint32_t stream = stage_op(x->ranks[rank].stage, op)->stream;
  post own = { rank, op, stream, 0, ++x->ranks[rank].points[stream].posts };
  if (is_spread() && members_of(x, rank, c->of)->count > 1) return spread_collective(x, &own, c);
  pthread_mutex_lock(&x->lock);
  trouble.finding = join(x, &own, c, &complete);
  pthread_mutex_unlock(&x->lock);
  if (trouble.finding != NULL) return trouble;
  if (goes_by_library(x, rank, c->of))
    trouble.failure = x->library->collective(x->peers, rank, stream, c);
  else if (complete == NULL)
    trouble.failure = wait_to_pass(x, &own, c->stream);
  else
    trouble.failure = run(x, complete, &own, c);
  if (complete != NULL) rendezvous_release(complete);
  return trouble;
}
