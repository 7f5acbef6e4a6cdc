/*
 * The memory that some operands see, copied to a device and held against the original later:
 *
 *     operand_copies c = { .driver = &gpu_driver_host, .stream = stream };
 *     copies_begin(&c);
 *     copies_add(&c, tensors, count);               // all that a kernel reads and writes
 *     copies_upload(&c, scratch_bytes);
 *     exec_tensor there = copies_tensor(&c, &here);  // its copy on the device
 *     ... one kernel runs on the copies, another one on the originals ...
 *     const unsigned char *at = copies_difference(&c);
 *     copies_release(&c);
 *
 * Operands that share memory share it on the device, too. Between the copies, and around the
 * scratch memory, lie guard zones that nothing may touch. A driver's failure ends the program.
 */
#ifndef OFFSIM_TESTS_GPU_OPERAND_COPIES_H
#define OFFSIM_TESTS_GPU_OPERAND_COPIES_H

#include "cuda/device/device.h"
#include "sim/exec/call.h"

typedef struct operand_span {
  unsigned char *here;
  int64_t bytes, there; /* there: offset in the device's block */
} operand_span;

typedef struct operand_copies {
  const gpu_driver *driver;
  gpu_stream *stream;
  struct {
    operand_span *items;
    uint32_t count, capacity;
  } spans;
  unsigned char *sent, *found; /* [bytes] */
  int64_t bytes, capacity, scratch_at, scratch_bytes;
  unsigned char *device; /* [bytes] */
} operand_copies;

/* Where something is not what it should be. */
typedef struct operand_difference {
  bool exists;
  const unsigned char *here; /* the original byte; NULL: in a guard zone */
  unsigned char expected, found;
  int64_t bytes; /* that differ, in all */
} operand_difference;

void copies_begin(operand_copies *c);
void copies_add(operand_copies *c, const exec_tensor *tensors, uint32_t count);
void copies_add_bytes(operand_copies *c, void *here, int64_t bytes);
void copies_upload(operand_copies *c, int64_t scratch_bytes);
exec_tensor copies_tensor(const operand_copies *c, const exec_tensor *t);
void *copies_address(const operand_copies *c, const void *here);
void *copies_scratch(const operand_copies *c);
/* Brings the copies back once the stream is done with them. */
void copies_download(operand_copies *c);
operand_difference copies_difference(const operand_copies *c);
void copies_release(operand_copies *c);

void check_driver(const operand_copies *c, const char *what, const char *failure);

#endif
