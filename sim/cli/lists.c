#include "sim/cli/lists.h"

#include <stdio.h>
#include <string.h>

#include "sim/config/key_table.h"
#include "sim/config/megatron_releases.h"
#include "sim/config/offload_systems.h"
#include "sim/machine/machine.h"

enum { NAME_COLUMNS = 26 };

static void print_line(const char *name, int length, const char *meaning)
{
  printf("%-*s %.*s\n", NAME_COLUMNS, name, length, meaning);
}

static void list_machines(void)
{
  for (const machine_preset *p = machine_presets; p->name != NULL; p++)
    print_line(p->name, (int)strlen(p->description), p->description);
}

static void list_systems(void)
{
  for (int i = 0; i < OFFLOAD_SYSTEM_COUNT; i++) {
    const offload_system *s = &offload_systems[i]; /* SYSTEM_EMPTY has no name */
    if (s->name != NULL) print_line(s->name, (int)strlen(s->description), s->description);
  }
}

static void list_words(setting_key key)
{
  printf("%s:", key_rows[key].name);
  for (const char *const *word = key_rows[key].words; *word != NULL; word++)
    if (**word != '\0') printf(" %s", *word);
  putchar('\n');
}

static void list_modules(void)
{
  list_words(KEY_offload_offload_modules);
  list_words(KEY_recompute_recompute_modules);
}

/* Which defects of Megatron-LM's offloading a version has: software.megatron. */
static void list_defects(void)
{
  const char *const *words = key_rows[KEY_software_megatron].words;
  for (int i = 0; i < MEGATRON_DEFECT_COUNT; i++) {
    const megatron_defect_row *row = &megatron_defects[i];
    printf("%-16s %-12s %-13s %-18s %s\n", row->name, words[row->first], words[row->last],
           row->upstream, row->effect);
  }
}

bool print_list(const char *option)
{
  static const struct {
    const char *option;
    void (*print)(void);
  } lists[] = { { "--list-machines", list_machines },
                { "--list-systems", list_systems },
                { "--list-modules", list_modules },
                { "--list-defects", list_defects } };
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
    if (strcmp(option, lists[i].option) == 0) {
      lists[i].print();
      return true;
    }
  return false;
}
