/*
 * The file that rows go to (traces/issued/rows.h). It is mapped into memory, so what was written
 * is kept when the process is killed. Any thread may write.
 */
#ifndef OFFSIM_CUDA_RECORDER_ROWS_FILE_H
#define OFFSIM_CUDA_RECORDER_ROWS_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "traces/issued/rows.h"

/* False after a message: `path`, and `path` with the process's number after it, cannot be made. */
bool rows_open(const char *path);

/* Once the disk is full or the process has forked, rows are dropped. `count` after `word` come from
 * `more`, which is unaligned bytes that are padded with NULs. */
void rows_put(issued_kind kind, uint8_t flags, const uint64_t *words, uint32_t count,
              const void *more, size_t more_bytes);

#define ROWS_PUT(kind, flags, ...)                                                                 \
  rows_put(kind, flags, (const uint64_t[]){ __VA_ARGS__ },                                         \
           sizeof((const uint64_t[]){ __VA_ARGS__ }) / sizeof(uint64_t), NULL, 0)

/* Cuts the file after its last row. */
void rows_close(void);

/* Says it on stderr, as one line of the recorder. */
void rows_message(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
