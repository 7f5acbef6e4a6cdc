#include "sim/machine/contention.h"

#include <assert.h>
#include <inttypes.h>

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

/* Interpolates two limits: `parts` of `of` on the way from one to the other. */
static int64_t between(int64_t from, int64_t to, int64_t parts, int64_t of)
{
  assert(from >= 0 && to >= 0 && of > 0 && parts >= 0 && parts <= of);
  if (from == 0 || to == 0) return parts < of ? from : to;
  return from + (to - from) * parts / of;
}

/* All limits at a number of half GPUs: a GPU that copies both ways counts as two. */
static contention at_halves(const contention_list *list, const contention *all, int64_t halves)
{
  const contention *from = NULL, *to = all;
  for (uint32_t i = 0; i < list->count && to == all; i++)
    if (halves <= 2 * list->items[i].gpus)
      to = &list->items[i];
    else
      from = &list->items[i];
  if (from == NULL || halves > 2 * to->gpus) return *to;
  int64_t parts = halves - 2 * from->gpus, of = 2 * (to->gpus - from->gpus);
  return (contention){
    .d2h_bytes_per_us = between(from->d2h_bytes_per_us, to->d2h_bytes_per_us, parts, of),
    .h2d_bytes_per_us = between(from->h2d_bytes_per_us, to->h2d_bytes_per_us, parts, of),
    .duplex_bytes_per_us = between(from->duplex_bytes_per_us, to->duplex_bytes_per_us, parts, of)
  };
}

contention contention_of(const contention_list *list, const contention *all, uint32_t d2h_gpus,
                         uint32_t h2d_gpus)
{
  int64_t out = d2h_gpus, back = h2d_gpus;
  return (contention){ .d2h_bytes_per_us = at_halves(list, all, 2 * out).d2h_bytes_per_us,
                       .h2d_bytes_per_us = at_halves(list, all, 2 * back).h2d_bytes_per_us,
                       .duplex_bytes_per_us =
                           at_halves(list, all, out + back).duplex_bytes_per_us };
}
