/*
 * The training data: windows of a stream of tokens.
 *
 *   a text     its bytes; sample n begins at byte n x (length of a sequence), and the text repeats
 *   no text    sample n begins with a number of generator.h, and x is followed by 5 x + 3 or, with
 *              the same probability, by 5 x + 4, modulo the vocabulary (at most 256), so that the
 *              loss can fall to log 2
 *
 * A sequence's labels are the tokens one position later. Samples are numbered over the run: a
 * step's samples follow those of the previous step; within it micro-batch m of replica r of the
 * model (of `replicas`) begins with sample (m x replicas + r) x (micro-batch size), as in
 * Megatron-LM's sampler (legacy/data/data_samplers.py). The samples of a step do not depend on the
 * layout.
 *
 * Context parallel rank i of n has the i-th and the (2 n - 1 - i)-th of 2 n equal pieces of every
 * sequence (Megatron-LM, get_batch_on_this_cp_rank).
 */
#ifndef OFFSIM_SIM_TRAIN_TOKENS_H
#define OFFSIM_SIM_TRAIN_TOKENS_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/config/settings.h"
#include "sim/exec/call.h"

typedef struct token_stream {
  const unsigned char *text; /* NULL: none */
  size_t text_length;
  uint64_t seed;
  uint32_t vocabulary;
  bool repeats; /* every step has the samples of the first */
} token_stream;

/* Opens the stream for the settings. False after a diag error: the text is empty, or the vocabulary
 * is too small for bytes. */
bool token_stream_open(token_stream *t, const settings *s, const unsigned char *text, size_t length,
                       uint64_t seed, bool repeats, diag *d);

/* Fills a tensor of the micro-batch by its name; false: no such tensor. */
bool token_stream_fill(const token_stream *t, const settings *s, const exec_rank *rank,
                       const plan_tensor *tensor, uint32_t step, uint32_t microbatch, void *data);

#endif
