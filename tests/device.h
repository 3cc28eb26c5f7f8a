/* A host with the test device (tests/plugins/device.c), and matrices in its memory. */
#ifndef FLHOST_TESTS_DEVICE_H
#define FLHOST_TESTS_DEVICE_H

#include "tests/fixture.h"
#include "tests/plugins/device.h"

static const DLDevice device0 = {kDLExtDev, 0}, device1 = {kDLExtDev, 1}, cpu = {kDLCPU, 0};

/* With the CPU plugin, too. */
fl_host *device_host(const char *const *environment, uint32_t flags);

/* What the test device is told and what it has done, once there is such a host. */
extern device_state *test_device;

/* Registers it as the platform "acme" of a plugin of that name, as if that had been loaded. */
fl_status device_register_platform(fl_host *host, const fl_platform *platform);

/* Of float32, on a device or the host. */
typedef struct matrix {
  fl_host *host;
  DLTensor tensor;
  int64_t shape[2], strides[2];
  void *memory;
} matrix;

/* `values` with the gaps between rows; NULL: whatever is there. `stride` is that of the rows, else there is no gap. */
void matrix_make(matrix *m, fl_host *host, DLDevice device, int64_t rows, int64_t columns, const float *values);
void matrix_make_strided(matrix *m, fl_host *host, DLDevice device, int64_t rows, int64_t columns, int64_t stride,
                         const float *values);
void matrix_free(matrix *m);

/* The first `n` elements of the storage are as expected, to a few units in the last place. */
void matrix_check(const matrix *m, const float *expected, size_t n);

#endif
