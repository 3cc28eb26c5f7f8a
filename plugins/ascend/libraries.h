/* The vendor's libraries: found at run time, opened once, never closed. */
#ifndef FLHOST_ASCEND_LIBRARIES_H
#define FLHOST_ASCEND_LIBRARIES_H

#include "plugins/ascend/aclnn.h"

/* Both phases of an operator. */
typedef struct aclnn_functions {
  void *phase_1; /* an aclnn_NAME */
  aclnn_phase_2 phase_2;
} aclnn_functions;

/* "aclnnSwiGlu" */
const char *ascend_operator_name(aclnn_operator operator_);

/* Looks it up in the operator libraries, the first time only; NULL when none of them has both functions. Any thread. */
const aclnn_functions *ascend_operator(aclnn_operator operator_);

#endif
