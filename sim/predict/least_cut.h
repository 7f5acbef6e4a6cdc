/*
 * The least cut of a network, from below: the flow that is found is a bound of every cut, however
 * soon the search stops.
 *
 *     network n = { 0 };
 *     uint32_t a = network_node(&n);                    // beside NETWORK_SOURCE and NETWORK_SINK
 *     network_edge(&n, NETWORK_SOURCE, a, CAP);
 *     network_edge(&n, a, NETWORK_SINK, 5);
 *     int64_t flow = network_flow(&n);                  // 5
 *     network_free(&n);
 *
 * Dinic's algorithm (E. A. Dinic, 1970): shortest paths of the residual network, phase by phase.
 */
#ifndef OFFSIM_SIM_PREDICT_LEAST_CUT_H
#define OFFSIM_SIM_PREDICT_LEAST_CUT_H

#include <stdint.h>

enum { NETWORK_SOURCE, NETWORK_SINK, NETWORK_NODES };

/* Each edge is followed by the one back. */
typedef struct network_link {
  uint32_t to, next; /* next of its node */
  int64_t rest;      /* of its capacity */
} network_link;

typedef struct network {
  struct {
    uint32_t *items; /* by node: its first link */
    uint32_t count, capacity;
  } first;
  struct {
    network_link *items;
    uint32_t count, capacity;
  } links;
} network;

uint32_t network_node(network *n);
/* Of a capacity up to CAP. */
void network_edge(network *n, uint32_t from, uint32_t to, int64_t capacity);
int64_t network_flow(network *n);
void network_free(network *n);

#endif
