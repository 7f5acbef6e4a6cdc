/* The waits around copies of a comparison. Private to traces/import. */
#ifndef OFFSIM_TRACES_IMPORT_COMPARE_WAITS_H
#define OFFSIM_TRACES_IMPORT_COMPARE_WAITS_H

#include "traces/import/real_comparison.h"

/* Of the copies that both sides have, once they are aligned. */
void compare_waits(real_comparison *c);

#endif
