/*
 * An export of Nsight Systems (nsys export --type sqlite): an SQLite file with a table for each kind of
 * event, as "Nsight Systems exporter: SQLite schema reference" describes them. There is no table
 * without events. Times are nanoseconds from the begin of the session. Processes have numbers in
 * globalPid; the upper bits of globalTid are the same number, its lower 24 bits the thread.
 */
#include <inttypes.h>
#include <sqlite3.h>
#include <string.h>
#include <zlib.h>

#include "sim/base/text.h"
#include "sim/base/units.h"
#include "traces/import/readers.h"

typedef struct nsight_reader {
  real_run *run;
  input *in;
  sqlite3 *db;
  int64_t base_ns;   /* of the epoch */
  int64_t process;   /* its globalPid; 0: the export names none */
  bool has_sync_ids; /* records and waits share a number that is new for each record */
  uint32_t records, waits;
} nsight_reader;

#define KERNELS "CUPTI_ACTIVITY_KIND_KERNEL"
#define COPIES  "CUPTI_ACTIVITY_KIND_MEMCPY"
#define MEMSETS "CUPTI_ACTIVITY_KIND_MEMSET"
#define SYNCS   "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
#define EVENTS  "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
#define CALLS   "CUPTI_ACTIVITY_KIND_RUNTIME"
#define RANGES  "NVTX_EVENTS"
#define PROCESS "-16777216" /* the bits of a globalTid that are its globalPid */

static bool wrong(nsight_reader *n, const char *what)
{
  return input_wrong(n->in, 0, "%s", what);
}

static bool failed(nsight_reader *n)
{
  return input_wrong(n->in, 0, "an SQLite file that cannot be read: %s", sqlite3_errmsg(n->db));
}

/* ---- queries ---- */

typedef bool take_row(nsight_reader *n, sqlite3_stmt *row);

/* Each row; ?1, if the text has it, is the process. */
static bool query(nsight_reader *n, const char *sql, take_row *take)
{
  sqlite3_stmt *s = NULL;
  int status = sqlite3_prepare_v2(n->db, sql, -1, &s, NULL);
  bool ok = status == SQLITE_OK || failed(n);
  if (ok && sqlite3_bind_parameter_count(s) > 0) sqlite3_bind_int64(s, 1, n->process);
  while (ok && (status = sqlite3_step(s)) == SQLITE_ROW)
    ok = take(n, s);
  if (ok && status != SQLITE_DONE) ok = failed(n);
  sqlite3_finalize(s);
  return ok;
}

static bool has_rows(nsight_reader *n, const char *sql, const char *one, const char *other)
{
  sqlite3_stmt *s = NULL;
  bool found = false;
  if (sqlite3_prepare_v2(n->db, sql, -1, &s, NULL) == SQLITE_OK) {
    sqlite3_bind_text(s, 1, one, -1, SQLITE_STATIC);
    if (other != NULL) sqlite3_bind_text(s, 2, other, -1, SQLITE_STATIC);
    found = sqlite3_step(s) == SQLITE_ROW;
  }
  sqlite3_finalize(s);
  return found;
}

/* A view would be a program of the file's. */
static bool has_table(nsight_reader *n, const char *table)
{
  return has_rows(n,
                  "SELECT 1 FROM sqlite_schema WHERE name = ?1 AND type = 'table' "
                  "AND sql LIKE 'CREATE TABLE%'",
                  table, NULL);
}

static bool has_column(nsight_reader *n, const char *table, const char *column)
{
  return has_rows(n, "SELECT 1 FROM pragma_table_info(?1) WHERE name = ?2", table, column);
}

/* ---- spans ---- */

static const char *text_at(nsight_reader *n, sqlite3_stmt *row, int column)
{
  const char *text = (const char *)sqlite3_column_text(row, column);
  return text == NULL ? "" : real_run_text(n->run, text, strlen(text));
}

/* Columns 0 and 1 are its begin and end, 2 its number, which the call has too. */
static bool put(nsight_reader *n, sqlite3_stmt *row, real_span_kind kind, uint32_t track,
                const char *name, int64_t bytes)
{
  int64_t begin_ns = sqlite3_column_int64(row, 0), end_ns = sqlite3_column_int64(row, 1);
  int64_t correlation = sqlite3_column_int64(row, 2);
  if (begin_ns < 0 || end_ns < begin_ns || end_ns > INT64_MAX / 8)
    return wrong(n, "an event whose times are out of order or out of range");
  if (real_span_is_copy(kind) && bytes < 0) return wrong(n, "a copy of a negative size");
  *ARRAY_PUSH(&n->run->spans) = (real_span){
    .begin_ns = n->base_ns + begin_ns,
    .end_ns = n->base_ns + end_ns,
    .name = name,
    .bytes = bytes,
    .track = track,
    .correlation = correlation > 0 && correlation < UINT32_MAX ? (uint32_t)correlation : 0,
    .pass = REAL_NONE,
    .kind = (uint8_t)kind,
  };
  return true;
}

/* Columns 3 and 4: device, stream. */
static uint32_t stream_at(nsight_reader *n, sqlite3_stmt *row)
{
  return real_run_stream(n->run, sqlite3_column_int64(row, 3), sqlite3_column_int64(row, 4));
}

/* Column 3: process and thread. */
static uint32_t thread_at(nsight_reader *n, sqlite3_stmt *row)
{
  int64_t thread = sqlite3_column_int64(row, 3);
  return real_run_thread(n->run, thread >> 24 & 0xffffff, thread & 0xffffff);
}

/* ---- work ---- */

static bool take_kernel(nsight_reader *n, sqlite3_stmt *row)
{
  return put(n, row, REAL_KERNEL, stream_at(n, row), text_at(n, row, 5), -1);
}

/* Numbers of CUpti_ActivityMemcpyKind: from host, to host, within a device, between devices. */
enum { COPY_FROM_HOST = 1, COPY_TO_HOST = 2, COPY_ON_DEVICE = 8, COPY_ON_HOST = 9 };

static bool take_copy(nsight_reader *n, sqlite3_stmt *row)
{
  int64_t kind = sqlite3_column_int64(row, 6);
  bool out = kind == COPY_TO_HOST, back = kind == COPY_FROM_HOST;
  if (kind == COPY_ON_HOST) return true;
  if (!put(n, row,
           out    ? REAL_D2H
           : back ? REAL_H2D
                  : REAL_D2D,
           stream_at(n, row), "copy", sqlite3_column_int64(row, 5)))
    return false;
  n->run->spans.items[n->run->spans.count - 1].pageable =
      (out || back) && sqlite3_column_int(row, 7) != 0;
  return true;
}

static bool take_memset(nsight_reader *n, sqlite3_stmt *row)
{
  return put(n, row, REAL_MEMSET, stream_at(n, row), "set",
             max_i64(-1, sqlite3_column_int64(row, 5)));
}

/* ---- events and waits ---- */

static bool is_event(nsight_reader *n, int64_t event)
{
  return (event >= 0 && event < UINT32_MAX) || wrong(n, "an event whose number is out of range");
}

static bool take_record(nsight_reader *n, sqlite3_stmt *row)
{
  int64_t event = sqlite3_column_int64(row, 5);
  n->records++;
  return is_event(n, event) && put(n, row, REAL_RECORD, stream_at(n, row), "", event);
}

/* Numbers of CUpti_ActivitySynchronizationType. */
enum { SYNC_EVENT = 1, SYNC_STREAM_WAITS = 2, SYNC_STREAM = 3, SYNC_CONTEXT = 4 };

static bool take_sync(nsight_reader *n, sqlite3_stmt *row)
{
  int64_t event = sqlite3_column_int64(row, 5);
  uint32_t host = real_run_thread(n->run, 0, 0);
  switch (sqlite3_column_int(row, 6)) {
  case SYNC_STREAM_WAITS:
    n->waits++;
    return is_event(n, event) && put(n, row, REAL_WAIT, stream_at(n, row), "", event);
  case SYNC_EVENT: return is_event(n, event) && put(n, row, REAL_EVENT_DONE, host, "", event);
  case SYNC_STREAM: return put(n, row, REAL_STREAM_DONE, stream_at(n, row), "", -1);
  case SYNC_CONTEXT: return put(n, row, REAL_ALL_DONE, host, "", -1);
  default: return true;
  }
}

/* ---- the host ---- */

/* "cudaLaunchKernel_v7000" */
static const char *call_name(nsight_reader *n, sqlite3_stmt *row, int column)
{
  const char *name = text_at(n, row, column), *version = strstr(name, "_v");
  size_t digits = version == NULL ? 0 : strspn(version + 2, "0123456789");
  bool ends = digits > 0 && version[2 + digits] == '\0';
  return ends ? real_run_text(n->run, name, (size_t)(version - name)) : name;
}

static bool take_call(nsight_reader *n, sqlite3_stmt *row)
{
  return put(n, row, REAL_CALL, thread_at(n, row), call_name(n, row, 4), -1);
}

/* Of torch.autograd.profiler.emit_nvtx, the operators' names are the same as in a profiler's trace. */
static bool take_range(nsight_reader *n, sqlite3_stmt *row)
{
  const char *name = text_at(n, row, 4);
  bool op = begins_with(name, "autograd::") || begins_with(name, "aten::");
  return put(n, row, op ? REAL_OP : REAL_ANNOTATION, thread_at(n, row), name, -1);
}

/* ---- tables ---- */

static bool read_kernels(nsight_reader *n)
{
  return !has_table(n, KERNELS) ||
         query(
             n,
             "SELECT k.start, k.end, k.correlationId, k.deviceId, k.streamId, s.value FROM " KERNELS
             " k LEFT JOIN StringIds s ON s.id = k.demangledName WHERE ?1 = 0 OR k.globalPid = ?1",
             take_kernel);
}

static bool read_copies(nsight_reader *n)
{
  static const char *const plain = "SELECT start, end, correlationId, deviceId, streamId, bytes, "
                                   "copyKind, 0 FROM " COPIES " WHERE ?1 = 0 OR globalPid = ?1";
  static const char *const kinds =
      "SELECT c.start, c.end, c.correlationId, c.deviceId, c.streamId, c.bytes, c.copyKind, "
      "EXISTS (SELECT 1 FROM ENUM_CUDA_MEM_KIND k WHERE k.id IN (c.srcKind, c.dstKind) AND "
      "k.label = 'Pageable') FROM " COPIES " c WHERE ?1 = 0 OR c.globalPid = ?1";
  if (!has_table(n, COPIES)) return true;
  return query(n, has_table(n, "ENUM_CUDA_MEM_KIND") ? kinds : plain, take_copy);
}

static bool read_memsets(nsight_reader *n)
{
  return !has_table(n, MEMSETS) ||
         query(n,
               "SELECT start, end, correlationId, deviceId, streamId, bytes FROM " MEMSETS
               " WHERE ?1 = 0 OR globalPid = ?1",
               take_memset);
}

/* A record has no time of its own: its call has one. */
static bool read_records(nsight_reader *n)
{
  static const char *const by_event =
      "SELECT r.start, r.start, e.correlationId, e.deviceId, e.streamId, e.eventId FROM " EVENTS
      " e JOIN " CALLS " r ON r.correlationId = e.correlationId AND "
      "(r.globalTid & " PROCESS ") = e.globalPid WHERE ?1 = 0 OR e.globalPid = ?1";
  static const char *const by_sync =
      "SELECT r.start, r.start, e.correlationId, e.deviceId, e.streamId, e.eventSyncId FROM " EVENTS
      " e JOIN " CALLS " r ON r.correlationId = e.correlationId AND "
      "(r.globalTid & " PROCESS ") = e.globalPid WHERE ?1 = 0 OR e.globalPid = ?1";
  if (!has_table(n, EVENTS) || !has_table(n, CALLS)) return true;
  return query(n, n->has_sync_ids ? by_sync : by_event, take_record);
}

static bool read_syncs(nsight_reader *n)
{
  static const char *const by_event =
      "SELECT start, end, correlationId, deviceId, streamId, eventId, syncType FROM " SYNCS
      " WHERE ?1 = 0 OR globalPid = ?1";
  static const char *const by_sync =
      "SELECT start, end, correlationId, deviceId, streamId, eventSyncId, syncType FROM " SYNCS
      " WHERE ?1 = 0 OR globalPid = ?1";
  return !has_table(n, SYNCS) || query(n, n->has_sync_ids ? by_sync : by_event, take_sync);
}

static bool read_calls(nsight_reader *n)
{
  return !has_table(n, CALLS) ||
         query(n,
               "SELECT r.start, r.end, r.correlationId, r.globalTid, s.value FROM " CALLS
               " r LEFT JOIN StringIds s ON s.id = r.nameId "
               "WHERE ?1 = 0 OR (r.globalTid & " PROCESS ") = ?1",
               take_call);
}

/* Ranges by push and pop (59), by start and end (60). */
static bool read_ranges(nsight_reader *n)
{
  return !has_table(n, RANGES) ||
         query(n,
               "SELECT r.start, r.end, 0, r.globalTid, coalesce(r.text, s.value) FROM " RANGES
               " r LEFT JOIN StringIds s ON s.id = r.textId WHERE r.eventType IN (59, 60) AND "
               "r.end IS NOT NULL AND (?1 = 0 OR (r.globalTid & " PROCESS ") = ?1)",
               take_range);
}

/* ---- the file ---- */

static bool take_base(nsight_reader *n, sqlite3_stmt *row)
{
  n->base_ns = sqlite3_column_int64(row, 0);
  return (n->base_ns >= 0 && n->base_ns < INT64_MAX / 4) ||
         wrong(n, "a begin of the session that is out of range");
}

static bool take_gpu(nsight_reader *n, sqlite3_stmt *row)
{
  n->run->gpu_name = text_at(n, row, 0);
  return true;
}

static bool read_heads(nsight_reader *n)
{
  return (!has_table(n, "TARGET_INFO_SESSION_START_TIME") ||
          query(n, "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME LIMIT 1", take_base)) &&
         (!has_table(n, "TARGET_INFO_GPU") ||
          query(n, "SELECT name FROM TARGET_INFO_GPU ORDER BY id LIMIT 1", take_gpu));
}

/* Of a rank of one host: its processes, in the order of their GPUs. */
static bool choose_process(nsight_reader *n, uint32_t rank)
{
  sqlite3_stmt *s = NULL;
  uint32_t count = 0;
  if (!has_column(n, KERNELS, "globalPid")) return true;
  if (sqlite3_prepare_v2(n->db,
                         "SELECT globalPid FROM " KERNELS " WHERE globalPid IS NOT NULL "
                         "GROUP BY globalPid ORDER BY min(deviceId), globalPid",
                         -1, &s, NULL) != SQLITE_OK)
    return failed(n);
  while (sqlite3_step(s) == SQLITE_ROW)
    if (count++ == rank) n->process = sqlite3_column_int64(s, 0);
  sqlite3_finalize(s);
  if (count > 0 && rank >= count)
    return input_wrong(
        n->in, 0, "there is no rank %" PRIu32 "; the export has kernels of %" PRIu32 " processes",
        rank, count);
  if (count > 1) {
    n->run->rank = rank;
    n->run->world_size = count;
  }
  return true;
}

static bool read_tables(nsight_reader *n, uint32_t rank)
{
  if (!has_table(n, KERNELS) && !has_table(n, COPIES))
    return wrong(n, "an SQLite file without a table " KERNELS
                    ": no export of Nsight Systems (nsys export --type sqlite) with CUDA in it");
  n->has_sync_ids = has_column(n, EVENTS, "eventSyncId") && has_column(n, SYNCS, "eventSyncId");
  return read_heads(n) && choose_process(n, rank) && read_calls(n) && read_kernels(n) &&
         read_copies(n) && read_memsets(n) && read_records(n) && read_syncs(n) && read_ranges(n);
}

/* Nothing of the file is run. */
static void harden(sqlite3 *db)
{
  sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
  sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
}

/* A file is read where it is; bytes of a test are in memory. */
static bool open_database(nsight_reader *n)
{
  input *in = n->in;
  if (in->file != NULL) {
    if (!gzdirect(in->file))
      return wrong(n, "a packed SQLite file, of which no part can be read alone; unpack it first");
    return sqlite3_open_v2(in->name, &n->db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK || failed(n);
  }
  if (sqlite3_open_v2(":memory:", &n->db, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK)
    return failed(n);
  sqlite3_int64 count = in->end - in->next;
  unsigned char *bytes = sqlite3_malloc64((sqlite3_uint64)count);
  if (bytes == NULL) return failed(n);
  memcpy(bytes, in->next, (size_t)count);
  return sqlite3_deserialize(n->db, "main", bytes, count, count,
                             SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_READONLY) ==
             SQLITE_OK ||
         failed(n);
}

bool nsight_read(real_run *r, input *in, uint32_t rank)
{
  if (!takes_profile(r, in)) return false;
  nsight_reader n = { .run = r, .in = in };
  bool ok = open_database(&n);
  if (ok) {
    harden(n.db);
    ok = read_tables(&n, rank);
  }
  sqlite3_close(n.db);
  if (ok) real_run_note_source(r, "export of Nsight Systems");
  r->has_profile |= ok;
  r->has_times |= ok;
  r->waits_are_resolved |= ok && n.records > 0 && n.waits > 0;
  return ok;
}
