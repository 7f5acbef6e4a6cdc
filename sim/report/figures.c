#include "sim/report/figures.h"

#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>

#include "sim/base/units.h"

const char *figure(arena *a, int64_t value, int64_t unit, int decimals)
{
  int64_t power = 1;
  assert(unit > 0 && decimals >= 0 && decimals <= 6);
  for (int i = 0; i < decimals; i++)
    power *= 10;
  int64_t scaled = (muldiv_i64(value < 0 ? -value : value, 2 * power, unit) + 1) / 2;
  const char *sign = value < 0 && scaled != 0 ? "-" : "";
  if (decimals == 0)
    return arena_printf(a, "%s%" PRId64, sign, scaled);
  return arena_printf(a, "%s%" PRId64 ".%0*" PRId64, sign, scaled / power, decimals, scaled % power);
}

const char *figure_percent(arena *a, int64_t part, int64_t whole, int decimals)
{
  if (whole <= 0)
    return "-";
  int64_t millionths = muldiv_i64(part < 0 ? -part : part, 100000000, whole);
  return figure(a, part < 0 ? -millionths : millionths, 1000000, decimals);
}

figure_unit unit_of_bytes(int64_t largest)
{
  if (largest < 10 * GIB)
    return (figure_unit){ "MiB", MIB, 1 };
  return (figure_unit){ "GiB", GIB, 3 };
}

figure_unit unit_of_time(int64_t largest)
{
  if (largest < 10 * PS_PER_MS)
    return (figure_unit){ "us", PS_PER_US, 1 };
  if (largest < 100 * PS_PER_S)
    return (figure_unit){ "ms", PS_PER_MS, 1 };
  return (figure_unit){ "s", PS_PER_S, 2 };
}

const char *figure_in(arena *a, int64_t value, figure_unit unit)
{
  return figure(a, value, unit.size, unit.decimals);
}

const char *figure_with_unit(arena *a, int64_t value, figure_unit unit)
{
  return arena_printf(a, "%s %s", figure_in(a, value, unit), unit.name);
}

static bool without_limit(int64_t bytes)
{
  return bytes >= 1024 * 1024 * GIB;
}

const char *figure_of_capacity(arena *a, int64_t bytes)
{
  return without_limit(bytes) ? "" : arena_printf(a, " of %s", figure_capacity(a, bytes));
}

const char *figure_capacity(arena *a, int64_t bytes)
{
  if (without_limit(bytes))
    return "without limit";
  return figure_with_unit(a, bytes, (figure_unit){ "GiB", GIB, bytes % GIB == 0 ? 0 : 1 });
}

const char *figure_count(arena *a, int64_t count, const char *one, const char *many)
{
  return arena_printf(a, "%" PRId64 " %s", count, count == 1 ? one : many);
}
