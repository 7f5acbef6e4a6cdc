#include "sim/machine/contention.h"

#include <inttypes.h>

#include "sim/base/units.h"

#define LINE_FORMAT(number) number " GPUs = " number " out, " number " back, " number " both ways"

bool contention_parse(contention *c, const char *text)
{
  int end = 0;
  int found = sscanf(text, LINE_FORMAT("%9" SCNd64) "%n", &c->gpus, &c->d2h_bytes_per_us,
                     &c->h2d_bytes_per_us, &c->duplex_bytes_per_us, &end);
  return found == 4 && end > 0 && text[end] == '\0' && c->gpus > 1 && c->d2h_bytes_per_us > 0 &&
         c->h2d_bytes_per_us > 0 && c->duplex_bytes_per_us > 0;
}

void contention_print(FILE *out, const contention *c)
{
  fprintf(out, LINE_FORMAT("%" PRId64), c->gpus, c->d2h_bytes_per_us, c->h2d_bytes_per_us,
          c->duplex_bytes_per_us);
}

/* Of two limits, so many `parts` of `of` on the way from one to the other. */
static int64_t between(int64_t from, int64_t to, int64_t parts, int64_t of)
{
  if (from == 0 || to == 0) return parts < of ? from : to;
  return from + (to - from) * parts / of;
}

typedef int64_t limit_of(const contention *c);

static int64_t d2h_of(const contention *c)
{
  return c->d2h_bytes_per_us;
}

static int64_t h2d_of(const contention *c)
{
  return c->h2d_bytes_per_us;
}

static int64_t duplex_of(const contention *c)
{
  return c->duplex_bytes_per_us;
}

/* At so many halves of GPUs. */
static int64_t limit_at(const contention_list *list, const contention *all, int64_t halves,
                        limit_of *limit)
{
  const contention *before = NULL;
  for (uint32_t i = 0; i <= list->count; i++) {
    const contention *next = i < list->count ? &list->items[i] : all;
    if (halves <= 2 * next->gpus && before != NULL)
      return between(limit(before), limit(next), halves - 2 * before->gpus,
                     2 * (next->gpus - before->gpus));
    if (halves <= 2 * next->gpus) return limit(next);
    before = next;
  }
  return limit(all);
}

contention contention_of(const contention_list *list, const contention *all, uint32_t d2h_gpus,
                         uint32_t h2d_gpus)
{
  contention c = { .gpus = d2h_gpus + h2d_gpus };
  c.d2h_bytes_per_us = limit_at(list, all, 2 * (int64_t)d2h_gpus, d2h_of);
  c.h2d_bytes_per_us = limit_at(list, all, 2 * (int64_t)h2d_gpus, h2d_of);
  c.duplex_bytes_per_us = limit_at(list, all, c.gpus, duplex_of);
  return c;
}
