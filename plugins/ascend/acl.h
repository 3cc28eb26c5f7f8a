/*
 * The ACL runtime as this plugin sees it: opaque handles, enumerations as plain integers of their size, and a table of
 * the functions, which are looked up at run time. CANN is not needed to build the plugin, nor is any of its headers.
 */
#ifndef FLHOST_ASCEND_ACL_H
#define FLHOST_ASCEND_ACL_H

#include "plugins/ascend/acl_functions.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int aclError;
typedef int32_t aclnnStatus;
typedef void *aclrtContext;
typedef void *aclrtStream;
typedef struct aclTensor aclTensor;
typedef struct aclTensorList aclTensorList;
typedef struct aclScalar aclScalar;
typedef struct aclIntArray aclIntArray;
typedef struct aclOpExecutor aclOpExecutor;

typedef int32_t aclDataType, aclFormat;
typedef uint32_t aclrtMemMallocPolicy, aclrtMemcpyKind, aclrtMemAttr, aclrtDevAttr, aclmdlRICaptureStatus;
typedef void *aclmdlRI;

#define ACL_CONSTANT(name, value) name = (value),
enum { ACL_RUNTIME_CONSTANTS(ACL_CONSTANT) ACL_RUNTIME_CODES(ACL_CONSTANT) };
#undef ACL_CONSTANT

/* Of aclnn calls. */
enum {
  ACLNN_ERR_PARAM_NULLPTR = 161001,
  ACLNN_ERR_PARAM_INVALID = 161002,
  ACLNN_ERR_INNER_TILING_ERROR = 561002,
  ACLNN_ERR_INNER_FIND_KERNEL_ERROR = 561003,
  ACLNN_ERR_INNER_OPP_PATH_NOT_FOUND = 561107,
  ACLNN_ERR_INNER_OPP_KERNEL_PKG_NOT_FOUND = 561112
};

typedef struct acl_functions {
#define ACL_MEMBER(result, name, arguments) result(*name) arguments;
  ACL_RUNTIME_FUNCTIONS(ACL_MEMBER)
  ACL_OPTIONAL_FUNCTIONS(ACL_MEMBER)
  ACL_META_FUNCTIONS(ACL_MEMBER)
#undef ACL_MEMBER
} acl_functions;

#endif
