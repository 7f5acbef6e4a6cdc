#include "sim/cli/over.h"

static void take_axis(void *to, const char *value, arena *a, diag *d)
{
  space_add_axis(to, value, (source_pos){ "--over", 0, 0 }, a, d);
}

const option_row over_rows[] = {
  TAKE("over", "KEY=V|V...", take_axis,
       "vary a key of the scenario (docs/reference/scenario.md); may be\n"
       "repeated, for every combination. Values as --set takes them:\n"
       "--over 'offload_modules=core_attn|core_attn,attn_proj'"),
  { .name = NULL },
};
