/*
 * A stand-in for the ACL runtime and the aclnn operators, for tests only: no part of it is installed. Device memory is
 * host memory, work waits in its stream until that is waited for, and operators compute by the reference kernels of the
 * CPU backend. It keeps the rules of the vendor's documentation and counts what breaks them.
 *
 * All declarations here are its own: a plugin that has an argument in the wrong place computes something else.
 */
#ifndef FLHOST_STAND_IN_H
#define FLHOST_STAND_IN_H

#include <flhost/plugin.h>

#define EXPORT __attribute__((visibility("default")))

enum { MAX_DIMS = 8, MAX_TENSORS = 16, MAX_INTS = 8 };

/* aclDataType and aclFormat */
enum { F32 = 0, F16 = 1, I8 = 2, I32 = 3, U8 = 4, I64 = 9, F64 = 11, BOOL = 12, BF16 = 27, F8 = 36 };
enum { NCHW = 0, ND = 2, NCDHW = 30 };

/* What aclnn functions return. */
enum { REFUSED_NULL = 161001, REFUSED = 161002, RUNTIME_ERROR = 361001, NO_KERNEL = 561003 };

typedef struct aclTensor {
  uint32_t magic;
  int n;
  int64_t shape[MAX_DIMS], strides[MAX_DIMS], offset, storage;
  int type, format;
  char *data;
  struct aclTensor *next;
} aclTensor;

typedef struct aclTensorList {
  uint32_t magic;
  uint64_t n;
  aclTensor *tensors[4];
  struct aclTensorList *next;
} aclTensorList;

typedef struct aclScalar {
  uint32_t magic;
  double value;
  struct aclScalar *next;
} aclScalar;

typedef struct aclIntArray {
  uint32_t magic;
  uint64_t n;
  int64_t values[MAX_INTS];
  struct aclIntArray *next;
} aclIntArray;

typedef struct aclOpExecutor aclOpExecutor;
typedef int (*compute_fn)(aclOpExecutor *executor);

/* An operator with its arguments, which are copies: descriptors may be destroyed before the work is done. */
struct aclOpExecutor {
  uint32_t magic;
  const char *name;
  compute_fn compute;
  uint64_t workspace_size;
  int n;
  aclTensor tensors[MAX_TENSORS];
  double f[4];
  int64_t i[8];
  int64_t ints[3][MAX_INTS];
  uint32_t n_ints[3];
  const char *s;
  aclOpExecutor *next;
};

/* ---------------------------------------------------------------------------------------------------------- control */

enum chip { A2 = 1, A3 = 2, P310 = 4, A5 = 8, ANY_CHIP = 15, BIG_CHIP = 11 };
int stand_in_chip(void);
const char *stand_in_soc(void);
int64_t stand_in_setting(const char *name);
void stand_in_words(char *text, size_t size); /* what aclGetRecentErrMsg says */

/* The code that was ordered for a function, 0 if none. Counts the call. */
int stand_in_ordered(const char *function);

__attribute__((format(printf, 1, 2))) void stand_in_note(const char *format, ...);
__attribute__((format(printf, 1, 2))) void stand_in_violation(const char *format, ...);
void stand_in_add(const char *counter, int64_t n);

/* One lock for everything. */
void stand_in_lock(void);
void stand_in_unlock(void);

/* ---------------------------------------------------------------------------------------------------------- runtime */

/* Does the thread have a device? */
int stand_in_has_context(void);

/* Queues an operator; its workspace has to stay until it is done. */
int stand_in_queue(aclOpExecutor *executor, void *workspace, uint64_t size, void *stream);

/* Is it all inside one block of device memory that is not freed? */
int stand_in_is_device_memory(const void *memory, size_t size);

/* -------------------------------------------------------------------------------------------------------- operators */

/*
 * Phase 1. NULL with *status set: an error was ordered, the thread has no device, or the chip has no kernel for it.
 *     aclOpExecutor *e = begin("aclnnSilu", compute_silu, A2 | A3, &status);
 *     if (!e) return status;
 *     take(e, self); take(e, out);
 *     REQUIRE(e, same_shape(e, 0, 1));
 *     return finish(e, workspace_size, executor);
 */
aclOpExecutor *begin(const char *name, compute_fn compute, int chips, int *status);
void take(aclOpExecutor *e, const aclTensor *tensor); /* the next argument; NULL: none */
void take_ints(aclOpExecutor *e, int at, const aclIntArray *array);
int finish(aclOpExecutor *e, uint64_t *workspace_size, aclOpExecutor **executor);
int refuse(aclOpExecutor *e, int status, const char *rule);
int run(const char *name, void *workspace, uint64_t size, aclOpExecutor *executor, void *stream);

#define REQUIRE(e, rule)                                                                                               \
  do {                                                                                                                 \
    if (!(rule))                                                                                                       \
      return refuse((e), REFUSED, #rule);                                                                              \
  } while (0)
#define REQUIRE_TENSOR(e, index)                                                                                       \
  do {                                                                                                                 \
    if (!present((e), (index)))                                                                                        \
      return refuse((e), REFUSED_NULL, "argument " #index " is not NULL");                                             \
  } while (0)

#define PHASE_2(name)                                                                                                  \
  EXPORT int aclnn##name(void *workspace, uint64_t size, aclOpExecutor *executor, void *stream);                       \
  int aclnn##name(void *workspace, uint64_t size, aclOpExecutor *executor, void *stream) {                             \
    return run("aclnn" #name, workspace, size, executor, stream);                                                      \
  }

/* Questions about arguments, by their place. */
int present(const aclOpExecutor *e, int index);
int is_float(const aclOpExecutor *e, int index); /* float32, or of 16 bits; bfloat16 not on 310P */
int is_compact(const aclOpExecutor *e, int index);
int same_shape(const aclOpExecutor *e, int a, int b);
int same_type(const aclOpExecutor *e, int a, int b);
int64_t elements(const aclTensor *tensor);
int element_size(int type);

/* An element by its linear index. */
double get(const aclTensor *tensor, int64_t index);
void put(const aclTensor *tensor, int64_t index, double value);

/* The same memory as a tensor of the CPU, for a reference kernel. Not to be copied. */
typedef struct cpu_tensor_view {
  DLTensor tensor;
  int64_t shape[MAX_DIMS], strides[MAX_DIMS];
} cpu_tensor_view;
DLTensor *as_cpu(cpu_tensor_view *view, const aclTensor *tensor);

/* Calls an op's reference kernel; 0, or the code of a kernel that failed. */
int reference(aclOpExecutor *e, const char *op, fl_value *values, uint32_t n);

#endif
