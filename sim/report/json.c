#include "sim/report/json.h"

#include <inttypes.h>

#include "sim/base/units.h"

void bytes_member(FILE *out, const char *key, int64_t value)
{
  fprintf(out, "\"%s\": %" PRId64 ", ", key, value);
}

void seconds_member(FILE *out, const char *key, int64_t ps, const char *after)
{
  fprintf(out, "\"%s\": ", key);
  json_decimal(out, ps, 12);
  fputs(after, out);
}

void ratio_member(FILE *out, const char *key, int64_t part, int64_t whole)
{
  if (whole <= 0) {
    fprintf(out, "\"%s\": null, ", key);
    return;
  }
  int64_t millionths = muldiv_i64(part < 0 ? -part : part, 1000000, whole);
  fprintf(out, "\"%s\": %s%" PRId64 ".%06" PRId64 ", ", key, part < 0 ? "-" : "",
          millionths / 1000000, millionths % 1000000);
}

void throughput_members(FILE *out, throughput t)
{
  fprintf(out, "\"tokens_per_s_per_gpu\": %" PRId64 ", ", t.tokens_per_s);
  ratio_member(out, "mfu", t.mfu_millionths, t.mfu_millionths < 0 ? 0 : 1000000);
}
