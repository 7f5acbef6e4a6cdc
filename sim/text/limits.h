/*
 * Texts that offsim refuses before a parser sees a byte of them.
 */
#ifndef OFFSIM_SIM_TEXT_LIMITS_H
#define OFFSIM_SIM_TEXT_LIMITS_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/base/diag.h"

enum { TEXT_DEPTH_LIMIT = 64 };

/* False after a diag error: the text has more than FILE_TEXT_LIMIT_BYTES, a NUL byte, or bytes that
 * are not UTF-8. `file` names the text in the message. */
bool text_check_bytes(const char *file, const char *text, size_t length, diag *d);

/* False after a diag error: YAML or JSON nested deeper than TEXT_DEPTH_LIMIT. Counts indentation,
 * `- ` and brackets. The count is never too low for a text that a human wrote; the reader counts
 * again, exactly. */
bool text_check_depth(const char *file, const char *text, size_t length, diag *d);

#endif
