#include "cuda/recorder/driver.h"

#include <dlfcn.h>
#include <stddef.h>

driver_functions driver;

void driver_find(void)
{
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
#define X(name, parameters)                                                                        \
  *(void **)(void *)&driver.name = library == NULL ? NULL : dlsym(library, #name);
  DRIVER_FUNCTIONS(X)
#undef X
}
