#include "sim/cli/predict_plan.h"

#include "sim/base/file.h"
#include "sim/plan/text.h"
#include "sim/report/prediction.h"

void tell_unsafe(const verified_iteration *iterations, uint32_t count)
{
  fputs("offsim: error: the plan is not safe: ", stderr);
  findings_first_error(iterations, count, stderr);
  fputs("; offsim check tells more\n", stderr);
}

static bool check_options(const load_options *o, diag *d)
{
  load_options without = *o;
  without.machine = NULL;
  return !load_is_given(&without) ||
         diag_error(
             d, (source_pos){ "--plan", 0, 0 },
             "a plan is taken as it is; of a configuration only --machine can stand beside it");
}

static bool simulate_and_tell(const plan *p, const machine *m, bool json, arena *a, diag *d)
{
  plan_prediction found;
  bool ok = plan_predict(&found, p, m, a, d);
  if (ok && json)
    plan_prediction_json(&found, stdout);
  else if (ok)
    plan_prediction_table(&found, stdout, a);
  plan_prediction_release(&found);
  return ok;
}

bool predict_plan_text(const char *path, const load_options *o, bool json, bool *unsafe, arena *a,
                       diag *d)
{
  if (!check_options(o, d)) return false;
  settings defaults;
  settings_init(&defaults, a);
  const machine *m = machine_load_at(a, o->machine != NULL ? o->machine : defaults.machine.name,
                                     (source_pos){ "--machine", 0, 0 }, d);
  size_t length;
  const char *text = m == NULL ? NULL : file_read(a, path, PLAN_TEXT_LIMIT_BYTES, &length, d);
  plan p;
  if (text == NULL || !plan_parse(&p, path, text, length, a, d)) return false;
  verification v;
  verify_plan(&v, &p, NULL, a);
  *unsafe = !v.safe;
  if (*unsafe) tell_unsafe(&(verified_iteration){ path, &v }, 1);
  bool ok = v.safe && simulate_and_tell(&p, m, json, a, d);
  verification_release(&v);
  plan_release(&p);
  return ok;
}
