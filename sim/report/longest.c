/* The verdict's line about packed sequences. */
#include <inttypes.h>

#include "sim/report/prediction.h"

void print_longest(int64_t longest, int64_t assumed, FILE *out)
{
  if (longest > 0) {
    fprintf(out,
            "lengths   fits where packed sequences have at most %" PRId64
            " tokens on average; %" PRId64 " are assumed\n",
            longest, assumed);
  } else {
    fprintf(out, "lengths   packed sequences may be as short as they like: it does not fit\n");
  }
}
