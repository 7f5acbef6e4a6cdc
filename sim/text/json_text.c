#include "sim/text/json_text.h"

#include <inttypes.h>

/* Bytes of the UTF-8 sequence that begins here; 0: none does. Surrogates and values above U+10FFFF,
 * which JSON readers refuse, do not occur: the texts were checked. */
static int sequence_bytes(const unsigned char *t)
{
  int length = *t < 0x80 ? 1 : *t < 0xc2 ? 0 : *t < 0xe0 ? 2 : *t < 0xf0 ? 3 : *t < 0xf5 ? 4 : 0;
  for (int i = 1; i < length; i++)
    if ((t[i] & 0xc0) != 0x80) return 0;
  return length;
}

void json_string(FILE *out, const char *text)
{
  const unsigned char *t = (const unsigned char *)text;
  fputc('"', out);
  while (*t != '\0') {
    int length = sequence_bytes(t);
    if (length == 0)
      fputs("\\ufffd", out);
    else if (*t == '"' || *t == '\\')
      fprintf(out, "\\%c", *t);
    else if (*t < 0x20)
      fprintf(out, "\\u%04x", *t);
    else
      fwrite(t, 1, (size_t)length, out);
    t += length == 0 ? 1 : length;
  }
  fputc('"', out);
}

void json_strings(FILE *out, const char *const *texts, uint32_t count)
{
  fputc('[', out);
  for (uint32_t i = 0; i < count; i++) {
    fputs(i == 0 ? "" : ", ", out);
    json_string(out, texts[i]);
  }
  fputc(']', out);
}

void json_member(FILE *out, const char *key, const char *text)
{
  fprintf(out, "\"%s\": ", key);
  json_string(out, text);
}

void json_decimal(FILE *out, int64_t value, int digits)
{
  int64_t unit = 1;
  for (int i = 0; i < digits; i++)
    unit *= 10;
  int64_t whole = value / unit, rest = value % unit;
  fprintf(out, "%s%" PRId64, value < 0 ? "-" : "", whole < 0 ? -whole : whole);
  if (digits > 0) fprintf(out, ".%0*" PRId64, digits, rest < 0 ? -rest : rest);
}
