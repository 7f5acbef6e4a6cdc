/*
 * Memory of buffers: the host's allocations and frees, and their effects on ops that streams have
 * yet to run.
 *
 *           host allocates          host frees               last op has run
 *   ABSENT ---------------> ALIVE -------------> LEAVING ------------------> ABSENT
 *                             |                                                ^
 *                             +--- host frees, no op is left to run -----------+
 *
 * ABSENT    no cell; no op of the plan uses it
 * ALIVE     in its cell, and counted in the rank's tally if it is on the device
 * LEAVING   in its cell, but no longer counted; only ops that were issued before the free still use
 *           it. Another buffer may get the block: then the contents are lost to these ops
 *
 * A cell is the memory of a buffer, or of several in turn if it is page-locked memory of a pool: an
 * array with guard zones on both sides, a place in a file, or tokens alone.
 *
 *           a buffer writes             another buffer gets the block
 *   EMPTY -------------------> OWNED ---------------------------------> LOST_BLOCK
 *                              ^ | ^                                        |
 *     the pool's next buffer   | | |             a buffer of it writes      |
 *     writes                   +-+ +----------------------------------------+
 *
 *   OWNED ---------------------------------> LOST_FILE
 *           the host removes the file
 *
 * Only the owner may read; nothing may use a lost file.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ref/exec/state.h"

/* ---- cells: storage -------------------------------------------------------------------------- */

/* Both keep the array's alignment. */
enum { GUARD_BYTES = 64, ALIGNMENT = 64, GUARD_PATTERN = 0xC3 };

static int64_t padded(int64_t bytes)
{
  assert(bytes >= 0);
  return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* The rear guard zone begins with the first byte after the array. */
static int64_t block_bytes(int64_t bytes)
{
  return GUARD_BYTES + padded(bytes) + GUARD_BYTES;
}

unsigned char *cell_data(const ref_cell *c)
{
  assert(!c->is_file || c->block == NULL);
  return c->block == NULL ? NULL : c->block + GUARD_BYTES;
}

/* No op depends on the contents of a workspace: it is large, and need not be filled. */
static bool take_array(ref_exec *e, ref_cell *c, buffer_class class)
{
  int64_t asked = block_bytes(c->bytes);
  assert(c->block == NULL && !c->is_file && asked % ALIGNMENT == 0);
  if (e->array_bytes + asked > e->limit_bytes) return false;
  c->block = aligned_alloc(ALIGNMENT, (size_t)asked);
  if (c->block == NULL) return false;
  e->array_bytes += asked;
  assert(e->array_bytes <= e->limit_bytes);
  memset(c->block, GUARD_PATTERN, GUARD_BYTES);
  if (class != CLASS_WORKSPACE) memset(cell_data(c), e->options.poison, (size_t)c->bytes);
  memset(cell_data(c) + c->bytes, GUARD_PATTERN, (size_t)(asked - GUARD_BYTES - c->bytes));
  return true;
}

static bool take_storage(ref_exec *e, ref_cell *c, buffer_class class)
{
  assert(c->users == 1 && c->owner == NO_BUFFER && c->lost == NOT_LOST);
  if (e->options.arithmetic == REF_OPAQUE) {
    contents_fill(&c->contents, c->bytes, 0);
    return true;
  }
  if (!shadow_new(&c->written, c->bytes) || (!c->is_file && !take_array(e, c, class)))
    return diag_refused(e->d,
                        "ref: no memory for a buffer of %" PRId64 " bytes: %" PRId64 " of %" PRId64
                        " are in use",
                        c->bytes, e->array_bytes, e->limit_bytes);
  return !c->is_file || disk_take(&e->disk, c->bytes, &c->file_at, e->d);
}

ref_cell *cell_new(ref_exec *e, int64_t bytes, buffer_class class)
{
  assert(bytes >= 0);
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

/* The first byte is right, and each other one equals the one before it. */
static bool is_guard(const unsigned char *bytes, int64_t count)
{
  assert(count > 0);
  return bytes[0] == GUARD_PATTERN && memcmp(bytes, bytes + 1, (size_t)count - 1) == 0;
}

bool cell_guards_hold(const ref_cell *c)
{
  return c->block == NULL ||
         (is_guard(c->block, GUARD_BYTES) &&
          is_guard(cell_data(c) + c->bytes, block_bytes(c->bytes) - GUARD_BYTES - c->bytes));
}

ref_cell *cell_shared(ref_cell *c)
{
  assert(c->users > 0 && c->users < UINT32_MAX);
  c->users++;
  return c;
}

void cell_release(ref_exec *e, const rank_state *r, uint32_t buffer, ref_cell *c)
{
  assert(c->users > 0);
  if (--c->users > 0) return;
  if (is_going(e) && !cell_guards_hold(c))
    exec_wrong(e, "rank %u: a kernel wrote outside of %s", r->number,
               buffer == NO_BUFFER ? "a page-locked buffer"
                                   : stage_buffer_text(r->stage, buffer, &e->lasting));
  if (c->block != NULL) e->array_bytes -= block_bytes(c->bytes);
  assert(e->array_bytes >= 0);
  if (c->is_file && e->options.arithmetic == REF_EXACT) disk_give(&e->disk, c->file_at, c->bytes);
  shadow_release(&c->written);
  contents_release(&c->contents);
  free(c->block);
  free(c);
}

/* Its contents are lost. */
static void cell_lose(ref_exec *e, ref_cell *c, loss_kind how, uint32_t to)
{
  assert(how != NOT_LOST && (how == LOST_FILE) == (c->is_file != 0));
  assert(c->lost != LOST_FILE && "a file is removed once");
  c->lost = (uint8_t)how;
  c->lost_to = to;
  if (e->options.arithmetic == REF_OPAQUE) return;
  shadow_clear(&c->written);
  if (c->block != NULL) memset(cell_data(c), e->options.poison, (size_t)c->bytes);
}

/* ---- buffers --------------------------------------------------------------------------------- */

enum { TALLY_ROUNDING_BYTES = 512 };

static buffer_side side_of(const rank_state *r, uint32_t buffer)
{
  return class_side((buffer_class)stage_buffer(r->stage, buffer)->purpose);
}

typedef enum buffer_state { ABSENT, ALIVE, LEAVING } buffer_state;

static buffer_state state_of(const held_buffer *h)
{
  if (h->cell == NULL) {
    assert(!h->alive);
    return ABSENT;
  }
  assert(h->cell->users > 0);
  assert((h->alive || h->pending > 0) && "a buffer without uses is released");
  return h->alive ? ALIVE : LEAVING;
}

static const char *name_of(ref_exec *e, const rank_state *r, uint32_t buffer)
{
  return stage_buffer_text(r->stage, buffer, &e->lasting);
}

/* ---- tally --------------------------------------------------------------------------------- */

static void count_device_bytes(rank_state *r, int64_t bytes, int sign)
{
  int64_t blocks = (bytes + TALLY_ROUNDING_BYTES - 1) / TALLY_ROUNDING_BYTES;
  assert(bytes >= 0 && (sign == 1 || sign == -1));
  r->device_bytes += sign * blocks * TALLY_ROUNDING_BYTES;
  assert(r->device_bytes >= 0 && "no more is freed than was allocated");
  if (r->device_bytes > r->device_peak_bytes) r->device_peak_bytes = r->device_bytes;
}

/* ---- allocation ---------------------------------------------------------------------------- */

/* The cell that was returned first, whether its copy is done or not. Two iterations may assign keys
 * to shapes in different orders, so cells of another size are skipped. */
static ref_cell *from_pool(const ref_exec *e, rank_state *r, uint32_t key, int64_t bytes)
{
  assert(key == 0 || key < r->pool_count);
  cell_queue *q = &r->pools[key];
  assert(q->first <= q->count && (key != 0 || q->count == 0) && "pool 0 is not used");
  for (uint32_t i = q->first; key != 0 && i < q->count; i++) {
    ref_cell *found = q->items[i];
    assert(found->users > 0 && !found->is_file);
    if (found->bytes != bytes && e->options.arithmetic == REF_EXACT) continue;
    for (uint32_t k = i; k > q->first; k--)
      q->items[k] = q->items[k - 1];
    q->first++;
    return found;
  }
  return NULL;
}

/* Any block that is free again, of any size, may become the buffer's: blocks are split and
 * merged. */
static void inherit(rank_state *r, uint32_t buffer)
{
  former_array *uses = &r->returned[stage_buffer(r->stage, buffer)->stream];
  held_buffer *h = &r->buffers[buffer];
  uint32_t kept = 0;
  h->former = r->inherited.count;
  for (uint32_t i = 0; i < uses->count; i++)
    if (is_pending(r, uses->items[i].stream, uses->items[i].last))
      uses->items[kept++] = uses->items[i];
  assert(kept <= uses->count);
  uses->count = kept;
  for (uint32_t i = 0; i < kept; i++)
    *ARRAY_PUSH(&r->inherited) = uses->items[i];
  h->former_count = kept;
}

static uint64_t first_token(const rank_state *r, uint32_t buffer)
{
  assert(buffer != NO_BUFFER);
  return UINT64_C(0x9E3779B97F4A7C15) * (((uint64_t)r->number << 32 | buffer) + 1);
}

/* Without arithmetic, the initial contents of a text's device buffers and residents count as
 * written. */
static void fill(ref_exec *e, const rank_state *r, uint32_t buffer)
{
  ref_cell *c = r->buffers[buffer].cell;
  assert(state_of(&r->buffers[buffer]) == ALIVE && !r->buffers[buffer].begun);
  if (e->options.arithmetic == REF_OPAQUE) {
    if (side_of(r, buffer) != ON_DEVICE && buffer >= r->stage->ops_of->residents) return;
    contents_fill(&c->contents, c->bytes, first_token(r, buffer));
    c->owner = buffer;
  } else if (!c->is_file && e->hooks.fill != NULL &&
             e->hooks.fill(e->hooks.context, r->number, buffer, cell_data(c), c->bytes)) {
    shadow_mark(&c->written, 0, c->bytes);
    c->owner = buffer;
  }
}

void buffer_hold(rank_state *r, uint32_t buffer, ref_cell *c)
{
  held_buffer *h = &r->buffers[buffer];
  assert(state_of(h) == ABSENT && "a plan allocates a buffer once");
  h->cell = cell_shared(c);
  h->alive = true;
  h->pending = r->stage->use_count[buffer];
  h->block_of = NO_BUFFER;
  assert(state_of(h) == ALIVE);
  if (buffer_is_allocated(stage_buffer(r->stage, buffer))) count_device_bytes(r, c->bytes, 1);
}

void buffer_alloc(ref_exec *e, rank_state *r, uint32_t buffer)
{
  const plan_buffer *b = stage_buffer(r->stage, buffer);
  int64_t bytes = r->stage->bytes[buffer];
  assert(state_of(&r->buffers[buffer]) == ABSENT && bytes >= 0);
  ref_cell *c = from_pool(e, r, b->host_key, bytes);
  if (c == NULL) c = cell_new(e, bytes, (buffer_class)b->purpose);
  if (c == NULL) return;
  buffer_hold(r, buffer, c);
  cell_release(e, r, buffer, c);
  if (side_of(r, buffer) == ON_DEVICE) inherit(r, buffer);
  fill(e, r, buffer);
}

/* ---- free ---------------------------------------------------------------------------------- */

/* Ops that the host has issued before the free may still have to run. */
static void give_back(ref_exec *e, rank_state *r, uint32_t buffer)
{
  held_buffer *h = &r->buffers[buffer];
  assert(h->cell != NULL);
  if (h->alive || h->pending > 0) return;
  cell_release(e, r, buffer, h->cell);
  h->cell = NULL;
  assert(state_of(h) == ABSENT);
}

/* The streams that the free names delay the block's reuse; other streams may find different
 * contents. */
static void free_block(rank_state *r, const plan_op *o)
{
  const stage *s = r->stage;
  assert(o->kind == OP_FREE && o->stream < DEVICE_STREAMS && o->operands >> STREAM_HOST == 0);
  for (uint32_t i = s->first_use[o->arg]; i < s->first_use[o->arg + 1]; i++) {
    const stream_use *u = &s->uses[i];
    if (u->last != NO_OP && (o->operands >> u->stream & 1) == 0 &&
        is_pending(r, u->stream, u->last))
      *ARRAY_PUSH(&r->returned[o->stream]) = (former_use){ o->arg, u->stream, u->last };
  }
  count_device_bytes(r, r->buffers[o->arg].cell->bytes, -1);
}

void buffer_free(ref_exec *e, rank_state *r, uint32_t op)
{
  const plan_op *o = stage_op(r->stage, op);
  held_buffer *h = &r->buffers[o->arg];
  assert(state_of(h) == ALIVE && "the plan frees a live buffer");
  h->alive = false;
  if (side_of(r, o->arg) == ON_DEVICE) free_block(r, o);
  if (h->cell->is_file && h->pending > 0) cell_lose(e, h->cell, LOST_FILE, op);
  uint32_t key = stage_buffer(r->stage, o->arg)->host_key;
  assert(key < r->pool_count && (key == 0 || side_of(r, o->arg) == ON_HOST));
  if (key != 0) *ARRAY_PUSH(&r->pools[key]) = cell_shared(h->cell);
  assert(!h->alive && (key == 0 || h->cell->users > 1) && "the pool keeps the memory");
  give_back(e, r, o->arg);
}

void buffer_used(ref_exec *e, rank_state *r, uint32_t buffer)
{
  held_buffer *h = &r->buffers[buffer];
  assert(state_of(h) != ABSENT && h->pending > 0);
  if (--h->pending > 0) return;
  r->last_contents[buffer] = contents_hash_all(&h->cell->contents);
  give_back(e, r, buffer);
}

/* ---- use ----------------------------------------------------------------------------------- */

static void lose_block(ref_exec *e, rank_state *r, uint32_t buffer, uint32_t to)
{
  assert(side_of(r, buffer) == ON_DEVICE && buffer != to);
  if (r->buffers[buffer].cell != NULL) cell_lose(e, r->buffers[buffer].cell, LOST_BLOCK, to);
}

/* The block changes its owner at the first write: until then it has its former owner's contents. */
static void take_over_blocks(ref_exec *e, rank_state *r, uint32_t buffer)
{
  const held_buffer *h = &r->buffers[buffer];
  assert(!h->begun && h->former + h->former_count <= r->inherited.count);
  for (uint32_t i = 0; i < h->former_count; i++) {
    const former_use *u = &r->inherited.items[h->former + i];
    if (!is_pending(r, u->stream, u->last)) continue;
    lose_block(e, r, u->buffer, buffer);
    r->buffers[u->buffer].block_of = buffer;
  }
}

static void report_removed(ref_exec *e, const rank_state *r, uint32_t buffer, uint32_t op)
{
  assert(r->buffers[buffer].cell->lost == LOST_FILE);
  exec_wrong(e, "rank %u: %s uses %s, which op %u has removed", r->number,
             stage_op_text(r->stage, op, &e->lasting), name_of(e, r, buffer),
             r->buffers[buffer].cell->lost_to);
}

void buffer_begin_write(ref_exec *e, rank_state *r, uint32_t buffer, uint32_t op)
{
  held_buffer *h = &r->buffers[buffer];
  assert(state_of(h) != ABSENT && "the plan uses a live buffer");
  if (h->cell->lost == LOST_FILE) {
    report_removed(e, r, buffer, op);
    return;
  }
  if (!h->begun) take_over_blocks(e, r, buffer);
  h->begun = true;
  if (h->block_of != NO_BUFFER) lose_block(e, r, h->block_of, buffer);
  if (h->cell->owner != buffer && e->options.arithmetic == REF_EXACT)
    shadow_clear(&h->cell->written);
  h->cell->owner = buffer;
  h->cell->lost = NOT_LOST;
  assert(h->pending > 0 && "the writing op has not ended");
}

/* ", which nothing has written": why there is nothing to read. */
static const char *reason(ref_exec *e, const rank_state *r, uint32_t buffer)
{
  const ref_cell *c = r->buffers[buffer].cell;
  assert(c->lost != LOST_FILE && "report_removed says that");
  if (c->owner != buffer && c->owner != NO_BUFFER)
    return arena_printf(&e->lasting, "which %s has overwritten", name_of(e, r, c->owner));
  if (c->lost == LOST_BLOCK)
    return arena_printf(&e->lasting, "whose block %s got", name_of(e, r, c->lost_to));
  return "which nothing has written";
}

static bool report_read(ref_exec *e, const rank_state *r, uint32_t buffer, uint32_t op,
                        int64_t element)
{
  assert(element >= 0);
  exec_wrong(e, "rank %u: %s reads element %" PRId64 " of %s, %s", r->number,
             stage_op_text(r->stage, op, &e->lasting), element, name_of(e, r, buffer),
             reason(e, r, buffer));
  return false;
}

bool buffer_check_read(ref_exec *e, rank_state *r, uint32_t buffer, uint32_t op, const plan_view *v)
{
  const ref_cell *c = r->buffers[buffer].cell;
  assert(state_of(&r->buffers[buffer]) != ABSENT && "the plan uses a live buffer");
  if (stage_buffer(r->stage, buffer)->purpose == CLASS_WORKSPACE) return true;
  if (c->lost == LOST_FILE) {
    report_removed(e, r, buffer, op);
    return false;
  }
  if (e->options.arithmetic == REF_OPAQUE)
    return (c->owner == buffer && c->lost == NOT_LOST) || report_read(e, r, buffer, op, 0);
  if (c->owner != buffer && view_elements(v) > 0) return report_read(e, r, buffer, op, v->offset);
  int64_t element = shadow_first_unwritten_of(&c->written, v);
  return element < 0 || report_read(e, r, buffer, op, element);
}
