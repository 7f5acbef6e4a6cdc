/* In place of yaml_text.c where there is no libfyaml: in WebAssembly, which has no files either. */
#include "sim/text/yaml_text.h"

const text_node *text_read(arena *a, const char *file, const char *text, size_t length, diag *d)
{
  (void)a, (void)text, (void)length;
  diag_error(d, (source_pos){ file, 0, 0 }, "this build of offsim does not read YAML or JSON");
  return NULL;
}
