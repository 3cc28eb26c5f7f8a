/* A tuner's file, VLLM_FL_OP_CONFIG. */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/settings.h"

#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char variable[400];
  snprintf(variable, sizeof variable, "VLLM_FL_OP_CONFIG=%s", fuzz_file(data, size));
  fuzz_settings((const char *const[]){variable, NULL}, NULL);
  return 0;
}
