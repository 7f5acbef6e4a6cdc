/*
 * The time of NCCL's collectives from their size: the fastest of its algorithms and protocols.
 *
 *     time = base latency + steps x latency of a step + bytes / bandwidth
 *
 * Latencies and shares of the bandwidth are those of NCCL's own tuning model (src/graph/tuning.cc, 2.2x:
 * baseLatencies, hwLatencies, llMaxBws), which chooses by them. A ring has 2 (n - 1) steps for an
 * all-reduce and n - 1 for the others; between hosts, 2 (hosts - 1) or hosts - 1 of them use the network. An
 * all-reduce may use a tree: up and down, along the ranks of a host and log2 of the hosts. NVLink SHARP is
 * left out, as in runs with NCCL_NVLS_ENABLE=0.
 */
#ifndef OFFSIM_SIM_MACHINE_NCCL_TIME_H
#define OFFSIM_SIM_MACHINE_NCCL_TIME_H

#include <stdbool.h>
#include <stdint.h>

typedef struct nccl_call {
  bool all_reduce;
  int64_t crossing_bytes; /* what crosses the bus of each rank in a ring */
  int64_t bytes;          /* one rank's whole buffer */
  int64_t ranks, domains; /* domains of NVLink, with equal parts of the ranks */
  int64_t bus_bytes_per_us;
  /* of a ring's step in the protocol of least latency: NVLink, network; the others are in proportion */
  int64_t step_ns, network_step_ns;
} nccl_call;

int64_t nccl_ps(const nccl_call *c);

#endif
