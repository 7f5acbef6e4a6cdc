#include "sim/report/page.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/diag.h"

FILE *page_add(page *p, const char *name, page_form form)
{
  assert(p->part_count < PAGE_PARTS);
  page_part *part = &p->parts[p->part_count++];
  *part = (page_part){ .name = name, .form = form };
  FILE *f = open_memstream(&part->text, &part->length);
  if (f == NULL) die_refused("memory: a stream of it");
  return f;
}

/* `<` would end a script or begin a tag. In JSON it is only in strings. */
static void put_escaped(FILE *out, const char *text, page_form form)
{
  for (const char *c = text; *c != '\0'; c++)
    if (*c == '<')
      fputs(form == PAGE_JSON ? "\\u003c" : "&lt;", out);
    else if (*c == '&' && form == PAGE_TEXT)
      fputs("&amp;", out);
    else
      putc(*c, out);
}

static bool is(const char *name, const char *text, size_t length)
{
  return strncmp(name, text, length) == 0 && name[length] == '\0';
}

static const char *file_named(const char *name, size_t length)
{
  const page_file *f = page_files;
  while (f->name != NULL && !is(f->name, name, length))
    f++;
  return f->text;
}

/* The content, or the script, of the page's kind. */
static const char *file_of_kind(const page *p, const char *ending)
{
  char name[64];
  int length = snprintf(name, sizeof name, "%s%s", p->kind, ending);
  const char *text = file_named(name, (size_t)length);
  assert(text != NULL && "the page's kind has its files");
  return text;
}

static void put_file(const page *p, const char *text, FILE *out);

/* What `@name@` becomes; false: nothing has this name. */
static bool put_named(const page *p, const char *name, size_t length, FILE *out)
{
  for (size_t i = 0; i < p->part_count; i++)
    if (is(p->parts[i].name, name, length)) {
      put_escaped(out, p->parts[i].text, p->parts[i].form);
      return true;
    }
  const char *text = is("content", name, length)  ? file_of_kind(p, ".html")
                     : is("script", name, length) ? file_of_kind(p, ".js")
                                                  : file_named(name, length);
  if (is("title", name, length))
    put_escaped(out, p->title, PAGE_TEXT);
  else if (text != NULL)
    put_file(p, text, out);
  else
    return false;
  return true;
}

static void put_file(const page *p, const char *text, FILE *out)
{
  while (*text != '\0') {
    size_t length = *text == '@' ? strcspn(text + 1, "@\n") : 0;
    if (length > 0 && text[1 + length] == '@' && put_named(p, text + 1, length, out))
      text += length + 2;
    else
      putc(*text++, out);
  }
}

void page_write(page *p, FILE *out)
{
  static const char shell[] = "page.html";
  put_file(p, file_named(shell, sizeof shell - 1), out);
  for (size_t i = 0; i < p->part_count; i++)
    free(p->parts[i].text);
  p->part_count = 0;
}
