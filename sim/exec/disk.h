/*
 * Files of the disk offload. All files of an execution are parts of one file, which is unlinked
 * right after it is opened, so that no file is left however the program ends.
 */
#ifndef OFFSIM_SIM_EXEC_DISK_H
#define OFFSIM_SIM_EXEC_DISK_H

#include <stdbool.h>

#include "sim/base/array.h"
#include "sim/base/diag.h"

typedef struct disk_extent {
  int64_t at, bytes;
} disk_extent;

typedef struct exec_disk {
  const char *folder; /* NULL: $TMPDIR, or /tmp */
  int file;           /* its descriptor, if `open` */
  bool open;
  int64_t end; /* bytes allocated so far */
  struct {
    disk_extent *items;
    uint32_t count, capacity;
  } free; /* ranges that were returned */
} exec_disk;

/* Sizes and places are bytes. What returns bool returns false after a diag refusal with folder, bytes and
 * reason. */

/* Allocates space for a file, from *at on. */
bool disk_take(exec_disk *k, int64_t bytes, int64_t *at, diag *d);
/* Returns the space that disk_take has allocated there. */
void disk_give(exec_disk *k, int64_t at, int64_t bytes);
bool disk_write(exec_disk *k, int64_t at, const void *from, int64_t bytes, diag *d);
bool disk_read(exec_disk *k, int64_t at, void *to, int64_t bytes, diag *d);
/* Closes the file, which is then gone. */
void disk_release(exec_disk *k);

#endif
