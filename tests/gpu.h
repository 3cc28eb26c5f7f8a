/* GPU plugins on stand-in drivers, whose device memory is the host's: alone, as they register themselves, and in a host
 * with the CPU plugin. */
#ifndef FLHOST_TESTS_GPU_H
#define FLHOST_TESTS_GPU_H

#include "tests/fixture.h"
#include "tests/kernels.h"

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

/* A plugin without a host, as it registered itself; `self` is the platform's. */
enum { GPU_MOST_IMPLS = 256 };
typedef struct gpu_plugin {
  fl_impl impls[GPU_MOST_IMPLS];
  int n_impls;
  fl_platform platform;
  void *self;
} gpu_plugin;

/* In the environment as it is. With a slash in its name the plugin is that below the build directory, else the one that
 * tests have. */
void gpu_plugin_open(gpu_plugin *made, const char *name);

/* On its stand-in, which it opens. `math` is the library of matrix products that the plugin is told to use; NULL: the
 * stand-in's. A test that wants cuDNN sets FLHOST_CUDNN before. */
void gpu_plugin_on_stand_in(gpu_plugin *made, const gpu_setup *setup, const char *math);

/* Its implementation of the op under that id; NULL: the first. Fails the test if there is none. */
const fl_impl *gpu_plugin_impl(const gpu_plugin *plugin, const char *op, const char *id);

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

/* The engine's library has made the device's context current, as torch does. Of CUDA's stand-in. */
void stand_in_use_device(int device);

/* A call of silu_and_mul, of ones. */
typedef struct silu_call {
  owned *x, *out;
  fl_value values[2];
} silu_call;
void silu_make(silu_call *silu, int32_t device_type, int32_t device);
void silu_move(silu_call *silu, DLDevice device);
void silu_free(silu_call *silu);
void silu_assert_computed(const silu_call *silu);

/* The status of a call, whose message is in `words`. */
#define assert_call_status(call, expected, words)                                                                      \
  do {                                                                                                                 \
    fl_status got_ = (call);                                                                                           \
    ck_assert_msg(got_ == (expected), "status %d, expected %d: %s", got_, (expected), words);                          \
  } while (0)

#endif
