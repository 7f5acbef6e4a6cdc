/* How long sequences are, and how many of them make a micro-batch. */
#include <inttypes.h>

#include "sim/base/units.h"
#include "sim/config/verl/parts.h"

typedef struct batch {
  int64_t gpus, length; /* tokens of a sequence */
  int64_t mini;         /* sequences of a mini-batch on this GPU */
  int64_t micro;        /* of a micro-batch */
} batch;

/* Sequences of a mini-batch are dealt to the GPUs, `rollout.n` for each prompt. */
static bool read_mini(const verl_reader *r, batch *b)
{
  const char *name = ACTOR "ppo_mini_batch_size";
  int64_t prompts, samples;

  if (!verl_number(r, name, 1, 256, &prompts) ||
      !verl_number(r, "actor_rollout_ref.rollout.n", 1, 1, &samples)) {
    return false;
  }
  b->mini = prompts * samples / b->gpus;
  return b->mini > 0 ||
         diag_error(r->d, verl_place(r, name),
                    "ppo_mini_batch_size is %" PRId64 " of %" PRId64
                    " samples each; there must be at least one for each of the %" PRId64 " GPUs",
                    prompts, samples, b->gpus);
}

/* As many whole sequences as a packed micro-batch holds. */
static bool read_dynamic(const verl_reader *r, batch *b)
{
  const char *name = ACTOR "ppo_max_token_len_per_gpu";
  int64_t tokens;

  if (!verl_number(r, name, 1, 16384, &tokens)) {
    return false;
  }
  b->micro = tokens / b->length;
  return b->micro > 0 ||
         diag_error(r->d, verl_place(r, name),
                    "ppo_max_token_len_per_gpu is %" PRId64
                    "; it must hold a sequence of max_prompt_length and max_response_length, "
                    "%" PRId64 " tokens",
                    tokens, b->length);
}

/* The older key counts over all GPUs. */
static bool read_fixed(const verl_reader *r, batch *b)
{
  const char *name = ACTOR "ppo_micro_batch_size_per_gpu", *older = ACTOR "ppo_micro_batch_size";
  const verl_given *own = verl_get(r, name), *whole = verl_get(r, older);

  if (own != NULL && whole != NULL) {
    return diag_error(r->d, whole->at,
                      "ppo_micro_batch_size beside ppo_micro_batch_size_per_gpu; "
                      "give the latter alone");
  }
  if (own == NULL && whole == NULL) {
    return diag_error(r->d, (source_pos){ r->path, 0, 0 },
                      "neither " ACTOR "ppo_micro_batch_size_per_gpu nor use_dynamic_bsz is given");
  }
  if (!verl_number(r, own != NULL ? name : older, 1, 1, &b->micro)) {
    return false;
  }
  b->micro = own != NULL ? b->micro : b->micro / b->gpus;
  return (b->micro > 0 && b->mini % b->micro == 0) ||
         diag_error(r->d, verl_place(r, own != NULL ? name : older),
                    "a micro-batch has %" PRId64 " sequences on a GPU; the mini-batch's %" PRId64
                    " must be divisible by them",
                    b->micro, b->mini);
}

static bool read_lengths(const verl_reader *r, batch *b)
{
  int64_t prompt, response, nodes, gpus, ulysses, older;

  if (!verl_number(r, "data.max_prompt_length", 1, 512, &prompt) ||
      !verl_number(r, "data.max_response_length", 1, 512, &response) ||
      !verl_number(r, "trainer.nnodes", 1, 1, &nodes) ||
      !verl_number(r, "trainer.n_gpus_per_node", 1, 8, &gpus) ||
      !verl_number(r, ACTOR "ulysses_sequence_parallel_size", 1, 1, &ulysses) ||
      !verl_number(r, FSDP "ulysses_sequence_parallel_size", 1, 1, &older)) {
    return false;
  }
  b->gpus = nodes * gpus;
  b->length = prompt + response;
  return max_i64(ulysses, older) == 1 ||
         diag_error(r->d,
                    verl_place(r, ulysses > 1 ? ACTOR "ulysses_sequence_parallel_size"
                                              : FSDP "ulysses_sequence_parallel_size"),
                    "ulysses_sequence_parallel_size is %" PRId64 "; only 1 is modelled",
                    max_i64(ulysses, older));
}

bool verl_apply_batch(const verl_reader *r, int64_t *gpus)
{
  batch own = { 0 }, *b = &own;
  bool dynamic;

  if (!read_lengths(r, b) || !read_mini(r, b) ||
      !verl_truth(r, ACTOR "use_dynamic_bsz", false, &dynamic) ||
      !(dynamic ? read_dynamic(r, b) : read_fixed(r, b))) {
    return false;
  }
  b->micro = min_i64(b->micro, b->mini);
  *gpus = b->gpus;
  const char *micro = ACTOR "ppo_micro_batch_size_per_gpu", *mini = ACTOR "ppo_mini_batch_size";
  return verl_set_number(r, KEY_parallel_world_size, b->gpus, "trainer.n_gpus_per_node") &&
         verl_set_number(r, KEY_training_seq_length, b->length, "data.max_response_length") &&
         verl_set_number(r, KEY_training_micro_batch_size, b->micro, micro) &&
         verl_set_number(r, KEY_training_global_batch_size,
                         ceil_div(b->mini, b->micro) * b->micro * b->gpus, mini);
}
