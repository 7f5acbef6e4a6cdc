#include "sim/machine/machine.h"

#include <assert.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "sim/base/file.h"
#include "sim/base/text.h"
#include "sim/base/units.h"
#include "sim/machine/call_time.h"
#include "sim/machine/link_share.h"
#include "sim/plan/text.h"
#include "sim/text/suggest.h"

/* ---- the tables, flat ---- */

#define KEY_OF(section, key, minimum, otherwise, rate, meaning)                                    \
  { #section,                                                                                      \
    #key,                                                                                          \
    (minimum),                                                                                     \
    (otherwise),                                                                                   \
    (rate),                                                                                        \
    (meaning),                                                                                     \
    (uint32_t)offsetof(machine, section.key) },
#define GPU_KEY(...)     KEY_OF(gpu, __VA_ARGS__)
#define HOST_KEY(...)    KEY_OF(host, __VA_ARGS__)
#define ISSUE_KEY(...)   KEY_OF(issue, __VA_ARGS__)
#define LINK_KEY(...)    KEY_OF(link, __VA_ARGS__)
#define NVLINK_KEY(...)  KEY_OF(nvlink, __VA_ARGS__)
#define NETWORK_KEY(...) KEY_OF(network, __VA_ARGS__)
#define DISK_KEY(...)    KEY_OF(disk, __VA_ARGS__)
#define COMPUTE_KEY(...) KEY_OF(compute, __VA_ARGS__)

const machine_key machine_keys[MACHINE_KEYS] = {
  /* clang-format off */
  MACHINE_GPU_KEYS(GPU_KEY)
  MACHINE_HOST_KEYS(HOST_KEY)
  MACHINE_ISSUE_KEYS(ISSUE_KEY)
  MACHINE_LINK_KEYS(LINK_KEY)
  MACHINE_NVLINK_KEYS(NVLINK_KEY)
  MACHINE_NETWORK_KEYS(NETWORK_KEY)
  MACHINE_DISK_KEYS(DISK_KEY)
  MACHINE_COMPUTE_KEYS(COMPUTE_KEY)
  /* clang-format on */
};

static const char *const source_names[VALUE_SOURCES] = { "assumed", "published", "measured",
                                                         "calibrated", "exact" };

const char *value_source_name(value_source s)
{
  assert(s < VALUE_SOURCES);
  return source_names[s];
}

#define SECTION_NAME(section, KEYS) #section,
static const char *const top_keys[] = {
  "format_version", "name", "gpu_name", "measured", "at_once", MACHINE_SECTIONS(SECTION_NAME)
};
enum {
  TOP_KEYS = sizeof top_keys / sizeof top_keys[0],
  FIRST_SECTION = 5,
  KEYS_OF_A_SECTION = 32,
  NAMES_BYTES = 800, /* of a section's keys */
};

/* ---- unknown and missing keys ---- */

static bool known(const char *key, const char *const *names, size_t count)
{
  for (size_t i = 0; i < count; i++)
    if (strcmp(names[i], key) == 0) return true;
  return false;
}

/* "a, b, c". */
static void list_names(char all[NAMES_BYTES], const char *const *names, size_t count)
{
  size_t length = 0;
  for (size_t i = 0; i < count && length < NAMES_BYTES; i++)
    length +=
        (size_t)snprintf(all + length, NAMES_BYTES - length, "%s%s", i > 0 ? ", " : "", names[i]);
}

static bool check_keys(const text_node *map, const char *const *names, size_t count,
                       const char *where, diag *d)
{
  for (uint32_t i = 0; i < map->count; i++) {
    const text_node *n = &map->children[i];
    if (known(n->key, names, count)) continue;
    const char *near = suggest_nearest(n->key, names, count);
    if (near != NULL)
      return diag_error(d, n->key_at, "unknown key '%s' in %s; did you mean '%s'?", n->key, where,
                        near);
    char all[NAMES_BYTES];
    list_names(all, names, count);
    return diag_error(d, n->key_at, "unknown key '%s' in %s of a machine, which has %s", n->key,
                      where, all);
  }
  return true;
}

static const text_node *required(const text_node *map, const char *key, const char *where, diag *d)
{
  const text_node *n = text_get(map, key);

  if (n == NULL) (void)diag_error(d, map->at, "'%s' is missing in %s of a machine", key, where);
  return n;
}

static size_t section_keys(const char *section, const char **names)
{
  size_t count = 0;

  for (uint32_t k = 0; k < MACHINE_KEYS; k++)
    if (strcmp(machine_keys[k].section, section) == 0) {
      assert(count < KEYS_OF_A_SECTION);
      names[count++] = machine_keys[k].key;
    }
  return count;
}

/* ---- values ---- */

/* The largest value of a key, by its unit, the end of its name. Sizes are practically unlimited; factors of
 * sizes and op counts are small enough for the product to fit. With these limits, int64_t holds the total of a host that takes 10 ms for each op, for as many
 * ops as settings allow. */
static int64_t maximum_of(const char *key)
{
  static const struct {
    const char *unit;
    int64_t maximum;
  } units[] = {
    { "_bytes", INT64_C(1) << 60 },
    { "_bytes_per_us", 1000 * 1000 * 1000 },
    { "_gflops", 1000 * 1000 * 1000 },
    { "_ns", 100 * 1000 * 1000 },
    { "_ns_per_gib", INT64_C(100) * 1000 * 1000 * 1000 },
  };

  for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
    if (ends_with(key, units[i].unit)) return units[i].maximum;
  return 1000 * 1000; /* counts, lengths, permille */
}

/* "measured" */
static bool read_source(const text_node *n, const char *word, uint8_t *source, diag *d)
{
  for (uint8_t s = 0; s < VALUE_SOURCES; s++)
    if (strcmp(word, source_names[s]) == 0) {
      *source = s;
      return true;
    }
  return diag_error(d, n->at,
                    "'%s': a value's source is assumed, published, measured, calibrated or exact",
                    word);
}

/* "55200" or "55200 measured" */
static bool read_given(const text_node *n, const machine_key *key, int64_t *value, uint8_t *source,
                       arena *a, diag *d)
{
  int64_t maximum = maximum_of(key->key);
  const char *space = n->kind == TEXT_SCALAR ? strchr(n->text, ' ') : NULL;
  text_node number = *n;

  if (space != NULL) {
    number.text = arena_printf(a, "%.*s", (int)(space - n->text), n->text);
    if (!read_source(n, space + 1, source, d)) return false;
  }
  if (!text_as_i64(&number, value, d)) return false;
  return (*value >= key->minimum && *value <= maximum) ||
         diag_error(d, n->at, "%s.%s is %" PRId64 "; it must be from %" PRId64 " to %" PRId64,
                    key->section, key->key, *value, key->minimum, maximum);
}

static bool read_value(const text_node *section, const machine_key *key, machine *m, arena *a,
                       diag *d)
{
  const text_node *n = text_get(section, key->key);
  int64_t value = key->otherwise;

  if (n == NULL && value == NEEDED) return required(section, key->key, key->section, d) != NULL;
  if (n != NULL && !read_given(n, key, &value, &m->sources[key - machine_keys], a, d)) return false;
  memcpy((char *)m + key->offset, &value, sizeof value);
  return true;
}

static bool read_section(const text_node *top, const char *name, machine *m, arena *a, diag *d)
{
  const char *names[KEYS_OF_A_SECTION];
  size_t count = section_keys(name, names);
  const text_node *section = required(top, name, "the top level", d);

  if (section == NULL || !text_expect(section, TEXT_MAPPING, d) ||
      !check_keys(section, names, count, name, d))
    return false;
  bool good = true;
  for (uint32_t k = 0; k < MACHINE_KEYS; k++)
    if (strcmp(machine_keys[k].section, name) == 0)
      good = diag_step(d, read_value(section, &machine_keys[k], m, a, d)) && good;
  return good;
}

static bool check_version(const text_node *top, diag *d)
{
  const text_node *n = required(top, "format_version", "the top level", d);
  int64_t version;

  if (n == NULL || !text_as_i64(n, &version, d)) return false;
  if (version != MACHINE_FORMAT_VERSION)
    return diag_error(d, n->at, "format_version is %" PRId64 "; this program reads version %d",
                      version, MACHINE_FORMAT_VERSION);
  return true;
}

static bool read_string(const text_node *top, const char *key, const char **value, diag *d)
{
  const text_node *n = required(top, key, "the top level", d);
  return n != NULL && text_as_string(n, value, d);
}

/* An hour. */
#define MEASURED_LIMIT_NS (INT64_C(3600) * 1000 * 1000 * 1000)
enum { SLOWDOWN_LIMIT_PERMILLE = 100000 };

/* Each GPU copies both ways, and link_share.h supports LINK_SHARE_FLOWS concurrent copies of a
 * host. */
enum { HOST_GPUS_LIMIT = LINK_SHARE_FLOWS / 2 };

/* Checks that involve more than one key. */
static bool check_machine(const text_node *top, const machine *m, diag *d)
{
  if (m->gpu.reserved_by_system_bytes >= m->gpu.memory_bytes)
    return diag_error(d, text_get(text_get(top, "gpu"), "reserved_by_system_bytes")->at,
                      "gpu.reserved_by_system_bytes is %" PRId64
                      "; it must be less than gpu.memory_bytes (%" PRId64 ")",
                      m->gpu.reserved_by_system_bytes, m->gpu.memory_bytes);
  if (m->host.gpus > HOST_GPUS_LIMIT)
    return diag_error(d, text_get(text_get(top, "host"), "gpus")->at,
                      "host.gpus is %" PRId64 "; it must be at most %d", m->host.gpus,
                      HOST_GPUS_LIMIT);
  if (m->nvlink.domain_gpus != 0 &&
      (m->nvlink.domain_gpus < m->host.gpus || m->nvlink.domain_gpus % m->host.gpus != 0))
    return diag_error(d, text_get(text_get(top, "nvlink"), "domain_gpus")->at,
                      "nvlink.domain_gpus is %" PRId64
                      "; it must be 0 or a multiple of host.gpus (%" PRId64 ")",
                      m->nvlink.domain_gpus, m->host.gpus);
  if (m->compute.hbm_reached_permille > 1000)
    return diag_error(d, text_get(text_get(top, "compute"), "hbm_reached_permille")->at,
                      "compute.hbm_reached_permille is %" PRId64 "; it must be at most 1000",
                      m->compute.hbm_reached_permille);
  return true;
}

/* " = 5120 ns" or " = 5120 ns, 1200 permille" */
static bool read_time(const char *text, measured_call *call)
{
  char *end;
  if (!begins_with(text, " = ") || strchr("123456789", text[3]) == NULL || text[3] == '\0')
    return false;
  int64_t ns = strtoll(text + 3, &end, 10);
  if (ns > MEASURED_LIMIT_NS || !begins_with(end, " ns")) return false;
  call->ps = ns * PS_PER_NS;
  if (end[3] == '\0') return true;
  if (!begins_with(end + 3, ", ") || strchr("0123456789", end[5]) == NULL || end[5] == '\0')
    return false;
  call->slowdown_permille = strtoll(end + 5, &end, 10);
  return call->slowdown_permille <= SLOWDOWN_LIMIT_PERMILLE && strcmp(end, " permille") == 0;
}

/* "gemm bf16 m=64 ... 16384 bytes = 5120 ns, 1200 permille" */
static bool read_measured_call(const text_node *n, const machine *m, measured_call *call, diag *d)
{
  const char *text, *rest;
  if (!text_as_string(n, &text, d) || !plan_parse_call(&call->call, text, n->at, &rest, d))
    return false;
  call->slowdown_permille = call_slowdown_permille(m, &call->call);
  if (!read_time(rest, call))
    return diag_error(
        d, n->at,
        "\"%s\": expected \" = \", from 1 to %" PRId64
        " nanoseconds and \" ns\" after the call, then nothing or \", \", from 0 to %d "
        "and \" permille\"",
        text, MEASURED_LIMIT_NS, SLOWDOWN_LIMIT_PERMILLE);
  call->roofline_ps = max_i64(1, call_roofline_ps(m, &call->call));
  return true;
}

static bool read_measured(const text_node *top, machine *m, arena *a, diag *d)
{
  const text_node *list = text_get(top, "measured");
  if (list == NULL) return true;
  if (!text_expect(list, TEXT_SEQUENCE, d)) return false;
  measured_call *items = ARENA_ARRAY(a, measured_call, list->count);
  bool good = true;
  for (uint32_t i = 0; i < list->count; i++)
    good = diag_step(d, read_measured_call(&list->children[i], m, &items[i], d)) && good;
  if (!good) return false;
  measured_calls *all = ARENA_NEW(a, measured_calls);
  *all = (measured_calls){ items, list->count };
  m->measured = all;
  return true;
}

static bool read_contention(const text_node *n, const machine *m, int64_t above, contention *c,
                            diag *d)
{
  const char *text;
  if (!text_as_string(n, &text, d)) return false;
  if (!contention_parse(c, text))
    return diag_error(
        d, n->at,
        "\"%s\": expected \"2 GPUs = 105100 out, 100200 back, 151700 both ways\": sums "
        "over these GPUs, bytes per microsecond",
        text);
  if (c->gpus <= above || c->gpus >= m->host.gpus)
    return diag_error(d, n->at,
                      "%" PRId64 " GPUs: expected ascending numbers below host.gpus (%" PRId64 ")",
                      c->gpus, m->host.gpus);
  return true;
}

static bool read_at_once(const text_node *top, machine *m, arena *a, diag *d)
{
  const text_node *list = text_get(top, "at_once");
  if (list == NULL) return true;
  if (!text_expect(list, TEXT_SEQUENCE, d)) return false;
  contention *items = ARENA_ARRAY(a, contention, list->count);
  for (uint32_t i = 0; i < list->count; i++)
    if (!read_contention(&list->children[i], m, i == 0 ? 1 : items[i - 1].gpus, &items[i], d))
      return false;
  m->at_once = (contention_list){ items, list->count };
  return true;
}

/* A machine from its file as a tree; NULL: it has errors of its own. */
static const machine *machine_read(const text_node *top, const machine_changes *changes, arena *a,
                                   diag *d)
{
  machine *m = ARENA_NEW(a, machine);

  if (top != NULL) top = machine_change(top, changes, a, d);
  if (top == NULL || !text_expect(top, TEXT_MAPPING, d) ||
      !check_keys(top, top_keys, TOP_KEYS, "the top level", d) || !check_version(top, d) ||
      !read_string(top, "name", &m->name, d) || !read_string(top, "gpu_name", &m->gpu_name, d))
    return NULL;
  bool good = true;
  for (uint32_t s = FIRST_SECTION; s < TOP_KEYS; s++)
    good = diag_step(d, read_section(top, top_keys[s], m, a, d)) && good;
  return good && check_machine(top, m, d) && read_at_once(top, m, a, d) &&
                 read_measured(top, m, a, d)
             ? m
             : NULL;
}

const machine *machine_parse(arena *a, const char *file, const char *text, size_t length, diag *d)
{
  return machine_read(text_read(a, file, text, length, d), &(machine_changes){ 0 }, a, d);
}

/* ---- where a job's GPUs are ---- */

int64_t machine_segment_gpus(const machine *m, int64_t world_size)
{
  assert(m->host.gpus > 0 && world_size > 0);
  int64_t hosts = ceil_div(world_size, m->host.gpus);
  int64_t segment = min_i64(hosts, machine_domain_gpus(m) / m->host.gpus);
  while (hosts % segment != 0)
    segment--;
  return segment * m->host.gpus;
}

/* ---- shipped machines and files ---- */

static const machine_preset *find_preset(const char *name)
{
  for (const machine_preset *p = machine_presets; p->name != NULL; p++)
    if (strcmp(p->name, name) == 0) return p;
  return NULL;
}

static bool looks_like_path(const char *name)
{
  return strchr(name, '/') != NULL || strchr(name, '.') != NULL || strcmp(name, "-") == 0;
}

static const machine *no_such_machine(arena *a, const char *name, source_pos at, diag *d)
{
  const char *list = "", *near = NULL;

  for (const machine_preset *p = machine_presets; p->name != NULL; p++) {
    list = arena_printf(a, "%s%s%s", list, *list ? ", " : "", p->name);
    size_t common = strlen(p->name) < strlen(name) ? strlen(p->name) : strlen(name);
    bool begins_so = common > 0 && strncasecmp(p->name, name, common) == 0;
    if (near == NULL && (begins_so || suggest_nearest(name, &p->name, 1) != NULL)) near = p->name;
  }
  if (near != NULL)
    (void)diag_error(d, at, "unknown machine '%s'; did you mean %s?", name, near);
  else
    (void)diag_error(d, at,
                     "unknown machine '%s'; shipped are %s; or give the path of a machine file",
                     name, list);
  return NULL;
}

const machine *machine_load(arena *a, const char *name_or_path, diag *d)
{
  return machine_load_at(a, name_or_path, (source_pos){ 0 }, &(machine_changes){ 0 }, d);
}

const machine *machine_load_at(arena *a, const char *name_or_path, source_pos at,
                               const machine_changes *changes, diag *d)
{
  const machine_preset *preset = find_preset(name_or_path);
  size_t length;

  if (preset != NULL) return machine_read(&preset->top, changes, a, d);
  if (!looks_like_path(name_or_path)) return no_such_machine(a, name_or_path, at, d);
  const char *file = arena_strdup(a, name_or_path);
  char *text = file_read(a, file, FILE_TEXT_LIMIT_BYTES, &length, d);
  return text == NULL ? NULL : machine_read(text_read(a, file, text, length, d), changes, a, d);
}
