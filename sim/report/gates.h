/*
 * Gates: requested conditions and their results, for programs, for CI, for people.
 */
#ifndef OFFSIM_SIM_REPORT_GATES_H
#define OFFSIM_SIM_REPORT_GATES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct gate {
  const char *name;    /* "max-peak-error": the option without "--" */
  const char *finding; /* "the error of the peak is 0.14 %, at most 1.00 %" */
  bool held;
} gate;

enum { GATES_MOST = 8 };
typedef struct gate_list {
  gate items[GATES_MOST];
  uint32_t count;
} gate_list;

bool gates_hold(const gate_list *g);
/* A line for each gate that is broken. */
void gates_broken(const gate_list *g, FILE *out);
/* A member of an object, without a comma. */
void gates_json(const gate_list *g, FILE *out);
/* JUnit's XML: a test case for each gate. */
void gates_junit(const gate_list *g, FILE *out);

#endif
