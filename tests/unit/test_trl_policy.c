/*
 * Policies that hook every saved tensor (TRL's OffloadActivations with and without its stream,
 * PyTorch's save_on_cpu): what leaves, when the stash lets go, what a key remembers, in which order
 * things are issued. The walk behind the actions is made up: saved tensors come from a table, each
 * with an operator of its own unless the table says otherwise.
 *
 * The log: "D3" tensor 3 is copied to the host, "w3" compute waits for that copy, "R3" its device
 * memory is freed; "c3" ("C3") a contiguous copy takes its place, made on the copying (compute)
 * stream; "H3" it is copied back, "+" compute waits for that; "M3" its memory is marked as used by
 * compute; "u3" its operator uses it; "L3" the policy drops what came back; "s" the host waits
 * for a stream; "|" the turn from forward to backward.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "sim/offload/actions.h"
#include "sim/offload/systems.h"
#include "sim/offload/torch_entries.h"

enum { MAX_ENTRIES = 64, LOG_BYTES = 4096, BIG = 1 << 20, SMALL = 1023 };

struct walk {
  saved_entry entries[MAX_ENTRIES];
  uint32_t operator_of[MAX_ENTRIES];
  uint32_t count; /* including [0] */
  bool on_device[MAX_ENTRIES], on_host[MAX_ENTRIES], at_turn[MAX_ENTRIES];
  bool copied[MAX_ENTRIES];         /* to the host, ever */
  bool outlives[MAX_ENTRIES];       /* something else refers to it after its operator */
  uint32_t events, copied_by[4096]; /* by event: tensor whose copy was issued last, 0 = none */
  plan_stream event_stream[4096];
  uint32_t last_copied;
  bool terse; /* no log */
  char log[LOG_BYTES];
  size_t used;
};

static struct walk fake;
static settings chosen;
static arena memory;
static const char *defects_met;

static void say(walk *w, const char *what, uint32_t entry)
{
  char number[16] = "";
  if (w->terse) return;
  if (entry != 0) snprintf(number, sizeof number, "%u", entry);
  w->used += (size_t)snprintf(w->log + w->used, LOG_BYTES - w->used, "%s%s%s", w->used ? " " : "",
                              what, number);
  assert_true(w->used < LOG_BYTES);
}

/* ---- actions ---- */

entry_place act_place(const walk *w, instance_id i, uint32_t entry)
{
  (void)i;
  if (w->on_device[entry]) return PLACE_DEVICE;
  return w->on_host[entry] ? PLACE_HOST : PLACE_NONE;
}

event_id act_record(walk *w, plan_stream stream)
{
  assert_true(w->events < 4096);
  w->event_stream[w->events] = stream;
  w->copied_by[w->events] = stream == STREAM_D2H ? w->last_copied : 0;
  return w->events++;
}

void act_wait(walk *w, plan_stream stream, event_id event)
{
  assert_true(event < w->events && stream != w->event_stream[event]);
  if (stream == STREAM_COMPUTE && w->copied_by[event] != 0) say(w, "w", w->copied_by[event]);
}

void act_join(walk *w, plan_stream waiting, plan_stream on)
{
  assert_int_not_equal(waiting, on);
  if (waiting == STREAM_COMPUTE) say(w, "+", 0);
}

void act_host_wait(walk *w, event_id event)
{
  assert_true(event < w->events);
  say(w, "s", 0);
}

void act_copy_out(walk *w, instance_id i, uint32_t entry, offload_how how)
{
  (void)i;
  assert_true(w->on_device[entry] && !w->on_host[entry]);
  assert_false(how.record_stream || how.pooled);
  w->on_host[entry] = w->copied[entry] = true;
  w->last_copied = how.stream == STREAM_D2H ? entry : 0;
  say(w, how.form == COPY_GATHERED ? "G" : how.form == COPY_STORAGE ? "S" : "D", entry);
}

void act_release(walk *w, instance_id i, uint32_t entry)
{
  (void)i;
  assert_true(w->on_device[entry] && w->on_host[entry]);
  w->on_device[entry] = false;
  say(w, "R", entry);
}

void act_offload(walk *w, instance_id i, uint32_t entry, offload_how how)
{
  act_copy_out(w, i, entry, how);
  act_release(w, i, entry);
}

void act_copy_in(walk *w, instance_id i, uint32_t entry, plan_stream stream, plan_stream pool)
{
  (void)i;
  assert_true(w->on_host[entry] && !w->on_device[entry]);
  assert_int_equal(stream, pool);
  w->on_device[entry] = true;
  w->last_copied = 0;
  say(w, "H", entry);
}

void act_drop_host(walk *w, instance_id i, uint32_t entry)
{
  (void)i;
  assert_true(w->on_host[entry]);
  w->on_host[entry] = false;
}

void act_reload(walk *w, instance_id i, uint32_t entry, plan_stream stream, plan_stream pool)
{
  act_copy_in(w, i, entry, stream, pool);
  act_drop_host(w, i, entry);
}

device_buffer act_hold(walk *w, instance_id i, uint32_t entry)
{
  (void)i;
  assert_true(w->on_device[entry]);
  return entry;
}

void act_let_go(walk *w, device_buffer held)
{
  say(w, "L", held);
}

bool act_others_refer(const walk *w, device_buffer held)
{
  return w->outlives[held];
}

void act_mark_held(walk *w, device_buffer held, plan_stream stream)
{
  assert_int_equal(stream, STREAM_COMPUTE);
  say(w, "M", held);
}

void act_record_stream(walk *w, instance_id i, uint32_t entry, plan_stream stream)
{
  (void)i;
  assert_true(w->on_device[entry]);
  assert_int_equal(stream, STREAM_COMPUTE);
  say(w, "M", entry);
}

void act_clone(walk *w, instance_id i, uint32_t entry, plan_stream stream)
{
  (void)i;
  assert_true(w->on_device[entry]);
  say(w, stream == STREAM_COMPUTE ? "C" : "c", entry);
}

/* ---- one step ---- */

static void add_entry(walk *w, saved_entry e, uint32_t operator)
{
  uint32_t entry = w->count++;
  assert_true(entry < MAX_ENTRIES);
  e.group = 1;
  w->entries[entry] = e;
  w->operator_of[entry] = operator;
}

static void start(mode_choice mode)
{
  arena_release(&memory);
  memory = (arena){ 0 };
  memset(&fake, 0, sizeof fake);
  fake.count = 1;
  chosen = (settings){ .offload = {
                           .mode = mode, .max_fwd_stash_size = 5, .trl_params_registered = true } };
}

static saved_entry tensor_of(uint32_t slot, int64_t bytes)
{
  return (saved_entry){
    .bytes = bytes, .storage_bytes = bytes, .slot = slot, .element_bytes = 2, .contiguous = true
  };
}

/* Each tensor alone in its storage, with its own operator. */
static void add_plain(uint32_t count)
{
  for (uint32_t k = 0; k < count; k++)
    add_entry(&fake, tensor_of(fake.count, BIG), fake.count);
}

static void forward(walk *w, const offload_policy *p, void *state)
{
  if (p->forward_begin != NULL) p->forward_begin(state, w, 0);
  for (uint32_t e = 1; e < w->count; e++) {
    w->on_device[e] = true;
    p->entry_ready(state, w, 0, e);
  }
  memcpy(w->at_turn, w->on_device, sizeof w->at_turn);
}

static uint32_t first_of_operator(const walk *w, uint32_t last)
{
  uint32_t first = last;
  while (first > 1 && w->operator_of[first - 1] == w->operator_of[last])
    first--;
  return first;
}

static void backward(walk *w, const offload_policy *p, void *state)
{
  for (uint32_t last = w->count - 1, first; last > 0; last = first - 1) {
    first = first_of_operator(w, last);
    for (uint32_t e = first; e <= last; e++)
      if (w->on_host[e]) p->unpack(state, w, 0, e);
    for (uint32_t e = first; e <= last; e++) {
      assert_true(w->on_device[e] && !w->on_host[e]);
      w->on_device[e] = false;
      say(w, "u", e);
    }
    if (p->node_backward_end != NULL) p->node_backward_end(state, w, 0, first, last + 1 - first);
  }
  if (p->backward_end != NULL) p->backward_end(state, w, 0);
}

static const char *run(const offload_policy *p, uint32_t steps)
{
  static chunk_shape chunk;
  static rank_shape rank;
  diag d = { .quiet = true };

  chunk = (chunk_shape){ .entries = fake.entries, .entry_count = fake.count };
  rank = (rank_shape){ .settings = &chosen, .chunk_count = 1, .chunks = &chunk };
  void *state = p->begin(&rank, ITERATION_STEADY, &memory, &d);
  for (uint32_t k = 0; k < steps; k++) {
    if (k > 0) say(&fake, "/", 0);
    forward(&fake, p, state);
    say(&fake, "|", 0);
    backward(&fake, p, state);
  }
  for (uint32_t e = 1; e < fake.count; e++)
    assert_false(fake.on_host[e] || fake.on_device[e]);
  defects_met = p->defects != NULL ? p->defects(state) : NULL;
  return fake.log;
}

/* ---- the stash ---- */

static void test_order(void **state)
{
  (void)state;
  start(MODE_FIXED);
  add_plain(7);
  assert_string_equal(run(&trl_system.policy, 1),
                      "D1 D2 D3 D4 D5 w1 R1 D6 w2 R2 D7 | "
                      "u7 w3 R3 w4 R4 w5 R5 w6 R6 w7 "
                      "H6 + u6 H5 + u5 L6 H4 + u4 L5 H3 + u3 L4 H2 + u2 L3 H1 + u1 L2 L1 s s");
  assert_null(defects_met);
}

static void test_steps_are_alike(void **state)
{
  (void)state;
  start(MODE_FIXED);
  chosen.offload.max_fwd_stash_size = 1;
  add_plain(2);
  assert_string_equal(run(&trl_system.policy, 2), "D1 w1 R1 D2 | u2 w2 H1 + u1 L1 s s / "
                                                  "D1 w1 R1 D2 | u2 w2 H1 + u1 L1 s s");
}

/* Tensors of one operator come back together and go together. */
static void test_operators(void **state)
{
  (void)state;
  start(MODE_FIXED);
  chosen.offload.max_fwd_stash_size = 1;
  for (uint32_t k = 0; k < 5; k++)
    add_entry(&fake, tensor_of(k + 1, BIG), k / 2);
  assert_string_equal(run(&trl_system.policy, 1),
                      "D1 w1 R1 D2 w2 R2 D3 w3 R3 D4 w4 R4 D5 | u5 w5 "
                      "H3 + H4 + u3 u4 H1 + H2 + u1 u2 L3 L4 L1 L2 s s");
}

/* Inputs of checkpoints are in use beyond the operator that needs them. */
static void test_checkpoint_inputs(void **state)
{
  (void)state;
  for (int reentrant = 0; reentrant < 2; reentrant++) {
    start(MODE_FIXED);
    chosen.offload.max_fwd_stash_size = 1;
    chosen.recompute.use_reentrant = reentrant != 0;
    add_plain(3);
    fake.entries[1].checkpoint_input = fake.entries[2].checkpoint_input = true;
    assert_string_equal(run(&trl_system.policy, 1),
                        reentrant ? "D1 w1 R1 D2 w2 R2 D3 | u3 w3 H2 + u2 H1 + u1 L2 L1 s s"
                                  : "D1 w1 R1 D2 w2 R2 D3 | u3 w3 H2 + M2 u2 L2 H1 + M1 u1 L1 s s");
  }
}

/* A gradient over what was saved, say: the released code does not notice a single reference. */
static void test_single_references(void **state)
{
  (void)state;
  for (int released = 0; released < 2; released++) {
    start(released ? MODE_AS_RELEASED : MODE_FIXED);
    chosen.offload.max_fwd_stash_size = 1;
    add_plain(3);
    fake.outlives[2] = true;
    assert_string_equal(run(&trl_system.policy, 1),
                        released ? "D1 w1 R1 D2 w2 R2 D3 | u3 w3 H2 + u2 H1 + u1 L2 L1 s s"
                                 : "D1 w1 R1 D2 w2 R2 D3 | u3 w3 H2 + u2 M2 L2 H1 + u1 L1 s s");
  }
}

/* What stays has a number too, but does not empty the stash. */
static void test_numbers(void **state)
{
  (void)state;
  start(MODE_FIXED);
  add_plain(1);
  for (uint32_t k = 0; k < 6; k++)
    add_entry(&fake, tensor_of(2 + k, SMALL), 2);
  add_plain(1);
  assert_string_equal(run(&trl_system.policy, 1),
                      "D1 w1 R1 D8 | u8 w8 u2 u3 u4 u5 u6 u7 H1 + u1 L1 s s");
  start(MODE_FIXED);
  add_plain(1);
  for (uint32_t k = 0; k < 6; k++)
    add_entry(&fake, tensor_of(2 + k, SMALL), 2);
  assert_string_equal(run(&trl_system.policy, 1), "D1 | u2 u3 u4 u5 u6 u7 u1 w1 s s");
}

/* ---- keys ---- */

static void add_slots(const char *slots)
{
  for (; *slots != '\0'; slots++)
    add_entry(&fake, tensor_of((uint32_t)(*slots - 'a') + 1, *slots == 'z' ? SMALL : BIG),
              fake.count);
}

static void test_keys(void **state)
{
  /* Letters are storages, z a small one; the second text has a + for what is copied. */
  static const struct {
    const char *slots, *copied;
  } cases[] = {
    { "aa", "+-" },
    { "abcdea", "+++++-" },   /* nothing has emptied the stash since */
    { "abcdefa", "+++++++" }, /* f has let a go, and its key with it */
    { "azzzzzzza", "+--------" },
    { "aabcdefghia", "+-++++++++-" }, /* the second a took the key over and stays */
    { "abcdefaa", "+++++++-" },
  };
  (void)state;

  for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
    char copied[MAX_ENTRIES] = "";
    start(MODE_FIXED);
    add_slots(cases[k].slots);
    run(&trl_system.policy, 1);
    for (uint32_t e = 1; e < fake.count; e++)
      copied[e - 1] = fake.copied[e] ? '+' : '-';
    assert_string_equal(copied, cases[k].copied);
  }
}

static void test_what_a_key_is(void **state)
{
  saved_entry a = tensor_of(1, BIG), b = a;
  (void)state;

  b.bytes = BIG / 2;
  assert_true(is_same_start(&a, &b));
  b.offset_elements = 64;
  assert_false(is_same_start(&a, &b));
  b = a;
  b.element_bytes = 4;
  assert_false(is_same_start(&a, &b));
  b = a;
  b.slot = 2;
  assert_false(is_same_start(&a, &b));
}

/* ---- what leaves ---- */

static void test_what_leaves(void **state)
{
  saved_entry e = tensor_of(1, 1024);
  (void)state;

  assert_true(trl_entry_leaves(&e, true));
  e.bytes = 1023;
  assert_false(trl_entry_leaves(&e, true));
  assert_true(save_on_cpu_entry_leaves(&e));
  e = tensor_of(1, BIG);
  e.of_parameter = true;
  assert_false(trl_entry_leaves(&e, true));
  assert_true(trl_entry_leaves(&e, false));
  e = tensor_of(1, BIG);
  e.parameter = true;
  assert_false(trl_entry_leaves(&e, false));
  assert_true(save_on_cpu_entry_leaves(&e));
}

static void add_views(void)
{
  saved_entry transposed = tensor_of(1, BIG), offset = tensor_of(2, BIG / 2);
  saved_entry broadcast = tensor_of(3, BIG);

  transposed.contiguous = false;
  offset.offset_elements = BIG / 4;
  offset.storage_bytes = BIG;
  broadcast.contiguous = false;
  broadcast.storage_bytes = BIG / 8;
  add_entry(&fake, transposed, 1);
  add_entry(&fake, offset, 2);
  add_entry(&fake, broadcast, 3);
}

static void test_views(void **state)
{
  (void)state;
  start(MODE_FIXED);
  add_views();
  assert_string_equal(run(&trl_system.policy, 1),
                      "C1 D1 C2 D2 S3 | u3 w1 R1 w2 R2 w3 H2 + u2 H1 + u1 L2 L1 s s");
  assert_null(defects_met);
  start(MODE_AS_RELEASED);
  add_views();
  assert_string_equal(run(&trl_system.policy, 1),
                      "c1 D1 c2 D2 S3 | u3 w1 R1 w2 R2 w3 H2 + u2 H1 + u1 L2 L1 s s");
  assert_non_null(strstr(defects_met, "2 saved views are made contiguous on the copying stream"));
  start(MODE_FIXED);
  add_views();
  assert_string_equal(run(&trl_sync_system.policy, 1), "G1 R1 G2 R2 S3 R3 | H3 u3 H2 u2 H1 u1");
  start(MODE_FIXED);
  add_views();
  assert_string_equal(run(&save_on_cpu_system.policy, 1),
                      "G1 s R1 D2 s R2 G3 s R3 | H3 u3 H2 u2 H1 u1");
}

static void test_without_the_stream(void **state)
{
  (void)state;
  start(MODE_FIXED);
  add_slots("azba");
  assert_string_equal(run(&trl_sync_system.policy, 1), "D1 R1 D3 R3 D4 R4 | H4 u4 H3 u3 u2 H1 u1");
  start(MODE_FIXED);
  add_slots("az");
  assert_string_equal(run(&save_on_cpu_system.policy, 1), "D1 s R1 D2 s R2 | H2 u2 H1 u1");
}

/* ---- the turn ---- */

static uint32_t random_below(uint32_t limit)
{
  static uint64_t bits = 7;
  bits = bits * UINT64_C(6364136223846793005) + 1442695040888963407;
  return (uint32_t)(bits >> 33) % limit;
}

/* The engine and the rules of the theoretical saving agree on what is copied. */
static void test_turn(void **state)
{
  (void)state;
  for (int trial = 0; trial < 2000; trial++) {
    static chunk_shape chunk;
    start(MODE_FIXED);
    fake.terse = true;
    chosen.offload.max_fwd_stash_size = 1 + random_below(6);
    uint32_t count = random_below(40), storages = 1 + count / 2;
    for (uint32_t k = 0; k < count; k++) {
      saved_entry e = tensor_of(1 + random_below(storages), BIG);
      if (random_below(4) == 0) e.bytes = SMALL;
      e.parameter = random_below(8) == 0;
      add_entry(&fake, e, k);
    }
    run(&trl_system.policy, 1);
    chunk = (chunk_shape){ .entries = fake.entries, .entry_count = fake.count };
    const bool *copied = trl_copied(&chunk, &chosen, &memory);
    for (uint32_t e = 1; e < fake.count; e++)
      assert_int_equal(copied[e], fake.copied[e]);
  }
}

/* Of equal tensors, the stash's newest are on the device. */
static void test_residency(void **state)
{
  (void)state;

  for (int64_t stash = 1; stash <= 8; stash++)
    for (uint32_t count = 0; count <= 20; count++) {
      uint32_t resident = 0;
      start(MODE_FIXED);
      chosen.offload.max_fwd_stash_size = stash;
      add_plain(count);
      run(&trl_system.policy, 1);
      for (uint32_t e = 1; e < fake.count; e++)
        resident += fake.at_turn[e];
      assert_int_equal(resident, count < stash ? count : stash);
      for (uint32_t e = 1; e < fake.count; e++)
        assert_int_equal(fake.at_turn[e], e + stash > count);
    }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_order),
    cmocka_unit_test(test_steps_are_alike),
    cmocka_unit_test(test_operators),
    cmocka_unit_test(test_checkpoint_inputs),
    cmocka_unit_test(test_single_references),
    cmocka_unit_test(test_numbers),
    cmocka_unit_test(test_keys),
    cmocka_unit_test(test_what_a_key_is),
    cmocka_unit_test(test_what_leaves),
    cmocka_unit_test(test_views),
    cmocka_unit_test(test_without_the_stream),
    cmocka_unit_test(test_turn),
    cmocka_unit_test(test_residency),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
