#include "sim/config/megatron/parameter_file.h"

#include <string.h>

#include "sim/base/text.h"
#include "sim/config/megatron/flags.h"

static bool has_options(const shell_command *c, arena *a)
{
  for (uint32_t i = 0; i < c->count; i++) {
    const char *text = c->words[i].text;
    uint32_t flag = begins_with(text, "--")
                        ? megatron_flag_find(arena_strndup(a, text, strcspn(text, "=")))
                        : MEGATRON_FLAG_UNKNOWN;
    if (flag != MEGATRON_FLAG_UNKNOWN && megatron_flag_matters(&megatron_flags[flag])) return true;
  }
  return false;
}

/* The words of `part` follow each other somewhere in `whole`. */
static bool has_words(const shell_command *whole, const shell_command *part)
{
  for (uint32_t first = 0; first + part->count <= whole->count; first++) {
    uint32_t same = 0;
    while (same < part->count &&
           strcmp(whole->words[first + same].text, part->words[same].text) == 0) {
      same++;
    }
    if (same == part->count) return true;
  }
  return false;
}

const shell_command *parameter_file_options(const shell_script *s, arena *a, diag *d)
{
  const shell_list *whole = NULL; /* made of all others, perhaps */
  const shell_list **parts = ARENA_ARRAY(a, const shell_list *, s->list_count + 1);
  uint32_t count = 0;
  for (uint32_t i = 0; i < s->list_count; i++) {
    const shell_list *list = &s->lists[i];
    if (!has_options(&list->command, a)) continue;
    parts[count++] = list;
    if (whole == NULL || list->command.count > whole->command.count) whole = list;
  }
  if (whole == NULL) return NULL;
  bool has_all = true;
  const char *values = "";
  for (uint32_t i = 0; i < count; i++) {
    has_all = has_all && has_words(&whole->command, &parts[i]->command);
    values = arena_printf(a, "%s ${%s[@]}", values, parts[i]->name);
  }
  if (!has_all) {
    diag_error(d, whole->command.at,
               "no command of the script trains, and no variable has all options; add the "
               "command: torchrun pretrain_gpt.py%.400s",
               values);
    return NULL;
  }
  diag_note(d, whole->command.at,
            "no command of the script trains; predicted with the options in %s", whole->name);
  return &whole->command;
}
