/*
 * How long sequences are, and how many of them make a micro-batch.
 *
 * Lengths are not known before a run: each sequence is taken at the maximum, unless --set
 * seq_length says otherwise. With use_dynamic_bsz micro_batch_tokens decides the micro-batches
 * for any length (resolve_microbatches).
 *
 * Sources: verl/workers/fsdp_workers.py and megatron_workers.py (batch sizes for one GPU),
 * verl/workers/actor/dp_actor.py and megatron_actor.py (update_policy),
 * verl/utils/seqlen_balancing.py.
 */
#include <inttypes.h>

#include "sim/base/units.h"
#include "sim/config/verl/parts.h"

typedef struct batch {
  int64_t gpus, replicas; /* data parallel */
  int64_t group;          /* GPUs that share a sequence: context or Ulysses parallel */
  int64_t multiple; /* to which verl pads a sequence, so that each rank gets equal parts of it */
  int64_t length;   /* tokens of a sequence */
  int64_t mini;     /* sequences of a mini-batch on a replica */
} batch;

static const char *const mini_name = ACTOR "ppo_mini_batch_size";

/* Sequences of a mini-batch are dealt to the replicas, `rollout.n` for each prompt. */
static bool read_mini(const verl_reader *r, batch *b)
{
  const char *name = mini_name;
  int64_t prompts, samples;

  if (!verl_number(r, name, 1, 256, &prompts) ||
      !verl_number(r, "actor_rollout_ref.rollout.n", 1, 1, &samples)) {
    return false;
  }
  b->mini = prompts * samples / b->replicas;
  return b->mini > 0 ||
         diag_error(r->d, verl_place(r, name),
                    "%s is %" PRId64 " of %" PRId64
                    " samples each; there must be at least one for each of the %" PRId64
                    " data parallel ranks",
                    verl_said(r, name), prompts, samples, b->replicas);
}

static bool apply_dynamic(const verl_reader *r, const batch *b)
{
  const char *name = ACTOR "ppo_max_token_len_per_gpu";
  int64_t tokens;

  if (!verl_number(r, name, 1, 16384, &tokens)) {
    return false;
  }
  if (tokens * b->group < b->length) {
    return diag_error(r->d, verl_place(r, name),
                      "%s is %" PRId64 "; on the GPUs that share a sequence (%" PRId64
                      ") it must hold one of max_prompt_length and max_response_length, %" PRId64
                      " tokens",
                      verl_said(r, name), tokens, b->group, b->length);
  }
  return verl_set_number(r, KEY_training_micro_batch_tokens, tokens * b->group, name) &&
         verl_set_number(r, KEY_training_global_batch_size, b->mini * b->replicas, mini_name);
}

/* The older key counts over all GPUs. */
static bool apply_fixed(const verl_reader *r, const batch *b)
{
  const char *name = ACTOR "ppo_micro_batch_size_per_gpu", *older = ACTOR "ppo_micro_batch_size";
  const verl_given *own = verl_get(r, name), *whole = verl_get(r, older);
  int64_t micro;

  if (own != NULL && whole != NULL) {
    return diag_error(r->d, whole->at,
                      "ppo_micro_batch_size and ppo_micro_batch_size_per_gpu are both given; give "
                      "the latter alone");
  }
  if (own == NULL && whole == NULL) {
    return diag_error(r->d, (source_pos){ r->path, 0, 0 },
                      "neither " ACTOR "ppo_micro_batch_size_per_gpu nor use_dynamic_bsz is given");
  }
  if (!verl_number(r, own != NULL ? name : older, 1, 1, &micro)) {
    return false;
  }
  micro = min_i64(own != NULL ? micro : micro / b->replicas, b->mini);
  if (micro == 0 || (b->mini % micro != 0 && !r->megatron)) {
    return diag_error(r->d, verl_place(r, own != NULL ? name : older),
                      "a micro-batch has %" PRId64 " sequences on a GPU; the mini-batch's %" PRId64
                      " must be divisible by them",
                      micro, b->mini);
  }
  return verl_set_number(r, KEY_training_micro_batch_size, micro, own != NULL ? name : older) &&
         verl_set_number(r, KEY_training_global_batch_size,
                         ceil_div(b->mini, micro) * micro * b->replicas, mini_name);
}

/* Rotary positions go on beyond those that the model was made for; the SFT trainer says so in
 * the model's own configuration. */
static bool allow_positions(const verl_reader *r, int64_t length)
{
  const char *because = "data.max_response_length";
  int64_t most = r->s->model.max_position_embeddings;

  if (most == UNSET || most >= length) {
    return true;
  }
  diag_note(r->d, verl_place(r, because),
            "sequences of %" PRId64
            " tokens are longer than max_position_embeddings of the model, %" PRId64,
            length, most);
  return verl_set_number(r, KEY_model_max_position_embeddings, length, because);
}

static bool read_padding(const verl_reader *r, bool *removed)
{
  bool of_model;

  if (r->megatron) {
    return verl_truth(r, MCORE "use_remove_padding", true, removed);
  }
  return verl_truth(r, MODEL "use_remove_padding", true, &of_model) &&
         verl_truth(r, ACTOR "use_remove_padding", of_model, removed);
}

/* Without padding the mean counts, which no key says. With it, each row has the longest length
 * there is. */
static bool apply_length(const verl_reader *r, batch *b)
{
  const char *name = "data.max_response_length", *dynamic_name = ACTOR "use_dynamic_bsz";
  int64_t prompt, response;
  bool packs, dynamic;

  bool good = diag_step(r->d, verl_number(r, "data.max_prompt_length", 0, 512, &prompt));
  good = diag_step(r->d, verl_number(r, name, 1, 512, &response)) && good;
  good = diag_step(r->d, read_padding(r, &packs)) && good;
  good = diag_step(r->d, verl_truth(r, dynamic_name, false, &dynamic)) && good;
  if (!good) {
    return false;
  }
  b->length = round_up(prompt + response, b->multiple);
  if (packs) {
    diag_note(r->d, verl_place(r, name),
              "padding is removed: every sequence is taken at its maximum, %" PRId64
              " tokens; --set seq_length=N assumes N, for example the mean that a run logs",
              b->length);
  } else if (dynamic) {
    diag_note(r->d, verl_place(r, dynamic_name),
              "use_dynamic_bsz with padding: shorter sequences than the maximum, %" PRId64
              " tokens, come more to a micro-batch, in rows of that length; predicted without",
              b->length);
  }
  return (!packs || verl_set(r, KEY_training_packed_sequences, "true", name)) &&
         allow_positions(r, b->length) &&
         verl_set_number(r, KEY_training_seq_length, b->length, name);
}

/* Where torchrun starts the trainer, its options count. */
static const char *each_name(const verl_reader *r)
{
  return verl_get(r, NPROC) != NULL ? NPROC : "trainer.n_gpus_per_node";
}

bool verl_gpus(const verl_reader *r, int64_t *gpus)
{
  const char *each = each_name(r), *nodes = verl_get(r, NPROC) != NULL ? NNODES : "trainer.nnodes";
  int64_t node_count, each_count;

  if (!verl_number(r, nodes, 1, 1, &node_count) || !verl_number(r, each, 1, 8, &each_count)) {
    return false;
  }
  *gpus = node_count * each_count;
  return true;
}

/* Packed sequences of Megatron-LM's engine are padded one by one (verl/models/mcore/util.py,
 * preprocess_packed_seqs); of Ulysses' ranks, all of them together: here each for itself. */
static int64_t multiple_of(const verl_reader *r)
{
  const struct parallel_settings *p = &r->s->parallel;

  if (!r->megatron) {
    return p->context_parallel_size;
  }
  return p->tensor_model_parallel_size *
         (p->context_parallel_size > 1 ? 2 * p->context_parallel_size : 1);
}

bool verl_apply_batch(const verl_reader *r, int64_t replica)
{
  const char *name = each_name(r);
  batch own = { .group = r->s->parallel.context_parallel_size, .multiple = multiple_of(r) },
        *b = &own;
  bool dynamic, good = diag_step(r->d, apply_length(r, b));

  if (!verl_gpus(r, &b->gpus)) {
    return false;
  }
  if (b->gpus % replica != 0) {
    return diag_error(r->d, verl_place(r, name),
                      "%" PRId64 " GPUs are given; the parallel sizes need a multiple of %" PRId64,
                      b->gpus, replica);
  }
  b->replicas = b->gpus / replica;
  good = diag_step(r->d, verl_set_number(r, KEY_parallel_world_size, b->gpus, name)) && good;
  good = diag_step(r->d, read_mini(r, b)) && good;
  return good && verl_truth(r, ACTOR "use_dynamic_bsz", false, &dynamic) &&
         (dynamic ? apply_dynamic(r, b) : apply_fixed(r, b));
}
