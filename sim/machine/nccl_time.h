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
 *
 * Within a domain two things add to it, measured on two H100s (NCCL 2.28, 8 KiB to 1 GiB):
 *
 *   own part  each rank copies its own part beside those that cross the bus. With n ranks that is 1 of n - 1
 *             crossing parts, and takes 0.363 of the time of one in an all-gather or reduce-scatter, 0.115
 *             in an all-reduce (268 and 329 GB/s of 368; 355 and 361 with 4 and 8 ranks), 0.07 in an
 *             all-to-all.
 *   ramp      a transfer reaches its rate late: up to ramp_ns, half of it at 12 MB.
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
  int64_t ramp_ns; /* of large transfers by NVLink */
} nccl_call;

int64_t nccl_ps(const nccl_call *c);

/* The crossing bytes of an all-to-all of n ranks within a domain, with what the own part takes. */
int64_t nccl_exchanged_bytes(int64_t crossing_bytes, int64_t ranks);

/* What a transfer of so large a part by NVLink takes beside its bytes at the full rate. */
int64_t nccl_ramp_ps(int64_t ramp_ns, int64_t bytes);

#endif
