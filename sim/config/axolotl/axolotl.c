#include "sim/config/axolotl/axolotl.h"

#include <string.h>

#include "sim/base/file.h"
#include "sim/config/axolotl/parts.h"
#include "sim/text/scalar.h"

const text_node *axolotl_get(const axolotl_reader *r, const char *key)
{
  const text_node *n = text_get(r->top, key);
  return n != NULL && !text_is_null(n) ? n : NULL;
}

bool axolotl_truth(const text_node *n)
{
  bool value;
  double number;
  if (n == NULL || text_is_null(n)) return false;
  if (n->kind != TEXT_SCALAR) return n->count > 0;
  if (n->quoted) return *n->text != '\0';
  if (scalar_bool(n->text, &value)) return value;
  return !scalar_double(n->text, &number) || number != 0;
}

bool axolotl_is(const axolotl_reader *r, const char *key, const char *word)
{
  const text_node *n = axolotl_get(r, key);
  return n != NULL && n->kind == TEXT_SCALAR && strcmp(n->text, word) == 0;
}

bool axolotl_has_plugin(const axolotl_reader *r, const char *name)
{
  const text_node *list = axolotl_get(r, "plugins");
  if (list == NULL || list->kind != TEXT_SEQUENCE) return false;
  for (uint32_t i = 0; i < list->count; i++) {
    const char *path = list->children[i].text, *dot = strrchr(path, '.');
    if (strcmp(dot != NULL ? dot + 1 : path, name) == 0) return true;
  }
  return false;
}

source_pos axolotl_place(const axolotl_reader *r, const text_node *n)
{
  return n != NULL ? n->at : r->top->at;
}

bool axolotl_set(const axolotl_reader *r, setting_key key, const char *text, const text_node *n)
{
  return settings_set_key(r->s, key, text, axolotl_place(r, n), r->a, r->d);
}

const char *axolotl_join(const axolotl_reader *r, const char *list, const char *word)
{
  return *list == '\0' ? word : arena_printf(r->a, "%s %s", list, word);
}

/* The file names the model; what it is like stands in the model's own file. */
static bool check_model(const axolotl_reader *r)
{
  const text_node *n = axolotl_get(r, "base_model");
  if (n == NULL)
    return diag_error(r->d, r->top->at,
                      "base_model is missing; every Axolotl configuration has it");
  return r->s->given[KEY_model_num_layers] ||
         diag_error(r->d, n->at, "base_model is %s; give its config.json with --hf-config FILE",
                    text_describe(r->a, n));
}

/* What Axolotl takes where the file says nothing, and its trainer's modules. */
static bool set_defaults(const axolotl_reader *r)
{
  return axolotl_set(r, KEY_model_implementation, "hf", NULL) &&
         axolotl_set(r, KEY_training_seq_length, "512", NULL) &&
         axolotl_set(r, KEY_training_micro_batch_size, "1", NULL) &&
         axolotl_set(r, KEY_training_gradient_accumulation_steps, "1", NULL);
}

bool axolotl_parse(settings *s, const char *path, const char *text, size_t length,
                   const axolotl_options *options, arena *a, diag *d)
{
  axolotl_run run;
  const axolotl_reader r = { .s = s,
                             .top = text_read(a, path, text, length, d),
                             .ignore_unknown = options->ignore_unknown,
                             .a = a,
                             .d = d };
  if (r.top == NULL || !text_expect(r.top, TEXT_MAPPING, d) || !check_model(&r) ||
      !set_defaults(&r))
    return false;
  /* Each step reports its errors, so that one run shows all of them. */
  bool good = axolotl_apply_keys(&r);
  good = axolotl_read_run(&r, &run) && axolotl_validate(&r, &run) && good;
  good = axolotl_apply_training(&r) && good;
  good = axolotl_apply_adapter(&r) && good;
  return good && axolotl_apply_run(&r, &run);
}

bool axolotl_read(settings *s, const char *path, const axolotl_options *options, arena *a, diag *d)
{
  size_t length;
  const char *text = file_read(a, path, FILE_TEXT_LIMIT_BYTES, &length, d);
  return text != NULL && axolotl_parse(s, path, text, length, options, a, d);
}
