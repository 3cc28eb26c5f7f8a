/*
 * What an op's file needs: its kernels by name, their launch on a call's stream, and the rows of its tensors.
 *
 *     GPU_MODULE(activation);
 *     static gpu_kernel relu2 = {&gpu_module_activation, "relu2_f32"};
 *     ...
 *     return gpu_launch(op, call, &relu2, &(gpu_shape){.grid = {n, 1, 1}, .block = {256, 1, 1}}, &arguments);
 *
 * A launch allocates nothing and waits for nothing, so that calls can be captured in a graph.
 */
#ifndef FLHOST_GPU_LAUNCH_H
#define FLHOST_GPU_LAUNCH_H

#include "plugins/gpu/driver.h"
#include "plugins/gpu/kernels/arguments/common.h"
#include "plugins/integers.h"
#include "plugins/op_lists.h"

/* One file of kernels, compiled and embedded; image.c defines it. */
typedef struct gpu_module {
  const char *name;
  const void *image;                        /* NULL: built without the compiler */
  _Atomic(void *) handles[GPU_MAX_DEVICES]; /* NULL: not loaded there */
  char reason[GPU_WORDS];                   /* why is_available could not load it */
} gpu_module;
#define GPU_MODULE(name) extern gpu_module gpu_module_##name

/* One kernel. Static, in the file that launches it. */
typedef struct gpu_kernel {
  gpu_module *module;
  const char *name;
  _Atomic(void *) functions[GPU_MAX_DEVICES]; /* found on first use */
} gpu_kernel;

/* An implementation: a row of the list that its file ends with (plugins/op_lists.h). */
typedef struct gpu_op gpu_op;
struct gpu_op {
  const char *name;                                                       /* of the op */
  fl_kernel_fn run;                                                       /* gets the gpu_op as `self` */
  bool (*supports)(void *self, const fl_call *call, const char **reason); /* may be NULL */
  size_t (*workspace_size)(void *self, const fl_call *call);              /* may be NULL */
  uint32_t dtypes;                                                        /* as in fl_impl */
  gpu_module *module;                                                     /* loaded by is_available; may be NULL */
  gpu_module *const *others;                                              /* as well; ended by NULL, may be NULL */
  bool (*is_ready)(const char **reason);                                  /* what else is_available asks; may be NULL */
  const void *variant; /* what `run` makes of several ops in common */
  const char *impl_id; /* NULL: the plugin's */
  int32_t priority;    /* as in fl_impl */
};

typedef struct gpu_shape {
  unsigned grid[3], block[3];
  unsigned shared; /* bytes of dynamic shared memory */
} gpu_shape;

/* Queues a kernel on the call's stream and on the device of the call's first tensor. `arguments` is copied. */
fl_status gpu_launch(const gpu_op *op, fl_call *call, gpu_kernel *kernel, const gpu_shape *shape, void *arguments);

/* Does the call bring the workspace that op->workspace_size asks for? FL_ENOTSUP, with a message, if not. */
fl_status gpu_check_workspace(const gpu_op *op, fl_call *call);

/* The device of the call's first tensor; NULL with status and the call's message set. */
gpu_device *gpu_call_device(const gpu_op *op, fl_call *call, fl_status *status);

/* Loads the module on the thread's device if the thread uses one already: what is loaded can be captured. false: it
 * does not load there. */
bool gpu_module_preload(gpu_module *module, const char **reason);

/* Is the stream being captured in a graph? Not to know counts as no: what follows says more. The device is entered. */
bool gpu_is_captured(void *stream);

/* Something was queued on the device for this op: the first suspect when waiting fails. */
static inline void gpu_note_launch(gpu_device *device, const char *op) {
  if (atomic_load_explicit(&device->last_op, memory_order_relaxed) != op)
    atomic_store_explicit(&device->last_op, op, memory_order_relaxed);
}

/* GPU_OTHER: none that activations may have. */
gpu_dtype gpu_dtype_of(const DLTensor *tensor);

/* What is said of GPU_OTHER where the argument `name` has it: FL_ENOTSUP. */
fl_status gpu_wrong_type(fl_call *call, const char *name);

/* The end of a `supports`: `why` is said of what is not taken. */
static inline bool gpu_answer(bool taken, const char *why, const char **reason) {
  if (!taken && reason)
    *reason = why;
  return taken;
}

/* Bytes of an element. */
static inline int64_t gpu_item_size(const DLTensor *tensor) {
  return tensor->dtype.bits / 8;
}

/* For gpu_load_index. */
static inline int32_t gpu_is_wide(const DLTensor *tensor) {
  return tensor && tensor->dtype.bits == 64;
}

/* The tensor at `index` of a call; NULL if there is none. */
static inline DLTensor *gpu_tensor(const fl_call *call, uint32_t index) {
  return call->values[index].type == FL_TENSOR ? call->values[index].v.tensor : NULL;
}

/* The three kernels of a name, one for each element type. */
#define GPU_KERNELS(file, kernel)                                                                                      \
  {                                                                                                                    \
    {.module = &gpu_module_##file, .name = kernel "_f32"}, {.module = &gpu_module_##file, .name = kernel "_f16"}, {    \
      .module = &gpu_module_##file, .name = kernel "_bf16"                                                             \
    }                                                                                                                  \
  }

/* Rows (last dimension) of up to GPU_ROWS_TENSORS tensors of one leading shape, in step. Leading dimensions that lie
 * one behind the other in all of them become one. A NULL tensor's strides are 0. FL_ENOTSUP: more rows than a kernel
 * counts. */
fl_status gpu_rows_of(const gpu_op *op, fl_call *call, int n_tensors, DLTensor *const *tensors, gpu_rows *rows);

/* Kernels read and write GPU_VECTOR bytes at once where rows are vectors from end to end: so many elements. */
enum { GPU_VECTOR = 16 };

static inline int64_t gpu_vector_length(const DLTensor *tensor) {
  return GPU_VECTOR / gpu_item_size(tensor);
}

/* Do vectors begin at the address, and again every so many bytes? */
static inline bool gpu_is_aligned(const void *data, int64_t bytes) {
  return ((uintptr_t)data | (uint64_t)bytes) % GPU_VECTOR == 0;
}

/* Does every row begin with a vector: of the tensor, and of the tensor that is number `index` of the rows? */
bool gpu_tensor_aligned(const DLTensor *tensor);
bool gpu_rows_aligned(const gpu_rows *rows, int index, const DLTensor *tensor);

/* Blocks in y or z of a grid, for a kernel whose blocks then make the rest as well: no device takes more of them. */
enum { GPU_MOST_BLOCKS = 65535 };

static inline unsigned gpu_limit_blocks(int64_t wanted) {
  return (unsigned)(wanted < GPU_MOST_BLOCKS ? wanted : GPU_MOST_BLOCKS);
}

/* Blocks of x by y threads, for so many threads along a row, and rows. */
static inline gpu_shape gpu_shape_of(int64_t threads, int64_t rows, unsigned x, unsigned y) {
  return (gpu_shape){.grid = {(unsigned)divide_up(threads, x), gpu_limit_blocks(divide_up(rows, y)), 1},
                     .block = {x, y, 1}};
}

/* The least power of two that is not less than `n`, but at most `limit`, itself one. */
unsigned gpu_power_of_two(int64_t n, unsigned limit);

/* The same for the threads of a block that works together: at least a warp of the device. */
unsigned gpu_block_size(const gpu_device *device, int64_t n, unsigned limit);

#endif
