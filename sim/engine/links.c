#include "sim/engine/links.h"

#include <assert.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/plan/plan.h"

enum { STREAM_LIMIT = STREAM_HOST, SHARE_CACHE = 64 };

/*
 * A lane: one copy engine, or the files of a rank in one direction.
 *
 *          posted                latency is over             last byte is there
 *   IDLE ---------> WAITS ---------------------> TRANSFERS ----------------> IDLE, or WAITS if others wait
 *
 * IDLE       first == STREAM_LIMIT, waits == 0
 * WAITS      a bit in `waits` for each copy; `first` is the one to begin
 * TRANSFERS  transfers; others may wait
 */
typedef struct lane {
  bool transfers;
  bool pageable;      /* ... and pageable host memory */
  uint32_t stream;    /* of the copy being served */
  int64_t latency_ps; /* of every copy, before its transfer */
  int64_t start_ps;
  int64_t free_ps;   /* end of the engine's last copy */
  int64_t end_ps;    /* of the transfer, at its current rate */
  int64_t remaining; /* bytes times PS_PER_US, so that a rate times picoseconds is exact */
  int64_t rate_bytes_per_us;
  uint32_t first; /* stream of the waiting copy that is ready first, STREAM_LIMIT: none waits */
  uint32_t waits; /* streams whose copy waits, a bit each */
  link_copy waiting[STREAM_LIMIT];
} lane;

/* Rates depend only on which lanes transfer, and which of them use pageable memory: one row for
 * each pair of sets seen so far. */
typedef struct share_row {
  uint64_t mask, pageable;
  int64_t rates[LINK_SHARE_FLOWS];
} share_row;

/* Lanes that share rates: the copy engines of a host's GPUs, or the files on its disks. */
typedef struct host_links {
  bool disks;
  uint32_t *lanes; /* indexes into links.lanes, two for each rank */
  uint32_t lane_count;
  int64_t now_ps;
  uint32_t next_lane; /* of the next event */
  bool changed;       /* that is to be found again */
  share_row *rows[SHARE_CACHE];
  uint32_t row_count;
} host_links;

struct links {
  arena *memory;
  const machine *machine;
  const rank_place *places;
  lane *lanes;         /* rank * LANE_KINDS + kind */
  host_links *hosts;   /* two for each host: its copy engines, its disks */
  uint32_t host_count; /* number of `hosts` */
  uint32_t leaves;     /* a power of two, not below host_count */
  int64_t *next_ps;    /* [leaves]: time of the host's next event, INT64_MAX: there is none */
  /* [2 * leaves]: among the hosts below the node, the one with the first event */
  uint32_t *winners;
  uint32_t *changed; /* hosts */
  uint32_t changed_count;
  uint32_t *host_of_lane;
};

/* ---- set-up ------------------------------------------------------------------------------------ */

/* Index of the first of the host's two host_links. */
static uint32_t find_host(links *l, uint32_t *ids, uint32_t id)
{
  uint32_t h = 0;
  while (h < l->host_count && ids[h] != id)
    h += 2;
  assert(h % 2 == 0 && h <= l->host_count);
  if (h == l->host_count) {
    ids[h] = id;
    l->hosts[h + 1].disks = true;
    l->host_count += 2;
  }
  return h;
}

static int64_t lane_latency_ps(const machine *m, lane_kind kind)
{
  assert(kind < LANE_KINDS);
  if (kind == LANE_D2H) return m->link.d2h_latency_ns * PS_PER_NS;
  return kind == LANE_H2D ? m->link.h2d_latency_ns * PS_PER_NS : 0;
}

static void add_lane(links *l, uint32_t host, uint32_t index)
{
  host_links *h = &l->hosts[host];
  assert(h->lane_count < LINK_SHARE_FLOWS && "link_share supports the host's ranks");
  if (h->lanes == NULL) h->lanes = ARENA_ARRAY(l->memory, uint32_t, LINK_SHARE_FLOWS);
  h->lanes[h->lane_count++] = index;
  assert((h->disks ? LANE_DISK_WRITE : LANE_D2H) <= index % LANE_KINDS);
  l->host_of_lane[index] = host;
  l->lanes[index].first = STREAM_LIMIT;
  l->lanes[index].latency_ps = lane_latency_ps(l->machine, (lane_kind)(index % LANE_KINDS));
}

/* A tournament tree over the hosts: the root's winner has the first event. */
static void plant_winners(links *l, arena *a)
{
  for (l->leaves = 1; l->leaves < l->host_count;)
    l->leaves *= 2;
  assert((l->leaves & (l->leaves - 1)) == 0 && l->leaves >= l->host_count);
  l->winners = ARENA_ARRAY(a, uint32_t, 2 * l->leaves);
  l->next_ps = ARENA_ARRAY(a, int64_t, l->leaves);
  l->changed = ARENA_ARRAY(a, uint32_t, l->host_count);
  for (uint32_t i = 0; i < l->leaves; i++) {
    l->winners[l->leaves + i] = i;
    l->next_ps[i] = INT64_MAX;
  }
  for (uint32_t node = l->leaves - 1; node > 0; node--)
    l->winners[node] = l->winners[2 * node];
}

links *links_new(const machine *m, const rank_place *places, uint32_t rank_count, arena *a)
{
  links *l = ARENA_NEW(a, links);
  l->memory = a;
  l->machine = m;
  l->places = places;
  l->lanes = ARENA_ARRAY(a, lane, rank_count * LANE_KINDS);
  l->hosts = ARENA_ARRAY(a, host_links, 2 * rank_count);
  l->host_of_lane = ARENA_ARRAY(a, uint32_t, rank_count * LANE_KINDS);
  uint32_t *ids = ARENA_ARRAY(a, uint32_t, 2 * rank_count);
  for (uint32_t r = 0; r < rank_count; r++) {
    uint32_t host = find_host(l, ids, places[r].host);
    for (uint32_t kind = 0; kind < LANE_KINDS; kind++)
      add_lane(l, host + (kind >= LANE_DISK_WRITE), r * LANE_KINDS + kind);
  }
  assert(l->host_count > 0 && l->host_count <= 2 * rank_count);
  plant_winners(l, a);
  return l;
}

/* ---- rates ------------------------------------------------------------------------------------- */

static void share_links(const links *l, const host_links *h, share_row *row)
{
  host_flow flows[LINK_SHARE_FLOWS];
  uint32_t lanes[LINK_SHARE_FLOWS], count = 0;
  for (uint32_t i = 0; i < h->lane_count; i++) {
    if (!(row->mask >> i & 1)) continue;
    assert(h->lanes[i] % LANE_KINDS < LANE_DISK_WRITE && "disks have links of their own");
    const rank_place *place = &l->places[h->lanes[i] / LANE_KINDS];
    lanes[count] = i;
    flows[count++] =
        (host_flow){ .gpu = place->gpu,
                     .group = place->gpu / (uint32_t)l->machine->host.gpus_per_group,
                     .direction = h->lanes[i] % LANE_KINDS == LANE_H2D ? LINK_H2D : LINK_D2H,
                     .pageable = row->pageable >> i & 1,
                     .far = place->far_memory,
                     .multiplicity = place->multiplicity };
  }
  assert(count > 0);
  link_share_host(l->machine, flows, count);
  for (uint32_t i = 0; i < count; i++)
    row->rates[lanes[i]] = max_i64(1, flows[i].rate_bytes_per_us);
}

static void share_disks(const links *l, const host_links *h, share_row *row)
{
  disk_flow flows[LINK_SHARE_FLOWS];
  uint32_t lanes[LINK_SHARE_FLOWS], count = 0;
  for (uint32_t i = 0; i < h->lane_count; i++) {
    if (!(row->mask >> i & 1)) continue;
    assert(h->lanes[i] % LANE_KINDS >= LANE_DISK_WRITE);
    lanes[count] = i;
    flows[count++] =
        (disk_flow){ .reads = h->lanes[i] % LANE_KINDS == LANE_DISK_READ,
                     .multiplicity = l->places[h->lanes[i] / LANE_KINDS].multiplicity };
  }
  assert(count > 0);
  link_share_disks(l->machine, flows, count);
  for (uint32_t i = 0; i < count; i++)
    row->rates[lanes[i]] = max_i64(1, flows[i].rate_bytes_per_us);
}

static const share_row *shared_rates(const links *l, host_links *h, uint64_t mask,
                                     uint64_t pageable)
{
  assert(mask != 0 && (pageable & ~mask) == 0 && mask >> 1 >> (h->lane_count - 1) == 0);
  for (uint32_t i = 0; i < h->row_count && i < SHARE_CACHE; i++)
    if (h->rows[i]->mask == mask && h->rows[i]->pageable == pageable) return h->rows[i];
  share_row **at = &h->rows[h->row_count++ % SHARE_CACHE];
  if (*at == NULL) *at = ARENA_NEW(l->memory, share_row);
  share_row *row = *at;
  row->mask = mask;
  row->pageable = pageable;
  if (h->disks)
    share_disks(l, h, row);
  else
    share_links(l, h, row);
  return row;
}

/* The set of transferring copies has changed: computes new rates from now on, and of those that have
 * another rate the time of completion. */
static void set_rates(const links *l, host_links *h)
{
  uint64_t mask = 0, pageable = 0;
  for (uint32_t i = 0; i < h->lane_count; i++) {
    const lane *n = &l->lanes[h->lanes[i]];
    mask |= (uint64_t)n->transfers << i;
    pageable |= (uint64_t)(n->transfers && n->pageable) << i;
  }
  if (mask == 0) return;
  const share_row *row = shared_rates(l, h, mask, pageable);
  for (uint32_t i = 0; i < h->lane_count; i++) {
    lane *n = &l->lanes[h->lanes[i]];
    if (!n->transfers || n->rate_bytes_per_us == row->rates[i]) continue;
    n->rate_bytes_per_us = row->rates[i];
    assert(n->rate_bytes_per_us > 0 && n->remaining >= 0);
    n->end_ps = h->now_ps + min_i64(CAP, ceil_div(n->remaining, n->rate_bytes_per_us));
  }
}

static void pass_time(const links *l, host_links *h, int64_t to_ps)
{
  assert(to_ps >= h->now_ps && to_ps != INT64_MAX && "time never goes back");
  for (uint32_t i = 0; i < h->lane_count; i++) {
    lane *n = &l->lanes[h->lanes[i]];
    if (n->transfers)
      n->remaining = max_i64(0, n->remaining - n->rate_bytes_per_us * (to_ps - h->now_ps));
  }
  h->now_ps = to_ps;
}

/* ---- events ------------------------------------------------------------------------------------ */

/* The waiting copy that is ready first; on a tie the one on the first stream. */
static uint32_t first_waiting(const lane *n)
{
  uint32_t best = STREAM_LIMIT;
  for (uint32_t left = n->waits; left != 0; left &= left - 1) {
    uint32_t s = (uint32_t)__builtin_ctz(left);
    if (best == STREAM_LIMIT || n->waiting[s].ready_ps < n->waiting[best].ready_ps) best = s;
  }
  assert((best == STREAM_LIMIT) == (n->waits == 0));
  return best;
}

/* When the waiting copy that is ready first begins. Copies posted later cannot be ready earlier, so
 * the lane's next event is the end of this copy's latency. */
static int64_t lane_start_ps(const lane *n)
{
  assert(n->first < STREAM_LIMIT);
  return max_i64(n->free_ps, n->waiting[n->first].ready_ps);
}

static int64_t lane_event_ps(const lane *n)
{
  if (n->transfers) return n->end_ps;
  if (n->first == STREAM_LIMIT) return INT64_MAX;
  return lane_start_ps(n) + n->latency_ps + n->waiting[n->first].more_ps;
}

/* Of two that come at the same time the left one is first. So a leaf without a host never is. */
static void find_winners(const links *l, uint32_t host)
{
  uint32_t *winners = l->winners;
  for (uint32_t node = (l->leaves + host) / 2; node > 0; node /= 2) {
    uint32_t left = winners[2 * node], right = winners[2 * node + 1];
    winners[node] = l->next_ps[left] <= l->next_ps[right] ? left : right;
  }
}

static void find_next(links *l, uint32_t host)
{
  host_links *h = &l->hosts[host];
  int64_t next_ps = INT64_MAX;
  for (uint32_t i = 0; i < h->lane_count; i++) {
    int64_t at = lane_event_ps(&l->lanes[h->lanes[i]]);
    if (at < next_ps) {
      next_ps = at;
      h->next_lane = h->lanes[i];
    }
  }
  assert(next_ps == INT64_MAX || l->host_of_lane[h->next_lane] == host);
  h->changed = false;
  l->next_ps[host] = next_ps;
  find_winners(l, host);
}

/* Copies end and begin, and others are posted, before the next event is asked for. */
static void note_change(links *l, uint32_t host)
{
  if (!l->hosts[host].changed) l->changed[l->changed_count++] = host;
  l->hosts[host].changed = true;
}

/* A host thread that waits for a copy to begin learns of it when the copy's latency is over: a copy that
 * it then issues may have been ready before, with less latency. That past no longer changes, so its
 * bytes move from now on. */
static int64_t earliest_ps(const links *l, uint32_t index, const link_copy *copy)
{
  int64_t now_ps = l->hosts[l->host_of_lane[index]].now_ps;
  assert(now_ps >= 0);
  return max_i64(0, now_ps - l->lanes[index].latency_ps - copy->more_ps);
}

void links_post(links *l, uint32_t rank, lane_kind kind, uint32_t stream, const link_copy *copy)
{
  uint32_t index = rank * LANE_KINDS + (uint32_t)kind;
  lane *n = &l->lanes[index];
  assert(stream < STREAM_LIMIT && !(n->waits >> stream & 1));
  assert(!(n->transfers && n->stream == stream) && "one copy of a stream at a time");
  assert(copy->ready_ps >= 0 && copy->more_ps >= 0 && copy->bytes <= INT64_MAX / PS_PER_US);
  n->waiting[stream] = *copy;
  n->waiting[stream].ready_ps = max_i64(copy->ready_ps, earliest_ps(l, index, copy));
  n->waits |= UINT32_C(1) << stream;
  n->first = first_waiting(n);
  note_change(l, l->host_of_lane[index]);
}

static void begin_transfer(lane *n)
{
  assert(!n->transfers && n->first < STREAM_LIMIT && (n->waits >> n->first & 1));
  const link_copy *copy = &n->waiting[n->first];
  n->transfers = true;
  n->pageable = copy->pageable;
  n->stream = n->first;
  n->start_ps = lane_start_ps(n);
  n->remaining = copy->bytes * PS_PER_US;
  n->rate_bytes_per_us = 0;
  n->waits &= ~(UINT32_C(1) << n->first);
  n->first = first_waiting(n);
}

/* Handles a host's next event. */
static void handle(links *l, uint32_t host, link_event *event)
{
  host_links *h = &l->hosts[host];
  uint32_t index = h->next_lane;
  lane *n = &l->lanes[index];
  pass_time(l, h, l->next_ps[host]);
  *event = (link_event){ .rank = index / LANE_KINDS, .ended = n->transfers };
  if (event->ended) {
    assert(n->start_ps <= h->now_ps && n->free_ps <= h->now_ps && "time never goes back");
    n->transfers = false;
    event->end_ps = n->free_ps = h->now_ps;
  } else {
    begin_transfer(n);
  }
  event->stream = n->stream;
  event->start_ps = n->start_ps;
  set_rates(l, h);
  note_change(l, host);
}

bool links_next(links *l, link_event *event)
{
  while (l->changed_count > 0)
    find_next(l, l->changed[--l->changed_count]);
  uint32_t first = l->winners[1];
  assert(first < l->host_count);
  if (l->next_ps[first] == INT64_MAX) return false;
  handle(l, first, event);
  return true;
}

/* ---- repeating --------------------------------------------------------------------------------- */

struct links_state {
  lane *lanes;
  int64_t *now_ps; /* by host */
};

static uint32_t count_lanes(const links *l)
{
  uint32_t count = 0;
  for (uint32_t h = 0; h < l->host_count; h++)
    count += l->hosts[h].lane_count;
  return count;
}

links_state *links_state_new(const links *l, arena *a)
{
  links_state *s = ARENA_NEW(a, links_state);
  s->lanes = ARENA_ARRAY(a, lane, count_lanes(l));
  s->now_ps = ARENA_ARRAY(a, int64_t, l->host_count);
  return s;
}

void links_keep(const links *l, links_state *state)
{
  memcpy(state->lanes, l->lanes, count_lanes(l) * sizeof *l->lanes);
  for (uint32_t h = 0; h < l->host_count; h++)
    state->now_ps[h] = l->hosts[h].now_ps;
}

/* Of a time that only matters if it is later than another: both are past, or one is the other, later. */
static bool is_past_or_later(int64_t now_ps, int64_t since_ps, int64_t before_ps,
                             int64_t before_since_ps, int64_t by_ps)
{
  return now_ps - before_ps == by_ps || (now_ps <= since_ps && before_ps <= before_since_ps);
}

static bool waiting_repeats(const lane *n, const lane *before, int64_t by_ps)
{
  if (n->waits != before->waits || n->first != before->first) return false;
  for (uint32_t left = n->waits; left != 0; left &= left - 1) {
    const link_copy *now = &n->waiting[__builtin_ctz(left)];
    const link_copy *then = &before->waiting[__builtin_ctz(left)];
    if (now->ready_ps - then->ready_ps != by_ps || now->bytes != then->bytes ||
        now->more_ps != then->more_ps || now->pageable != then->pageable)
      return false;
  }
  return true;
}

static bool transfer_repeats(const lane *n, const lane *before, int64_t by_ps)
{
  if (n->transfers != before->transfers) return false;
  return !n->transfers ||
         (n->pageable == before->pageable && n->stream == before->stream &&
          n->remaining == before->remaining && n->rate_bytes_per_us == before->rate_bytes_per_us &&
          n->start_ps - before->start_ps == by_ps && n->end_ps - before->end_ps == by_ps);
}

/* The end of the lane's last copy delays the next one, unless that is ready later anyway. */
static bool freed_repeats(const lane *n, const lane *before, int64_t by_ps, int64_t since_ps,
                          int64_t before_since_ps)
{
  if (n->transfers) return true;
  if (n->waits != 0) {
    since_ps = min_i64(since_ps, n->waiting[n->first].ready_ps);
    before_since_ps = min_i64(before_since_ps, before->waiting[before->first].ready_ps);
  }
  return is_past_or_later(n->free_ps, since_ps, before->free_ps, before_since_ps, by_ps);
}

bool links_repeat(const links *l, const links_state *before, int64_t by_ps, const int64_t *since_ps,
                  const int64_t *before_since_ps)
{
  for (uint32_t h = 0; h < l->host_count; h++) {
    const host_links *host = &l->hosts[h];
    int64_t now_ps = host->now_ps, before_ps = before->now_ps[h];
    for (uint32_t i = 0; i < host->lane_count; i++) {
      const lane *n = &l->lanes[host->lanes[i]], *then = &before->lanes[host->lanes[i]];
      uint32_t rank = host->lanes[i] / LANE_KINDS;
      int64_t since = since_ps[rank], before_since = before_since_ps[rank];
      if (!waiting_repeats(n, then, by_ps) || !transfer_repeats(n, then, by_ps) ||
          !freed_repeats(n, then, by_ps, since, before_since) ||
          (n->transfers && now_ps - before_ps != by_ps) ||
          !is_past_or_later(now_ps, since, before_ps, before_since, by_ps))
        return false;
    }
  }
  return true;
}

void links_move(links *l, int64_t by_ps)
{
  assert(by_ps >= 0);
  for (uint32_t h = 0; h < l->host_count; h++) {
    host_links *host = &l->hosts[h];
    host->now_ps += by_ps;
    for (uint32_t i = 0; i < host->lane_count; i++) {
      lane *n = &l->lanes[host->lanes[i]];
      n->start_ps += by_ps;
      n->free_ps += by_ps;
      n->end_ps += by_ps;
      for (uint32_t left = n->waits; left != 0; left &= left - 1)
        n->waiting[__builtin_ctz(left)].ready_ps += by_ps;
    }
    note_change(l, h);
  }
}
