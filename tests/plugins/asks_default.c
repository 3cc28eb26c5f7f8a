/* Its initialiser asks for the default host, as a library that a plugin needs may do. The address of the function comes
 * in the environment: a plugin links nothing of the host. */
#include "scale.h"

#include <stdlib.h>

FL_PLUGIN("asks_default", "1", "Test", "MIT", "");

static void *given;

static __attribute__((constructor)) void ask(void) {
  const char *address = getenv("TEST_DEFAULT_HOST");
  void *(*get)(void);
  *(void **)&get = (void *)(uintptr_t)(address ? strtoull(address, NULL, 16) : 0);
  given = get ? get() : &given;
}

/* Loads if it was given none. */
fl_status register_builtins(fl_registry *registry) {
  fl_impl impl = scale_row("vendor.asks", "asks");
  if (given)
    return FL_EINTERNAL;
  fl_status status = registry->register_op(registry, &scale_op);
  return status ? status : registry->register_impl(registry, &impl);
}
