#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "sim/base/array.h"
#include "sim/base/units.h"
#include "sim/engine/host_walk.h"
#include "sim/fit/factors.h"
#include "sim/fit/parts.h"
#include "sim/machine/host_work.h"
#include "sim/predict/places.h"

/* From one matched launch to the next, on the host. */
typedef struct stretch {
  int64_t ns, events; /* without calls that wait; what a profiler slowed down */
  uint32_t from,
      to; /* the plan's ops: from the one after `from` to `to`; or around the step's end */
} stretch;

struct host_stretches {
  struct {
    stretch *items;
    uint32_t count, capacity;
  } all;
  const rank_plan *rank;
  const machine *base;
  uint32_t key_count;
  const machine_key **keys; /* [key_count]: costs of host work that the plan has */
  int64_t **before_ps;      /* [key_count][ops + 1]: by that key, of all ops before one */
};

/* ---- what each key costs ---- */

static bool is_work(const machine_key *k)
{
  static const char *const others[] = { "queue_ops", "driver_alloc_ns", "pinned_alloc_ns_per_gib" };
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (strcmp(k->key, others[i]) == 0) return false;
  return strcmp(k->section, "issue") == 0;
}

static int64_t *value_of(machine *m, const machine_key *k)
{
  assert(k->offset + sizeof(int64_t) <= sizeof *m);
  return (int64_t *)(void *)((char *)m + k->offset);
}

/* The machine on which nothing else of the host's work takes time. */
static machine with_only(const machine *base, const machine_key *key)
{
  machine m = *base;
  for (uint32_t i = 0; i < MACHINE_KEYS; i++)
    if (is_work(&machine_keys[i]) && &machine_keys[i] != key) *value_of(&m, &machine_keys[i]) = 0;
  return m;
}

static bool add_key(host_stretches *h, const fit_sides *f, const machine_key *key, arena *a)
{
  const plan *p = &f->predicted->steady.plan;
  arena scratch = { 0 };
  machine m = with_only(f->input->base, key);
  const machine *own = machine_of(f->input->settings, &m, &scratch);
  int64_t *call_ps = ARENA_ARRAY(&scratch, int64_t, (size_t)p->calls.count + 1);
  int64_t *op_ps = ARENA_ARRAY(&scratch, int64_t, (size_t)h->rank->ops.count + 1);
  int64_t *before_ps = ARENA_ARRAY(a, int64_t, (size_t)h->rank->ops.count + 1);
  for (uint32_t i = 0; i < p->calls.count; i++)
    call_ps[i] = host_call_ns(own, &p->calls.items[i]) * PS_PER_NS;
  host_costs costs = host_costs_of(own);
  host_walk_rank(&costs, p, f->input->rank, call_ps, op_ps);
  /* Hooks of gradients run when the product has been launched: their time is that of the next op. */
  uint32_t late = key->offset == offsetof(machine, issue.parameter_ns);
  for (uint32_t i = 0; i < h->rank->ops.count; i++)
    before_ps[i + 1] = before_ps[i] + (i < late ? 0 : op_ps[i - late]);
  arena_release(&scratch);
  if (before_ps[h->rank->ops.count] == 0) return false;
  h->keys[h->key_count] = key;
  h->before_ps[h->key_count++] = before_ps;
  return true;
}

/* ---- stretches ---- */

/* The issue with which the op is done. */
static uint32_t last_issue(const fit_sides *f, const match *m)
{
  return f->matched->measured.items[m->first + m->count - 1].at;
}

static int64_t done_ns(const fit_sides *f, const match *m)
{
  return f->issued->items[last_issue(f, m)].done_ns;
}

static void add_time(stretch *s, const issues *x, int64_t from_ns, int64_t to_ns)
{
  s->ns += to_ns - from_ns - host_sum_between(&x->blocked_ns, from_ns, to_ns);
  s->events += host_sum_between(&x->events, from_ns, to_ns);
}

static void add_between(host_stretches *h, const fit_sides *f, const match *from, const match *to)
{
  stretch s = { .from = from->op, .to = to->op };
  if (match_misses(f->matched, from->op + 1, to->op, last_issue(f, from) + 1,
                   f->matched->measured.items[to->first].at))
    return;
  add_time(&s, f->issued, done_ns(f, from), done_ns(f, to));
  *ARRAY_PUSH(&h->all) = s;
}

/* From the last launch to the end of the step, and from its begin to the first launch. */
static void add_ends(host_stretches *h, const fit_sides *f, const match *first, const match *last)
{
  const issues *x = f->issued;
  stretch s = { .from = last->op, .to = first->op };
  if (done_ns(f, last) > x->end_ns || done_ns(f, first) < x->begin_ns ||
      match_misses(f->matched, 0, first->op, 0, f->matched->measured.items[first->first].at) ||
      match_misses(f->matched, last->op + 1, h->rank->ops.count, last_issue(f, last) + 1, x->count))
    return;
  add_time(&s, x, x->begin_ns, done_ns(f, first));
  add_time(&s, x, done_ns(f, last), x->end_ns);
  *ARRAY_PUSH(&h->all) = s;
}

static void list(host_stretches *h, const fit_sides *f)
{
  const matches *m = f->matched;
  const match *last = NULL;
  for (uint32_t i = 0; i < m->count; i++) {
    const match *at = &m->items[i];
    /* Messages and copies may be issued in another order than predicted. */
    if (last != NULL &&
        (done_ns(f, at) <= done_ns(f, last) || last_issue(f, at) <= last_issue(f, last)))
      continue;
    if (last != NULL) add_between(h, f, last, at);
    last = at;
  }
  if (last != NULL) add_ends(h, f, &m->items[0], last);
}

host_stretches *host_stretches_of(const fit_sides *f, arena *a)
{
  host_stretches *h = ARENA_NEW(a, host_stretches);
  h->base = f->input->base;
  h->rank = &f->predicted->steady.plan.ranks[f->input->rank];
  h->keys = ARENA_ARRAY(a, const machine_key *, MACHINE_KEYS);
  h->before_ps = ARENA_ARRAY(a, int64_t *, MACHINE_KEYS);
  for (uint32_t i = 0; i < MACHINE_KEYS; i++)
    if (is_work(&machine_keys[i])) add_key(h, f, &machine_keys[i], a);
  if (f->issued->has_calls) list(h, f);
  return h;
}

void host_stretches_release(host_stretches *h)
{
  ARRAY_FREE(&h->all);
}

uint32_t host_stretch_count(const host_stretches *h)
{
  return h->all.count;
}

/* ---- keys ---- */

static int64_t expected_ps(const host_stretches *h, uint32_t key, const stretch *s)
{
  const int64_t *before = h->before_ps[key];
  if (s->from < s->to) return before[s->to + 1] - before[s->from + 1];
  return before[h->rank->ops.count] - before[s->from + 1] + before[s->to + 1];
}

void fit_host(const host_stretches *h, int64_t event_ns, calibration *to)
{
  arena scratch = { 0 };
  factor_rows rows = { 0 };
  if (h->all.count == 0) return;
  for (uint32_t i = 0; i < h->all.count; i++) {
    const stretch *s = &h->all.items[i];
    factors_begin(&rows, capped_mul(max_i64(0, s->ns - s->events * event_ns), PS_PER_NS));
    for (uint32_t k = 0; k < h->key_count; k++)
      factors_add(&rows, k, expected_ps(h, k, s));
  }
  const factor *found = factors_solve(&rows, h->key_count, &scratch);
  for (uint32_t k = 0; k < h->key_count; k++) {
    machine base = *h->base;
    int64_t value = *value_of(&base, h->keys[k]);
    if (found[k].is_seen)
      calibration_put(to, "issue", h->keys[k]->key, (int64_t)((double)value * found[k].value));
  }
  factors_release(&rows);
  arena_release(&scratch);
}
