#include "sim/base/terminal.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* A narrower one is taken as this wide: no table is legible in less. */
enum { LEAST_COLUMNS = 40 };

static bool is_standard(FILE *out)
{
  return out == stdout || out == stderr;
}

static bool is_set(const char *name)
{
  const char *value = getenv(name);
  return value != NULL && *value != '\0';
}

int terminal_columns(FILE *out)
{
  struct winsize terminal;
  const char *given = getenv("COLUMNS");
  if (!is_standard(out)) return 0;
  int columns = given == NULL ? 0 : atoi(given);
  if (columns <= 0 && isatty(fileno(out)) == 1 && ioctl(fileno(out), TIOCGWINSZ, &terminal) == 0)
    columns = terminal.ws_col;
  return columns <= 0 ? 0 : columns < LEAST_COLUMNS ? LEAST_COLUMNS : columns;
}

static bool has_colours(FILE *out)
{
  const char *kind = getenv("TERM");
  if (!is_standard(out) || is_set("NO_COLOR")) return false;
  if (is_set("FORCE_COLOR")) return true;
  return isatty(fileno(out)) == 1 && kind != NULL && strcmp(kind, "dumb") != 0;
}

const char *terminal_style(FILE *out, text_style style)
{
  static const char *const sequences[] = {
    [STYLE_PLAIN] = "\033[0m", [STYLE_ALARM] = "\033[1;31m", [STYLE_NOTE] = "\033[1;36m"
  };
  return has_colours(out) ? sequences[style] : "";
}
