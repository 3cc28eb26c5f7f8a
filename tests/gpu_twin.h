/* A call of an op twice, with the same contents: on the CPU, and on a GPU plugin's stand-in, whose results are compared
 * with the CPU's. */
#ifndef FLHOST_TESTS_GPU_TWIN_H
#define FLHOST_TESTS_GPU_TWIN_H

#include "tests/gpu.h"
#include "tests/kernels.h"

enum { TWIN_MOST = 20 };

/* Of each pair the CPU's is the first. */
typedef struct twin {
  const char *op;
  uint32_t n;
  owned *tensors[2][TWIN_MOST]; /* NULL: the value is not a tensor */
  fl_value values[2][TWIN_MOST];
} twin;

void add_value(twin *t, fl_value value);
/* The CPU's tensor, for what is to be in it; its sizes are ints. */
DLTensor *add_tensor(twin *t, DLDataType dtype, int ndim, ...);

/* Evenly spread numbers, other ones for other `seed`s. */
void spread(DLTensor *tensor, uint32_t seed, double low, double high);
/* All elements, as ints. */
void put(DLTensor *tensor, int n, ...);

/* When the CPU's tensors are as they should be: makes the device's. What a kernel does not write stays different. */
void mirror(twin *t, const gpu_setup *setup);
void put_on_device(twin *t, uint32_t argument, int64_t i, double value);

/* Runs both, and compares all tensors from number `first` on. */
void check_twin(fl_host *host, twin *t, uint32_t first, void *workspace, size_t size);
void free_twin(twin *t);

/* As the stand-in's log has it. */
bool was_launched(const char *kernel, DLDataType dtype);

#endif
