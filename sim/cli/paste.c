#include "sim/cli/paste.h"

#include <assert.h>
#include <string.h>

#include "sim/config/axolotl/axolotl.h"
#include "sim/config/verl/verl.h"
#include "sim/offload/systems.h"
#include "sim/predict/baselines.h"
#include "sim/sweep/row.h"

const training_program *paste_program(const load_options *o)
{
  static const training_program axolotl = { "Axolotl", axolotl_rows, 1, "\n", "# environment: " },
                                verl = { "verl", verl_rows, VERL_NAMINGS, " ", "" };
  return o->axolotl != NULL ? &axolotl : o->verl != NULL ? &verl : NULL;
}

typedef struct searching {
  const load_options *load;
  const candidate *wanted;
  const machine *machine;
  sweep_row row; /* of the wanted */
} searching;

/* ---- one combination ---- */

static bool figures(sweep_row *row, const settings *s, const machine *m, arena *a)
{
  prediction p;
  diag quiet = { .quiet = true };
  *row = (sweep_row){ 0 };
  bool ok = predict(&p, s, NULL, m, 0, 1, a, &quiet);
  if (ok) sweep_row_take(row, &p);
  prediction_release(&p);
  return ok;
}

/* The wanted sets change nothing more. */
static bool sets_all(const settings *said, const settings *resolved, const candidate *c, arena *a)
{
  settings with;
  diag quiet = { .quiet = true };
  if (!candidate_settings(&with, said, c, "best", a, &quiet)) return false;
  XXH128_hash_t is = settings_digest(resolved), would_be = settings_digest(&with);
  return XXH128_isEqual(is, would_be);
}

static bool says_it(const searching *x, const char *lines, const char *variable)
{
  arena a = { 0 };
  settings s, resolved;
  const machine *m;
  sweep_row row;
  diag quiet = { .quiet = true };
  load_options *with = ARENA_NEW(&a, load_options);
  *with = *x->load;
  with->lines = lines;
  bool ok = load_given(with, &s, &m, &a, &quiet);
  if (ok && variable != NULL)
    ok = settings_set(&s, "software.expandable_segments",
                      strstr(variable, "True") != NULL ? "true" : "false", (source_pos){ 0 }, &a,
                      &quiet);
  resolved = s;
  ok = ok && settings_resolve(&resolved, offload_conditions, &a, &quiet) &&
       sets_all(&s, &resolved, x->wanted, &a) && figures(&row, &resolved, x->machine, &a) &&
       row.step_ps == x->row.step_ps && row.allocated_peak_bytes == x->row.allocated_peak_bytes &&
       row.reserved_peak_bytes == x->row.reserved_peak_bytes &&
       row.host_pinned_total_bytes == x->row.host_pinned_total_bytes;
  arena_release(&a);
  return ok;
}

/* ---- all of them ---- */

/* The next of the choices, the first row's fastest; false: there is none. */
static bool next(const training_lines *l, uint32_t *chosen)
{
  for (uint32_t i = 0; i < l->count; i++) {
    if (++chosen[i] < l->rows[i].count) return true;
    chosen[i] = 0;
  }
  return false;
}

/* As the file's reader takes them, or for people: a shell would look for files by a list's brackets. */
static const char *text_of(const training_lines *l, const uint32_t *chosen, const char *separator,
                           arena *a)
{
  const char *text = "";
  for (uint32_t i = 0; i < l->count; i++) {
    const char *line = l->rows[i].choices[chosen[i]];
    if (*line == '\0') continue;
    const char *quote = *separator == ' ' && strchr(line, '[') != NULL ? "'" : "";
    text = arena_printf(a, "%s%s%s%s%s", text, *text == '\0' ? "" : separator, quote, line, quote);
  }
  return text;
}

static const char *for_people(const training_program *p, const training_lines *l,
                              const uint32_t *chosen, arena *a)
{
  const char *text = text_of(l, chosen, p->separator, a);
  if (l->variable == NULL) return text;
  return arena_printf(a, "%s%s%s%s", p->variable, l->variable, *text == '\0' ? "" : p->separator,
                      text);
}

static const char *search(const searching *x, const training_program *p, const training_lines *l,
                          arena *a)
{
  uint32_t chosen[TRAINING_ROWS] = { 0 };
  do
    if (says_it(x, text_of(l, chosen, "\n", a), l->variable)) return for_people(p, l, chosen, a);
  while (next(l, chosen));
  return NULL;
}

const char *paste_find(const load_options *o, const settings *given, const candidate *c,
                       const machine *m, arena *a)
{
  settings s;
  diag quiet = { .quiet = true };
  const training_program *p = paste_program(o);
  searching x = { .load = o, .wanted = c, .machine = m };
  const char *found = NULL;
  assert(p != NULL);
  if (!candidate_settings(&s, given, c, "best", a, &quiet) || !figures(&x.row, &s, m, a))
    return NULL;
  if (says_it(&x, "", NULL)) return "";
  for (uint32_t naming = 0; found == NULL && naming < p->namings; naming++) {
    training_lines l = { .count = 0 };
    p->rows(&l, &(training_wish){ &s, c->sets, c->set_count }, naming, a);
    found = search(&x, p, &l, a);
  }
  return found;
}
