/*
 * The library of collectives, NCCL or RCCL, opened by name and never linked; what is missing is said in words. Which of
 * the two is decided when a plugin is linked: nccl.c or rccl.c defines `nccl_vendor`.
 */
#ifndef FLHOST_NCCL_LIBRARY_H
#define FLHOST_NCCL_LIBRARY_H

#include "plugins/gpu/driver.h"
#include "plugins/nccl/nccl_functions.h"

#include <flhost/communicator.h>

/* The vendor's types, as far as they are passed. */
typedef int ncclResult_t, ncclDataType_t, ncclRedOp_t;
typedef void *ncclComm_t, *cudaStream_t, ncclConfig_t;

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

/* What the two differ in. */
typedef struct nccl_vendor_facts {
  const char *name;         /* "nccl", of the communicator */
  const char *title;        /* "NCCL" */
  const char *libraries[3]; /* names for the loader, the usual one first, ended by NULL */
  const char *root; /* variable that names the vendor's directory, and that directory; NULL: the loader's alone */
  const char *usual_root;
  const char *beside_torch[3]; /* where wheels have it, seen from the directory of torch's libraries; ended by NULL */
} nccl_vendor_facts;
extern const nccl_vendor_facts nccl_vendor;

/* The library's functions, once nccl_open said yes; of NCCL_OPTIONAL some are NULL. */
typedef struct nccl_table {
#define NCCL_FIELD(name, field, result, arguments) result(*field) arguments;
  NCCL_FUNCTIONS(NCCL_FIELD)
  NCCL_OPTIONAL(NCCL_FIELD)
#undef NCCL_FIELD
} nccl_table;
extern nccl_table nccl;

/* Reads VLLM_NCCL_SO_PATH. At registration. */
void nccl_choose_library(void);

/* Is it there, with all that is needed? Opens it, which initialises no driver. Any thread; where it is not there the
 * next call looks again, as torch may have come since. */
bool nccl_open(const char **reason);

/* The status for a result other than ncclSuccess that `step` gave, said in the message. */
fl_status nccl_failed(ncclResult_t result, const char *step, char *message, size_t message_size);

#endif
