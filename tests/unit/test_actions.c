/*
 * The ops of a policy's actions as text: one chunk with three saved tensors, one micro-batch.
 *
 *     +3:compute  buffer 3 is allocated in compute's pool
 *     -3{d2h}     its last reference dies; d2h still uses it
 *     d2h 3>4     a copy on its stream
 *     +h4:1       a pinned buffer of pool key 1 is taken; -h4: returned
 *     r0:d2h      event 0 is recorded
 *     w0:compute  ... waited for
 */
#include "tests/unit/small_plan.h"

#include <stdio.h>
#include <stdlib.h>

#include "sim/compile/walk.h"

enum { WHOLE = 1, SLICE, TWIN, ENTRIES }; /* entries, and their places */

/* A frame's references to the storages of the entries come first: places 1 to 3. */
static place_id slot_of(uint32_t entry)
{
  return entry + ENTRIES - 1;
}

typedef struct stage {
  arena memory;
  plan plan;
  walk walk;
  chunk_program program, *programs[1];
  instance instance, *instances[1];
  uint32_t *entry_keys[1];
  int64_t *copied_bytes[1];
  uint32_t frame[ENTRIES]; /* by entry: the buffer that is saved */
} stage;

static uint32_t add_tensor(stage *s, const char *name, int64_t rows, int64_t columns)
{
  *ARRAY_PUSH(&s->plan.tensors) =
      (plan_tensor){ .name = name, .dtype = DTYPE_BF16, .rank = 2, .shape = { rows, columns } };
  return s->plan.tensors.count - 1;
}

static void add_entry(stage *s, uint32_t tensor, int64_t bytes, int64_t storage_bytes)
{
  *ARRAY_PUSH(&s->program.entries) = (saved_entry){ .elements = bytes / 2,
                                                    .bytes = bytes,
                                                    .storage_bytes = storage_bytes,
                                                    .element_bytes = 2,
                                                    .group = 1,
                                                    .tensor = tensor,
                                                    .contiguous = bytes == storage_bytes };
  *ARRAY_PUSH(&s->program.entry_places) = slot_of(s->program.entries.count - 1);
}

/* Buffers are taken and saved: each has the frame's reference and autograd's. */
static void save_all(stage *s)
{
  for (uint32_t i = 1; i < ENTRIES; i++) {
    const saved_entry *e = &s->program.entries.items[i];
    uint32_t buffer =
        walk_alloc(&s->walk, e->storage_bytes, e->tensor, CLASS_SAVED, STREAM_COMPUTE);
    s->walk.references.items[buffer]++;
    s->frame[i] = buffer;
    s->instance.buffer_of[i] = s->instance.buffer_of[slot_of(i)] = buffer;
  }
}

static stage *stage_new(void)
{
  stage *s = calloc(1, sizeof *s);
  s->plan = plan_new(1, &s->memory);
  *ARRAY_PUSH(&s->program.entries) = (saved_entry){ 0 };
  *ARRAY_PUSH(&s->program.entry_places) = 0;
  add_entry(s, add_tensor(s, "whole", 64, 8), 1024, 1024);
  add_entry(s, add_tensor(s, "slice", 64, 8), 1024, 4096);
  add_entry(s, add_tensor(s, "twin", 64, 8), 1024, 1024);
  s->programs[0] = &s->program;
  s->instances[0] = &s->instance;
  s->instance.buffer_of = ARENA_ARRAY(&s->memory, uint32_t, 2 * ENTRIES);
  s->instance.host_of = ARENA_ARRAY(&s->memory, uint32_t, ENTRIES);
  s->instance.file_of = ARENA_ARRAY(&s->memory, uint32_t, ENTRIES);
  s->instance.packed_alone = ARENA_ARRAY(&s->memory, bool, ENTRIES);
  s->instance.alone = ARENA_ARRAY(&s->memory, bool, ENTRIES);
  memset(s->instance.buffer_of, 0xff, 2 * ENTRIES * sizeof(uint32_t));
  memset(s->instance.host_of, 0xff, ENTRIES * sizeof(uint32_t));
  memset(s->instance.file_of, 0xff, ENTRIES * sizeof(uint32_t));
  s->entry_keys[0] = ARENA_ARRAY(&s->memory, uint32_t, ENTRIES);
  s->copied_bytes[0] = ARENA_ARRAY(&s->memory, int64_t, ENTRIES);
  s->walk = (walk){ .plan = &s->plan,
                    .rank = &s->plan.ranks[0],
                    .chunk_count = 1,
                    .programs = s->programs,
                    .instances = s->instances,
                    .entry_key = s->entry_keys,
                    .copied_bytes = s->copied_bytes,
                    .last_offloaded = UINT32_MAX,
                    .memory = &s->memory };
  walk_number_host_keys(&s->walk);
  save_all(s);
  s->walk.rank->ops.count = 0; /* tests look at what comes after */
  return s;
}

static void stage_end(stage *s)
{
  ARRAY_FREE(&s->program.entries);
  ARRAY_FREE(&s->program.entry_places);
  ARRAY_FREE(&s->walk.references);
  ARRAY_FREE(&s->walk.host_keys);
  plan_release(&s->plan);
  arena_release(&s->memory);
  free(s);
}

/* ---- telling ops ---- */

static void say_streams(char *line, size_t bytes, uint32_t streams)
{
  for (uint32_t k = 0; k < STREAMS; k++) {
    size_t used = strlen(line);
    if (streams >> k & 1) snprintf(line + used, bytes - used, "{%s}", stream_name((plan_stream)k));
  }
}

static void say_op(const rank_plan *r, const plan_op *o, char *line, size_t bytes)
{
  static const uint32_t none[1];
  bool has_operands = o->reads + o->writes > 0;
  const uint32_t *operand = has_operands ? &r->operands.items[o->operands] : none;
  const char *stream = stream_name((plan_stream)o->stream);
  switch ((op_kind)o->kind) {
  case OP_ALLOC: snprintf(line, bytes, "+%u:%s", o->arg, stream); break;
  case OP_FREE:
    snprintf(line, bytes, "-%u", o->arg);
    say_streams(line, bytes, o->operands);
    break;
  case OP_HOST_ALLOC:
    snprintf(line, bytes, "+h%u:%u", o->arg, r->buffers.items[o->arg].host_key);
    break;
  case OP_HOST_FREE: snprintf(line, bytes, "-h%u", o->arg); break;
  case OP_KERNEL:
  case OP_D2H:
  case OP_H2D:
  case OP_DISK_WRITE:
  case OP_DISK_READ:
    snprintf(line, bytes, "%s@%s %u>%u", op_name((op_kind)o->kind), stream, operand[0], operand[1]);
    break;
  case OP_RECORD: snprintf(line, bytes, "r%u:%s", o->arg, stream); break;
  case OP_WAIT: snprintf(line, bytes, "w%u:%s", o->arg, stream); break;
  case OP_MARK:
  case OP_COLLECTIVE:
  case OP_HOST_WAIT:
  case OP_HOST_READ:
  case OP_HOST_WORK:
  case OP_GRAPH_BEGIN:
  case OP_GRAPH_END:
  case OP_SEND:
  case OP_RECV:
  case OP_KINDS: fail();
  }
}

static void assert_ops(stage *s, const char *expected)
{
  char text[1024] = "", line[96];
  for (uint32_t i = 0; i < s->walk.rank->ops.count; i++) {
    size_t used = strlen(text);
    say_op(s->walk.rank, &s->walk.rank->ops.items[i], line, sizeof line);
    snprintf(text + used, sizeof text - used, "%s%s", used == 0 ? "" : " ", line);
  }
  assert_string_equal(text, expected);
  s->walk.rank->ops.count = 0;
}

static int64_t buffer_bytes(const stage *s, uint32_t buffer)
{
  return s->walk.rank->buffers.items[buffer].bytes;
}

/* ---- the actions ---- */

static void test_events(void **state)
{
  (void)state;
  stage *s = stage_new();
  act_join(&s->walk, STREAM_D2H, STREAM_COMPUTE);
  event_id copied = act_record(&s->walk, STREAM_D2H);
  act_wait(&s->walk, STREAM_H2D, copied);
  assert_ops(s, "r0:compute w0:d2h r1:d2h w1:h2d");
  assert_int_equal(s->walk.rank->events, 2);
  stage_end(s);
}

/* The block dies with the frame's reference, and carries the mark of the stream that copies from
 * it. */
static void test_offload_and_reload(void **state)
{
  (void)state;
  stage *s = stage_new();
  assert_int_equal(act_place(&s->walk, 0, WHOLE), PLACE_DEVICE);
  act_offload(
      &s->walk, 0, WHOLE,
      (offload_how){ COPY_VIEW, .pooled = true, .record_stream = true, .stream = STREAM_D2H });
  assert_int_equal(act_place(&s->walk, 0, WHOLE), PLACE_HOST);
  assert_ops(s, "+h3:1 d2h@d2h 0>3");
  walk_drop_reference(&s->walk, s->frame[WHOLE]);
  assert_ops(s, "-0{d2h}");
  act_reload(&s->walk, 0, WHOLE, STREAM_H2D, STREAM_H2D);
  assert_int_equal(act_place(&s->walk, 0, WHOLE), PLACE_DEVICE);
  assert_ops(s, "+4:h2d h2d@h2d 3>4 -h3");
  assert_int_equal(buffer_bytes(s, 4), 1024);
  assert_int_equal(s->walk.rank->buffers.items[4].purpose, CLASS_RELOAD);
  assert_int_equal(s->instance.buffer_of[slot_of(WHOLE)], 4);
  stage_end(s);
}

/* The last reference: the block dies in the middle of the group. Without record_stream nobody is
 * marked. */
static void test_offload_of_the_last_reference(void **state)
{
  (void)state;
  for (int marked = 0; marked < 2; marked++) {
    stage *s = stage_new();
    walk_drop_reference(&s->walk, s->frame[WHOLE]);
    act_offload(&s->walk, 0, WHOLE,
                (offload_how){ COPY_VIEW, .record_stream = marked, .stream = STREAM_D2H });
    assert_ops(s, marked ? "+h3:0 d2h@d2h 0>3 -0{d2h}" : "+h3:0 d2h@d2h 0>3 -0");
    stage_end(s);
  }
}

/* A block of the copying stream's own pool needs no mark. */
static void test_mark_of_the_own_stream(void **state)
{
  (void)state;
  stage *s = stage_new();
  walk_drop_reference(&s->walk, s->frame[WHOLE]);
  act_offload(&s->walk, 0, WHOLE,
              (offload_how){ COPY_VIEW, .record_stream = true, .stream = STREAM_COMPUTE });
  assert_ops(s, "+h3:0 d2h@compute 0>3 -0");
  stage_end(s);
}

/* The pool's key is the shape of the copy: equal shapes share one, a whole storage has another. */
static void test_host_keys(void **state)
{
  (void)state;
  stage *s = stage_new();
  offload_how how = { COPY_VIEW, .pooled = true, .stream = STREAM_D2H };
  act_offload(&s->walk, 0, WHOLE, how);
  act_offload(&s->walk, 0, TWIN, how);
  assert_ops(s, "+h3:1 d2h@d2h 0>3 +h4:1 d2h@d2h 2>4");
  how.form = COPY_STORAGE;
  act_offload(&s->walk, 0, SLICE, how);
  assert_ops(s, "+h5:3 d2h@d2h 1>5"); /* 2 is the whole storage of the first */
  assert_int_equal(buffer_bytes(s, 3), 1024);
  assert_int_equal(buffer_bytes(s, 5), 4096);
  act_reload(&s->walk, 0, SLICE, STREAM_H2D, STREAM_H2D);
  assert_ops(s, "+6:h2d h2d@h2d 5>6 -h5");
  assert_int_equal(buffer_bytes(s, 6), 4096);
  stage_end(s);
}

/* A small strided view is gathered on the copying stream, into memory of that stream's pool. */
static void test_gathered_view(void **state)
{
  (void)state;
  stage *s = stage_new();
  act_offload(
      &s->walk, 0, SLICE,
      (offload_how){ COPY_GATHERED, .pooled = true, .record_stream = true, .stream = STREAM_D2H });
  assert_ops(s, "+h3:1 +4:d2h kernel@d2h 1>4 d2h@d2h 4>3 -4");
  assert_int_equal(buffer_bytes(s, 3), 1024);
  assert_int_equal(buffer_bytes(s, 4), 1024);
  walk_drop_reference(&s->walk, s->frame[SLICE]);
  assert_ops(s, "-1{d2h}");
  assert_int_equal(s->plan.calls.items[0].bytes, 2 * 1024);
  stage_end(s);
}

/* An emptied storage is freed at once and only once; references may outlive it. */
static void test_emptied_storage(void **state)
{
  (void)state;
  stage *s = stage_new();
  act_empty_storage(&s->walk, 0, WHOLE, STREAM_COMPUTE);
  act_empty_storage(&s->walk, 0, WHOLE, STREAM_COMPUTE);
  walk_drop_reference(&s->walk, s->frame[WHOLE]);
  walk_drop_reference(&s->walk, s->frame[WHOLE]);
  assert_ops(s, "-0");
  act_empty_storage(&s->walk, 0, TWIN, STREAM_D2H);
  assert_ops(s, "-2{d2h}");
  s->instance.buffer_of[SLICE] = NO_BUFFER;
  act_empty_storage(&s->walk, 0, SLICE, STREAM_HOST);
  assert_ops(s, "");
  stage_end(s);
}

static void test_released_entry_is_nowhere(void **state)
{
  (void)state;
  stage *s = stage_new();
  s->instance.buffer_of[slot_of(TWIN)] = NO_BUFFER;
  assert_int_equal(act_place(&s->walk, 0, TWIN), PLACE_NONE);
  stage_end(s);
}

/* Groups are counted by what leaves: several tensors of one count once. */
static void test_groups_are_counted_once(void **state)
{
  (void)state;
  stage *s = stage_new();
  offload_how how = { COPY_VIEW, .stream = STREAM_D2H };
  act_offload(&s->walk, 0, WHOLE, how);
  act_offload(&s->walk, 0, TWIN, how);
  assert_int_equal(s->walk.offloaded_groups, 1);
  const saved_entry *entries = s->program.entries.items;
  assert_int_equal(entries[WHOLE].group, entries[TWIN].group);
  assert_int_equal(s->copied_bytes[0][entries[WHOLE].group],
                   entries[WHOLE].bytes + entries[TWIN].bytes);
  stage_end(s);
}

/* The halves of offload and reload: in between the entry is on both sides. */
static void test_halves(void **state)
{
  (void)state;
  stage *s = stage_new();
  walk_drop_reference(&s->walk, s->frame[WHOLE]);
  act_copy_out(&s->walk, 0, WHOLE, (offload_how){ COPY_VIEW, .stream = STREAM_D2H });
  assert_int_equal(act_place(&s->walk, 0, WHOLE), PLACE_DEVICE);
  assert_ops(s, "+h3:0 d2h@d2h 0>3");
  act_release(&s->walk, 0, WHOLE);
  assert_int_equal(act_place(&s->walk, 0, WHOLE), PLACE_HOST);
  assert_ops(s, "-0");
  act_copy_in(&s->walk, 0, WHOLE, STREAM_D2H, STREAM_COMPUTE);
  assert_int_equal(act_place(&s->walk, 0, WHOLE), PLACE_DEVICE);
  assert_ops(s, "+4:compute h2d@d2h 3>4");
  act_drop_host(&s->walk, 0, WHOLE);
  assert_ops(s, "-h3");
  stage_end(s);
}

/* Two entries of one storage: one copy each way, and both buffers live until neither needs them. */
static void test_shared_copy(void **state)
{
  (void)state;
  stage *s = stage_new();
  uint32_t *twin = &s->instance.buffer_of[slot_of(TWIN)];
  *twin = s->frame[WHOLE];
  s->walk.references.items[s->frame[WHOLE]]++;
  walk_drop_reference(&s->walk, s->frame[WHOLE]);
  act_copy_out(&s->walk, 0, WHOLE, (offload_how){ COPY_STORAGE, .stream = STREAM_D2H });
  act_share(&s->walk, 0, TWIN, WHOLE);
  act_release(&s->walk, 0, WHOLE);
  assert_ops(s, "+h3:0 d2h@d2h 0>3");
  act_release(&s->walk, 0, TWIN);
  assert_ops(s, "-0");
  act_copy_in(&s->walk, 0, WHOLE, STREAM_D2H, STREAM_COMPUTE);
  act_share(&s->walk, 0, TWIN, WHOLE);
  assert_int_equal(*twin, 4);
  assert_ops(s, "+4:compute h2d@d2h 3>4");
  act_drop_host(&s->walk, 0, WHOLE);
  walk_drop_reference(&s->walk, 4);
  assert_ops(s, "");
  act_drop_host(&s->walk, 0, TWIN);
  walk_drop_reference(&s->walk, 4);
  assert_ops(s, "-h3 -4");
  stage_end(s);
}

static void test_held_buffer(void **state)
{
  (void)state;
  stage *s = stage_new();
  device_buffer held = act_hold(&s->walk, 0, WHOLE);
  walk_drop_reference(&s->walk, s->frame[WHOLE]);
  walk_drop_reference(&s->walk, s->frame[WHOLE]);
  assert_ops(s, "");
  act_let_go(&s->walk, held);
  assert_ops(s, "-0");
  stage_end(s);
}

/* Taken in the first iteration, there in the others; no use of it ends its life. */
static void test_own_buffer(void **state)
{
  (void)state;
  for (int steady = 0; steady < 2; steady++) {
    stage *s = stage_new();
    s->walk.iteration = steady ? ITERATION_STEADY : ITERATION_WARMUP;
    s->walk.rank->residents = s->walk.rank->buffers.count;
    device_buffer own = act_own_buffer(&s->walk, 0, WHOLE);
    assert_int_equal(buffer_bytes(s, own), 1024);
    assert_int_equal(s->walk.rank->residents, steady ? 4 : 3);
    assert_ops(s, steady ? "" : "+3:compute");
    act_offload(&s->walk, 0, WHOLE, (offload_how){ COPY_VIEW, .stream = STREAM_D2H });
    act_reload_into(&s->walk, 0, WHOLE, STREAM_H2D, own);
    assert_int_equal(act_place(&s->walk, 0, WHOLE), PLACE_DEVICE);
    walk_drop_reference(&s->walk, own);
    assert_ops(s, "+h4:0 d2h@d2h 0>4 h2d@h2d 4>3 -h4");
    stage_end(s);
  }
}

/* To a file by way of pageable memory, and back. */
static void test_files(void **state)
{
  (void)state;
  stage *s = stage_new();
  walk *w = &s->walk;
  act_offload(w, 0, WHOLE, (offload_how){ COPY_VIEW, .pageable = true, .stream = STREAM_COMPUTE });
  assert_int_equal(w->rank->buffers.items[3].purpose, CLASS_PAGEABLE_HOST);
  act_write_file(w, 0, WHOLE, STREAM_DISK_OUT);
  assert_int_equal(w->rank->buffers.items[4].purpose, CLASS_DISK);
  assert_int_equal(buffer_bytes(s, 4), 1024);
  assert_int_equal(act_place(w, 0, WHOLE), PLACE_HOST);
  act_drop_host(w, 0, WHOLE);
  assert_int_equal(act_place(w, 0, WHOLE), PLACE_FILE);
  assert_ops(s, "+h3:0 d2h@compute 0>3 +h4:0 disk_write@disk_out 3>4 -h3");
  act_read_file(w, 0, WHOLE, STREAM_DISK_IN);
  assert_int_equal(w->rank->buffers.items[5].purpose, CLASS_PAGEABLE_HOST);
  act_reload(w, 0, WHOLE, STREAM_COMPUTE, STREAM_COMPUTE);
  assert_int_equal(act_place(w, 0, WHOLE), PLACE_DEVICE);
  act_drop_file(w, 0, WHOLE);
  assert_ops(s, "+h5:0 disk_read@disk_in 4>5 +6:compute h2d@compute 5>6 -h5 -h4");
  stage_end(s);
}

int main(void)
{
  static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_halves),
    cmocka_unit_test(test_shared_copy),
    cmocka_unit_test(test_held_buffer),
    cmocka_unit_test(test_own_buffer),
    cmocka_unit_test(test_files),
    cmocka_unit_test(test_events),
    cmocka_unit_test(test_offload_and_reload),
    cmocka_unit_test(test_offload_of_the_last_reference),
    cmocka_unit_test(test_mark_of_the_own_stream),
    cmocka_unit_test(test_host_keys),
    cmocka_unit_test(test_gathered_view),
    cmocka_unit_test(test_emptied_storage),
    cmocka_unit_test(test_released_entry_is_nowhere),
    cmocka_unit_test(test_groups_are_counted_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
