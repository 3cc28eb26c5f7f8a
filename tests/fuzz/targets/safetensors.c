/* A safetensors file that `flhost run` is given. */
#include "cli/run/safetensors.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char error[SAFETENSORS_ERROR_MAX] = "";
  safetensors file = {0};
  if (!safetensors_read(fuzz_file(data, size), &file, error)) {
    if (!*error)
      fuzz_broken("refused without words");
    return 0;
  }
  size_t total = 0;
  volatile unsigned char sum = 0;
  for (size_t i = 0; i < file.n; i++) {
    size_t bytes = safetensors_data_size(&file.entries[i].tensor);
    for (size_t j = 0; j < bytes; j++)
      sum ^= ((const unsigned char *)file.entries[i].tensor.data)[j];
    total += bytes;
    if (safetensors_find(&file, file.entries[i].name) == NULL)
      fuzz_broken("tensor '%s' is not found", file.entries[i].name);
  }
  if (total > size)
    fuzz_broken("%zu bytes of tensors in a file of %zu", total, size);
  (void)sum;
  safetensors_free(&file);
  return 0;
}
