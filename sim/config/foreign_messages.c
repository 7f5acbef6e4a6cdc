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

bool foreign_for_script(diag *d, const char *option, const char *path)
{
  return diag_error(d, (source_pos){ option, 0, 0 }, "it is for a launch script; %s is a mapping",
                    path);
}

void foreign_unmodelled(diag *d, source_pos at, const char *name, const char *text)
{
  diag_note(d, at, "%s: %s: not modelled, predicted without it", name, text);
}
