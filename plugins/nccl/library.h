/*
 * The library of collectives, opened by name and never linked; what is missing is said in words. Which one is decided
 * when a plugin is linked: library.c is NCCL's, with nccl.c, and RCCL's, with rccl.c; plugins/flagcx has one for
 * FlagCX, whose numbers and most of whose functions are NCCL's.
 */
#ifndef FLHOST_NCCL_LIBRARY_H
#define FLHOST_NCCL_LIBRARY_H

#include "plugins/gpu/driver.h"
#include "plugins/nccl/nccl_functions.h"

#include <flhost/communicator.h>

/* The vendor's types, as far as they are passed. */
typedef int ncclResult_t, ncclDataType_t, ncclRedOp_t;
typedef void *ncclComm_t, *cudaStream_t;

enum {
#define NCCL_CONSTANT(name, value) name = (value),
  NCCL_CONSTANTS(NCCL_CONSTANT)
#undef NCCL_CONSTANT
#define NCCL_RESULT(name, value, status) name = (value),
      NCCL_RESULTS(NCCL_RESULT)
#undef NCCL_RESULT
          ncclSuccess = 0
};

typedef struct ncclUniqueId {
  char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef struct ncclConfig {
#define NCCL_CONFIG_FIELD(type, field) type field;
  NCCL_CONFIG_FIELDS(NCCL_CONFIG_FIELD)
#undef NCCL_CONFIG_FIELD
} ncclConfig_t;

/* What they differ in. */
typedef struct nccl_vendor_facts {
  const char *name;   /* "nccl", of the communicator */
  const char *title;  /* "NCCL" */
  const char *prefix; /* "nccl", of the library's functions */
  fl_kind kind;       /* FL_KIND_VENDOR: of the driver's vendor */
  uint32_t id_size;
  /* Of library.c alone: names for the loader, the usual one first, ended by NULL; */
  const char *libraries[3];
  const char *root; /* variable that names the vendor's directory, and that directory; NULL: the loader's alone; */
  const char *usual_root;
  const char *beside_torch[3]; /* where wheels have it, seen from the directory of torch's libraries; ended by NULL */
} nccl_vendor_facts;
extern const nccl_vendor_facts nccl_vendor;

/* What is called of the library, once nccl_open said yes. */
typedef struct nccl_calls {
  /* Functions of it that are alike in all of them. */
  ncclResult_t (*all_reduce)(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                             ncclComm_t comm, cudaStream_t stream);
  ncclResult_t (*reduce)(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                         ncclComm_t comm, cudaStream_t stream);
  ncclResult_t (*broadcast)(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                            cudaStream_t stream);
  ncclResult_t (*all_gather)(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                             cudaStream_t stream);
  ncclResult_t (*reduce_scatter)(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                 ncclComm_t comm, cudaStream_t stream);
  ncclResult_t (*send)(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                       cudaStream_t stream);
  ncclResult_t (*recv)(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream);
  ncclResult_t (*abort)(ncclComm_t comm);
  /* NULL, or all four: they are made of sends and receives then. */
  ncclResult_t (*gather)(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                         cudaStream_t stream);
  ncclResult_t (*scatter)(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                          cudaStream_t stream);
  ncclResult_t (*all_to_all)(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                             cudaStream_t stream);
  ncclResult_t (*all_to_all_v)(const void *send, size_t *send_counts, size_t *send_offsets, void *recv,
                               size_t *recv_counts, size_t *recv_offsets, ncclDataType_t type, ncclComm_t comm,
                               cudaStream_t stream);
  ncclResult_t (*split)(ncclComm_t comm, int color, int key, ncclComm_t *made, ncclConfig_t *config); /* may be NULL */
  /* What each does in its own way. */
  ncclResult_t (*make_id)(void *id);
  ncclResult_t (*init_rank)(ncclComm_t *made, int ranks, const void *id, int rank);
  /* The same, of a communicator whose functions come back with ncclInProgress where they would wait; may be NULL. One
   * that failed has to be aborted if it was made. */
  ncclResult_t (*begin_rank)(ncclComm_t *made, int ranks, const void *id, int rank);
  ncclResult_t (*finalize)(ncclComm_t comm); /* ends what is under way, before `destroy`; may be NULL */
  ncclResult_t (*destroy)(ncclComm_t comm);
  ncclResult_t (*get_async_error)(ncclComm_t comm, ncclResult_t *found);
  ncclResult_t (*group_start)(ncclComm_t comm);
  ncclResult_t (*group_end)(ncclComm_t comm);
  /* The library's stream for the driver's, of a rank that keeps in *streams what the library wants; NULL: the same. */
  ncclResult_t (*find_stream)(void **streams, void *raw, cudaStream_t *stream);
  void (*free_streams)(void *streams);
} nccl_calls;
extern nccl_calls nccl;

/* Reads the setting that says where the library is. At registration. */
void nccl_choose_library(fl_registry *registry);

/* Is it there, with all that is needed? Opens it, which initialises no driver. Any thread; where it is not there the
 * next call looks again, as torch may have come since. */
bool nccl_open(const char **reason);

/* What a result other than ncclSuccess means, and its status. */
fl_status nccl_words(ncclResult_t result, char *words, size_t size);

#endif
