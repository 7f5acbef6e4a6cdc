/*
 * A page for a browser: one shell with styles and words (html/page.html, page.css, page.js) around a
 * content of each kind (html/KIND.html, KIND.js). It loads nothing.
 *
 *     page g = { .kind = "prediction", .title = name };
 *     FILE *table = page_add(&g, "table", PAGE_TEXT);
 *     fprintf(table, ...); fclose(table);
 *     page_write(&g, out);
 *
 * `@name@` in a file of html/ becomes what was added with this name, or the file with this name.
 * The shell needs `table`, text, and `figures`, JSON. Private to sim/report.
 */
#ifndef OFFSIM_SIM_REPORT_PAGE_H
#define OFFSIM_SIM_REPORT_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* A file of html/, embedded by build/embed_texts.sh. */
typedef struct page_file {
  const char *name, *text;
} page_file;

extern const page_file page_files[]; /* the last has no name */

typedef enum page_form { PAGE_TEXT, PAGE_JSON } page_form;

typedef struct page_part {
  const char *name;
  page_form form;
  char *text; /* of the stream */
  size_t length;
} page_part;

enum { PAGE_PARTS = 3 };

typedef struct page {
  const char *kind, *title;
  page_part parts[PAGE_PARTS];
  size_t part_count;
} page;

/* A stream to the text of a part; the caller closes it before page_write. */
FILE *page_add(page *p, const char *name, page_form form);
/* Writes the page and releases its parts. */
void page_write(page *p, FILE *out);

#endif
