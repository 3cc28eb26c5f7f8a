/* A host with the CPU plugin and a GPU plugin on a stand-in driver, whose device memory is the host's. */
#ifndef FLHOST_TESTS_GPU_H
#define FLHOST_TESTS_GPU_H

#include "tests/fixture.h"

/* A plugin, and the stand-in that it is told to use. */
typedef struct gpu_setup {
  const char *plugin, *setting, *driver, *impl_id;
  const char *math; /* the setting that names the library of matrix products */
  int32_t device_type;
} gpu_setup;

/* Warps of 32 and of 64 threads, both HIP structs of properties. */
enum { GPU_SETUPS = 4 };
extern const gpu_setup gpu_setups[GPU_SETUPS];

/* The host, with the stand-in's settings as they begin. A test that wants cuDNN sets FLHOST_CUDNN before. */
fl_host *gpu_host(const gpu_setup *setup);

/* The plugin without a host, as it registers itself, on its stand-in: how many implementations it has. With a slash in
 * its name it is that below the build directory, else the one that tests have. `math` is the library of matrix products
 * that it is told to use; NULL: the stand-in's. */
int gpu_plugin_impls(const gpu_setup *setup, const char *math, fl_impl *impls, int most);

/* Opens a stand-in by its file's name, for the functions below; gpu_host() does it by itself. */
void stand_in_open(const char *name);
const char *stand_in_path(void);

void stand_in_set(const char *settings);
const char *stand_in_log(void);
void stand_in_clear(void);
/* Lines of the log that begin with the text. */
int stand_in_lines(const char *text);
/* Any function of it; fails the test if there is none. */
void stand_in_find(const char *name, void *function);

/* The status of a call, whose message is in `words`. */
#define assert_call_status(call, expected, words)                                                                      \
  do {                                                                                                                 \
    fl_status got_ = (call);                                                                                           \
    ck_assert_msg(got_ == (expected), "status %d, expected %d: %s", got_, (expected), words);                          \
  } while (0)

#endif
