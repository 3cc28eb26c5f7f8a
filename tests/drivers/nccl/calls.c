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
  } known[] = {{"version", &settings.version}, {"id", &settings.id},         {"init", &settings.init},
               {"run", &settings.run},         {"async", &settings.async},   {"handle", &settings.handle},
               {"queue", &settings.queue},     {"vendor", &settings.vendor}, {"split", &settings.split}};
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

EXPORT int flhost_stand_in_nccl_comms(void);
int flhost_stand_in_nccl_comms(void) {
  return world_comms();
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

/* ----------------------------------------------------------------------------------------------------------- driver */

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

/* ----------------------------------------------------------------------------------------------------------- groups */

enum { MOST_OPS = 256 };

static _Thread_local struct {
  int depth, n;
  nccl_op *first, **last;
  ncclResult_t error;
} group;

static nccl_op *keep(nccl_op op) {
  nccl_op *kept = malloc(sizeof *kept);
  if (!kept)
    abort();
  *kept = op;
  return kept;
}

static void run_queued(const void *arguments) {
  nccl_op *op = *(nccl_op *const *)arguments;
  world_make_held(op);
  free(op);
}

static ncclResult_t queue(nccl_op op) {
  int (*put)(void (*)(const void *), const void *, size_t, void *);
  nccl_op *kept = keep(op);
  *(void **)&put = of_driver("flhost_stand_in_queue");
  world_hold(op.comm);
  return put && !put(run_queued, &kept, sizeof kept, op.stream) ? ncclSuccess : ncclSystemError;
}

/* A list of which each was made by malloc, which it takes. */
static ncclResult_t make_all(nccl_op *first) {
  ncclComm_t comm = first->comm;
  nccl_op *next;
  if (!finish_streams(first))
    return refuse(ncclUnhandledCudaError, "the stream has failed");
  if (comm->background) {
    world_begin(comm, first);
    return ncclInProgress;
  }
  nccl_op *ops[MOST_OPS];
  int n = 0;
  for (nccl_op *op = first; op; op = next) {
    next = op->next;
    ops[n++] = op;
  }
  ncclResult_t result = world_make(first);
  while (n)
    free(ops[--n]);
  return result;
}

ncclResult_t make_at_once(nccl_op op) {
  if (settings.queue && op.kind != KIND_SPLIT)
    return queue(op);
  return make_all(keep(op));
}

ncclResult_t check_idle(ncclComm_t comm) {
  return world_is_busy(comm) ? refuse(ncclInvalidArgument, "used before what was begun is done") : ncclSuccess;
}

static ncclResult_t check(const nccl_op *op) {
  bool reads = op->kind != KIND_RECV, writes = op->kind != KIND_SEND;
  if (!op->comm)
    return refuse(ncclInvalidArgument, "no communicator");
  if (check_idle(op->comm))
    return ncclInvalidArgument;
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
    return result ? result : make_at_once(op);
  if (result) {
    group.error = result;
    return result;
  }
  if (++group.n > MOST_OPS)
    abort();
  *group.last = keep(op);
  group.last = &(*group.last)->next;
  return ncclSuccess;
}

ncclResult_t group_begin(void) {
  if (!group.depth++) {
    group.first = NULL;
    group.last = &group.first;
    group.error = ncclSuccess;
    group.n = 0;
  }
  return ncclSuccess;
}

ncclResult_t group_finish(void) {
  nccl_op *next;
  if (!group.depth)
    return refuse(ncclInvalidUsage, "no group was begun");
  if (--group.depth)
    return ncclSuccess;
  if (!group.error)
    return group.first ? make_all(group.first) : ncclSuccess;
  for (nccl_op *op = group.first; op; op = next) {
    next = op->next;
    free(op);
  }
  return group.error;
}
