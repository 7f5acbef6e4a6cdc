#include <assert.h>
#include <string.h>

#include "sim/calibrate/calibration.h"

static uint32_t place_of(const calibration *c, const char *section, const char *key)
{
  uint32_t i = 0;
  while (i < c->count &&
         (strcmp(c->values[i].section, section) != 0 || strcmp(c->values[i].key, key) != 0))
    i++;
  return i;
}

const calibrated_value *calibration_find(const calibration *c, const char *section, const char *key)
{
  uint32_t i = place_of(c, section, key);
  return i < c->count ? &c->values[i] : NULL;
}

void calibration_put_range(calibration *c, const char *section, const char *key, int64_t value,
                           int64_t least, int64_t most)
{
  uint32_t i = place_of(c, section, key);
  assert(i < CALIBRATED_VALUES && least <= value && value <= most);
  c->values[i] = (calibrated_value){ section, key, value, least, most };
  if (i == c->count) c->count++;
}

void calibration_put(calibration *c, const char *section, const char *key, int64_t value)
{
  calibration_put_range(c, section, key, value, value, value);
}
