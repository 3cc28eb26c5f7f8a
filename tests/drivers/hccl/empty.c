/* A library that is there and has nothing that anybody looks for. */
#include "tests/drivers/nccl/calls.h"

EXPORT int flhost_empty_library(void);
int flhost_empty_library(void) {
  return 0;
}
