#include "sim/config/foreign_messages.h"

#include <stddef.h>

bool foreign_unknown(diag *d, source_pos at, const char *what, const char *name, const char *near,
                     bool skip)
{
  if (skip) {
    diag_note(d, at, "unknown %s \"%.200s\" skipped", what, name);
    return true;
  }
  if (near != NULL) {
    return diag_error(d, at, "unknown %s \"%.200s\"; did you mean %s?", what, name, near);
  }
  return diag_error(
      d, at, "unknown %s \"%.200s\"; --ignore-unknown skips what offsim does not know", what, name);
}

void foreign_unmodelled(diag *d, source_pos at, const char *name, const char *text)
{
  diag_note(d, at, "%s: %s: not modelled, predicted without it", name, text);
}
