/*
 * Concurrent copies share links: max-min fair rates by progressive filling.
 *
 * All flows grow together until one resource is full; its flows keep that rate, the others continue
 * to grow. So no resource is overloaded, every flow passes a full resource on which no flow is
 * faster, and a flow could get more only from one that has no more. Rates are whole bytes per
 * microsecond, rounded down: a full resource may have less than one unit for each flow left.
 */
#ifndef OFFSIM_SIM_MACHINE_LINK_SHARE_H
#define OFFSIM_SIM_MACHINE_LINK_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/machine/machine.h"

enum {
  LINK_SHARE_FLOWS = 64,
  LINK_SHARE_USES = 10, /* resources that one flow passes */
  LINK_SHARE_RESOURCES = 3 * (1 + 4 * LINK_SHARE_FLOWS),
};

#define LINK_UNLIMITED INT64_MAX

/* A flow represents identical flows with one rate. `weight` is the number of them that pass a
 * resource (1 on a GPU's own link, the number of GPUs on a shared link). */
typedef struct link_use {
  uint32_t resource;
  uint32_t weight; /* >= 1 */
} link_use;

typedef struct link_flow {
  link_use uses[LINK_SHARE_USES];
  uint32_t use_count;
  int64_t rate_bytes_per_us; /* out */
} link_flow;

/* At most LINK_SHARE_FLOWS flows over LINK_SHARE_RESOURCES resources. A flow whose resources are
 * all LINK_UNLIMITED gets LINK_UNLIMITED. */
void link_share(const int64_t *capacity_bytes_per_us, uint32_t resource_count, link_flow *flows,
                uint32_t flow_count);

/* ---- the links of one host ---- */

typedef enum link_direction { LINK_D2H, LINK_H2D } link_direction;

/* A copy of one GPU, or of `multiplicity` GPUs of one group that copy the same at the same time
 * (data-parallel replicas). Both directions of one GPU have the same `gpu`. */
typedef struct host_flow {
  uint32_t gpu;   /* number of the GPU, or of the first of its replicas, below LINK_SHARE_FLOWS */
  uint32_t group; /* socket or switch: gpu / gpus_per_group; below LINK_SHARE_FLOWS */
  link_direction direction;
  bool pageable;             /* to or from memory that is not page-locked */
  bool far;                  /* to or from memory of another socket */
  uint32_t multiplicity;     /* >= 1 */
  int64_t rate_bytes_per_us; /* out: of each one */
} host_flow;

void link_share_host(const machine *m, host_flow *flows, uint32_t flow_count);

/* ---- the disks of one host ---- */

/* Files of one GPU's process, or of `multiplicity` processes that do the same at the same time. */
typedef struct disk_flow {
  bool reads;
  uint32_t multiplicity;     /* >= 1 */
  int64_t rate_bytes_per_us; /* out: of each one */
} disk_flow;

/* Reading and writing have separate rates. */
void link_share_disks(const machine *m, disk_flow *flows, uint32_t flow_count);

#endif
