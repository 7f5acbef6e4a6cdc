#include "sim/config/megatron_releases.h"

#include <assert.h>

const megatron_defect_row megatron_defects[MEGATRON_DEFECT_COUNT] = {
#define ROW(name, first, last, upstream, effect)                                                   \
  { #name, MEGATRON_##first, MEGATRON_##last, upstream, effect },
  MEGATRON_DEFECTS(ROW)
#undef ROW
};

static const struct {
  uint32_t version;
  int first_day, day;
} versions[] = {
#define ROW(name, first_day, day) { MEGATRON_##name, first_day, day },
  MEGATRON_VERSIONS(ROW)
#undef ROW
};

enum { VERSION_COUNT = sizeof versions / sizeof versions[0] };

int megatron_version_day(uint32_t version)
{
  assert(version < VERSION_COUNT && versions[version].version == version);
  return versions[version].day;
}

uint32_t megatron_version_on(int day)
{
  uint32_t found = 0;

  for (uint32_t v = 1; v < VERSION_COUNT && versions[v].first_day <= day; v++) {
    assert(versions[v - 1].day < versions[v].first_day && "oldest first");
    found = v;
  }
  return found;
}

int megatron_first_day(void)
{
  return versions[0].first_day;
}

bool megatron_has(const settings *s, megatron_defect defect)
{
  assert(defect < MEGATRON_DEFECT_COUNT);
  const megatron_defect_row *row = &megatron_defects[defect];
  return s->offload.mode == MODE_AS_RELEASED && row->first <= s->software.megatron &&
         s->software.megatron <= row->last;
}
