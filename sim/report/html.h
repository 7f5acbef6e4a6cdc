/*
 * The page's parts, embedded by build/embed_texts.sh: report.html with a line `@name@` for each of the
 * others. Private to sim/report.
 */
#ifndef OFFSIM_SIM_REPORT_HTML_H
#define OFFSIM_SIM_REPORT_HTML_H

typedef struct html_part {
  const char *name, *text;
} html_part;

extern const html_part html_parts[]; /* the last has no name */

#endif
