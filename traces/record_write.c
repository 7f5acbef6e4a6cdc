#include "traces/record.h"

#include <assert.h>
#include <inttypes.h>

#include "sim/text/json_text.h"

static void put_text(FILE *out, const char *key, const char *text)
{
  fprintf(out, ",\"%s\":", key);
  json_string(out, text);
}

static void put_number(FILE *out, const char *key, int64_t number)
{
  fprintf(out, ",\"%s\":%" PRId64, key, number);
}

trace_figures trace_no_figures(void)
{
#define UNKNOWN(name, meaning) .name = -1,
  return (trace_figures){ TRACE_FIGURES(UNKNOWN) };
#undef UNKNOWN
}

static void put_header(FILE *out, const trace_header *h)
{
  assert(h->ranks > 0 && h->steps > 0);
  fprintf(out, "{\"format_version\":%d", TRACE_FORMAT_VERSION);
  put_text(out, "source", h->source);
  put_text(out, "scenario", h->scenario);
  put_number(out, "ranks", h->ranks);
  put_number(out, "steps", h->steps);
  fputs("}\n", out);
}

bool trace_open(trace_writer *w, const char *path, const trace_header *h, diag *d)
{
  if (!file_open(&w->file, path, d)) return false;
  put_header(w->file.stream, h);
  return true;
}

void trace_begin(trace_writer *w, FILE *stream, const trace_header *h)
{
  w->file = (file_writer){ .stream = stream };
  put_header(stream, h);
}

static void put_output(FILE *out, const trace_output *o)
{
  fputs("{\"buffer\":", out);
  json_string(out, o->buffer);
  if (o->known)
    fprintf(out, ",\"fingerprint\":\"%016" PRIx64 "%016" PRIx64 "\"}", o->fingerprint[0],
            o->fingerprint[1]);
  else
    fputs(",\"fingerprint\":null}", out);
}

void trace_put(trace_writer *w, const trace_op *op, const trace_output *outputs)
{
  FILE *out = w->file.stream;
  assert(op->output_count <= TRACE_OUTPUTS && op->begin_ps >= 0 && op->end_ps >= 0);
  fprintf(out, "{\"step\":%" PRIu32, op->step);
  put_number(out, "rank", op->rank);
  put_number(out, "op", op->op);
  put_text(out, "kind", op->kind);
  put_text(out, "name", op->name);
  put_text(out, "call", op->call);
  put_text(out, "stream", op->stream);
  put_number(out, "layer", op->layer);
  put_text(out, "module", op->module);
  put_text(out, "phase", op->phase);
  put_number(out, "microbatch", op->microbatch);
  put_number(out, "chunk", op->chunk);
  put_number(out, "begin_ps", op->begin_ps);
  put_number(out, "end_ps", op->end_ps);
  put_number(out, "requested_bytes", op->requested_bytes);
  put_number(out, "live_bytes", op->live_bytes);
  put_number(out, "reserved_bytes", op->reserved_bytes);
  put_number(out, "host_bytes", op->host_bytes);
  fputs(",\"outputs\":[", out);
  for (uint32_t i = 0; i < op->output_count; i++) {
    if (i > 0) fputc(',', out);
    put_output(out, &outputs[i]);
  }
  fputs("]}\n", out);
}

void trace_put_steps(trace_writer *w, const int64_t *steps_ps, uint32_t count)
{
  FILE *out = w->file.stream;
  assert(count > 0);
  fputs("{\"steps_ps\":[", out);
  for (uint32_t i = 0; i < count; i++)
    fprintf(out, "%s%" PRId64, i > 0 ? "," : "", steps_ps[i]);
  fputs("]}\n", out);
}

void trace_put_figures(trace_writer *w, uint32_t rank, const trace_figures *f)
{
  FILE *out = w->file.stream;
  fprintf(out, "{\"figures_of_rank\":%" PRIu32, rank);
#define PUT(name, meaning) put_number(out, #name, f->name);
  TRACE_FIGURES(PUT)
#undef PUT
  fputs("}\n", out);
}

bool trace_close(trace_writer *w, diag *d)
{
  return file_close(&w->file, d);
}

void trace_discard(trace_writer *w)
{
  file_discard(&w->file);
}
