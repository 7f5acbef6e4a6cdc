#include "sim/config/megatron_releases.h"

#include <assert.h>

const megatron_defect_row megatron_defects[MEGATRON_DEFECT_COUNT] = {
#define ROW(name, first, last, upstream, effect)                                                   \
  { #name, MEGATRON_##first, MEGATRON_##last, upstream, effect },
  MEGATRON_DEFECTS(ROW)
#undef ROW
};

bool megatron_has(const settings *s, megatron_defect defect)
{
  assert(defect < MEGATRON_DEFECT_COUNT);
  const megatron_defect_row *row = &megatron_defects[defect];
  return s->offload.mode == MODE_AS_RELEASED && row->first <= s->software.megatron &&
         s->software.megatron <= row->last;
}
