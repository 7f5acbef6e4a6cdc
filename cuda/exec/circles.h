/*
 * Who talks to whom: circles of ranks that have a communicator of their own.
 *
 * One for the members of a group and a stream of the plan, so that what streams do beside each
 * other stays so. One for the messages of all streams of a pipeline that messages tie together,
 * which is what a framework gives them: a rank's exchange is always of one circle.
 */
#ifndef OFFSIM_CUDA_EXEC_CIRCLES_H
#define OFFSIM_CUDA_EXEC_CIRCLES_H

#include "sim/exec/executor.h"
#include "sim/exec/stage.h"

/* Circles are those of comm_group, and one more for messages. */
enum { FOR_MESSAGES = COMM_GROUPS, PURPOSES };

typedef struct circle {
  uint32_t *ranks; /* global, in the circle's order */
  uint32_t count;
  void *own; /* of whoever opened it */
} circle;

/* Makes the ranks' communicators; all processes open the same circles in the same order. NULL, or
 * why not. */
typedef const char *circle_opener(void *context, circle *c, uint32_t number);

typedef struct circles {
  circle *items;
  uint32_t count, capacity;
  const exec_layout *layout;
  uint32_t (*number_of)[PURPOSES][DEVICE_STREAMS]; /* [ranks]; 0: none */
  circle_opener *open;                             /* the caller sets it, and its context */
  void *context;
} circles;

void circles_begin(circles *all, const exec_layout *layout);
void circles_release(circles *all); /* but for what is `own` */
/* Opens those that the plan has and that are not there yet; `stages` as in exchange_begin. */
const char *circles_prepare(circles *all, const plan *p, const stage *stages);
circle *circles_find(const circles *all, uint32_t rank, uint32_t purpose, uint32_t stream);
/* The rank's number in the circle. */
uint32_t circle_index(const circle *c, uint32_t rank);

#endif
