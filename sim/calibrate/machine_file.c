#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/file.h"
#include "sim/base/units.h"
#include "sim/calibrate/calibrate.h"
#include "sim/machine/call_time.h"
#include "sim/plan/text.h"

/* ---- the base ---- */

const machine *calibration_base_of(const char *gpu_name, arena *a, diag *d)
{
  const machine *found = NULL;
  for (const machine_preset *p = machine_presets; p->name != NULL && found == NULL; p++) {
    const machine *m = machine_load(a, p->name, d);
    if (m == NULL) return NULL;
    if (m->gpu_name[0] != '\0' && strstr(gpu_name, m->gpu_name) != NULL) found = m;
  }
  if (found == NULL)
    diag_error(d, (source_pos){ "--base", 0, 0 },
               "no shipped machine has a \"%s\"; name the nearest one", gpu_name);
  return found;
}

static int64_t own_slowdown_permille(const machine *base, const measured_call *known)
{
  bool is_own = known->slowdown_permille != call_slowdown_permille(base, &known->call);
  return is_own ? known->slowdown_permille : -1;
}

void calibration_keep_calls(const machine *base, sampled_calls *calls)
{
  for (uint32_t i = 0; base->measured != NULL && i < base->measured->count; i++) {
    const measured_call *known = &base->measured->items[i];
    *ARRAY_PUSH(calls) =
        (sampled_call){ known->call, known->ps, own_slowdown_permille(base, known) };
  }
}

/* ---- the machine ---- */

/* As the file has it: at least a nanosecond. */
static int64_t whole_ns(int64_t ps)
{
  assert(ps >= 0);
  return max_i64(1, ps / PS_PER_NS);
}

/* What the base calibrated was another machine than this one. */
static uint8_t source_of(const machine *base, uint32_t key, const calibrated_value *found)
{
  uint8_t of_base = base->sources[key];
  assert(key < MACHINE_KEYS && of_base < VALUE_SOURCES);
  if (found != NULL) return SOURCE_CALIBRATED;
  return of_base == SOURCE_CALIBRATED ? SOURCE_MEASURED : of_base;
}

const machine *calibration_machine(const machine *base, const calibration *c,
                                   const sampled_calls *calls, arena *a)
{
  machine *m = ARENA_NEW(a, machine);
  *m = *base;
  for (uint32_t k = 0; k < MACHINE_KEYS; k++) {
    const calibrated_value *found =
        calibration_find(c, machine_keys[k].section, machine_keys[k].key);
    m->sources[k] = source_of(base, k, found);
    if (found != NULL)
      memcpy((char *)m + machine_keys[k].offset, &found->value, sizeof found->value);
  }
  measured_calls *all = ARENA_NEW(a, measured_calls);
  measured_call *items = ARENA_ARRAY(a, measured_call, (size_t)calls->count + 1);
  *all = (measured_calls){ items, calls->count };
  m->measured = calls->count > 0 ? all : NULL;
  for (uint32_t i = 0; i < calls->count; i++) {
    const sampled_call *of = &calls->items[i];
    int64_t own = of->slowdown_permille;
    items[i] =
        (measured_call){ .call = of->call,
                         .ps = whole_ns(of->ps) * PS_PER_NS,
                         .slowdown_permille = own >= 0 ? own : call_slowdown_permille(m, &of->call),
                         .roofline_ps = max_i64(1, call_roofline_ps(m, &of->call)) };
  }
  return m;
}

/* ---- the file ---- */

static void write_key(uint32_t k, const calibration *c, const machine *base, FILE *out)
{
  const machine_key *key = &machine_keys[k];
  const calibrated_value *found = calibration_find(c, key->section, key->key);
  const char *source = value_source_name(source_of(base, k, found));
  int64_t value;
  assert(key->offset + sizeof value <= sizeof *base);
  memcpy(&value, (const char *)base + key->offset, sizeof value);
  if (found == NULL)
    fprintf(out, "  %s: %" PRId64 " %s  # %s\n", key->key, value, source, base->name);
  else if (found->least < found->most)
    fprintf(out, "  %s: %" PRId64 " %s  # %" PRId64 " to %" PRId64 "\n", key->key, found->value,
            source, found->least, found->most);
  else
    fprintf(out, "  %s: %" PRId64 " %s\n", key->key, found->value, source);
}

static void write_at_once(const calibration *c, FILE *out)
{
  if (c->at_once_count > 0) fputs("\nat_once:\n", out);
  for (uint32_t i = 0; i < c->at_once_count; i++) {
    fputs("  - ", out);
    contention_print(out, &c->at_once[i]);
    fputc('\n', out);
  }
}

static void write_calls(const sampled_calls *calls, FILE *out)
{
  if (calls->count > 0) fputs("\nmeasured:\n", out);
  for (uint32_t i = 0; i < calls->count; i++) {
    fputs("  -", out);
    plan_print_call(out, &calls->items[i].call);
    fprintf(out, " = %" PRId64 " ns", whole_ns(calls->items[i].ps));
    if (calls->items[i].slowdown_permille >= 0)
      fprintf(out, ", %" PRId64 " permille", calls->items[i].slowdown_permille);
    fputc('\n', out);
  }
}

bool calibration_write(const char *path, const char *name, const calibration *c,
                       const sampled_calls *calls, const machine *base, diag *d)
{
  file_writer w;
  if (!file_open(&w, path, d)) return false;
  FILE *out = w.stream;
  fprintf(out,
          "# %s, calibrated by offsim; figures that were not measured are those of %s.\n"
          "# Rates are bytes per microsecond (MB/s).\nformat_version: %d\nname: %s\ngpu_name: %s\n",
          c->gpu_name, base->name, MACHINE_FORMAT_VERSION, name, base->gpu_name);
  const char *section = "";
  for (uint32_t k = 0; k < MACHINE_KEYS; k++) {
    if (strcmp(section, machine_keys[k].section) != 0)
      fprintf(out, "\n%s:\n", machine_keys[k].section);
    section = machine_keys[k].section;
    write_key(k, c, base, out);
  }
  write_at_once(c, out);
  write_calls(calls, out);
  return file_close(&w, d);
}
