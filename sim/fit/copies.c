#include "sim/base/array.h"
#include "sim/base/units.h"
#include "sim/fit/parts.h"

/* Smaller copies measure the latency. */
#define LEAST_BYTES (4 * MIB)

enum { LEAST_SAMPLES = 3, PERCENT = 100, MOSTLY_SHARED = 95 };

typedef struct interval {
  int64_t begin_ns, end_ns, bytes;
  fit_class class;
} interval;

typedef struct interval_list {
  interval *items;
  uint32_t count, capacity;
} interval_list;

typedef struct copy_fit {
  const fit_sides *f;
  interval_list copies;      /* that matched */
  sample_list alone_rate[2]; /* by direction, bytes per microsecond */
  sample_list both_rate[2];  /* while the other direction copies */
} copy_fit;

/* Percent of an interval in which a copy of the other direction runs. */
static int64_t shared_percent(const interval_list *l, uint32_t at)
{
  const interval *of = &l->items[at];
  int64_t shared_ns = 0, length_ns = of->end_ns - of->begin_ns;
  for (uint32_t i = 0; i < l->count; i++) {
    const interval *other = &l->items[i];
    if (other->class == of->class) continue;
    int64_t both_ns = min_i64(of->end_ns, other->end_ns) - max_i64(of->begin_ns, other->begin_ns);
    shared_ns += max_i64(0, both_ns);
  }
  return length_ns == 0 ? 0 : muldiv_i64(min_i64(shared_ns, length_ns), PERCENT, length_ns);
}

static void list(copy_fit *c)
{
  const matches *m = c->f->matched;
  const issues *x = c->f->issued;
  for (uint32_t i = 0; i < m->count; i++) {
    const token *t = &m->measured.items[m->items[i].first];
    const real_span *s = &x->run->spans.items[x->items[t->at].span];
    bool copies = t->class == FIT_D2H || t->class == FIT_H2D;
    if (copies && t->bytes >= LEAST_BYTES && !s->pageable && s->end_ns > s->begin_ns)
      *ARRAY_PUSH(&c->copies) = (interval){ s->begin_ns, s->end_ns, t->bytes, t->class };
  }
}

static void take_copy(copy_fit *c, uint32_t at)
{
  const interval *i = &c->copies.items[at];
  bool in = i->class == FIT_H2D;
  const machine *m = c->f->own;
  int64_t latency_ns = in ? m->link.h2d_latency_ns : m->link.d2h_latency_ns;
  int64_t ns = max_i64(1, i->end_ns - i->begin_ns - latency_ns);
  int64_t rate = capped_muldiv(i->bytes, 1000, ns), shared = shared_percent(&c->copies, at);
  if (shared == 0) *ARRAY_PUSH(&c->alone_rate[in]) = rate;
  if (shared >= MOSTLY_SHARED) *ARRAY_PUSH(&c->both_rate[in]) = rate;
}

/* Copies that wait for others, or share memory with kernels, are slower than their link (link.waiting_*): so
 * the rate that one in ten exceeds is the link's. */
static int64_t fast(sample_list *rates)
{
  sort_i64(rates->items, rates->count);
  return max_i64(1, rates->items[rates->count - 1 - rates->count / 10]);
}

static void put_rate(calibration *to, const char *key, sample_list *rates)
{
  if (rates->count < LEAST_SAMPLES) return;
  int64_t rate = fast(rates);
  calibration_put_range(to, "link", key, rate, min_i64(rate, rates->items[rates->count / 10]),
                        rate);
}

void fit_copies(const fit_sides *f, fit_result *to)
{
  copy_fit c = { .f = f };
  list(&c);
  for (uint32_t i = 0; i < c.copies.count; i++)
    take_copy(&c, i);
  put_rate(&to->keys, "d2h_bytes_per_us", &c.alone_rate[0]);
  put_rate(&to->keys, "h2d_bytes_per_us", &c.alone_rate[1]);
  sample_list *both = c.both_rate;
  if (both[0].count >= LEAST_SAMPLES && both[1].count >= LEAST_SAMPLES)
    calibration_put(&to->keys, "link", "duplex_bytes_per_us",
                    sample_median(&both[0]) + sample_median(&both[1]));
  for (int i = 0; i < 2; i++) {
    ARRAY_FREE(&c.alone_rate[i]);
    ARRAY_FREE(&both[i]);
  }
  ARRAY_FREE(&c.copies);
}
