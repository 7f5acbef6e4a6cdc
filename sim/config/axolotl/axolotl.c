#include "sim/config/axolotl/axolotl.h"

#include <string.h>

#include "sim/base/file.h"
#include "sim/config/axolotl/parts.h"
#include "sim/config/other_files.h"

/* The file only names the model; the model's own file has its shape. */
static bool check_model(const axolotl_reader *r)
{
  if (!diag_ok(r->d)) return false; /* the model's own file is wrong: its error is enough */
  const text_node *n = axolotl_get(r, "base_model");
  if (n == NULL)
    return diag_error(r->d, r->top->at,
                      "base_model is missing; every Axolotl configuration has it");
  return r->s->given[KEY_model_num_layers] ||
         diag_error(r->d, n->at, "base_model is %s; give its config.json with --hf-config FILE",
                    text_describe(r->a, n));
}

/* What Axolotl takes where the file says nothing, its trainer's modules, and the allocator as its command
 * sets it (set_pytorch_cuda_alloc_conf in axolotl/utils/__init__.py; from PyTorch 2.9 on, nothing else). */
static bool set_defaults(const axolotl_reader *r)
{
  return axolotl_set(r, KEY_model_implementation, "hf", NULL) &&
         axolotl_set(r, KEY_software_expandable_segments, "true", NULL) &&
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
  if (r.top == NULL || !text_expect(r.top, TEXT_MAPPING, d) ||
      !other_files_check(r.top, "--axolotl", d) || !check_model(&r) || !set_defaults(&r))
    return false;
  /* Each step reports its errors, so that one run shows all of them. */
  bool good = diag_step(d, axolotl_apply_keys(&r));
  good = diag_step(d, axolotl_read_run(&r, &run) && axolotl_validate(&r, &run)) && good;
  good = diag_step(d, axolotl_apply_training(&r)) && good;
  good = diag_step(d, axolotl_apply_adapter(&r)) && good;
  return good && axolotl_apply_run(&r, &run);
}

bool axolotl_read(settings *s, const char *path, const axolotl_options *options, arena *a, diag *d)
{
  size_t length;
  const char *text = file_read(a, path, FILE_TEXT_LIMIT_BYTES, &length, d);
  if (text != NULL && options->lines != NULL) {
    text = arena_printf(a, "%s\n%s", text, options->lines);
    length = strlen(text);
  }
  return text != NULL && axolotl_parse(s, path, text, length, options, a, d);
}
