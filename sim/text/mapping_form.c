/* A configuration is shell text or a mapping. These functions find out which. */
#include <string.h>

#include "sim/base/text.h"
#include "sim/text/yaml_text.h"

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

/* `name:` and then a blank or the end of the line; the name may be in quotes. */
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

bool text_looks_like_mapping(const char *text)
{
  text = skip_blanks_and_comments(text);
  bool document_start = begins_with(text, "---") && (text[3] == '\n' || text[3] == '\r');
  return *text == '{' || *text == '%' || document_start || begins_with_key(text);
}
