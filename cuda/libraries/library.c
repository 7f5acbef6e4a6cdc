#include "cuda/libraries/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 512, TRIED_BYTES = 640 };

/* The names of the files that were tried. */
typedef struct attempts {
  char text[TRIED_BYTES];
} attempts;

static void *open_file(const char *directory, const char *file, attempts *tried)
{
  char path[PATH_BYTES];
  const char *slash = directory[0] == '\0' ? "" : "/";
  (void)snprintf(path, sizeof path, "%s%s%s", directory, slash, file);
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) {
    size_t used = strlen(tried->text);
    (void)snprintf(tried->text + used, sizeof tried->text - used, "%s%s", used > 0 ? ", " : "",
                   path);
  }
  return handle;
}

static void *open_any(const library *l, attempts *tried)
{
  char home[PATH_BYTES] = "";
  const char *cuda = getenv("CUDA_HOME");
  if (cuda != NULL) (void)snprintf(home, sizeof home, "%s/lib64", cuda);
  const char *const directories[] = { "", cuda != NULL ? home : NULL, "/usr/local/cuda/lib64" };
  for (size_t i = 0; i < sizeof directories / sizeof directories[0]; i++)
    for (int j = 0; directories[i] != NULL && j < LIBRARY_FILES && l->files[j] != NULL; j++) {
      void *handle = open_file(directories[i], l->files[j], tried);
      if (handle != NULL) return handle;
    }
  return NULL;
}

/* The first name that the library lacks; NULL: none. */
static const char *look_up(const library *l, void *handle, void *functions)
{
  for (int i = 0; l->functions[i] != NULL; i++) {
    void *function = dlsym(handle, l->functions[i]);
    if (function == NULL) return l->functions[i];
    memcpy((char *)functions + (size_t)i * sizeof function, &function, sizeof function);
  }
  return NULL;
}

bool library_open(const library *l, void *functions, diag *d)
{
  attempts tried = { "" };
  void *handle = open_any(l, &tried);
  if (handle == NULL)
    return d != NULL && diag_refused(d, "%s is required and was not found (tried %s): %s", l->name,
                                     tried.text, l->advice);
  const char *missing = look_up(l, handle, functions);
  if (missing != NULL)
    return d != NULL && diag_refused(d, "the %s found here has no %s; it is too old: %s", l->name,
                                     missing, l->advice);
  return true;
}
