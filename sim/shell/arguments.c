/* The script's own arguments that are not given: which it reads, under which names, and what it
 * compares them with. */
#include <inttypes.h>
#include <string.h>

#include "sim/shell/parts.h"
#include "sim/text/scalar.h"

/* The number of a missing argument of the script that the text is, and nothing else; 0: it is none. */
static uint32_t argument_of(evaluator *e, const char *text)
{
  const char *name = first_unset(e, text);
  int64_t index;
  bool is_argument = name != NULL && name[0] >= '1' && name[0] <= '9' && scalar_i64(name, &index) &&
                     index <= WANTED_MOST && e->wanted[index - 1].is_read;
  const char *plain = is_argument ? plain_text(e, text) : NULL;
  return plain != NULL && *plain == '\0' ? (uint32_t)index : 0;
}

void want_argument(evaluator *e, const char *name, source_pos at)
{
  int64_t index;
  bool of_script = e->calls == 0 && strcmp(e->name, e->file) == 0;
  if (name[0] < '1' || name[0] > '9' || !of_script || !scalar_i64(name, &index) ||
      index > WANTED_MOST)
    return;
  wanted_argument *w = &e->wanted[index - 1];
  if (!w->is_read) *w = (wanted_argument){ .is_read = true, .at = at };
}

void name_argument(evaluator *e, const char *name, const char *text)
{
  uint32_t index = argument_of(e, text);
  if (index > 0 && e->wanted[index - 1].name == NULL) e->wanted[index - 1].name = name;
}

void offer_choice(evaluator *e, const char *text, const char *choice)
{
  uint32_t index = argument_of(e, text);
  if (index == 0 || choice == NULL || *choice == '\0' || strchr(choice, '*') != NULL) return;
  wanted_argument *w = &e->wanted[index - 1];
  for (uint32_t i = 0; i < w->choice_count; i++) {
    if (strcmp(w->choices[i], choice) == 0) return;
  }
  if (w->choice_count < CHOICES_MOST) w->choices[w->choice_count++] = choice;
}

const char *wanted_arguments(evaluator *e, source_pos *at, bool *chooses)
{
  const char *list = NULL;
  for (uint32_t i = 0; i < WANTED_MOST; i++) {
    const wanted_argument *w = &e->wanted[i];
    if (!w->is_read) continue;
    if (list == NULL) *at = w->at;
    const char *choices = "";
    *chooses = *chooses || w->choice_count > 0;
    for (uint32_t j = 0; j < w->choice_count; j++) {
      choices = arena_printf(e->a, "%s%s%.40s", choices, j == 0 ? "" : ", ", w->choices[j]);
    }
    list = arena_printf(e->a, "%s%s$%" PRIu32 "%s%.60s%s%.300s%s", list != NULL ? list : "",
                        list != NULL ? ", " : "", i + 1, w->name != NULL ? " " : "",
                        w->name != NULL ? w->name : "", *choices != '\0' ? " (" : "", choices,
                        *choices != '\0' ? ")" : "");
  }
  return list;
}
