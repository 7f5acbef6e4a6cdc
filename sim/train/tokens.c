#include "sim/train/tokens.h"

#include <assert.h>
#include <string.h>

#include "sim/train/generator.h"
#include "sim/train/layout.h"

enum { BYTE_VALUES = 256 };

bool token_stream_open(token_stream *t, const settings *s, const unsigned char *text, size_t length,
                       uint64_t seed, bool repeats, diag *d)
{
  int64_t vocabulary = s->model.padded_vocab_size;
  if (text != NULL && length == 0)
    return diag_error(d, (source_pos){ "--data", 0, 0 }, "the file is empty");
  if (text != NULL && vocabulary < BYTE_VALUES)
    return diag_error(d, (source_pos){ "--data", 0, 0 },
                      "a vocabulary of %lld has no token for every byte; %d are needed",
                      (long long)vocabulary, BYTE_VALUES);
  *t = (token_stream){ text, length, seed, BYTE_VALUES, repeats };
  if (vocabulary < BYTE_VALUES) t->vocabulary = (uint32_t)vocabulary;
  return true;
}

/* Draws the first `count` tokens of the sample. */
static void draw(const token_stream *t, uint64_t sample, int64_t length, int64_t count, int64_t *to)
{
  assert(t->text != NULL ? t->text_length > 0 : t->vocabulary > 0);
  if (t->text != NULL) {
    uint64_t first = sample * (uint64_t)length % t->text_length;
    for (int64_t i = 0; i < count; i++)
      to[i] = t->text[(first + (uint64_t)i) % t->text_length];
    return;
  }
  uint64_t key = generator_key(t->seed, "tokens") + sample * (uint64_t)(length + 1);
  uint64_t x = generator_bits(key, 0) % t->vocabulary;
  for (int64_t i = 0; i < count; i++) {
    to[i] = (int64_t)x;
    x = (5 * x + 3 + (generator_bits(key, (uint64_t)i + 1) >> 63)) % t->vocabulary;
  }
}

/* The part of a sequence that a rank has. */
typedef struct window {
  int64_t length;      /* of the sequence */
  int64_t own;         /* ... the rank's part of it */
  int64_t index, size; /* of the context parallel group */
} window;

static int64_t position_of(const window *w, int64_t i)
{
  assert(i >= 0 && i < w->own);
  if (w->size == 1) return i;
  int64_t piece = w->own / 2;
  return i < piece ? w->index * piece + i : (2 * w->size - 1 - w->index) * piece + i - piece;
}

/* ---- tensors of a micro-batch ---------------------------------------------------------------- */

typedef struct batch {
  const token_stream *stream;
  window window;
  int64_t rows; /* sequences */
  uint64_t first_sample;
} batch;

static void fill_from_stream(const batch *b, int64_t ahead, int64_t *to)
{
  arena scratch = { 0 };
  int64_t length = b->window.length;
  int64_t *drawn = ARENA_ARRAY(&scratch, int64_t, (size_t)length + 1);
  for (int64_t row = 0; row < b->rows; row++) {
    draw(b->stream, b->first_sample + (uint64_t)row, length, length + 1, drawn);
    for (int64_t i = 0; i < b->window.own; i++)
      to[row * b->window.own + i] = drawn[position_of(&b->window, i) + ahead];
  }
  arena_release(&scratch);
}

static void fill_tokens(const batch *b, void *data)
{
  fill_from_stream(b, 0, data);
}

static void fill_labels(const batch *b, void *data)
{
  fill_from_stream(b, 1, data);
}

static void fill_positions(const batch *b, void *data)
{
  for (int64_t i = 0; i < b->rows * b->window.own; i++)
    ((int64_t *)data)[i] = position_of(&b->window, i % b->window.own);
}

static void fill_loss_mask(const batch *b, void *data)
{
  for (int64_t i = 0; i < b->rows * b->window.own; i++)
    ((float *)data)[i] = 1;
}

/* 1: masked. */
static void fill_attention_mask(const batch *b, void *data)
{
  unsigned char *to = data;
  for (int64_t row = 0; row < b->rows * b->window.own; row++)
    for (int64_t k = 0; k < b->window.length; k++)
      *to++ = k > position_of(&b->window, row % b->window.own);
}

/* labels of plain PyTorch are the tokens; its loss shifts them. */
static const struct {
  const char *name;
  bool hf;
  uint8_t type;
  void (*fill)(const batch *b, void *data);
} tensors[] = {
  { "tokens", false, DTYPE_INT64, fill_tokens },
  { "position_ids", false, DTYPE_INT64, fill_positions },
  { "labels", false, DTYPE_INT64, fill_labels },
  { "loss_mask", false, DTYPE_FP32, fill_loss_mask },
  { "attention_mask", false, DTYPE_BYTE, fill_attention_mask },
  { "input_ids", true, DTYPE_INT64, fill_tokens },
  { "labels", true, DTYPE_INT64, fill_tokens },
};

bool token_stream_fill(const token_stream *t, const settings *s, const exec_rank *rank,
                       const plan_tensor *tensor, uint32_t step, uint32_t microbatch, void *data)
{
  int64_t rows = s->training.micro_batch_size;
  uint64_t replicas = (uint64_t)s->derived.data_parallel_size;
  uint64_t of_step = (uint64_t)(rows * s->derived.num_microbatches) * replicas;
  batch b = { .stream = t, .rows = rows };
  b.window = (window){ .length = s->training.seq_length,
                       .own = s->training.seq_length / s->parallel.context_parallel_size,
                       .index = rank->group[GROUP_CP].index,
                       .size = rank->group[GROUP_CP].size };
  assert(b.window.own * b.window.size == b.window.length && b.window.index < b.window.size);
  b.first_sample = (t->repeats ? 0 : step) * of_step +
                   (microbatch * replicas + layout_replica(s, rank)) * (uint64_t)rows;
  for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
    if (strcmp(tensor->name, tensors[i].name) == 0 && tensors[i].hf == uses_hf(s)) {
      assert(tensor->dtype == tensors[i].type);
      assert(b.rows > 0);
      tensors[i].fill(&b, data);
      return true;
    }
  return false;
}
