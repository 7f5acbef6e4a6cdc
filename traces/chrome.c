#include "traces/chrome.h"

#include <assert.h>
#include <inttypes.h>

#include "sim/text/json_text.h"

chrome_trace chrome_begin(FILE *out, uint32_t rank, uint32_t world_size)
{
  fprintf(out,
          "{\"schemaVersion\": 1, \"distributedInfo\": {\"backend\": \"nccl\", \"rank\": %" PRIu32
          ", \"world_size\": %" PRIu32 "},\n\"displayTimeUnit\": \"ns\", \"traceEvents\": [",
          rank, world_size);
  return (chrome_trace){ .out = out };
}

void chrome_end(chrome_trace *t)
{
  fputs("\n]}\n", t->out);
}

static void begin_event(chrome_trace *t, char phase, uint32_t process)
{
  fprintf(t->out, "%s\n{\"ph\":\"%c\",\"pid\":%" PRIu32, t->any ? "," : "", phase, process);
  t->any = true;
}

static void text_member(chrome_trace *t, const char *key, const char *text)
{
  fprintf(t->out, ",\"%s\":", key);
  json_string(t->out, text);
}

/* Picoseconds as microseconds. */
static void time_member(chrome_trace *t, const char *key, int64_t ps)
{
  fprintf(t->out, ",\"%s\":", key);
  json_decimal(t->out, ps, 6);
}

/* The name and place of a process or thread. */
static void metadata(chrome_trace *t, const char *what, uint32_t process, uint32_t thread,
                     const char *key, const char *name, uint32_t order)
{
  begin_event(t, 'M', process);
  fprintf(t->out, ",\"tid\":%" PRIu32 ",\"name\":\"%s\",\"args\":{\"%s\":", thread, what, key);
  if (name != NULL)
    json_string(t->out, name);
  else
    fprintf(t->out, "%" PRIu32, order);
  fputs("}}", t->out);
}

void chrome_process(chrome_trace *t, uint32_t process, const char *name)
{
  metadata(t, "process_name", process, 0, "name", name, 0);
  metadata(t, "process_sort_index", process, 0, "sort_index", NULL, process);
}

void chrome_thread(chrome_trace *t, uint32_t process, uint32_t thread, const char *name)
{
  metadata(t, "thread_name", process, thread, "name", name, 0);
  metadata(t, "thread_sort_index", process, thread, "sort_index", NULL, thread);
}

static void print_args(chrome_trace *t, const chrome_arg *args, uint32_t count)
{
  fputs(",\"args\":{", t->out);
  for (uint32_t i = 0; i < count; i++) {
    fprintf(t->out, "%s\"%s\":", i == 0 ? "" : ",", args[i].key);
    if (args[i].text != NULL)
      json_string(t->out, args[i].text);
    else
      fprintf(t->out, "%" PRId64, args[i].number);
  }
  fputc('}', t->out);
}

void chrome_slice(chrome_trace *t, uint32_t process, uint32_t thread, const char *category,
                  const char *name, int64_t start_ps, int64_t end_ps, const chrome_arg *args,
                  uint32_t arg_count)
{
  assert(start_ps <= end_ps);
  begin_event(t, 'X', process);
  fprintf(t->out, ",\"tid\":%" PRIu32, thread);
  text_member(t, "cat", category);
  text_member(t, "name", name);
  time_member(t, "ts", start_ps);
  time_member(t, "dur", end_ps - start_ps);
  if (arg_count > 0) print_args(t, args, arg_count);
  fputc('}', t->out);
}

void chrome_counter(chrome_trace *t, uint32_t process, const char *name, const char *series,
                    int64_t at_ps, int64_t value, int digits)
{
  begin_event(t, 'C', process);
  text_member(t, "name", name);
  time_member(t, "ts", at_ps);
  fprintf(t->out, ",\"args\":{\"%s\":", series);
  json_decimal(t->out, value, digits);
  fputs("}}", t->out);
}

void chrome_flow(chrome_trace *t, chrome_flow_end end, uint32_t process, uint32_t thread,
                 const char *name, uint64_t id, int64_t at_ps)
{
  begin_event(t, end == CHROME_FLOW_FROM ? 's' : 'f', process);
  fprintf(t->out, ",\"tid\":%" PRIu32 ",\"cat\":\"flow\"", thread);
  text_member(t, "name", name);
  fprintf(t->out, ",\"id\":%" PRIu64, id);
  time_member(t, "ts", at_ps);
  fputs(end == CHROME_FLOW_FROM ? "}" : ",\"bp\":\"e\"}", t->out);
}
