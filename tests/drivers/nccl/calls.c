/* What the libraries' functions have alike: see calls.h. */
#include "tests/drivers/nccl/calls.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

stand_in_settings settings;

static atomic_int calls[KINDS];
static _Thread_local char last_error[128];

EXPORT bool flhost_stand_in_nccl_set(const char *name, int value);
bool flhost_stand_in_nccl_set(const char *name, int value) {
  const struct {
    const char *name;
    atomic_int *setting;
  } known[] = {{"version", &settings.version}, {"id", &settings.id},       {"init", &settings.init},
               {"run", &settings.run},         {"async", &settings.async}, {"handle", &settings.handle},
               {"vendor", &settings.vendor}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (!strcmp(known[i].name, name)) {
      atomic_store(known[i].setting, value);
      return true;
    }
  return false;
}

EXPORT int flhost_stand_in_nccl_calls(int kind);
int flhost_stand_in_nccl_calls(int kind) {
  return atomic_load(&calls[kind]);
}

const char *refused_words(void) {
  return last_error;
}

void count_call(nccl_kind kind) {
  atomic_fetch_add(&calls[kind], 1);
}

ncclResult_t refuse(ncclResult_t result, const char *words) {
  snprintf(last_error, sizeof last_error, "stand-in: %s\n", words);
  return result;
}

/* ----------------------------------------------------------------------------------------------------------- driver
 */

#ifdef STANDIN_ACL
#define DRIVER      NULL
#define GET_DEVICE  "aclrtGetDevice"
#define SYNCHRONIZE "aclrtSynchronizeStream"
#elif defined STANDIN_HIP
#define DRIVER      "FLHOST_ROCM_DRIVER"
#define GET_DEVICE  "hipGetDevice"
#define SYNCHRONIZE "hipStreamSynchronize"
#else
#define DRIVER      "FLHOST_CUDA_DRIVER"
#define GET_DEVICE  "cuCtxGetDevice"
#define SYNCHRONIZE "cuStreamSynchronize"
#endif

/* The driver's stand-in, which the process has; ACL's has the name of the vendor's library. */
static void *of_driver(const char *name) {
  const char *variable = DRIVER, *path = variable ? getenv(variable) : "libascendcl.so";
  void *library = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
  return library ? dlsym(library, name) : NULL;
}

bool find_device(int *device) {
  int (*get)(int *);
  *(void **)&get = of_driver(GET_DEVICE);
  return get && !get(device);
}

/* What was queued on the streams before. */
static bool finish_streams(const nccl_op *first) {
  int (*synchronize)(void *);
  *(void **)&synchronize = of_driver(SYNCHRONIZE);
  for (const nccl_op *op = first; op && synchronize; op = op->next)
    if (op->kind != KIND_SPLIT && synchronize(op->stream))
      return false;
  return true;
}

/* ----------------------------------------------------------------------------------------------------------- groups
 */

static _Thread_local struct {
  int depth;
  nccl_op *first, **last;
  ncclResult_t error;
} group;

ncclResult_t make_at_once(nccl_op *op) {
  return finish_streams(op) ? world_make(op) : refuse(ncclUnhandledCudaError, "the stream has failed");
}

static ncclResult_t check(const nccl_op *op) {
  bool reads = op->kind != KIND_RECV, writes = op->kind != KIND_SEND;
  if (!op->comm)
    return refuse(ncclInvalidArgument, "no communicator");
  if (op->type < 0 || op->type > ncclBfloat16)
    return refuse(ncclInvalidArgument, "a datatype that there is not");
  if (op->op < 0 || op->op > ncclAvg)
    return refuse(ncclInvalidArgument, "a reduction that there is not");
  if (op->root < 0 || op->root >= world_ranks(op->comm->world))
    return refuse(ncclInvalidArgument, "a root or peer that there is not");
  if (op->kind == KIND_BROADCAST)
    reads = op->comm->rank == op->root;
  if (op->kind == KIND_REDUCE)
    writes = op->comm->rank == op->root;
  if (op->count && ((reads && !op->send) || (writes && !op->recv)))
    return refuse(ncclInvalidArgument, "a buffer is NULL");
  return settings.run ? refuse(settings.run, "as it was told to") : ncclSuccess;
}

ncclResult_t submit(nccl_op op) {
  ncclResult_t result = check(&op);
  count_call(op.kind);
  if (!group.depth)
    return result ? result : make_at_once(&op);
  if (result) {
    group.error = result;
    return result;
  }
  nccl_op *kept = malloc(sizeof *kept);
  if (!kept)
    return group.error = ncclSystemError;
  *kept = op;
  *group.last = kept;
  group.last = &kept->next;
  return ncclSuccess;
}

ncclResult_t group_begin(void) {
  if (!group.depth++) {
    group.first = NULL;
    group.last = &group.first;
    group.error = ncclSuccess;
  }
  return ncclSuccess;
}

/* The list is the ranks' while it is made; what is to be freed is kept beside. */
ncclResult_t group_finish(void) {
  enum { MOST = 256 };
  nccl_op *ops[MOST];
  int n = 0;
  if (!group.depth)
    return refuse(ncclInvalidUsage, "no group was begun");
  if (--group.depth)
    return ncclSuccess;
  for (nccl_op *op = group.first; op; op = op->next) {
    if (n == MOST)
      abort();
    ops[n++] = op;
  }
  ncclResult_t result = group.error;
  if (!result && n)
    result = make_at_once(group.first);
  while (n)
    free(ops[--n]);
  return result;
}
