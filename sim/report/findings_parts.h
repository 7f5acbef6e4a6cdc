/* Shared by the two ways of telling findings. */
#ifndef OFFSIM_SIM_REPORT_FINDINGS_PARTS_H
#define OFFSIM_SIM_REPORT_FINDINGS_PARTS_H

#include "sim/plan/text.h"
#include "sim/report/findings.h"

/* Findings that differ only in layer and micro-batch. */
typedef struct finding_group {
  const finding *first;
  uint64_t count;
  int64_t bytes; /* of their buffers */
} finding_group;

/* `groups` has room for all findings; returns how many groups there are. */
uint32_t group_findings(const verification *v, finding_group *groups);

/* Would a wait of the second op's stream for the first's mend it? */
bool finding_lacks_edge(const verification *v, const finding *f);

#endif
