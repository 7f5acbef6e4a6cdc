/*
 * Which layers are on which virtual stage.
 *
 * Every rule of Megatron assigns the layers in the order of the stages chunk * PP + pp, so only the
 * number of layers of a stage has to be found (get_num_layers_to_build in
 * megatron/core/transformer/transformer_block.py). MTP layers are on the stage of the loss
 * (get_mtp_num_layers_to_build in multi_token_prediction.py).
 */
#include <inttypes.h>

#include "sim/config/resolve/steps.h"

static bool is_uneven(const settings *s)
{
  return s->parallel.decoder_first_pipeline_num_layers != UNSET ||
         s->parallel.decoder_last_pipeline_num_layers != UNSET;
}

static bool has_layout(const settings *s)
{
  return s->parallel.pipeline_model_parallel_layout[0] != '\0';
}

/* Decoder layers, and embedding and loss where they count as one. */
static int64_t layers_to_split(const settings *s)
{
  return s->model.num_layers + s->parallel.account_for_embedding_in_pipeline_split +
         s->parallel.account_for_loss_in_pipeline_split;
}

/* ---- virtual stages ---- */

static bool check_one_way(const settings *s, diag *d)
{
  const struct parallel_settings *p = &s->parallel;
  int ways = (p->num_layers_per_virtual_pipeline_stage != UNSET) +
             (p->num_virtual_stages_per_pipeline_rank != UNSET) + has_layout(s);
  setting_key key = p->num_virtual_stages_per_pipeline_rank != UNSET
                        ? KEY_parallel_num_virtual_stages_per_pipeline_rank
                        : KEY_parallel_num_layers_per_virtual_pipeline_stage;

  return need(s, d, ways <= 1, key, key,
              "more than one of num_layers_per_virtual_pipeline_stage, "
              "num_virtual_stages_per_pipeline_rank and pipeline_model_parallel_layout is given; "
              "one is enough");
}

static bool stages_of_layout(settings *s, arena *a, diag *d)
{
  int64_t pp = s->parallel.pipeline_model_parallel_size;
  int64_t count = pipeline_layout_stage_count(s, a, d);
  setting_key key = KEY_parallel_pipeline_model_parallel_layout;

  if (count == 0) {
    return false;
  }
  s->derived.virtual_stages = count / pp;
  return need(s, d, count % pp == 0, key, KEY_parallel_pipeline_model_parallel_size,
              "pipeline_model_parallel_layout has %" PRId64
              " stages; their number must be divisible by pipeline_model_parallel_size (%" PRId64
              ")",
              count, pp);
}

static bool stages_of_layers_per_stage(settings *s, diag *d)
{
  int64_t pp = s->parallel.pipeline_model_parallel_size, layers = layers_to_split(s);
  int64_t per_stage = s->parallel.num_layers_per_virtual_pipeline_stage;
  setting_key key = KEY_parallel_num_layers_per_virtual_pipeline_stage;

  if (!need(s, d, !is_uneven(s), key, KEY_parallel_decoder_first_pipeline_num_layers,
            "num_layers_per_virtual_pipeline_stage cannot be given with "
            "decoder_first_pipeline_num_layers or decoder_last_pipeline_num_layers; give "
            "num_virtual_stages_per_pipeline_rank instead") ||
      !need(s, d, layers % pp == 0 && layers / pp % per_stage == 0, key, KEY_model_num_layers,
            "%" PRId64 " layers (num_layers, and embedding and loss where they count) on %" PRId64
            " pipeline ranks cannot be split into virtual stages of %" PRId64 " layers",
            layers, pp, per_stage)) {
    return false;
  }
  s->derived.virtual_stages = layers / pp / per_stage;
  return true;
}

static bool resolve_virtual_stages(settings *s, arena *a, diag *d)
{
  if (!check_one_way(s, d)) {
    return false;
  }
  if (has_layout(s)) {
    return stages_of_layout(s, a, d);
  }
  if (s->parallel.num_layers_per_virtual_pipeline_stage != UNSET) {
    return stages_of_layers_per_stage(s, d);
  }
  int64_t given = s->parallel.num_virtual_stages_per_pipeline_rank;
  s->derived.virtual_stages = given == UNSET ? 1 : given;
  return true;
}

/* ---- layers of a rank ---- */

typedef struct rank_layers {
  int64_t first, middle, last; /* of pipeline rank 0, of those between, of PP - 1 */
} rank_layers;

static bool check_uneven_conflicts(const settings *s, diag *d)
{
  bool accounts = s->parallel.account_for_embedding_in_pipeline_split ||
                  s->parallel.account_for_loss_in_pipeline_split;
  setting_key uneven = s->parallel.decoder_first_pipeline_num_layers != UNSET
                           ? KEY_parallel_decoder_first_pipeline_num_layers
                           : KEY_parallel_decoder_last_pipeline_num_layers;

  return need(s, d, !is_uneven(s) || !accounts, uneven, uneven,
              "%s cannot be given with account_for_embedding_in_pipeline_split or "
              "account_for_loss_in_pipeline_split",
              key_rows[uneven].name) &&
         need(s, d, !has_layout(s) || !(is_uneven(s) || accounts),
              KEY_parallel_pipeline_model_parallel_layout, uneven,
              "pipeline_model_parallel_layout cannot be given with other keys that split layers: "
              "decoder_first_pipeline_num_layers, decoder_last_pipeline_num_layers, "
              "account_for_embedding_in_pipeline_split, account_for_loss_in_pipeline_split");
}

static bool check_chunks(const settings *s, int64_t layers, setting_key key, const char *whose,
                         diag *d)
{
  return need(s, d, layers % s->derived.virtual_stages == 0, key, KEY_model_num_layers,
              "%s has %" PRId64
              " layers; they must be divisible by its number of virtual stages (%" PRId64 ")",
              whose, layers, s->derived.virtual_stages);
}

static bool split_unevenly(const settings *s, rank_layers *r, diag *d)
{
  int64_t first = s->parallel.decoder_first_pipeline_num_layers;
  int64_t last = s->parallel.decoder_last_pipeline_num_layers;
  int64_t ranks = s->parallel.pipeline_model_parallel_size - (first != UNSET) - (last != UNSET);
  int64_t layers = s->model.num_layers - (first == UNSET ? 0 : first) - (last == UNSET ? 0 : last);
  bool is_single = s->parallel.pipeline_model_parallel_size == 1;
  setting_key key = first != UNSET ? KEY_parallel_decoder_first_pipeline_num_layers
                                   : KEY_parallel_decoder_last_pipeline_num_layers;

  if (!need(s, d, ranks >= 0 && layers >= 0 && (layers == 0) == (ranks == 0), key,
            KEY_model_num_layers,
            "%" PRId64 " layers remain for the %" PRId64
            " pipeline ranks whose layers decoder_first_pipeline_num_layers and "
            "decoder_last_pipeline_num_layers do not give; both must be zero, or neither",
            layers, ranks) ||
      !need(s, d, ranks == 0 || layers % ranks == 0, key, KEY_model_num_layers,
            "%" PRId64 " layers remain for the %" PRId64
            " pipeline ranks whose layers decoder_first_pipeline_num_layers and "
            "decoder_last_pipeline_num_layers do not give; they must be divisible",
            layers, ranks)) {
    return false;
  }
  r->middle = ranks == 0 ? 0 : layers / ranks;
  r->first = first == UNSET ? r->middle : first;
  r->last = last != UNSET ? last : is_single ? r->first : r->middle;
  return check_chunks(s, r->first, key, "the first pipeline rank", d) &&
         check_chunks(s, r->middle, key, "a pipeline rank", d) &&
         check_chunks(s, r->last, KEY_parallel_decoder_last_pipeline_num_layers,
                      "the last pipeline rank", d);
}

static bool split_evenly(const settings *s, rank_layers *r, diag *d)
{
  int64_t pp = s->parallel.pipeline_model_parallel_size, layers = layers_to_split(s);
  const char *counted = layers == s->model.num_layers ? "" : " with embedding and loss counted";

  if (!need(s, d, layers % pp == 0, KEY_model_num_layers, KEY_parallel_pipeline_model_parallel_size,
            "num_layers%s is %" PRId64
            "; it must be divisible by pipeline_model_parallel_size (%" PRId64 ")",
            counted, layers, pp)) {
    return false;
  }
  r->first = r->middle = r->last = layers / pp;
  return check_chunks(s, r->first, KEY_parallel_num_virtual_stages_per_pipeline_rank,
                      "a pipeline rank", d);
}

static int64_t layers_of_rank(const settings *s, const rank_layers *r, int64_t pp_rank)
{
  if (pp_rank == s->parallel.pipeline_model_parallel_size - 1) {
    return r->last;
  }
  return pp_rank == 0 ? r->first : r->middle;
}

/* Layers in the order of the stages. */
static bool fill_stages(const settings *s, const rank_layers *r, struct stage_content *stages,
                        arena *a, diag *d)
{
  int64_t pp = s->parallel.pipeline_model_parallel_size;
  int64_t count = pp * s->derived.virtual_stages, layer = 0;
  uint32_t *numbers = ARENA_ARRAY(a, uint32_t, (size_t)s->model.num_layers);

  for (int64_t i = 0; i < s->model.num_layers; i++) {
    numbers[i] = (uint32_t)i;
  }
  for (int64_t k = 0; k < count; k++) {
    struct stage_content *stage = &stages[k];
    int64_t here = layers_of_rank(s, r, k % pp) / s->derived.virtual_stages;
    stage->embedding = k == 0;
    stage->loss = k == count - 1;
    here -= stage->embedding && s->parallel.account_for_embedding_in_pipeline_split;
    here -= stage->loss && s->parallel.account_for_loss_in_pipeline_split;
    stage->mtp_layers = stage->loss ? (uint32_t)s->model.mtp_num_layers : 0;
    if (!need(s, d, here >= 0 && layer + here <= s->model.num_layers, KEY_model_num_layers,
              KEY_parallel_account_for_loss_in_pipeline_split,
              "num_layers is %" PRId64
              "; that is not enough for a virtual stage with embedding and loss counted as layers",
              s->model.num_layers)) {
      return false;
    }
    stage->layers = numbers + layer;
    stage->layer_count = (uint32_t)here;
    layer += here;
  }
  return true;
}

bool resolve_stages(settings *s, arena *a, diag *d)
{
  int64_t pp = s->parallel.pipeline_model_parallel_size;
  rank_layers r = { 0 };

  if (!check_uneven_conflicts(s, d) || !resolve_virtual_stages(s, a, d)) {
    return false;
  }
  if (!need(s, d, has_layout(s) || pp * s->derived.virtual_stages <= layers_to_split(s),
            KEY_model_num_layers, KEY_parallel_pipeline_model_parallel_size,
            "num_layers is %" PRId64 "; there must be a layer for each of the %" PRId64
            " virtual stages of the %" PRId64 " pipeline ranks",
            s->model.num_layers, s->derived.virtual_stages, pp)) {
    return false;
  }
  s->derived.stages =
      ARENA_ARRAY(a, struct stage_content, (size_t)(pp * s->derived.virtual_stages));
  if (has_layout(s)) {
    return pipeline_layout_parse(s, s->derived.stages, a, d);
  }
  if (is_uneven(s) ? !split_unevenly(s, &r, d) : !split_evenly(s, &r, d)) {
    return false;
  }
  return fill_stages(s, &r, s->derived.stages, a, d);
}
