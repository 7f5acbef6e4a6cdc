/*
 * The trace that PyTorch's profiler writes: an object whose list `traceEvents` has one object for
 * each event. What is read here follows libkineto's output_json.cpp (libkineto/src, PyTorch 2.11):
 * `ts` and `dur` are microseconds with three decimals from `baseTimeNanoseconds`; a stream's work
 * has `args.stream`, `args.device` and `args.correlation`, which the call has too.
 */
#include <stdlib.h>
#include <string.h>

#include "sim/base/text.h"
#include "traces/import/json_pull.h"
#include "traces/import/readers.h"

/* What an event says of itself; -1: nothing. */
typedef struct kineto_event {
  char phase; /* "X": a slice; "M": the name of a track */
  const char *category, *name;
  int64_t process, thread, begin_ns, length_ns;
  int64_t stream, device, correlation, bytes, event, waited_stream;
  int64_t microbatch, chunk; /* of offsim's own traces, as is the phase */
  const char *pass;
  const char *collective, *group, *ranks; /* of NCCL's kernels */
  int64_t source, destination;            /* ... ranks of the group */
  const char *label;                      /* of "M" */
} kineto_event;

typedef struct kineto_reader {
  real_run *run;
  json_pull json;
  int64_t base_ns;
} kineto_reader;

static const char *text_of(kineto_reader *k)
{
  return real_run_text(k->run, k->json.text, k->json.length);
}

static bool read_text(kineto_reader *k, const char **text)
{
  if (json_peek(&k->json) != '"') return json_skip(&k->json);
  if (!json_text(&k->json)) return false;
  *text = text_of(k);
  return true;
}

/* ---- one event ---- */

static const struct {
  const char *key;
  size_t member;
} arguments[] = {
  { "stream", offsetof(kineto_event, stream) },
  { "device", offsetof(kineto_event, device) },
  { "correlation", offsetof(kineto_event, correlation) },
  { "bytes", offsetof(kineto_event, bytes) },
  { "wait_on_cuda_event_id", offsetof(kineto_event, event) },
  { "wait_on_stream", offsetof(kineto_event, waited_stream) },
  { "Src Rank", offsetof(kineto_event, source) },
  { "Dst Rank", offsetof(kineto_event, destination) },
  { "microbatch", offsetof(kineto_event, microbatch) },
  { "chunk", offsetof(kineto_event, chunk) },
};

static bool read_argument(kineto_reader *k, kineto_event *e)
{
  for (size_t i = 0; i < sizeof arguments / sizeof *arguments; i++)
    if (strcmp(k->json.text, arguments[i].key) == 0)
      return json_whole_or_skip(&k->json, (int64_t *)(void *)((char *)e + arguments[i].member));
  if (strcmp(k->json.text, "name") == 0) return read_text(k, &e->label);
  if (strcmp(k->json.text, "phase") == 0) return read_text(k, &e->pass);
  if (strcmp(k->json.text, "Collective name") == 0) return read_text(k, &e->collective);
  if (strcmp(k->json.text, "Process Group Name") == 0) return read_text(k, &e->group);
  if (strcmp(k->json.text, "Process Group Ranks") == 0) return read_text(k, &e->ranks);
  return json_skip(&k->json);
}

static bool read_arguments(kineto_reader *k, kineto_event *e)
{
  if (json_peek(&k->json) != '{') return json_skip(&k->json);
  for (bool more = json_enter(&k->json, '{'); more; more = json_more(&k->json, '}'))
    if (!json_key(&k->json) || !read_argument(k, e)) return false;
  return !k->json.in->failed;
}

static bool read_phase(kineto_reader *k, kineto_event *e)
{
  if (!json_text(&k->json)) return false;
  e->phase = k->json.text[0];
  return true;
}

static bool read_member(kineto_reader *k, kineto_event *e)
{
  const char *key = k->json.text;
  if (strcmp(key, "ph") == 0) return read_phase(k, e);
  if (strcmp(key, "cat") == 0) return read_text(k, &e->category);
  if (strcmp(key, "name") == 0) return read_text(k, &e->name);
  if (strcmp(key, "pid") == 0) return json_whole_or_skip(&k->json, &e->process);
  if (strcmp(key, "tid") == 0) return json_whole_or_skip(&k->json, &e->thread);
  if (strcmp(key, "ts") == 0) return json_scaled(&k->json, 3, &e->begin_ns);
  if (strcmp(key, "dur") == 0) return json_scaled(&k->json, 3, &e->length_ns);
  if (strcmp(key, "args") == 0) return read_arguments(k, e);
  return json_skip(&k->json);
}

/* ---- what it means ---- */

/* "Memcpy DtoH (Device -> Pinned)" */
static real_span_kind copy_kind(const char *name)
{
  if (begins_with(name, "Memcpy DtoH")) return REAL_D2H;
  return begins_with(name, "Memcpy HtoD") ? REAL_H2D : REAL_D2D;
}

static real_span_kind kind_of(const kineto_event *e)
{
  static const struct {
    const char *category;
    real_span_kind kind;
  } kinds[] = {
    { "kernel", REAL_KERNEL },
    { "gpu_memset", REAL_MEMSET },
    { "cuda_runtime", REAL_CALL },
    { "cuda_driver", REAL_CALL },
    { "hip_runtime", REAL_CALL },
    { "cpu_op", REAL_OP },
    { "user_annotation", REAL_ANNOTATION },
  };
  if (strcmp(e->category, "gpu_memcpy") == 0) return copy_kind(e->name);
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (strcmp(e->category, kinds[i].category) == 0) return kinds[i].kind;
  bool waits = strcmp(e->category, "cuda_sync") == 0 && strcmp(e->name, "Stream Wait Event") == 0;
  return waits ? REAL_WAIT : REAL_SPAN_KINDS;
}

static bool fits_number(int64_t value)
{
  return value > 0 && value < UINT32_MAX;
}

/* ---- where ranks meet ---- */

/* Those in which each rank's result needs every rank's part. In an exchange of tokens, two ranks may have
 * nothing for each other; a broadcast's root waits for nobody. */
static bool meets_all(const char *collective)
{
  static const char *const names[] = { "allreduce", "allgather", "all_gather", "reduce_scatter",
                                       "barrier" };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strstr(collective, names[i]) != NULL) return true;
  return false;
}

/* Rank `number` of "[0, 1]" among all ranks; -1: it is not listed. */
static int64_t global_rank(const char *ranks, int64_t number)
{
  const char *at = ranks + (ranks[0] == '[');
  for (int64_t i = 0;; i++) {
    char *end;
    long rank = strtol(at, &end, 10);
    if (end == at || rank < 0) return -1;
    if (i == number) return rank;
    at = end + strspn(end, ", ");
  }
}

static void take_message(kineto_reader *k, const kineto_event *e)
{
  bool sends = strcmp(e->collective, "send") == 0;
  int64_t other = global_rank(e->ranks, sends ? e->destination : e->source), own = k->run->rank;
  if (other < 0 || own < 0) return;
  *ARRAY_PUSH(&k->run->meetings) = (real_meeting){ .begin_ns = e->begin_ns,
                                                   .end_ns = e->begin_ns + e->length_ns,
                                                   .group = "",
                                                   .name = "message",
                                                   .from = sends ? own : other,
                                                   .to = sends ? other : own,
                                                   .is_sender = sends };
}

static void take_meeting(kineto_reader *k, const kineto_event *e)
{
  bool message = strcmp(e->collective, "send") == 0 || strcmp(e->collective, "recv") == 0;
  if (e->ranks == NULL || e->group == NULL) return;
  if (message)
    take_message(k, e);
  else if (meets_all(e->collective))
    *ARRAY_PUSH(&k->run->meetings) = (real_meeting){
      .begin_ns = e->begin_ns,
      .end_ns = e->begin_ns + e->length_ns,
      .group = arena_printf(k->run->memory, "%s %s", e->group, e->ranks),
      .name = e->collective,
      .from = -1,
      .to = -1,
    };
}

static bool take_slice(kineto_reader *k, const kineto_event *e, int64_t at)
{
  real_span_kind kind = kind_of(e);
  if (kind == REAL_SPAN_KINDS) return true;
  bool on_stream = real_span_is_on_stream(kind);
  if (on_stream && e->stream < 0)
    return input_wrong(k->json.in, at, "a %s without args.stream", real_span_name(kind));
  if (e->begin_ns < 0 || e->length_ns < 0)
    return input_wrong(k->json.in, at, "a slice needs \"ts\" and \"dur\", both at least 0");
  if (e->begin_ns > INT64_MAX / 4 || e->length_ns > INT64_MAX / 4)
    return input_wrong(k->json.in, at, "its \"ts\" or \"dur\" is too large");
  if (real_span_is_copy(kind) && e->bytes < 0)
    return input_wrong(k->json.in, at, "a copy without args.bytes");
  if (kind == REAL_WAIT && e->waited_stream >= 0) k->run->waits_are_resolved = true;
  if (kind == REAL_KERNEL && e->collective != NULL) take_meeting(k, e);
  bool named = real_span_is_work(kind) && e->pass != NULL && e->microbatch >= 0 &&
               e->microbatch < UINT32_MAX && e->chunk >= 0 && e->chunk < UINT32_MAX;
  *ARRAY_PUSH(&k->run->spans) = (real_span){
    .begin_ns = e->begin_ns,
    .end_ns = e->begin_ns + e->length_ns,
    .name = e->name,
    .bytes = kind == REAL_WAIT ? e->event : e->bytes,
    .track = on_stream ? real_run_stream(k->run, e->device, e->stream)
                       : real_run_thread(k->run, e->process, e->thread),
    .correlation = fits_number(e->correlation) ? (uint32_t)e->correlation : 0,
    .pass = named ? real_run_pass(k->run, e->pass, (uint32_t)e->microbatch, (uint32_t)e->chunk)
                  : REAL_NONE,
    .kind = (uint8_t)kind,
    .pageable = strstr(e->name, "Pageable") != NULL,
  };
  return true;
}

/* Threads of the host have their names: "thread 15705 (pt_autograd_0)". */
static void take_name(kineto_reader *k, const kineto_event *e)
{
  for (uint32_t i = 0; i < k->run->threads.count; i++) {
    real_track *t = &k->run->threads.items[i];
    if (t->process == e->process && t->id == e->thread) t->name = e->label;
  }
}

static bool read_event(kineto_reader *k)
{
  kineto_event e = { .category = "",
                     .name = "",
                     .label = "",
                     .process = -1,
                     .thread = -1,
                     .begin_ns = -1,
                     .stream = -1,
                     .device = -1,
                     .correlation = -1,
                     .bytes = -1,
                     .event = -1,
                     .waited_stream = -1,
                     .microbatch = -1,
                     .chunk = -1,
                     .source = -1,
                     .destination = -1 };
  int64_t at = input_offset(k->json.in);
  for (bool more = json_enter(&k->json, '{'); more; more = json_more(&k->json, '}'))
    if (!json_key(&k->json) || !read_member(k, &e)) return false;
  if (k->json.in->failed) return false;
  if (e.phase == 'X') return take_slice(k, &e, at);
  if (e.phase == 'M' && strcmp(e.name, "thread_name") == 0) take_name(k, &e);
  return true;
}

static bool read_events(kineto_reader *k)
{
  for (bool more = json_enter(&k->json, '['); more; more = json_more(&k->json, ']'))
    if (json_peek(&k->json), !read_event(k)) return false;
  return !k->json.in->failed;
}

/* ---- the file ---- */

static bool read_distributed(kineto_reader *k)
{
  if (json_peek(&k->json) != '{') return json_skip(&k->json);
  for (bool more = json_enter(&k->json, '{'); more; more = json_more(&k->json, '}')) {
    if (!json_key(&k->json)) return false;
    bool ok = strcmp(k->json.text, "rank") == 0 ? json_whole_or_skip(&k->json, &k->run->rank)
              : strcmp(k->json.text, "world_size") == 0
                  ? json_whole_or_skip(&k->json, &k->run->world_size)
                  : json_skip(&k->json);
    if (!ok) return false;
  }
  return !k->json.in->failed;
}

static bool read_device(kineto_reader *k)
{
  if (json_peek(&k->json) != '{') return json_skip(&k->json);
  for (bool more = json_enter(&k->json, '{'); more; more = json_more(&k->json, '}')) {
    if (!json_key(&k->json)) return false;
    bool is_name = strcmp(k->json.text, "name") == 0 && k->run->gpu_name[0] == '\0';
    if (!(is_name ? read_text(k, &k->run->gpu_name) : json_skip(&k->json))) return false;
  }
  return !k->json.in->failed;
}

/* GPUs of one host are of one kind. */
static bool read_devices(kineto_reader *k)
{
  if (json_peek(&k->json) != '[') return json_skip(&k->json);
  for (bool more = json_enter(&k->json, '['); more; more = json_more(&k->json, ']'))
    if (!read_device(k)) return false;
  return !k->json.in->failed;
}

static bool read_top(kineto_reader *k, bool *has_events)
{
  const char *key = k->json.text;
  if (strcmp(key, "baseTimeNanoseconds") == 0) return json_scaled(&k->json, 0, &k->base_ns);
  if (strcmp(key, "distributedInfo") == 0) return read_distributed(k);
  if (strcmp(key, "deviceProperties") == 0) return read_devices(k);
  if (strcmp(key, "traceEvents") != 0) return json_skip(&k->json);
  *has_events = true;
  return read_events(k);
}

/* `baseTimeNanoseconds` may follow the events. */
static bool add_base(kineto_reader *k, int64_t at)
{
  if (k->base_ns < 0 || k->base_ns > INT64_MAX / 4)
    return input_wrong(k->json.in, at, "baseTimeNanoseconds is out of range");
  for (uint32_t i = 0; i < k->run->spans.count; i++) {
    k->run->spans.items[i].begin_ns += k->base_ns;
    k->run->spans.items[i].end_ns += k->base_ns;
  }
  for (uint32_t i = 0; i < k->run->meetings.count; i++) {
    k->run->meetings.items[i].begin_ns += k->base_ns;
    k->run->meetings.items[i].end_ns += k->base_ns;
  }
  return true;
}

static bool has_work(const real_run *r)
{
  for (uint32_t i = 0; i < r->spans.count; i++) {
    if (real_span_is_work((real_span_kind)r->spans.items[i].kind)) return true;
  }
  return false;
}

static bool read_file(kineto_reader *k)
{
  bool has_events = false;
  for (bool more = json_enter(&k->json, '{'); more; more = json_more(&k->json, '}'))
    if (!json_key(&k->json) || !read_top(k, &has_events)) return false;
  if (k->json.in->failed || !json_is_at_end(&k->json)) return false;
  int64_t at = input_offset(k->json.in);
  if (!has_events) return input_wrong(k->json.in, at, "there is no \"traceEvents\" in the object");
  if (!has_work(k->run))
    return input_wrong(k->json.in, at,
                       "no kernel and no copy of a GPU in it; the profiler needs "
                       "ProfilerActivity.CUDA");
  return add_base(k, at);
}

bool kineto_read(real_run *r, input *in)
{
  if (!takes_profile(r, in)) return false;
  kineto_reader k = { .run = r, .json = { .in = in } };
  bool ok = read_file(&k);
  json_release(&k.json);
  if (ok) real_run_note_source(r, "Kineto trace");
  r->has_profile |= ok;
  r->has_times |= ok;
  return ok;
}
