/*
 * Axolotl's engines for the inputs of checkpoints: in which order they issue what, and how many of
 * the inputs are on the device.
 *
 * A model is as many layers, each of which is a checkpoint whose input is FAKE_BYTES large; a
 * second input, as position tables are, must stay. The log of one micro-batch, layer by layer: D3
 * copied to the host, W3 written to a file, L3 read from it, H3 copied back R3 the device copy
 * goes, F3 the host copy goes, X3 the file goes wD3 compute waits for that; hD3 the host does; hc
 * the host waits for compute; m3 record_stream F, B  forward and backward begin; u3 the layer is
 * computed again
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "sim/offload/actions.h"
#include "sim/offload/hidden_states.h"
#include "sim/offload/systems.h"
#include "sim/offload/theory.h"

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

enum { MAX_LAYERS = 64, INPUTS = 2, MAX_ENTRIES = 1 + INPUTS * MAX_LAYERS, FAKE_BYTES = 4 << 20 };

typedef struct fake_input {
  uint32_t references; /* of the tensor first saved: the entry's and the policy's */
  bool back, on_host, in_file;
} fake_input;

struct walk {
  settings settings;
  saved_group groups[MAX_LAYERS + 1];
  saved_entry entries[MAX_ENTRIES];
  chunk_shape shape;
  rank_shape rank;
  schedule schedule;
  fake_input inputs[MAX_LAYERS];
  char last[STREAMS][16]; /* what was issued last */
  char event[4096][16];
  bool of_compute[4096];
  uint32_t events;
  int64_t bytes, peak_bytes, host_buffers;
  char log[1 << 14];
};

static walk fake;
static arena memory;

static uint32_t layer_of(uint32_t entry)
{
  assert_int_equal((entry - 1) % INPUTS, 0);
  return (entry - 1) / INPUTS;
}

static void say(walk *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(walk *w, const char *format, ...)
{
  size_t used = strlen(w->log);
  va_list arguments;

  va_start(arguments, format);
  if (used > 0) w->log[used++] = ' ';
  vsnprintf(w->log + used, sizeof w->log - used, format, arguments);
  va_end(arguments);
}

static void issue(walk *w, plan_stream stream, char what, uint32_t entry)
{
  snprintf(w->last[stream], sizeof w->last[stream], "%c%u", what, layer_of(entry));
  say(w, "%s", w->last[stream]);
}

static void grow(walk *w, int64_t bytes)
{
  w->bytes += bytes;
  if (w->bytes > w->peak_bytes) w->peak_bytes = w->bytes;
}

static void drop_tensor(walk *w, uint32_t layer)
{
  assert_true(w->inputs[layer].references > 0);
  if (--w->inputs[layer].references > 0) return;
  grow(w, -FAKE_BYTES);
  say(w, "R%u", layer);
}

/* ---- actions ---- */

entry_place act_place(const walk *w, instance_id i, uint32_t entry)
{
  const fake_input *in = &w->inputs[layer_of(entry)];
  (void)i;

  if (in->back || in->references > 0) return PLACE_DEVICE;
  return in->on_host ? PLACE_HOST : PLACE_FILE;
}

event_id act_record(walk *w, plan_stream stream)
{
  memcpy(w->event[w->events], w->last[stream], sizeof w->last[stream]);
  w->of_compute[w->events] = stream == STREAM_COMPUTE;
  return w->events++;
}

void act_wait(walk *w, plan_stream stream, event_id event)
{
  if (stream == STREAM_COMPUTE) say(w, "w%s", w->event[event]);
}

void act_join(walk *w, plan_stream waiting, plan_stream on)
{
  act_wait(w, waiting, act_record(w, on));
}

void act_host_wait(walk *w, event_id event)
{
  say(w, "h%s", w->of_compute[event] ? "c" : w->event[event]);
}

void act_copy_out(walk *w, instance_id i, uint32_t entry, offload_how how)
{
  fake_input *in = &w->inputs[layer_of(entry)];
  (void)i;

  assert_false(in->on_host || how.record_stream);
  in->on_host = true;
  w->host_buffers++;
  issue(w, how.stream, 'D', entry);
}

void act_release(walk *w, instance_id i, uint32_t entry)
{
  (void)i;

  assert_true(w->inputs[layer_of(entry)].on_host);
  drop_tensor(w, layer_of(entry));
}

device_buffer act_hold(walk *w, instance_id i, uint32_t entry)
{
  (void)i;

  w->inputs[layer_of(entry)].references++;
  return layer_of(entry);
}

void act_let_go(walk *w, device_buffer held)
{
  drop_tensor(w, held);
}

/* trl's alone. */
bool act_others_refer(const walk *w, device_buffer held)
{
  (void)w;
  (void)held;
  fail();
  return false;
}

void act_mark_held(walk *w, device_buffer held, plan_stream stream)
{
  (void)w;
  (void)held;
  (void)stream;
  fail();
}

void act_copy_in(walk *w, instance_id i, uint32_t entry, plan_stream stream, plan_stream pool)
{
  fake_input *in = &w->inputs[layer_of(entry)];
  (void)i;

  assert_int_equal(stream, pool);
  assert_true(in->on_host && !in->back);
  in->back = true;
  grow(w, FAKE_BYTES);
  issue(w, stream, 'H', entry);
}

void act_drop_host(walk *w, instance_id i, uint32_t entry)
{
  (void)i;

  assert_true(w->inputs[layer_of(entry)].on_host);
  w->inputs[layer_of(entry)].on_host = false;
  w->host_buffers--;
  say(w, "F%u", layer_of(entry));
}

void act_reload(walk *w, instance_id i, uint32_t entry, plan_stream stream, plan_stream pool)
{
  act_copy_in(w, i, entry, stream, pool);
  act_drop_host(w, i, entry);
}

void act_record_stream(walk *w, instance_id i, uint32_t entry, plan_stream stream)
{
  (void)i;

  assert_int_equal(stream, STREAM_COMPUTE);
  assert_true(w->inputs[layer_of(entry)].back);
  say(w, "m%u", layer_of(entry));
}

void act_write_file(walk *w, instance_id i, uint32_t entry, plan_stream stream)
{
  (void)i;

  assert_int_equal(stream, STREAM_DISK_OUT);
  assert_true(w->inputs[layer_of(entry)].on_host && !w->inputs[layer_of(entry)].in_file);
  w->inputs[layer_of(entry)].in_file = true;
  issue(w, stream, 'W', entry);
}

void act_read_file(walk *w, instance_id i, uint32_t entry, plan_stream stream)
{
  fake_input *in = &w->inputs[layer_of(entry)];
  (void)i;

  assert_int_equal(stream, STREAM_DISK_IN);
  assert_true(in->in_file && !in->on_host);
  in->on_host = true;
  w->host_buffers++;
  issue(w, stream, 'L', entry);
}

void act_drop_file(walk *w, instance_id i, uint32_t entry)
{
  (void)i;

  assert_true(w->inputs[layer_of(entry)].in_file);
  w->inputs[layer_of(entry)].in_file = false;
  say(w, "X%u", layer_of(entry));
}

/* ---- runs ---- */

/* Without the table, which would link every system there is. */
static const offload_descriptor *descriptor_of(system_choice system)
{
  if (system == SYSTEM_hidden_states) return &hidden_states_system;
  if (system == SYSTEM_hidden_states_reentrant) return &hidden_states_reentrant_system;
  assert_int_equal(system, SYSTEM_axolotl_disk);
  return &axolotl_disk_system;
}

static void set_up(walk *w, system_choice system, uint32_t layers)
{
  arena_release(&memory);
  memory = (arena){ 0 };
  memset(w, 0, sizeof *w);
  w->settings.offload.system = system;
  w->settings.offload.mode = MODE_FIXED;
  w->settings.parallel.pipeline_model_parallel_size = 1;
  w->settings.derived.virtual_stages = 1;
  w->settings.derived.num_microbatches = 1;
  for (uint32_t layer = 0; layer < layers; layer++) {
    uint32_t first = 1 + INPUTS * layer;
    w->groups[layer + 1] = (saved_group){
      .name = "layer", .layer = (int32_t)layer, .first_entry = first, .entry_count = INPUTS
    };
    for (uint32_t k = 0; k < INPUTS; k++)
      w->entries[first + k] = (saved_entry){ .elements = FAKE_BYTES / 2,
                                             .bytes = FAKE_BYTES,
                                             .storage_bytes = FAKE_BYTES,
                                             .element_bytes = 2,
                                             .group = layer + 1,
                                             .slot = first + k,
                                             .contiguous = true,
                                             .checkpoint_input = true };
  }
  w->shape = (chunk_shape){ .groups = w->groups,
                            .group_count = layers + 1,
                            .entries = w->entries,
                            .entry_count = 1 + INPUTS * layers };
  w->schedule = schedule_of_rank(&w->settings, 0, &memory);
  w->rank = (rank_shape){
    .settings = &w->settings, .chunk_count = 1, .chunks = &w->shape, .schedule = &w->schedule
  };
}

static void forward(walk *w, const offload_policy *p, void *state, uint32_t layers)
{
  say(w, "F");
  for (uint32_t layer = 0; layer < layers; layer++) {
    uint32_t first = 1 + INPUTS * layer;
    w->inputs[layer].references = 1;
    grow(w, FAKE_BYTES);
    for (uint32_t k = 0; k < INPUTS; k++)
      p->entry_ready(state, w, 0, first + k);
  }
}

static void backward(walk *w, const offload_policy *p, void *state, uint32_t layers)
{
  say(w, "B");
  for (uint32_t layer = layers; layer-- > 0;) {
    fake_input *in = &w->inputs[layer];
    if (in->on_host || in->in_file) p->unpack(state, w, 0, 1 + INPUTS * layer);
    assert_int_equal(act_place(w, 0, 1 + INPUTS * layer), PLACE_DEVICE);
    say(w, "u%u", layer);
    if (in->back)
      grow(w, -FAKE_BYTES);
    else
      drop_tensor(w, layer);
    in->back = false;
  }
  if (p->backward_end != NULL) p->backward_end(state, w, 0);
}

typedef struct result {
  const char *log;
  int64_t turn_bytes, peak_bytes, peak_host_buffers, theory_bytes;
} result;

static result run(system_choice system, uint32_t layers, uint32_t microbatches)
{
  walk *w = &fake;
  result out = { .log = w->log };
  const offload_policy *p = &descriptor_of(system)->policy;
  diag d = { .quiet = true };

  set_up(w, system, layers);
  void *state = p->begin(&w->rank, ITERATION_STEADY, &memory, &d);
  for (uint32_t m = 0; m < microbatches; m++) {
    forward(w, p, state, layers);
    out.turn_bytes = w->bytes;
    out.peak_host_buffers = w->host_buffers;
    backward(w, p, state, layers);
    assert_int_equal(w->bytes, 0);
    assert_int_equal(w->host_buffers, 0);
  }
  out.peak_bytes = w->peak_bytes;
  out.theory_bytes = theory_saving_bytes(&descriptor_of(system)->theory, &w->rank, &memory);
  return out;
}

/* ---- tests ---- */

static void test_issue_order(void **state)
{
  static const struct {
    system_choice system;
    const char *log;
    uint32_t layers;
  } cases[] = {
    { SYSTEM_hidden_states,
      "F D0 D1 wD0 R0 D2 wD1 R1 D3 "
      "B wD3 F3 u3 R3 wD2 F2 u2 R2 H1 F1 wH1 m1 u1 H0 F0 wH0 m0 u0 hc hH0",
      4 },
    { SYSTEM_hidden_states, "F D0 B wD0 F0 u0 R0 hc hD0", 1 },
    { SYSTEM_hidden_states_reentrant,
      "F D0 D1 D2 hD0 R0 D3 hD1 R1 "
      "B H3 H2 wH3 m3 F3 u3 H1 wH2 m2 F2 u2 H0 wH1 m1 F1 u1 wH0 m0 F0 R2 R3 u0",
      4 },
    { SYSTEM_hidden_states_reentrant, "F D0 B H0 wH0 m0 F0 R0 u0", 1 },
    { SYSTEM_axolotl_disk,
      "F D0 W0 D1 W1 D2 W2 "
      "B hW0 R0 F0 hW1 R1 F1 hW2 R2 F2 L2 hL2 H2 F2 X2 u2 L1 hL1 H1 F1 X1 u1 L0 hL0 H0 F0 X0 u0",
      3 },
  };
  (void)state;

  for (size_t i = 0; i < COUNT(cases); i++)
    assert_string_equal(run(cases[i].system, cases[i].layers, 1).log, cases[i].log);
}

/* The ninth waits for the first to be written. */
static void test_disk_holds_the_host_up(void **state)
{
  const char *log = run(SYSTEM_axolotl_disk, 10, 1).log;
  (void)state;

  assert_non_null(strstr(log, "D7 W7 hW0 R0 F0 D8 W8 hW1 R1 F1 D9 W9 B hW2"));
}

/* How many inputs are on the device where backward begins, and at most. */
static void test_residency(void **state)
{
  static const struct {
    system_choice system;
    uint32_t turn, peak, host; /* of more layers than that */
  } cases[] = {
    { SYSTEM_hidden_states, 2, 3, 0 },
    { SYSTEM_hidden_states_reentrant, 2, 4,
      0 }, /* what was held stays, one is used, one is ahead */
    { SYSTEM_axolotl_disk, 8, 9, 8 },
  };
  (void)state;

  for (size_t i = 0; i < COUNT(cases); i++)
    for (uint32_t layers = 1; layers <= MAX_LAYERS; layers++) {
      result r = run(cases[i].system, layers, 1);
      uint32_t turn = layers < cases[i].turn ? layers : cases[i].turn;
      assert_int_equal(r.turn_bytes, (int64_t)turn * FAKE_BYTES);
      assert_int_equal(r.theory_bytes, (int64_t)(layers - turn) * FAKE_BYTES);
      assert_true(r.peak_bytes <= (int64_t)cases[i].peak * FAKE_BYTES);
      if (layers > 10) assert_int_equal(r.peak_bytes, (int64_t)cases[i].peak * FAKE_BYTES);
      uint32_t host = cases[i].host != 0 && cases[i].host < layers ? cases[i].host : layers;
      assert_int_equal(r.peak_host_buffers, host);
    }
}

static void test_micro_batches_are_alike(void **state)
{
  static const system_choice systems[] = { SYSTEM_hidden_states, SYSTEM_hidden_states_reentrant,
                                           SYSTEM_axolotl_disk };
  (void)state;

  for (size_t i = 0; i < COUNT(systems); i++) {
    static char once[sizeof fake.log];
    strcpy(once, run(systems[i], 11, 1).log);
    const char *log = run(systems[i], 11, 2).log;
    assert_int_equal(strlen(log), 2 * strlen(once) + 1);
    assert_memory_equal(log, once, strlen(once));
    assert_string_equal(log + strlen(once) + 1, once);
  }
}

/* Only the first input of a checkpoint that is not empty leaves, and the non-reentrant engine has a
 * least size. */
static void test_which_leave(void **state)
{
  walk *w = &fake;
  (void)state;

  set_up(w, SYSTEM_hidden_states, 2);
  assert_true(hidden_states_leave(&w->shape, 1));
  assert_false(hidden_states_leave(&w->shape, 2));
  assert_true(hidden_states_leave(&w->shape, 3));
  w->entries[3].bytes = 1023;
  assert_false(hidden_states_leave(&w->shape, 3));
  assert_true(is_hidden_states(&w->shape, 3));
  w->entries[3].bytes = 1024;
  assert_true(hidden_states_leave(&w->shape, 3));
  w->entries[3].bytes = 0;
  assert_false(is_hidden_states(&w->shape, 3));
  assert_true(is_hidden_states(&w->shape, 4));
  w->entries[3].checkpoint_input = false;
  assert_false(is_hidden_states(&w->shape, 3));
  assert_true(is_hidden_states(&w->shape, 4));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_issue_order), cmocka_unit_test(test_disk_holds_the_host_up),
    cmocka_unit_test(test_residency),   cmocka_unit_test(test_micro_batches_are_alike),
    cmocka_unit_test(test_which_leave),
  };

  return cmocka_run_group_tests(tests, NULL, NULL);
}
