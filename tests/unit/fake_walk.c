#include "tests/unit/fake_walk.h"
#include "sim/offload/systems.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_CHUNKS = 4, MAX_GROUPS = 1024, MAX_INSTANCES = 256, MAX_EVENTS = 1 << 17 };

/* In which order the markers of a layer fire: letter, and whether it is the start. */
static const struct {
  char letter;
  bool start;
} markers[] = {
  { 'n', 1 }, { 'q', 1 }, { 'q', 0 }, { 'c', 1 }, { 'c', 0 }, { 'p', 1 }, { 'p', 0 },
  { 'n', 0 }, { 'm', 1 }, { 'f', 1 }, { 'f', 0 }, { 'a', 1 }, { 'a', 0 }, { 'm', 0 },
};

enum { MARKERS = sizeof markers / sizeof markers[0] };

typedef struct fake_chunk {
  saved_group groups[MAX_GROUPS];
  saved_entry entries[MAX_GROUPS];
  char letter[MAX_GROUPS];
  uint32_t group_count; /* including groups[0] */
  uint32_t layer_count;
  uint32_t group_of[128][128]; /* by layer and letter */
} fake_chunk;

struct walk {
  settings settings;
  fake_chunk chunks[MAX_CHUNKS];
  chunk_shape shapes[MAX_CHUNKS];
  rank_shape rank;
  schedule schedule;
  const offload_policy *policy;
  void *state;
  fake_result *out;
  size_t used;
  bool one_name, waits;
  entry_place place[MAX_INSTANCES][MAX_GROUPS];
  bool on_host[MAX_INSTANCES][MAX_GROUPS];
  bool own[MAX_INSTANCES][MAX_GROUPS]; /* it is in a buffer of the policy */
  bool held[MAX_INSTANCES][MAX_GROUPS];
  bool block[MAX_INSTANCES][MAX_GROUPS]; /* packed into a separate block */
  uint32_t events;
  plan_stream event_stream[MAX_EVENTS];
  instance_id running;
  bool forward, came_inline;
  int64_t device_bytes;
};

static struct walk fake;
static arena memory;

/* ---- the log ---- */

static void write_log(walk *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void write_log(walk *w, const char *format, ...)
{
  va_list arguments;

  va_start(arguments, format);
  w->used += (size_t)vsnprintf(w->out->log + w->used, FAKE_LOG_BYTES - w->used, format, arguments);
  va_end(arguments);
  assert_true(w->used < FAKE_LOG_BYTES);
}

static void write_instance(walk *w, instance_id i)
{
  write_log(w, "%u", i / w->rank.chunk_count);
  if (i % w->rank.chunk_count != 0) write_log(w, ".%u", i % w->rank.chunk_count);
}

static void grow(walk *w, int64_t bytes)
{
  w->device_bytes += bytes;
  if (w->device_bytes > w->out->peak_bytes) w->out->peak_bytes = w->device_bytes;
}

static void write_entry(walk *w, const char *what, instance_id i, uint32_t entry)
{
  const fake_chunk *c = &w->chunks[i % w->rank.chunk_count];
  uint32_t group = c->entries[entry].group;

  write_log(w, " %s", what);
  if (i != w->running) {
    write_log(w, "m");
    write_instance(w, i);
  }
  write_log(w, "l%d", c->groups[group].layer);
  if (!w->one_name) write_log(w, "%c", c->letter[group]);
}

/* ---- actions ---- */

entry_place act_place(const walk *w, instance_id i, uint32_t entry)
{
  return w->place[i][entry];
}

event_id act_record(walk *w, plan_stream stream)
{
  assert_true(w->events < MAX_EVENTS);
  w->event_stream[w->events] = stream;
  return w->events++;
}

void act_wait(walk *w, plan_stream stream, event_id event)
{
  assert_true(event < w->events);
  if (w->waits && w->forward && stream == STREAM_COMPUTE && w->event_stream[event] == STREAM_D2H)
    write_log(w, " w");
}

void act_join(walk *w, plan_stream waiting, plan_stream on)
{
  act_wait(w, waiting, act_record(w, on));
}

void act_offload(walk *w, instance_id i, uint32_t entry, offload_how how)
{
  assert_int_equal(w->place[i][entry], PLACE_DEVICE);
  assert_int_equal(how.stream, STREAM_D2H);
  assert_true(how.record_stream);
  w->place[i][entry] = PLACE_HOST;
  w->device_bytes -= FAKE_GROUP_BYTES;
  w->out->d2h_groups++;
  write_entry(w, "D", i, entry);
}

void act_copy_out(walk *w, instance_id i, uint32_t entry, offload_how how)
{
  assert_int_equal(w->place[i][entry], PLACE_DEVICE);
  assert_int_equal(how.stream, STREAM_D2H);
  assert_false(how.record_stream);
  assert_false(w->on_host[i][entry]);
  w->on_host[i][entry] = true;
  w->out->d2h_groups++;
  write_entry(w, "D", i, entry);
}

host_buffer act_own_host_buffer(walk *w, uint32_t chunk, uint32_t entry, copy_form form)
{
  assert_true(entry < w->shapes[chunk].entry_count);
  assert_int_equal(form, COPY_STORAGE);
  w->out->own_host_buffers++;
  return w->out->own_host_buffers - 1;
}

void act_copy_out_into(walk *w, instance_id i, uint32_t entry, offload_how how, host_buffer own)
{
  assert_true(own < w->out->own_host_buffers);
  act_copy_out(w, i, entry, how);
}

void act_release(walk *w, instance_id i, uint32_t entry)
{
  assert_true(w->on_host[i][entry]);
  assert_int_equal(w->place[i][entry], PLACE_DEVICE);
  w->place[i][entry] = PLACE_HOST;
  w->device_bytes -= FAKE_GROUP_BYTES;
  write_entry(w, "R", i, entry);
}

void act_copy_in(walk *w, instance_id i, uint32_t entry, plan_stream stream, plan_stream pool)
{
  assert_int_equal(w->place[i][entry], PLACE_HOST);
  assert_true(pool == STREAM_COMPUTE || pool == stream);
  assert_int_not_equal(stream, STREAM_COMPUTE);
  w->place[i][entry] = PLACE_DEVICE;
  grow(w, FAKE_GROUP_BYTES);
  w->out->h2d_groups++;
  write_entry(w, "H", i, entry);
}

void act_drop_host(walk *w, instance_id i, uint32_t entry)
{
  assert_true(w->on_host[i][entry]);
  w->on_host[i][entry] = false;
}

void act_share(walk *w, instance_id i, uint32_t entry, uint32_t with)
{
  fail_msg("entry %u of %u: every made-up tensor has its own storage", entry, i);
  (void)w;
  (void)with;
}

device_buffer act_hold(walk *w, instance_id i, uint32_t entry)
{
  assert_int_equal(w->place[i][entry], PLACE_DEVICE);
  w->held[i][entry] = true;
  return i * MAX_GROUPS + entry;
}

void act_let_go(walk *w, device_buffer held)
{
  instance_id i = held / MAX_GROUPS;
  uint32_t entry = held % MAX_GROUPS;

  assert_true(w->held[i][entry]);
  w->held[i][entry] = false;
  if (w->place[i][entry] == PLACE_NONE) w->device_bytes -= FAKE_GROUP_BYTES;
}

device_buffer act_own_buffer(walk *w, uint32_t chunk, uint32_t entry)
{
  assert_true(entry < w->shapes[chunk].entry_count);
  w->out->own_bytes += FAKE_GROUP_BYTES;
  return (device_buffer)(w->out->own_bytes / FAKE_GROUP_BYTES);
}

void act_reload_into(walk *w, instance_id i, uint32_t entry, plan_stream stream, device_buffer own)
{
  assert_int_equal(w->place[i][entry], PLACE_HOST);
  assert_int_equal(stream, STREAM_H2D);
  assert_true(own > 0 && own <= w->out->own_bytes / FAKE_GROUP_BYTES);
  w->place[i][entry] = PLACE_DEVICE;
  w->own[i][entry] = true;
  w->out->h2d_groups++;
  write_entry(w, own % 2 == 1 ? "H0" : "H1", i, entry);
  act_drop_host(w, i, entry);
}

/* Nothing in these cases refers to what a policy holds. */
bool act_others_refer(const walk *w, device_buffer held)
{
  assert_true(w->held[held / MAX_GROUPS][held % MAX_GROUPS]);
  return false;
}

void act_mark_held(walk *w, device_buffer held, plan_stream stream)
{
  (void)w;
  (void)held;
  (void)stream;
  fail_msg("nothing is marked that nothing refers to");
}

void act_reload(walk *w, instance_id i, uint32_t entry, plan_stream stream, plan_stream pool)
{
  assert_int_equal(w->place[i][entry], PLACE_HOST);
  assert_true(stream == pool || pool == STREAM_COMPUTE);
  if (w->on_host[i][entry]) act_drop_host(w, i, entry);
  w->place[i][entry] = PLACE_DEVICE;
  grow(w, FAKE_GROUP_BYTES);
  if (stream == STREAM_H2D) {
    w->out->h2d_groups++;
    write_entry(w, "H", i, entry);
  } else {
    w->out->inline_groups++;
    w->came_inline = true;
  }
}

device_buffer act_own_memory(walk *w, const char *name, int64_t bytes, bool on_host)
{
  assert_string_equal(name, on_host ? "paged_stash_on_host" : "paged_stash");
  if (on_host)
    w->out->host_bytes += bytes;
  else
    w->out->own_bytes += bytes;
  return 1;
}

void act_stash(walk *w, instance_id i, uint32_t entry, packed_place to, int64_t bytes,
               plan_stream stream)
{
  device_buffer into = to.memory;
  assert_int_equal(w->place[i][entry], PLACE_DEVICE);
  assert_false(w->on_host[i][entry]);
  assert_int_equal(stream, into == NO_OWN_MEMORY ? STREAM_COMPUTE : STREAM_PACK);
  w->block[i][entry] = into == NO_OWN_MEMORY;
  if (into == NO_OWN_MEMORY) grow(w, bytes);
  w->on_host[i][entry] = true;
  w->out->stashed_bytes += bytes;
  write_entry(w, "S", i, entry);
}

void act_unstash(walk *w, instance_id i, uint32_t entry, int64_t offset, int64_t bytes,
                 plan_stream stream)
{
  assert_true(offset >= 0);
  assert_int_equal(w->place[i][entry], PLACE_HOST);
  assert_true(w->on_host[i][entry]);
  w->on_host[i][entry] = false;
  w->place[i][entry] = PLACE_DEVICE;
  grow(w, FAKE_GROUP_BYTES);
  if (stream == STREAM_PACK) {
    write_entry(w, "U", i, entry);
  } else {
    if (w->block[i][entry]) w->device_bytes -= bytes;
    w->came_inline = true;
  }
}

void act_empty_storage(walk *w, instance_id i, uint32_t slot, plan_stream marked)
{
  /* Slots are numbered as entries: only what has left is emptied. */
  assert_int_equal(w->place[i][slot], PLACE_HOST);
  assert_int_equal(marked, STREAM_COMPUTE);
}

/* ---- chunks ---- */

static const char *module_name(char letter)
{
  switch (letter) {
  case 'n': return "attn_norm";
  case 'q': return "qkv_linear";
  case 'c': return "core_attn";
  case 'p': return "attn_proj";
  case 'm': return "mlp_norm";
  case 'f': return "expert_fc1";
  case 'a': return "moe_act";
  default: fail(); return NULL;
  }
}

static void add_group(fake_chunk *c, uint32_t layer, char letter, int64_t elements)
{
  uint32_t g = c->group_count++;
  assert_true(g < MAX_GROUPS);

  c->letter[g] = letter;
  c->group_of[layer][(unsigned char)letter] = g;
  c->groups[g] = (saved_group){ .name = module_name(letter),
                                .layer = (int32_t)layer,
                                .first_entry = g,
                                .entry_count = 1,
                                .released = { g },
                                .released_elements = { elements } };
  c->entries[g] = (saved_entry){ .elements = elements,
                                 .bytes = FAKE_GROUP_BYTES,
                                 .storage_bytes = FAKE_GROUP_BYTES,
                                 .group = g,
                                 .slot = g,
                                 .element_bytes = 2,
                                 .contiguous = true,
                                 .marked = true };
}

/* The layer's groups in the order of their start markers. Returns what follows the layer. */
static const char *add_layer(fake_chunk *c, const char *letters, int64_t elements)
{
  size_t length = strcspn(letters, " /");

  for (size_t k = 0; k < MARKERS; k++)
    if (markers[k].start && memchr(letters, markers[k].letter, length))
      add_group(c, c->layer_count, markers[k].letter, elements);
  c->layer_count++;
  return letters + length;
}

static uint32_t add_chunks(walk *w, const char *layers, int64_t elements)
{
  uint32_t chunk = 0;
  char first = layers[0];

  w->one_name = true;
  w->chunks[0].group_count = 1;
  for (const char *at = layers; *at;) {
    if (*at == '/') {
      w->chunks[++chunk].group_count = 1;
      at++;
    } else if (*at == ' ') {
      at++;
    } else {
      w->one_name = w->one_name && *at == first && strcspn(at, " /") == 1;
      at = add_layer(&w->chunks[chunk], at, elements);
    }
  }
  return chunk + 1;
}

/* ---- running ---- */

static void call(walk *w, void (*hook)(void *state, walk *w, instance_id i, uint32_t group),
                 instance_id i, uint32_t group)
{
  if (hook) hook(w->state, w, i, group);
}

static void start(walk *w, instance_id i, uint32_t group)
{
  call(w, w->policy->group_start, i, group);
  if (w->device_bytes > w->out->boundary_bytes) w->out->boundary_bytes = w->device_bytes;
  w->place[i][group] = PLACE_DEVICE;
  grow(w, FAKE_GROUP_BYTES);
  call(w, w->policy->entry_ready, i, group);
}

static void use(walk *w, instance_id i, uint32_t group)
{
  bool elsewhere = w->on_host[i][group] || w->place[i][group] != PLACE_DEVICE;

  w->came_inline = false;
  if (elsewhere && w->policy->unpack) w->policy->unpack(w->state, w, i, group);
  assert_int_equal(w->place[i][group], PLACE_DEVICE);
  write_entry(w, "", i, group);
  if (w->came_inline) write_log(w, "!");
  w->place[i][group] = PLACE_NONE;
  if (!w->own[i][group] && !w->held[i][group]) w->device_bytes -= FAKE_GROUP_BYTES;
}

static void run_marker(walk *w, instance_id i, uint32_t layer, size_t marker)
{
  const fake_chunk *c = &w->chunks[i % w->rank.chunk_count];
  uint32_t group = c->group_of[layer][(unsigned char)markers[marker].letter];

  if (group == 0) return;
  if (w->forward && markers[marker].start) {
    start(w, i, group);
  } else if (w->forward) {
    call(w, w->policy->group_commit, i, group);
  } else if (!markers[marker].start) {
    call(w, w->policy->group_backward_commit, i, group);
  } else {
    use(w, i, group);
    call(w, w->policy->group_backward_start, i, group);
  }
  if (w->device_bytes > w->out->peak_bytes) w->out->peak_bytes = w->device_bytes;
}

static void begin_run(walk *w, const schedule_step *step)
{
  w->running = step->microbatch * w->rank.chunk_count + step->chunk;
  w->forward = step->kind == STEP_FORWARD;
  assert_true(w->running < MAX_INSTANCES);
  write_log(w, "%s%c", w->used ? " | " : "", w->forward ? 'F' : 'B');
  write_instance(w, w->running);
}

static void run_forward(walk *w, const schedule_step *step)
{
  begin_run(w, step);
  if (w->policy->forward_begin) w->policy->forward_begin(w->state, w, w->running);
  for (uint32_t layer = 0; layer < w->chunks[step->chunk].layer_count; layer++)
    for (size_t k = 0; k < MARKERS; k++)
      run_marker(w, w->running, layer, k);
  if (w->device_bytes > w->out->forward_end_bytes) w->out->forward_end_bytes = w->device_bytes;
}

static void run_backward(walk *w, const schedule_step *step)
{
  begin_run(w, step);
  for (uint32_t layer = w->chunks[step->chunk].layer_count; layer-- > 0;)
    for (size_t k = MARKERS; k-- > 0;)
      run_marker(w, w->running, layer, k);
  if (w->policy->backward_end) w->policy->backward_end(w->state, w, w->running);
}

static void run_schedule(walk *w)
{
  if (w->policy->iteration_begin) w->policy->iteration_begin(w->state, w);
  if (w->policy->lasting_memory) w->policy->lasting_memory(w->state, w);
  for (uint32_t i = 0; i < w->schedule.count; i++)
    if (w->schedule.steps[i].kind == STEP_FORWARD)
      run_forward(w, &w->schedule.steps[i]);
    else if (w->schedule.steps[i].kind == STEP_BACKWARD)
      run_backward(w, &w->schedule.steps[i]);
  assert_int_equal(w->device_bytes, 0);
}

static void set_up_manual(settings *s, const fake_setup *f)
{
  static bool moves[128];
  size_t layers = f->manual_layers ? strlen(f->manual_layers) : 0;

  s->offload.cpu_offloading_manual_synchronization = f->manual_layers != NULL;
  s->offload.cpu_offloading_release_after = f->release_after;
  s->offload.cpu_offloading_reload_ahead = f->reload_ahead;
  s->offload.cpu_offloading_stream = OFFLOAD_STREAM_OWN;
  s->offload.cpu_offloading_retain_pinned_cpu_buffers = f->retain_host;
  memset(moves, 0, sizeof moves);
  for (size_t layer = 0; layer < layers; layer++)
    moves[layer] = f->manual_layers[layer] == '1';
  s->derived.layer_is_offloaded = moves;
}

static void set_up(walk *w, const fake_setup *f)
{
  settings *s = &w->settings;
  int64_t min_elements = 1 << 20;

  s->parallel.pipeline_model_parallel_size = f->stages ? f->stages : 1;
  s->parallel.microbatch_group_size_per_vp_stage = f->group ? f->group : f->stages;
  s->parallel.overlap_p2p_comm = true;
  s->derived.num_microbatches = f->microbatches ? f->microbatches : 1;
  s->derived.virtual_stages = f->virtual_stages ? f->virtual_stages : 1;
  s->offload.system = f->system != SYSTEM_EMPTY ? f->system : SYSTEM_megatron;
  s->offload.mode = f->mode;
  s->software.megatron = MEGATRON_MAIN_2026_08;
  s->offload.min_offloaded_tensor_size = min_elements;
  s->offload.activation_offload_fraction = f->fraction ? *f->fraction : 1.0;
  s->offload.delta_offload_bytes_across_pp_ranks = f->delta_bytes;
  s->offload.cpu_offloading_num_layers = f->offloaded_layers;
  s->offload.cpu_offloading_double_buffering = f->double_buffering;
  set_up_manual(s, f);
  s->parallel.context_parallel_size = s->parallel.expert_tensor_parallel_size = 1;
  s->training.seq_length = 1024;
  s->training.micro_batch_size = 1;
  s->training.fp8_recipe = FP8_RECIPE_MXFP8;
  s->training.cuda_graph_impl = f->delays ? GRAPHS_TE : GRAPHS_NONE;
  s->offload.delay_offload_until_cuda_graph = f->delays;
  s->model.moe_router_topk = 2;
  s->model.moe_token_dispatcher_type = DISPATCHER_FLEX;
  s->model.moe_expert_rank_capacity_factor = f->capacity_factor;
  s->model.moe_imbalance = f->imbalance > 0 ? f->imbalance : 1;
  s->offload.moe_paged_stash_page_size = 64;
  s->offload.moe_paged_stash_buffer_size_factor_cuda = f->device_factor;
  s->offload.moe_paged_stash_buffer_size_factor_cpu = f->host_factor;
  s->offload.fine_grained_offloading_max_inflight_offloads =
      f->max_inflight ? *f->max_inflight : UNSET;
  uint32_t chunks = add_chunks(w, f->layers, f->elements ? f->elements : min_elements);
  assert_int_equal(chunks, s->derived.virtual_stages);
  for (uint32_t c = 0; c < chunks; c++)
    w->shapes[c] = (chunk_shape){ .groups = w->chunks[c].groups,
                                  .group_count = w->chunks[c].group_count,
                                  .entries = w->chunks[c].entries,
                                  .entry_count = w->chunks[c].group_count };
  w->schedule = schedule_of_rank(s, f->rank, &memory);
  w->rank = (rank_shape){ .settings = s,
                          .pp_rank = f->rank,
                          .chunk_count = chunks,
                          .chunks = w->shapes,
                          .schedule = &w->schedule };
  w->waits = f->waits;
}

const char *fake_layers(uint32_t count)
{
  static char text[256];

  memset(text, 0, sizeof text);
  for (uint32_t i = 0; i < count; i++)
    strcat(text, i == 0 ? "c" : " c");
  return text;
}

void fake_run(const fake_setup *f, fake_result *out)
{
  walk *w = &fake;
  diag d = { .quiet = true };

  arena_release(&memory);
  memory = (arena){ 0 };
  memset(w, 0, sizeof *w);
  memset(out, 0, sizeof *out);
  w->out = out;
  set_up(w, f);
  w->policy = &offload_system_of(w->settings.offload.system)->policy;
  assert_non_null(w->policy);
  if (w->policy->begin) {
    w->state = w->policy->begin(&w->rank, f->iteration, &memory, &d);
    assert_non_null(w->state);
  }
  run_schedule(w);
  out->theoretical_bytes = theoretical_saving_bytes(&w->rank, &memory);
  out->defects = w->policy->defects ? w->policy->defects(w->state) : NULL;
  memcpy(out->message, d.message, sizeof out->message);
}

void fake_run_logs(const fake_setup *setup, const char *what, const char *log, fake_result *out)
{
  fake_run(setup, out);
  if (strcmp(out->log, log) != 0 || *out->message != '\0')
    print_error("%s: %s\n%s\n", what, out->message, out->log);
  assert_string_equal(out->message, "");
  assert_string_equal(out->log, log);
}
