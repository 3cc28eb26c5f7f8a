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
typedef void *aclrtEvent;
typedef struct aclTensor aclTensor;
typedef struct aclTensorList aclTensorList;
typedef struct aclScalar aclScalar;
typedef struct aclIntArray aclIntArray;
typedef struct aclOpExecutor aclOpExecutor;

typedef int32_t aclDataType, aclFormat;
typedef uint32_t aclrtMemMallocPolicy, aclrtMemcpyKind, aclrtMemAttr, aclrtDevAttr;
typedef uint32_t aclrtEventRecordedStatus, aclrtDeviceStatus, aclmdlRICaptureMode, aclmdlRICaptureStatus;
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

/* Is there a device node and a runtime library with all functions that are needed of it? Nothing is initialised: the
 * process may still fork. `reason` (a static string) says why not. Any thread. */
bool ascend_acl_open(const char **reason);

/* The same of all libraries that are needed to begin: libraries.c has it for the plugin of operators, the plugin hccl
 * one of its own. */
bool ascend_libraries_open(const char **reason);

/* The functions, once that was true; those of ACL_META_FUNCTIONS in the plugin of operators. */
extern acl_functions acl;

/* A function of the open runtime library; false, and NULL, if it has none of that name. */
bool ascend_acl_find(const char *name, void *function);

/* Is it a stand-in of the tests that was opened? */
bool ascend_is_stand_in(void);

/* Another library of the vendor's by its name as the loader finds it, else in the toolkit; NULL, and dlerror() says
 * why.
 */
void *ascend_open_library(const char *name);
void *ascend_open_of_toolkit(const char *name);

#endif
