#include "sim/report/races.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/text.h"
#include "sim/report/real_run.h"
#include "sim/text/json_text.h"
#include "traces/import/run_memory.h"

enum { RACES_SHOWN = 20 };

/* The name of a kernel as people know it: of a mangled C++ name its namespaces and function, without
 * arguments. _ZN2at6native4copyE...: nested names are their length and their letters. */
static const char *plain_name(const char *symbol, arena *a)
{
  if (!begins_with(symbol, "_Z")) return symbol;
  const char *at = symbol + 2, *name = "";
  at += *at == 'N';
  while (*at >= '1' && *at <= '9') {
    char *end;
    unsigned long length = strtoul(at, &end, 10);
    if (length > strlen(end)) return symbol;
    name = arena_printf(a, "%s%s%.*s", name, *name == '\0' ? "" : "::", (int)length, end);
    at = end + length;
  }
  return *name == '\0' ? symbol : name;
}

static const char *use_name(const races *r, const use *u, arena *a)
{
  return u->kind == USE_KERNEL ? plain_name(r->names[u->name], a) : use_kind_name(u->kind);
}

static const char *owner_text(const races *r, uint32_t stack, arena *a)
{
  return real_frame_text(&r->run, run_memory_owner(&r->run, stack), a);
}

static const char *space_text(issued_space space)
{
  return space == ISSUED_HOST ? "page-locked host memory" : "device memory";
}

/* What would order the two. */
static const char *missing_edge(const race *f, arena *a)
{
  const char *wait =
      arena_printf(a,
                   "stream %" PRIu32 " has to wait for an event that is recorded on stream %" PRIu32
                   " after row %" PRIu32,
                   f->later.stream, f->earlier.stream, f->earlier.row);
  if (f->kind != RACE_REUSED) return wait;
  return arena_printf(a,
                      "record_stream marks the block for stream %" PRIu32 " before it is freed, "
                      "or %s",
                      f->earlier.stream, wait);
}

static void print_race(const races *r, const race *f, FILE *out, arena *a)
{
  fprintf(out, "\n%s: %s on stream %" PRIu32 " (row %" PRIu32 ") %s\n", race_kind_name(f->kind),
          use_name(r, &f->earlier, a), f->earlier.stream, f->earlier.row,
          race_kind_meaning(f->kind));
  fprintf(out, "  later    %s on stream %" PRIu32 " (row %" PRIu32 ")\n", use_name(r, &f->later, a),
          f->later.stream, f->later.row);
  fprintf(out, "  memory   %s at 0x%" PRIx64 "\n", space_text(f->space), f->address);
  if (f->stack != 0) fprintf(out, "  of       %s\n", owner_text(r, f->stack, a));
  if (f->kind == RACE_REUSED && f->earlier_stack != 0)
    fprintf(out, "  before   %s\n", owner_text(r, f->earlier_stack, a));
  fprintf(out, "  missing  %s\n", missing_edge(f, a));
  if (f->count > 1) fprintf(out, "  times    %" PRIu64 "\n", f->count);
}

static void print_limits(const races *r, FILE *out)
{
  if (!r->ended)
    fputs("note: the process did not end in order; the record ends where it was killed\n", out);
  if (!r->has_snapshot && r->blocks > 0)
    fputs("note: the record has no memory snapshot; of each block its first 512 bytes count\n",
          out);
  else if (r->without_size > 0)
    fprintf(out,
            "note: %" PRIu64 " blocks are not in the snapshot; of each its first 512 bytes "
            "count\n",
            r->without_size);
  if (r->graphs > 0)
    fprintf(out, "note: %" PRIu64 " launches of graphs; what their kernels use is not seen\n",
            r->graphs);
  if (r->unseen > 0)
    fprintf(out, "note: %" PRIu64 " kernels have arguments that are not seen\n", r->unseen);
}

void races_table(const races *r, FILE *out, arena *a)
{
  fprintf(out,
          "%" PRIu64 " rows: %" PRIu64 " kernels, %" PRIu64 " copies, %" PRIu64 " sets on %" PRIu64
          " streams; %" PRIu64 " waits, %" PRIu64 " blocks of PyTorch\n",
          r->rows, r->kernels, r->copies, r->sets, r->streams, r->waits, r->blocks);
  print_limits(r, out);
  for (uint32_t i = 0; i < r->count && i < RACES_SHOWN; i++)
    print_race(r, &r->items[i], out, a);
  if (r->count > RACES_SHOWN)
    fprintf(out, "\nand %" PRIu32 " more kinds of pairs (--json lists %d)\n",
            r->count - RACES_SHOWN, RACES_KEPT);
  if (r->found == 0)
    fputs("no races\n", out);
  else
    fprintf(out, "\n%" PRIu64 " races, %" PRIu32 " of different operations\n", r->found, r->count);
}

/* ---- JSON ---- */

static void json_use(FILE *out, const races *r, const char *key, const use *u, arena *a)
{
  fprintf(out, "\"%s\": {\"operation\": ", key);
  json_string(out, use_name(r, u, a));
  fprintf(out, ", \"stream\": %" PRIu32 ", \"row\": %" PRIu32 "}, ", u->stream, u->row);
}

void races_json(const races *r, FILE *out, arena *a)
{
  fprintf(out,
          "{\n  \"format_version\": 1,\n  \"safe\": %s,\n  \"ended\": %s,\n  \"snapshot\": %s,\n"
          "  \"rows\": %" PRIu64 ",\n  \"kernels\": %" PRIu64 ",\n  \"copies\": %" PRIu64
          ",\n  \"sets\": %" PRIu64 ",\n  \"streams\": %" PRIu64 ",\n  \"waits\": %" PRIu64
          ",\n  \"blocks\": %" PRIu64 ",\n  \"graphs\": %" PRIu64 ",\n  \"captured\": %" PRIu64
          ",\n  \"unseen_kernels\": %" PRIu64 ",\n  \"blocks_without_size\": %" PRIu64
          ",\n  \"found\": %" PRIu64 ",\n  \"races\": [",
          r->found == 0 ? "true" : "false", r->ended ? "true" : "false",
          r->has_snapshot ? "true" : "false", r->rows, r->kernels, r->copies, r->sets, r->streams,
          r->waits, r->blocks, r->graphs, r->captured, r->unseen, r->without_size, r->found);
  for (uint32_t i = 0; i < r->count; i++) {
    const race *f = &r->items[i];
    fprintf(out, "%s\n    {\"kind\": \"%s\", \"count\": %" PRIu64 ", ", i > 0 ? "," : "",
            race_kind_name(f->kind), f->count);
    json_use(out, r, "earlier", &f->earlier, a);
    json_use(out, r, "later", &f->later, a);
    fprintf(out, "\"space\": \"%s\", \"of\": ", f->space == ISSUED_HOST ? "host" : "device");
    json_string(out, f->stack == 0 ? "" : owner_text(r, f->stack, a));
    fputs(", \"before\": ", out);
    json_string(out, f->earlier_stack == 0 ? "" : owner_text(r, f->earlier_stack, a));
    fputs(", \"missing\": ", out);
    json_string(out, missing_edge(f, a));
    fputs("}", out);
  }
  fprintf(out, "%s]\n}\n", r->count > 0 ? "\n  " : "");
}
