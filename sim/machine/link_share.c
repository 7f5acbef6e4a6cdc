#include "sim/machine/link_share.h"

#include <assert.h>
#include <string.h>

#include "sim/base/units.h"

typedef struct resource_load {
  int64_t left_bytes_per_us; /* capacity minus the rates of settled flows */
  uint32_t growing;          /* weight of the flows that still grow */
} resource_load;

/* The rate at which this resource is full if all its growing flows have that rate. */
static int64_t full_at(const resource_load *r)
{
  if (r->growing == 0 || r->left_bytes_per_us == LINK_UNLIMITED) return LINK_UNLIMITED;
  return r->left_bytes_per_us / r->growing;
}

static int64_t next_level(const resource_load *loads, uint32_t resource_count)
{
  int64_t level = LINK_UNLIMITED;

  for (uint32_t r = 0; r < resource_count; r++)
    level = min_i64(level, full_at(&loads[r]));
  return level;
}

static void settle(resource_load *loads, link_flow *f, int64_t level)
{
  f->rate_bytes_per_us = level;
  for (uint32_t u = 0; u < f->use_count; u++) {
    resource_load *r = &loads[f->uses[u].resource];
    assert(r->growing >= f->uses[u].weight);
    r->growing -= f->uses[u].weight;
    if (r->left_bytes_per_us != LINK_UNLIMITED) r->left_bytes_per_us -= level * f->uses[u].weight;
  }
}

static bool passes(const link_flow *f, const bool *full)
{
  for (uint32_t u = 0; u < f->use_count; u++)
    if (full[f->uses[u].resource]) return true;
  return false;
}

void link_share(const int64_t *capacity_bytes_per_us, uint32_t resource_count, link_flow *flows,
                uint32_t flow_count)
{
  resource_load loads[LINK_SHARE_RESOURCES];
  bool full[LINK_SHARE_RESOURCES];
  bool settled[LINK_SHARE_FLOWS] = { false };
  uint32_t left = flow_count;

  assert(resource_count <= LINK_SHARE_RESOURCES && flow_count <= LINK_SHARE_FLOWS);
  for (uint32_t r = 0; r < resource_count; r++)
    loads[r] = (resource_load){ .left_bytes_per_us = capacity_bytes_per_us[r] };
  for (uint32_t f = 0; f < flow_count; f++) {
    flows[f].rate_bytes_per_us = LINK_UNLIMITED;
    for (uint32_t u = 0; u < flows[f].use_count; u++)
      loads[flows[f].uses[u].resource].growing += flows[f].uses[u].weight;
  }
  while (left > 0) {
    int64_t level = next_level(loads, resource_count);
    if (level == LINK_UNLIMITED) return;
    for (uint32_t r = 0; r < resource_count; r++)
      full[r] = full_at(&loads[r]) == level;
    for (uint32_t f = 0; f < flow_count; f++) {
      if (settled[f] || !passes(&flows[f], full)) continue;
      settle(loads, &flows[f], level);
      settled[f] = true;
      left--;
    }
  }
}

/* ---- the links of one host ---- */

/* Links with two directions: each GPU's, each group's, the host's (the first), one for each copy of
 * pageable memory, which goes through a small page-locked buffer, and one for each copy of another
 * socket's memory. Each has three resources: device to host, host to device, and both together. */
typedef struct host_links {
  int64_t capacity[LINK_SHARE_RESOURCES];
  bool used[LINK_SHARE_RESOURCES];
  uint32_t count;
  uint32_t of_gpu[LINK_SHARE_FLOWS]; /* 0: none yet */
  uint32_t of_group[LINK_SHARE_FLOWS];
} host_links;

static int64_t limit(int64_t bytes_per_us)
{
  return bytes_per_us == 0 ? LINK_UNLIMITED : bytes_per_us;
}

static uint32_t add_link(host_links *h, int64_t d2h, int64_t h2d, int64_t duplex)
{
  int64_t *capacity = &h->capacity[3 * h->count];
  bool *used = &h->used[3 * h->count];

  assert(3 * h->count + 3 <= LINK_SHARE_RESOURCES);
  capacity[LINK_D2H] = limit(d2h);
  capacity[LINK_H2D] = limit(h2d);
  capacity[2] = limit(duplex);
  used[LINK_D2H] = used[LINK_H2D] = false;
  return h->count++;
}

static void use_link(host_links *h, link_flow *f, uint32_t link, link_direction direction,
                     uint32_t weight)
{
  assert(link < h->count && f->use_count + 2 <= LINK_SHARE_USES);
  h->used[3 * link + direction] = true;
  f->uses[f->use_count++] = (link_use){ 3 * link + direction, weight };
  f->uses[f->use_count++] = (link_use){ 3 * link + 2, weight };
}

static link_flow flow_over(const machine *m, host_links *h, const host_flow *f)
{
  link_flow over = { .use_count = 0 };
  uint32_t *gpu = &h->of_gpu[f->gpu], *group = &h->of_group[f->group];

  if (*gpu == 0)
    *gpu = add_link(h, m->link.d2h_bytes_per_us, m->link.h2d_bytes_per_us,
                    m->link.duplex_bytes_per_us);
  if (*group == 0)
    *group = add_link(h, m->host.group_d2h_bytes_per_us, m->host.group_h2d_bytes_per_us,
                      m->host.group_duplex_bytes_per_us);
  use_link(h, &over, *gpu, f->direction, 1);
  use_link(h, &over, *group, f->direction, f->multiplicity);
  use_link(h, &over, 0, f->direction, f->multiplicity);
  if (f->pageable)
    use_link(h, &over,
             add_link(h, m->link.pageable_d2h_bytes_per_us, m->link.pageable_h2d_bytes_per_us, 0),
             f->direction, 1);
  if (f->far)
    use_link(h, &over, add_link(h, m->link.far_d2h_bytes_per_us, m->link.far_h2d_bytes_per_us, 0),
             f->direction, 1);
  return over;
}

/* The limit of both directions together was measured while both copied, and is sometimes less than
 * one direction alone reaches. It counts only while both directions copy. */
static void lift_idle_duplex_limits(host_links *h)
{
  for (uint32_t r = 0; r < 3 * h->count; r += 3)
    if (!h->used[r + LINK_D2H] || !h->used[r + LINK_H2D]) h->capacity[r + 2] = LINK_UNLIMITED;
}

/* The limits of the flows' GPUs together at their host. */
static contention host_limits(const machine *m, const host_flow *flows, uint32_t flow_count)
{
  const contention all = { m->host.gpus, m->host.d2h_bytes_per_us, m->host.h2d_bytes_per_us,
                           m->host.duplex_bytes_per_us };
  uint32_t gpus[2] = { 0 };
  for (uint32_t i = 0; i < flow_count; i++)
    gpus[flows[i].direction] += flows[i].multiplicity;
  return contention_of(&m->at_once, &all, gpus[LINK_D2H], gpus[LINK_H2D]);
}

void link_share_host(const machine *m, host_flow *flows, uint32_t flow_count)
{
  host_links h; /* large and mostly unused: only the entries that are read are set */
  link_flow over[LINK_SHARE_FLOWS];

  assert(flow_count <= LINK_SHARE_FLOWS);
  h.count = 0;
  memset(h.of_gpu, 0, sizeof h.of_gpu);
  memset(h.of_group, 0, sizeof h.of_group);
  contention host = host_limits(m, flows, flow_count);
  (void)add_link(&h, host.d2h_bytes_per_us, host.h2d_bytes_per_us, host.duplex_bytes_per_us);
  for (uint32_t i = 0; i < flow_count; i++) {
    assert(flows[i].gpu < LINK_SHARE_FLOWS && flows[i].group < LINK_SHARE_FLOWS);
    assert(flows[i].multiplicity > 0);
    over[i] = flow_over(m, &h, &flows[i]);
  }
  lift_idle_duplex_limits(&h);
  link_share(h.capacity, 3 * h.count, over, flow_count);
  for (uint32_t i = 0; i < flow_count; i++)
    flows[i].rate_bytes_per_us = over[i].rate_bytes_per_us;
}

/* ---- the disks of one host ---- */

void link_share_disks(const machine *m, disk_flow *flows, uint32_t flow_count)
{
  const int64_t capacity[] = { m->disk.write_bytes_per_us, m->disk.read_bytes_per_us };
  link_flow over[LINK_SHARE_FLOWS];

  assert(flow_count <= LINK_SHARE_FLOWS);
  for (uint32_t i = 0; i < flow_count; i++) {
    assert(flows[i].multiplicity > 0);
    over[i] = (link_flow){ .uses = { { flows[i].reads, flows[i].multiplicity } }, .use_count = 1 };
  }
  link_share(capacity, 2, over, flow_count);
  for (uint32_t i = 0; i < flow_count; i++)
    flows[i].rate_bytes_per_us = over[i].rate_bytes_per_us;
}
