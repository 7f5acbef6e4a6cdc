#include "sim/config/megatron_args.h"

#include <string.h>

#include "sim/base/array.h"
#include "sim/base/file.h"
#include "sim/config/megatron_args_parts.h"

bool megatron_unknown_option(const args_reader *r, const char *name, source_pos at)
{
  if (r->ignore_unknown) {
    diag_note(r->d, at, "unknown Megatron option \"%s\" skipped", name);
    return true;
  }
  const char *nearest = megatron_flag_nearest(r->a, name);
  if (nearest != NULL) {
    return diag_error(r->d, at, "unknown Megatron option \"%s\"; did you mean %s?", name, nearest);
  }
  return diag_error(
      r->d, at, "unknown Megatron option \"%s\"; --ignore-unknown skips what offsim does not know",
      name);
}

static const char *skip_blanks_and_comments(const char *text)
{
  for (;;) {
    text += strspn(text, " \t\r\n");
    if (*text != '#') {
      return text;
    }
    text += strcspn(text, "\n");
  }
}

/* `name:` and then a blank or the end of the line; the name may stand in quotes. */
static bool begins_with_key(const char *text)
{
  const char *name_letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.";
  const char *quote = *text == '"' || *text == '\'' ? text : NULL;
  text += quote != NULL;
  size_t length = strspn(text, name_letters);
  text += length;
  if (quote != NULL && *text++ != *quote) {
    return false;
  }
  text += strspn(text, " \t");
  return length > 0 && *text == ':' && (text[1] == '\0' || strchr(" \t\r\n", text[1]) != NULL);
}

bool args_look_like_mapping(const char *text)
{
  text = skip_blanks_and_comments(text);
  bool document_start = strncmp(text, "---", 3) == 0 && (text[3] == '\n' || text[3] == '\r');
  return *text == '{' || *text == '%' || document_start || begins_with_key(text);
}

bool megatron_args_parse(settings *s, const char *path, const char *text, size_t length,
                         const megatron_args_options *options, arena *a, diag *d)
{
  args_reader r = {
    .s = s, .path = path, .ignore_unknown = options->ignore_unknown, .a = a, .d = d
  };
  bool read = args_look_like_mapping(text) ? megatron_mapping_read(&r, text, length)
                                       : megatron_shell_read(&r, text, length);
  bool applied = read && megatron_flags_apply(s, &r.uses, a, d);
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
