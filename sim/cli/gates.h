/* Gates of `offsim compare`: how far a prediction may be from what was measured. */
#ifndef OFFSIM_SIM_CLI_GATES_H
#define OFFSIM_SIM_CLI_GATES_H

#include "sim/base/diag.h"
#include "traces/timing.h"

typedef enum compare_gate {
  GATE_PEAK_ERROR,     /* of live memory, of any rank, percent */
  GATE_STEP_ERROR,     /* percent */
  GATE_OVERHEAD_ERROR, /* percentage points */
  GATE_RATIO,          /* R of any rank that saves something, percent; at least */
  COMPARE_GATES
} compare_gate;

typedef struct compare_gates {
  bool is_set[COMPARE_GATES];
  int64_t limit_ppm[COMPARE_GATES];
} compare_gates;

bool gate_set(compare_gates *g, compare_gate gate, const char *percent, diag *d);
bool gates_are_set(const compare_gates *g);

/* Tells each gate that is broken on stderr and clears *held. False after a diag error: a gate asks
 * for what is not known. */
bool gates_check(const compare_gates *g, const timings *r, bool *held, diag *d);

#endif
