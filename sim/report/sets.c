#include "sim/report/sets.h"

#include <string.h>

void sets_print(uint32_t place, const candidate *c, FILE *out)
{
  fprintf(out, "%5u ", place);
  if (c->set_count == 0) fputs(" as given", out);
  for (uint32_t i = 0; i < c->set_count; i++)
    fprintf(out,
            strpbrk(c->sets[i], " \t'\"$&|;<>()*?[]#~\\") == NULL ? " --set %s" : " --set '%s'",
            c->sets[i]);
  fputc('\n', out);
}
