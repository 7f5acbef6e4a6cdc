/* What a verl configuration asks of the actor's update step. */
#include "sim/config/verl/verl.h"

#include "sim/base/file.h"
#include "sim/base/text.h"
#include "sim/config/verl/parts.h"

/* EasyR1 is a fork of verl with a trainer of its own, whose actor is worker.actor. */
static bool refuse_forks(const verl_reader *r)
{
  static const char actor[] = "worker.actor.";
  for (uint32_t i = 0; i < r->given.count; i++) {
    const verl_given *g = &r->given.items[i];
    if (begins_with(g->name, actor)) {
      return diag_error(r->d, g->at,
                        "%s is a key of EasyR1's trainer, which is not read; verl's own trainer "
                        "has actor_rollout_ref.actor",
                        g->said);
    }
  }
  return true;
}

/* An actor that shares its GPUs with the rollout hands it weights before each update, and then turns
 * expandable segments on: rollout_mode in verl/workers/fsdp_workers.py and megatron_workers.py,
 * update_weights in engine_workers.py. */
static bool set_segments(const verl_reader *r)
{
  const char *name = "actor_rollout_ref.hybrid_engine";
  bool shares;
  return r->trainer != VERL_PPO ||
         (verl_truth(r, name, true, &shares) &&
          (!shares || verl_set(r, KEY_software_expandable_segments, "true", name)));
}

/* The engine decides which keys have an effect; the keys come before what follows from several
 * of them. */
static bool apply(verl_reader *r)
{
  verl_find_trainer(r);
  r->s->derived.of_verl = true;
  bool shape_is_wrong = !diag_ok(r->d); /* the model's own file: its error is enough */
  if (!refuse_forks(r) || !verl_find_engine(r)) {
    return false;
  }
  bool good = diag_step(r->d, verl_apply_keys(r));
  good = diag_step(r->d, set_segments(r)) && good;
  if (!r->s->given[KEY_model_num_layers]) {
    return !shape_is_wrong &&
           diag_error(r->d, verl_place(r, MODEL "path"),
                      "the model's shape is not known; give the config.json of %s with --hf-config",
                      verl_text_of(r, MODEL "path", "actor_rollout_ref.model.path"));
  }
  if (!(r->megatron ? verl_apply_megatron(r) : verl_apply_fsdp(r)) || !good) {
    return false;
  }
  verl_note_beside(r);
  return diag_ok(r->d);
}

bool verl_parse(settings *s, const char *path, const char *text, size_t length,
                const verl_options *options, arena *a, diag *d)
{
  verl_reader r = { .s = s,
                    .path = path,
                    .ignore_unknown = options->ignore_unknown,
                    .presets = options->presets,
                    .a = a,
                    .d = d };
  bool done = verl_collect(&r, text, length, options->lines) && apply(&r);

  ARRAY_FREE(&r.given);
  return done;
}

bool verl_read(settings *s, const char *path, const verl_options *options, arena *a, diag *d)
{
  size_t length;
  const char *text = file_read(a, path, FILE_TEXT_LIMIT_BYTES, &length, d);

  return text != NULL && verl_parse(s, path, text, length, options, a, d);
}
