#include "sim/predict/least_cut.h"

#include <assert.h>

#include "sim/base/arena.h"
#include "sim/base/array.h"
#include "sim/base/units.h"

#define NO_LINK UINT32_MAX

/* More phases than plans need; what is found before is a bound too. */
enum { MOST_PHASES = 64 };

uint32_t network_node(network *n)
{
  while (n->first.count < NETWORK_NODES)
    *ARRAY_PUSH(&n->first) = NO_LINK;
  *ARRAY_PUSH(&n->first) = NO_LINK;
  return n->first.count - 1;
}

static void add_link(network *n, uint32_t from, uint32_t to, int64_t rest)
{
  *ARRAY_PUSH(&n->links) = (network_link){ to, n->first.items[from], rest };
  n->first.items[from] = n->links.count - 1;
}

void network_edge(network *n, uint32_t from, uint32_t to, int64_t capacity)
{
  assert(from < n->first.count && to < n->first.count && capacity >= 0 && capacity <= CAP);
  add_link(n, from, to, capacity);
  add_link(n, to, from, 0);
}

typedef struct search {
  network *net;
  uint32_t *level; /* by node: links from the source; 0: not reached */
  uint32_t *next;  /* by node: the link to try next */
  uint32_t *stack; /* links of the path, or nodes to look at */
} search;

/* False: the sink cannot be reached. */
static bool find_levels(search *s)
{
  const network *n = s->net;
  uint32_t count = 0;
  for (uint32_t i = 0; i < n->first.count; i++) {
    s->level[i] = 0;
    s->next[i] = n->first.items[i];
  }
  s->level[NETWORK_SOURCE] = 1;
  s->stack[count++] = NETWORK_SOURCE;
  for (uint32_t seen = 0; seen < count; seen++)
    for (uint32_t l = n->first.items[s->stack[seen]]; l != NO_LINK; l = n->links.items[l].next) {
      const network_link *link = &n->links.items[l];
      if (link->rest == 0 || s->level[link->to] != 0) continue;
      s->level[link->to] = s->level[s->stack[seen]] + 1;
      s->stack[count++] = link->to;
    }
  return s->level[NETWORK_SINK] != 0;
}

/* The next link of a shortest path from a node; NO_LINK: there is none. */
static uint32_t way_on(search *s, uint32_t node)
{
  const network_link *links = s->net->links.items;
  uint32_t *l = &s->next[node];
  while (*l != NO_LINK && (links[*l].rest == 0 || s->level[links[*l].to] != s->level[node] + 1))
    *l = links[*l].next;
  return *l;
}

static int64_t push(search *s, uint32_t length)
{
  network_link *links = s->net->links.items;
  int64_t flow = CAP;
  for (uint32_t i = 0; i < length; i++)
    flow = min_i64(flow, links[s->stack[i]].rest);
  for (uint32_t i = 0; i < length; i++) {
    links[s->stack[i]].rest -= flow;
    links[s->stack[i] ^ 1].rest = min_i64(CAP, links[s->stack[i] ^ 1].rest + flow);
  }
  assert(flow > 0);
  return flow;
}

/* Along shortest paths, until each has a full link. */
static int64_t fill_paths(search *s)
{
  network_link *links = s->net->links.items;
  int64_t flow = 0;
  uint32_t length = 0, node = NETWORK_SOURCE;
  for (;;) {
    uint32_t l = node == NETWORK_SINK ? NO_LINK : way_on(s, node);
    if (node == NETWORK_SINK) {
      flow = min_i64(CAP, flow + push(s, length));
      length = 0;
      node = NETWORK_SOURCE;
    } else if (l != NO_LINK) {
      s->stack[length++] = l;
      node = links[l].to;
    } else if (length == 0) {
      return flow;
    } else {
      uint32_t back = s->stack[--length];
      node = links[back ^ 1].to;
      s->next[node] = links[back].next;
    }
  }
}

int64_t network_flow(network *n)
{
  arena a = { 0 };
  search s = { n, ARENA_ARRAY(&a, uint32_t, n->first.count),
               ARENA_ARRAY(&a, uint32_t, n->first.count),
               ARENA_ARRAY(&a, uint32_t, n->first.count) };
  int64_t flow = 0;
  assert(n->first.count >= NETWORK_NODES);
  for (int phase = 0; phase < MOST_PHASES && find_levels(&s); phase++)
    flow = min_i64(CAP, flow + fill_paths(&s));
  arena_release(&a);
  return flow;
}

void network_free(network *n)
{
  ARRAY_FREE(&n->first);
  ARRAY_FREE(&n->links);
}
