/* The verdict's line about packed sequences. */
#include <inttypes.h>

#include "sim/base/wrap.h"
#include "sim/report/prediction.h"

void print_longest(int64_t longest, int64_t assumed, FILE *out)
{
  if (longest > 0) {
    wrap_line(out, 10,
              "lengths   fits where packed sequences have at most %" PRId64
              " tokens on average; %" PRId64 " are assumed",
              longest, assumed);
  } else {
    wrap_line(out, 10, "lengths   packed sequences may be as short as they like: it does not fit");
  }
}
