#include "cuda/peers/communicators.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/array.h"

uint32_t communicator_rank(const communicator *c, uint32_t rank)
{
  uint32_t i = 0;
  while (i < c->count && c->ranks[i] != rank)
    i++;
  assert(i < c->count && "a rank of the communicator");
  return i;
}

communicator *communicators_find(const communicators *all, uint32_t rank, uint32_t purpose,
                                 uint32_t stream)
{
  assert(rank < all->layout->rank_count && purpose < PURPOSES && stream < DEVICE_STREAMS);
  uint32_t number = all->number_of[rank][purpose][stream];
  assert(number > 0 && number <= all->count && "communicators_prepare has seen the plan");
  return &all->items[number - 1];
}

void communicators_begin(communicators *all, const exec_layout *layout)
{
  *all = (communicators){ .layout = layout };
  all->number_of = calloc(layout->rank_count, sizeof *all->number_of);
  if (all->number_of == NULL) die_refused("no memory for %" PRIu32 " ranks", layout->rank_count);
}

void communicators_release(communicators *all)
{
  for (uint32_t i = 0; i < all->count; i++)
    free(all->items[i].ranks);
  ARRAY_FREE(all);
  free(all->number_of);
}

static const char *add_communicator(communicators *all, const uint32_t *ranks, uint32_t count,
                                    uint32_t *number)
{
  assert(all->open != NULL && count > 0);
  communicator *c = ARRAY_PUSH(all);
  *c = (communicator){ .ranks = malloc(count * sizeof *ranks), .count = count };
  if (c->ranks == NULL) die_refused("no memory for a communicator of %" PRIu32 " ranks", count);
  memcpy(c->ranks, ranks, count * sizeof *ranks);
  *number = all->count;
  return all->open(all->context, c, *number);
}

/* Opens the communicator of a group and a stream with collectives in the rank's plan. The group's
 * first rank opens it for all. */
static const char *open_group(communicators *all, uint32_t rank, uint32_t group, uint32_t stream)
{
  const exec_members *who = &all->layout->groups[group][rank];
  if (who->count < 2 || all->number_of[rank][group][stream] > 0) return NULL;
  uint32_t number = 0;
  const char *failure = add_communicator(all, who->ranks, who->count, &number);
  for (uint32_t i = 0; i < who->count; i++)
    all->number_of[who->ranks[i]][group][stream] = number;
  assert(all->number_of[rank][group][stream] == number && "a rank is a member of its own groups");
  return failure;
}

static const char *open_groups(communicators *all, uint32_t rank, const stage *s)
{
  const char *failure = NULL;
  for (uint32_t i = 0; i < s->ops_of->ops.count && failure == NULL; i++) {
    const plan_op *o = stage_op(s, i);
    assert(o->kind != OP_COLLECTIVE || o->stream < DEVICE_STREAMS);
    if (o->kind == OP_COLLECTIVE)
      failure = open_group(all, rank, s->plan->calls.items[o->arg].group, o->stream);
  }
  return failure;
}

/* Streams of stages that messages connect: a node is (stage, stream), `root` its communicator's
 * first node. */
typedef struct ties {
  uint32_t stages;
  uint32_t *root; /* [stages x DEVICE_STREAMS] */
  bool *used;
} ties;

static uint32_t root_of(const ties *t, uint32_t node)
{
  while (t->root[node] != node) {
    assert(t->root[node] < node && "the first node of a communicator is its root");
    node = t->root[node];
  }
  return node;
}

static void tie(const ties *t, uint32_t a, uint32_t b)
{
  uint32_t first = root_of(t, a), second = root_of(t, b);
  if (first < second)
    t->root[second] = first;
  else
    t->root[first] = second;
  assert(root_of(t, a) == root_of(t, b));
}

/* `node_of`: by message, the node of the side that was found first, + 1. */
static void tie_messages(const ties *t, const stage *stages, uint32_t *node_of)
{
  for (uint32_t k = 0; k < t->stages; k++)
    for (uint32_t i = 0; i < stages[k].ops_of->ops.count; i++) {
      if (!is_message(&stages[k], i)) continue;
      const plan_op *o = stage_op(&stages[k], i);
      uint32_t node = k * DEVICE_STREAMS + o->stream;
      assert(o->stream < DEVICE_STREAMS && o->arg < stages[k].plan->messages.count);
      t->used[node] = true;
      if (node_of[o->arg] > 0) tie(t, node, node_of[o->arg] - 1);
      node_of[o->arg] = node + 1;
    }
}

/* The communicator of a root in a pipeline. */
static const char *open_tied(communicators *all, const ties *t, uint32_t root,
                             const exec_members *pipeline)
{
  uint32_t *ranks = calloc(t->stages, sizeof *ranks), count = 0, number = 0;
  bool open = true;
  if (ranks == NULL) die_refused("no memory for %" PRIu32 " stages", t->stages);
  for (uint32_t node = 0; node < t->stages * DEVICE_STREAMS; node++) {
    if (!t->used[node] || root_of(t, node) != root) continue;
    uint32_t rank = pipeline->ranks[node / DEVICE_STREAMS];
    assert(rank < all->layout->rank_count);
    open &= all->number_of[rank][FOR_MESSAGES][node % DEVICE_STREAMS] > 0;
    if (count == 0 || ranks[count - 1] != rank) ranks[count++] = rank;
  }
  const char *failure = open ? NULL : add_communicator(all, ranks, count, &number);
  for (uint32_t node = 0; node < t->stages * DEVICE_STREAMS && !open; node++)
    if (t->used[node] && root_of(t, node) == root)
      all->number_of[pipeline->ranks[node / DEVICE_STREAMS]][FOR_MESSAGES][node % DEVICE_STREAMS] =
          number;
  free(ranks);
  return failure;
}

static const char *open_pipelines(communicators *all, const ties *t)
{
  const char *failure = NULL;
  for (uint32_t rank = 0; rank < all->layout->rank_count; rank++) {
    const exec_members *pipeline = &all->layout->pipelines[rank];
    assert(pipeline->count == t->stages && "a pipeline has a rank of each stage");
    if (pipeline->ranks[0] != rank) continue;
    for (uint32_t node = 0; node < t->stages * DEVICE_STREAMS && failure == NULL; node++)
      if (t->used[node] && root_of(t, node) == node) failure = open_tied(all, t, node, pipeline);
  }
  return failure;
}

static const char *open_messages(communicators *all, const plan *p, const stage *stages)
{
  uint32_t nodes = p->rank_count * DEVICE_STREAMS;
  assert(nodes > 0);
  ties t = { p->rank_count, calloc(nodes, sizeof *t.root), calloc(nodes, sizeof *t.used) };
  uint32_t *node_of = calloc(p->messages.count + 1, sizeof *node_of);
  if (t.root == NULL || t.used == NULL || node_of == NULL)
    die_refused("no memory for %" PRIu32 " messages", p->messages.count);
  for (uint32_t i = 0; i < nodes; i++)
    t.root[i] = i;
  tie_messages(&t, stages, node_of);
  const char *failure = open_pipelines(all, &t);
  free(node_of);
  free(t.root);
  free(t.used);
  return failure;
}

const char *communicators_prepare(communicators *all, const plan *p, const stage *stages)
{
  const char *failure = NULL;
  assert(all->open != NULL && all->number_of != NULL);
  for (uint32_t rank = 0; rank < all->layout->rank_count && failure == NULL; rank++)
    failure = open_groups(all, rank, &stages[all->layout->ranks[rank].stage]);
  return failure != NULL ? failure : open_messages(all, p, stages);
}
