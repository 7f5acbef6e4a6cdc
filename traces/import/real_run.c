#include "traces/import/real_run.h"

#include <string.h>

#include "traces/import/readers.h"

const char *real_span_name(real_span_kind kind)
{
#define X(id, name, on_stream, meaning) name,
  static const char *const names[] = { REAL_SPANS(X) };
#undef X
  return names[kind];
}

bool real_span_is_on_stream(real_span_kind kind)
{
#define X(id, name, on_stream, meaning) on_stream,
  static const bool are[] = { REAL_SPANS(X) };
#undef X
  return are[kind];
}

const char *real_pass_name(real_pass_kind kind)
{
  static const char *const names[REAL_PASS_KINDS] = { "forward", "backward", "finish" };
  return names[kind];
}

const char *real_memory_name(real_memory_kind kind)
{
  static const char *const names[REAL_MEMORY_KINDS] = {
    "alloc", "free", "free_done", "segment", "segment_free", "out_of_memory"
  };
  return names[kind];
}

void real_run_init(real_run *r, arena *memory)
{
  *r = (real_run){ .memory = memory, .sources = "", .gpu_name = "", .rank = -1, .world_size = -1 };
  r->texts = r->frame_table = r->stack_table = (intern_table){ .memory = memory };
  real_run_stack(r, NULL, 0);
}

void real_run_release(real_run *r)
{
  ARRAY_FREE(&r->spans);
  ARRAY_FREE(&r->streams);
  ARRAY_FREE(&r->threads);
  ARRAY_FREE(&r->meetings);
  ARRAY_FREE(&r->passes);
  ARRAY_FREE(&r->events);
  ARRAY_FREE(&r->blocks);
  ARRAY_FREE(&r->frames);
  ARRAY_FREE(&r->frame_numbers);
  ARRAY_FREE(&r->stacks);
}

/* ---- for readers ---- */

bool takes_profile(const real_run *r, input *in)
{
  return !r->has_profile ||
         input_wrong(in, 0,
                     "this is a second record of what streams did; import reads those of several "
                     "ranks with --align");
}

const char *real_run_text(real_run *r, const char *text, size_t length)
{
  uint32_t number = intern(&r->texts, text, length);
  return r->texts.keys[number].bytes;
}

/* A run has a hundred at most, and the last one is asked for again. */
static uint32_t track_of(real_track_array *tracks, int64_t process, int64_t id)
{
  for (uint32_t i = tracks->count; i-- > 0;)
    if (tracks->items[i].id == id && tracks->items[i].process == process) return i;
  *ARRAY_PUSH(tracks) = (real_track){ .process = process, .id = id, .name = "" };
  return tracks->count - 1;
}

uint32_t real_run_stream(real_run *r, int64_t device, int64_t stream)
{
  return track_of(&r->streams, device, stream);
}

uint32_t real_run_thread(real_run *r, int64_t process, int64_t thread)
{
  return track_of(&r->threads, process, thread);
}

uint32_t real_run_frame(real_run *r, const real_frame *frame)
{
  uint32_t key[3] = { intern(&r->texts, frame->function, strlen(frame->function)),
                      intern(&r->texts, frame->file, strlen(frame->file)), frame->line };
  uint32_t number = intern(&r->frame_table, key, sizeof key);
  if (number == r->frames.count)
    *ARRAY_PUSH(&r->frames) =
        (real_frame){ r->texts.keys[key[0]].bytes, r->texts.keys[key[1]].bytes, frame->line };
  return number;
}

uint32_t real_run_pass(real_run *r, const char *phase, uint32_t microbatch, uint32_t chunk)
{
  bool forward = strcmp(phase, "forward") == 0, backward = strcmp(phase, "backward") == 0;
  real_pass_kind kind = forward ? REAL_FORWARD : backward ? REAL_BACKWARD : REAL_FINISH;
  uint64_t key = kind == REAL_FINISH ? 0 : (uint64_t)microbatch << 32 | chunk;
  uint32_t number = 0;
  if (strcmp(phase, "setup") == 0) return REAL_NONE;
  for (uint32_t i = r->passes.count; i-- > 0;) {
    if (r->passes.items[i].kind != kind) continue;
    if (r->passes.items[i].key == key) return i;
    number++;
  }
  *ARRAY_PUSH(&r->passes) = (real_pass){
    .kind = kind, .number = number, .key = key, .begin_ns = INT64_MAX, .issued_from_ns = INT64_MAX
  };
  return r->passes.count - 1;
}

uint32_t real_run_stack(real_run *r, const uint32_t *frames, uint32_t count)
{
  uint32_t number =
      intern(&r->stack_table, count > 0 ? (const void *)frames : "", count * sizeof *frames);
  if (number == r->stacks.count) {
    *ARRAY_PUSH(&r->stacks) = (real_stack){ r->frame_numbers.count, count };
    for (uint32_t i = 0; i < count; i++)
      *ARRAY_PUSH(&r->frame_numbers) = frames[i];
  }
  return number;
}

void real_run_note_source(real_run *r, const char *source)
{
  r->sources =
      r->sources[0] == '\0' ? source : arena_printf(r->memory, "%s and %s", r->sources, source);
}
