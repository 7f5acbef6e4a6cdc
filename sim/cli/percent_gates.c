#include "sim/cli/percent_gates.h"

#include <assert.h>
#include <math.h>

enum { PPM_OF_PERCENT = 10000 };

void gate_put(gate_list *g, const char *name, bool held, const char *finding)
{
  assert(g->count < GATES_MOST);
  g->items[g->count++] = (gate){ name, finding, held };
}

void gate_put_error(gate_list *g, const char *name, const char *of, int64_t ppm, double limit,
                    arena *a)
{
  int64_t size = ppm < 0 ? -ppm : ppm;
  gate_put(g, name, size <= llround(limit * PPM_OF_PERCENT),
           arena_printf(a, "the error of the %s is %.3f %%, at most %.3f %%", of,
                        (double)ppm / PPM_OF_PERCENT, limit));
}

void gate_put_ratio(gate_list *g, const char *name, int64_t ppm, double limit, arena *a)
{
  gate_put(g, name, ppm >= llround(limit * PPM_OF_PERCENT),
           arena_printf(a, "R is %.3f %%, at least %.3f %%", (double)ppm / PPM_OF_PERCENT, limit));
}
