#include "sim/config/megatron/args.h"

#include "sim/base/array.h"
#include "sim/base/file.h"
#include "sim/config/megatron/args_parts.h"
#include "sim/config/megatron/dialects.h"
#include "sim/config/megatron/mindspeed.h"
#include "sim/config/megatron/tokenizer.h"
#include "sim/text/yaml_text.h"

bool megatron_args_parse(settings *s, const char *path, const char *text, size_t length,
                         const megatron_args_options *options, arena *a, diag *d)
{
  args_reader r = { .s = s,
                    .path = path,
                    .ignore_unknown = options->ignore_unknown,
                    .options = options,
                    .a = a,
                    .d = d };
  bool read = text_looks_like_mapping(text) ? megatron_mapping_read(&r, text, length)
                                            : megatron_shell_read(&r, text, length);
  if (read && r.uses.count == 0 && !options->ignore_unknown)
    read = diag_error(d, (source_pos){ path, 0, 0 },
                      "no option of Megatron-LM in it; --verl FILE reads verl's scripts, --axolotl "
                      "FILE a training file, and --hf-config FILE a model that others train");
  diag_go_on(d);
  bool translated = megatron_dialects_translate(&r.uses, a, d);
  diag_go_on(d);
  bool applied = megatron_flags_refuse(&r.uses, d) && megatron_mindspeed_leave_out(&r.uses, a, d) &&
                 megatron_tokenizer_find(s, &r.uses, a, d) &&
                 megatron_flags_apply(s, &r.uses, a, d) &&
                 megatron_mindspeed_apply(s, &r.uses, a, d) && translated && read;
  ARRAY_FREE(&r.uses);
  return applied;
}

bool megatron_args_read(settings *s, const char *path, const megatron_args_options *options,
                        arena *a, diag *d)
{
  size_t length;
  const char *text = file_read(a, path, FILE_TEXT_LIMIT_BYTES, &length, d);
  return text != NULL && megatron_args_parse(s, path, text, length, options, a, d);
}
