/* Storage of buffers: arrays with guard zones on both sides, places in a file, or nothing but a
 * token. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ref/exec/state.h"

/* Both keep the array's alignment. */
enum { GUARD_BYTES = 64, ALIGNMENT = 64, GUARD_PATTERN = 0xC3 };

static int64_t padded(int64_t bytes)
{
  return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* The hind guard zone begins with the first byte behind the array. */
static int64_t block_bytes(int64_t bytes)
{
  return GUARD_BYTES + padded(bytes) + GUARD_BYTES;
}

unsigned char *cell_data(const ref_cell *c)
{
  return c->block == NULL ? NULL : c->block + GUARD_BYTES;
}

/* What a workspace holds counts for nobody: it is large, and need not be touched. */
static bool take_array(ref_exec *e, ref_cell *c, buffer_class class)
{
  int64_t asked = block_bytes(c->bytes);
  if (e->array_bytes + asked > e->limit_bytes) return false;
  c->block = aligned_alloc(ALIGNMENT, (size_t)asked);
  if (c->block == NULL) return false;
  e->array_bytes += asked;
  memset(c->block, GUARD_PATTERN, GUARD_BYTES);
  if (class != CLASS_WORKSPACE) memset(cell_data(c), e->options.poison, (size_t)c->bytes);
  memset(cell_data(c) + c->bytes, GUARD_PATTERN, (size_t)(asked - GUARD_BYTES - c->bytes));
  return true;
}

static bool take_storage(ref_exec *e, ref_cell *c, buffer_class class)
{
  if (e->options.arithmetic == REF_OPAQUE) return true;
  if (!shadow_new(&c->written, c->bytes) || (!c->is_file && !take_array(e, c, class)))
    return diag_refused(e->d,
                        "ref: no memory for a buffer of %" PRId64 " bytes: %" PRId64
                        " are in use, of %" PRId64 " that there are",
                        c->bytes, e->array_bytes, e->limit_bytes);
  return !c->is_file || disk_take(&e->disk, c->bytes, &c->file_at, e->d);
}

ref_cell *cell_new(ref_exec *e, int64_t bytes, buffer_class class)
{
  ref_cell *c = calloc(1, sizeof *c);
  if (c == NULL) die_refused("ref: no memory for a buffer's description");
  *c = (ref_cell){
    .bytes = bytes, .owner = NO_BUFFER, .is_file = class_side(class) == ON_DISK, .users = 1
  };
  if (take_storage(e, c, class)) return c;
  shadow_release(&c->written);
  free(c);
  exec_refused(e);
  return NULL;
}

/* `count` is not 0: the first byte is right, and each one as the one before it. */
static bool is_all(const unsigned char *bytes, int64_t count, unsigned char value)
{
  return bytes[0] == value && memcmp(bytes, bytes + 1, (size_t)count - 1) == 0;
}

bool cell_guards_hold(const ref_cell *c)
{
  return c->block == NULL ||
         (is_all(c->block, GUARD_BYTES, GUARD_PATTERN) &&
          is_all(cell_data(c) + c->bytes, block_bytes(c->bytes) - GUARD_BYTES - c->bytes,
                 GUARD_PATTERN));
}

ref_cell *cell_shared(ref_cell *c)
{
  c->users++;
  return c;
}

void cell_release(ref_exec *e, const rank_state *r, uint32_t buffer, ref_cell *c)
{
  if (--c->users > 0) return;
  if (is_going(e) && !cell_guards_hold(c))
    exec_wrong(e, "rank %u: somebody wrote outside of %s", r->number,
               buffer == NO_BUFFER ? "a page-locked buffer"
                                   : stage_buffer_text(r->stage, buffer, &e->lasting));
  if (c->block != NULL) e->array_bytes -= block_bytes(c->bytes);
  if (c->is_file && e->options.arithmetic == REF_EXACT) disk_give(&e->disk, c->file_at, c->bytes);
  shadow_release(&c->written);
  free(c->block);
  free(c);
}

void cell_lose(ref_exec *e, ref_cell *c, loss_kind how, uint32_t to)
{
  c->lost = (uint8_t)how;
  c->lost_to = to;
  if (e->options.arithmetic == REF_OPAQUE) return;
  shadow_clear(&c->written);
  if (c->block != NULL) memset(cell_data(c), e->options.poison, (size_t)c->bytes);
}
