/* The Ascend plugin over its stand-in: its implementations called without a host, and tensors on its device. */
#ifndef FLHOST_TESTS_NPU_H
#define FLHOST_TESTS_NPU_H

#include "tests/drivers/ascend/control.h"
#include "tests/fixture.h"

/* The plugin's platform and the stand-in's control, once npu_open() was called. */
extern const fl_platform *npu;
extern stand_in npu_control;

/* Environment, stand-in and plugin: a fixture. The settings that the stand-in has then are its defaults. */
void npu_open(void);
/* The plugin alone, with the toolkit in `home` and that device node; npu_open_control() opens a stand-in's control. */
void npu_open_plugin(const char *home, const char *node);
void npu_open_control(const char *library);
/* A function of the stand-in's runtime; the device that the thread has set, or -1. */
int npu_runtime(const char *name, int argument);
int npu_thread_device(void);
/* Asserts that nothing is left behind, and that no rule was broken. */
void npu_check_clean(void);

/* NULL: the plugin has none for the op. */
const fl_impl *npu_find(const char *op);
const fl_impl *npu_at(int i); /* NULL behind the last */

/* Calls with `message` for what the implementation has to say. */
extern char npu_message[512];
fl_status npu_call(const fl_impl *impl, fl_value *values, uint32_t n);
bool npu_supports(const fl_impl *impl, fl_value *values, uint32_t n, const char **reason);
void npu_wait(void); /* for the default stream; wants FL_OK */

/* A tensor on device 0. Rows are `padding` elements apart; 0: compact. */
typedef struct npu_tensor {
  DLTensor tensor;
  int64_t shape[FL_MAX_DIMS], strides[FL_MAX_DIMS];
  size_t size; /* of an element */
  void *memory;
} npu_tensor;

npu_tensor *npu_make(DLDataType dtype, int ndim, const int64_t *shape, int64_t padding);
void npu_free(npu_tensor *tensor);
/* The elements, compact on the host's side. */
void npu_write(npu_tensor *tensor, const void *data);
void npu_read(const npu_tensor *tensor, void *data);
int64_t npu_count(const npu_tensor *tensor);

#endif
