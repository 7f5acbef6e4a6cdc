/*
 * Megatron-LM asks the tokenizer for the size of its vocabulary
 * (megatron/core/tokenizers/utils/build_tokenizer.py, _set_padded_vocab_size). Its files are not
 * read; published tokenizers are known by name.
 */
#include "sim/config/megatron/tokenizer.h"

#include <string.h>

#include "sim/base/text.h"

typedef struct tokenizer {
  const char *type;  /* "": any */
  const char *model; /* a part of the name of --tokenizer-model, in small letters; "": any */
  int64_t vocab_size;
} tokenizer;

/* The first that suits. A Hugging Face tokenizer counts its added tokens: len(tokenizer). */
static const tokenizer tokenizers[] = {
  { "GPT2BPETokenizer", "", 50257 },
  { "TikTokenizer", "", 131072 }, /* DEFAULT_TIKTOKEN_MAX_VOCAB */
  { "", "nemotron_2_256k", 256000 },
  { "Llama2Tokenizer", "", 32000 },
  { "", "distill-qwen", 151665 },
  { "", "distill-llama", 128256 },
  { "", "llama-3", 128256 },
  { "", "llama3", 128256 },
  { "", "llama-2", 32000 },
  { "", "llama2", 32000 },
  { "", "mixtral-8x7b", 32000 },
  { "", "mistral-7b-v0.1", 32000 },
  { "", "mistral-7b-instruct-v0.3", 32768 },
  { "", "qwen3", 151669 },
  { "", "qwen2.5", 151665 },
  { "", "qwen2-", 151646 },
  { "", "deepseek-v3", 128815 },
  { "", "deepseek-r1", 128815 },
  { "", "deepseek-v2", 100002 },
  { "", "gpt-oss", 200019 },
  { "", "gpt2", 50257 },
};

static const char *lowered(const char *text, arena *a)
{
  char *low = arena_strdup(a, text);
  for (char *c = low; *c != '\0'; c++) {
    if (*c >= 'A' && *c <= 'Z') *c = (char)(*c - 'A' + 'a');
  }
  return low;
}

static int64_t size_of(const char *type, const char *model)
{
  for (size_t i = 0; i < sizeof tokenizers / sizeof tokenizers[0]; i++) {
    const tokenizer *t = &tokenizers[i];
    if ((*t->type == '\0' || strcmp(type, t->type) == 0) && strstr(model, t->model) != NULL) {
      return t->vocab_size;
    }
  }
  return UNSET;
}

/* BERT's vocabulary is a list of words; the default tokenizer of GPT reads JSON. */
static bool is_bert(const flag_use *type, const flag_use *vocabulary)
{
  return type != NULL ? begins_with(type->value, "BertWordPiece")
                      : vocabulary != NULL && ends_with(vocabulary->value, ".txt");
}

/* GPT2BPETokenizer reads its words from a file, which may be another than GPT-2's. */
static void note_vocabulary(const flag_use_array *uses, const char *type,
                            const flag_use *vocabulary, arena *a, const diag *d)
{
  bool given = megatron_flag_last_use(uses, "--vocab-size") != NULL ||
               megatron_flag_last_use(uses, "--padded-vocab-size") != NULL;
  if (given || vocabulary == NULL || strcmp(type, "GPT2BPETokenizer") != 0 ||
      strpbrk(vocabulary->value, "$<") != NULL || *vocabulary->value == '\0' ||
      strstr(lowered(vocabulary->value, a), "gpt2") != NULL)
    return;
  diag_note(d, vocabulary->value_at,
            "--vocab-file %.200s is not read: if it is not the vocabulary of GPT-2, give --set "
            "vocab_size=N",
            vocabulary->value);
}

bool megatron_tokenizer_find(settings *s, const flag_use_array *uses, arena *a, diag *d)
{
  const flag_use *type = megatron_flag_last_use(uses, "--tokenizer-type");
  const flag_use *model = megatron_flag_last_use(uses, "--tokenizer-model");
  if (model == NULL) model = megatron_flag_last_use(uses, "--tokenizer-name-or-path");
  const flag_use *vocabulary = megatron_flag_last_use(uses, "--vocab-file");
  const flag_use *named = model != NULL ? model : type != NULL ? type : vocabulary;
  if (named == NULL) {
    return true;
  }
  if (is_bert(type, vocabulary)) {
    diag_forget(d);
    const flag_use *of = type != NULL ? type : vocabulary;
    return diag_error(d, of->value_at,
                      "\"%.200s\" is a vocabulary of BERT; offsim predicts decoder models",
                      of->value);
  }
  /* pretrain_gpt.py's default */
  const char *type_name = type != NULL ? type->value : "GPT2BPETokenizer";
  s->derived.tokenizer =
      named == type ? type_name : arena_printf(a, "%s %s", type_name, named->value);
  s->derived.tokenizer_at = named->value_at;
  s->derived.tokenizer_vocab_size =
      size_of(type_name, model != NULL ? lowered(model->value, a) : "");
  note_vocabulary(uses, type_name, vocabulary, a, d);
  return true;
}
