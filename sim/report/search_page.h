/*
 * One page for a browser, which needs nothing else (docs/reference/html.md): the settings that a search
 * or a sweep found, as points of memory beside time and as a table; the best of them to paste.
 */
#ifndef OFFSIM_SIM_REPORT_SEARCH_PAGE_H
#define OFFSIM_SIM_REPORT_SEARCH_PAGE_H

#include "sim/report/sweep.h"
#include "sim/report/tuned.h"

/* `name`: of what was varied. */
void tuned_html(const tuned *t, const tune_request *r, const best_notes *n, const char *name,
                FILE *out, arena *a);

/*
 * The rows of a sweep that a page shows: the first PAGE_ROWS, of which those that fit come first, by
 * their step, then the others by what they miss; and all that fit and that nothing beats in both
 * time and memory. Whatever the order of the additions, they are the same.
 */
enum { PAGE_ROWS = 2000 };
typedef struct shown_rows {
  sweep_row *items; /* `tried` has its order alone */
  uint32_t count, capacity;
} shown_rows;

/* Rows that were refused have no place. */
void shown_rows_add(shown_rows *s, const sweep_row *row);
/* Sorts the rows and drops what a page does not show. */
void shown_rows_finish(shown_rows *s);
void shown_rows_release(shown_rows *s);

/* `shown` is finished. `fingerprint`: of the sweep (sim/sweep/journal.h); `n`: of the best, nothing if
 * none fits. */
void sweep_html(const sweep_best *b, const shown_rows *shown, const sweep *w,
                const char *fingerprint, const best_notes *n, const char *name, FILE *out,
                arena *a);

#endif
