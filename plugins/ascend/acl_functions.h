/*
 * What this plugin uses of the ACL runtime: functions and constants, as the vendor's headers declare them. Lists, so
 * that the table of functions (acl.h) and the check against the real headers (tests/acl_headers.c) are made of the same
 * lines. No type is declared here: acl.h has ours, the check has the vendor's.
 */
#ifndef FLHOST_ASCEND_ACL_FUNCTIONS_H
#define FLHOST_ASCEND_ACL_FUNCTIONS_H

/* libascendcl.so: X(result, name, arguments). acl/acl_rt.h of ACL 1.17. */
#define ACL_RUNTIME_FUNCTIONS(X)                                                                                       \
  X(aclError, aclInit, (const char *config_path))                                                                      \
  X(const char *, aclGetRecentErrMsg, (void))                                                                          \
  X(const char *, aclrtGetSocName, (void))                                                                             \
  X(aclError, aclrtGetVersion, (int32_t * major, int32_t * minor, int32_t * patch))                                    \
  X(aclError, aclrtGetDeviceCount, (uint32_t * count))                                                                 \
  X(aclError, aclrtSetDevice, (int32_t device))                                                                        \
  X(aclError, aclrtResetDevice, (int32_t device))                                                                      \
  X(aclError, aclrtGetDevice, (int32_t * device))                                                                      \
  X(aclError, aclrtGetCurrentContext, (aclrtContext * context))                                                        \
  X(aclError, aclrtSetCurrentContext, (aclrtContext context))                                                          \
  X(aclError, aclrtCreateStream, (aclrtStream * stream))                                                               \
  X(aclError, aclrtDestroyStream, (aclrtStream stream))                                                                \
  X(aclError, aclrtSynchronizeStream, (aclrtStream stream))                                                            \
  X(aclError, aclrtSynchronizeDevice, (void))                                                                          \
  X(aclError, aclrtMalloc, (void **memory, size_t size, aclrtMemMallocPolicy policy))                                  \
  X(aclError, aclrtFree, (void *memory))                                                                               \
  X(aclError, aclrtMemcpy, (void *to, size_t room, const void *from, size_t size, aclrtMemcpyKind kind))               \
  X(aclError, aclrtMemcpyAsync,                                                                                        \
    (void *to, size_t room, const void *from, size_t size, aclrtMemcpyKind kind, aclrtStream stream))                  \
  X(aclError, aclrtGetMemInfo, (aclrtMemAttr attribute, size_t * free_size, size_t * total))                           \
  X(aclError, aclrtGetDeviceInfo, (uint32_t device, aclrtDevAttr attribute, int64_t * value))

/* Those that older runtimes lack. Of a paragraph of fl_platform (plugin.h) all are there, or it has no such thing. */
#define ACL_EVENT_FUNCTIONS(X)                                                                                         \
  X(aclError, aclrtCreateEventExWithFlag, (aclrtEvent * event, uint32_t flag))                                         \
  X(aclError, aclrtDestroyEvent, (aclrtEvent event))                                                                   \
  X(aclError, aclrtRecordEvent, (aclrtEvent event, aclrtStream stream))                                                \
  X(aclError, aclrtStreamWaitEvent, (aclrtStream stream, aclrtEvent event))                                            \
  X(aclError, aclrtQueryEventStatus, (aclrtEvent event, aclrtEventRecordedStatus * status))                            \
  X(aclError, aclrtSynchronizeEvent, (aclrtEvent event))                                                               \
  X(aclError, aclrtEventElapsedTime, (float *ms, aclrtEvent first, aclrtEvent last))

#define ACL_HOST_MEMORY_FUNCTIONS(X)                                                                                   \
  X(aclError, aclrtMallocHost, (void **memory, size_t size))                                                           \
  X(aclError, aclrtFreeHost, (void *memory))

#define ACL_GRAPH_FUNCTIONS(X)                                                                                         \
  X(aclError, aclmdlRICaptureBegin, (aclrtStream stream, aclmdlRICaptureMode mode))                                    \
  X(aclError, aclmdlRICaptureGetInfo, (aclrtStream stream, aclmdlRICaptureStatus * status, aclmdlRI * graph))          \
  X(aclError, aclmdlRICaptureEnd, (aclrtStream stream, aclmdlRI * graph))                                              \
  X(aclError, aclmdlRIExecuteAsync, (aclmdlRI graph, aclrtStream stream))                                              \
  X(aclError, aclmdlRIDestroy, (aclmdlRI graph))

#define ACL_HEALTH_FUNCTIONS(X) X(aclError, aclrtQueryDeviceStatus, (int32_t device, aclrtDeviceStatus * status))

#define ACL_OPTIONAL_FUNCTIONS(X)                                                                                      \
  X(aclError, aclrtGetPrimaryCtxState, (int32_t device, uint32_t * flags, int32_t * active))                           \
  X(aclError, aclrtCreateStreamWithConfig, (aclrtStream * stream, uint32_t priority, uint32_t flag))                   \
  X(aclError, aclrtDeviceGetStreamPriorityRange, (int32_t * least, int32_t * greatest))                                \
  X(aclError, aclrtSynchronizeStreamWithTimeout, (aclrtStream stream, int32_t milliseconds))                           \
  ACL_EVENT_FUNCTIONS(X)                                                                                               \
  ACL_HOST_MEMORY_FUNCTIONS(X)                                                                                         \
  ACL_GRAPH_FUNCTIONS(X)                                                                                               \
  ACL_HEALTH_FUNCTIONS(X)

/* X(name, value) */
#define ACL_RUNTIME_CONSTANTS(X)                                                                                       \
  X(ACL_MEM_MALLOC_HUGE_FIRST, 0)                                                                                      \
  X(ACL_MEMCPY_HOST_TO_DEVICE, 1)                                                                                      \
  X(ACL_MEMCPY_DEVICE_TO_HOST, 2)                                                                                      \
  X(ACL_MEMCPY_DEVICE_TO_DEVICE, 3)                                                                                    \
  X(ACL_DDR_MEM, 0)                                                                                                    \
  X(ACL_HBM_MEM, 1)                                                                                                    \
  X(ACL_DEV_ATTR_AICORE_CORE_NUM, 101)                                                                                 \
  X(ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE, 301)                                                                           \
  X(ACL_STREAM_FAST_LAUNCH, 1)                                                                                         \
  X(ACL_STREAM_FAST_SYNC, 2)                                                                                           \
  X(ACL_EVENT_SYNC, 1)                                                                                                 \
  X(ACL_EVENT_TIME_LINE, 8)                                                                                            \
  X(ACL_EVENT_RECORDED_STATUS_NOT_READY, 0)                                                                            \
  X(ACL_EVENT_RECORDED_STATUS_COMPLETE, 1)                                                                             \
  X(ACL_RT_DEVICE_STATUS_NORMAL, 0)                                                                                    \
  X(ACL_MODEL_RI_CAPTURE_STATUS_NONE, 0)                                                                               \
  X(ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL, 1)                                                                         \
  X(ACL_DT_UNDEFINED, -1)                                                                                              \
  X(ACL_FLOAT, 0)                                                                                                      \
  X(ACL_FLOAT16, 1)                                                                                                    \
  X(ACL_INT8, 2)                                                                                                       \
  X(ACL_INT32, 3)                                                                                                      \
  X(ACL_UINT8, 4)                                                                                                      \
  X(ACL_INT64, 9)                                                                                                      \
  X(ACL_DOUBLE, 11)                                                                                                    \
  X(ACL_BOOL, 12)                                                                                                      \
  X(ACL_BF16, 27)                                                                                                      \
  X(ACL_FLOAT8_E4M3FN, 36)                                                                                             \
  X(ACL_FORMAT_NCHW, 0)                                                                                                \
  X(ACL_FORMAT_ND, 2)                                                                                                  \
  X(ACL_FORMAT_NCDHW, 30)

/* What the runtime returns, as the plugin has to tell it apart: X(name, value). */
#define ACL_RUNTIME_CODES(X)                                                                                           \
  X(ACL_ERROR_REPEAT_INITIALIZE, 100002)                                                                               \
  X(ACL_ERROR_BAD_ALLOC, 200000)                                                                                       \
  X(ACL_ERROR_RT_CONTEXT_NULL, 107002)                                                                                 \
  X(ACL_ERROR_RT_DEVICE_TASK_ABORT, 107022)                                                                            \
  X(ACL_ERROR_RT_CAPTURE_DEPENDENCY, 107024)                                                                           \
  X(ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT, 107031)                                                                      \
  X(ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD, 107038)                                                                  \
  X(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, 207000)                                                                          \
  X(ACL_ERROR_RT_MEMORY_ALLOCATION, 207001)                                                                            \
  X(ACL_ERROR_RT_NO_EVENT_RESOURCE, 207007)                                                                            \
  X(ACL_ERROR_RT_NO_MODEL_RESOURCE, 207010)                                                                            \
  X(ACL_ERROR_RT_DEVICE_OOM, 207018)                                                                                   \
  X(ACL_ERROR_RT_LOST_HEARTBEAT, 507010)                                                                               \
  X(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, 507046)                                                                          \
  X(ACL_ERROR_RT_DEVICE_MEM_ERROR, 507053)                                                                             \
  X(ACL_ERROR_RT_HBM_MULTI_BIT_ECC_ERROR, 507054)                                                                      \
  X(ACL_ERROR_RT_SOCKET_CLOSE, 507901)                                                                                 \
  X(ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED, 507903)

/* libnnopbase.so: what describes arguments of operators. include/nnopbase/aclnn/acl_meta.h of CANN's opbase, which is
 * C++. */
#define ACL_META_FUNCTIONS(X)                                                                                          \
  X(aclTensor *, aclCreateTensor,                                                                                      \
    (const int64_t *shape, uint64_t n_dims, aclDataType type, const int64_t *strides, int64_t offset,                  \
     aclFormat format, const int64_t *storage_shape, uint64_t n_storage_dims, void *data))                             \
  X(aclScalar *, aclCreateScalar, (void *value, aclDataType type))                                                     \
  X(aclIntArray *, aclCreateIntArray, (const int64_t *values, uint64_t n))                                             \
  X(aclTensorList *, aclCreateTensorList, (const aclTensor *const *tensors, uint64_t n))                               \
  X(aclnnStatus, aclDestroyTensor, (const aclTensor *tensor))                                                          \
  X(aclnnStatus, aclDestroyScalar, (const aclScalar *scalar))                                                          \
  X(aclnnStatus, aclDestroyIntArray, (const aclIntArray *array))                                                       \
  X(aclnnStatus, aclDestroyTensorList, (const aclTensorList *list))                                                    \
  X(aclnnStatus, aclDestroyAclOpExecutor, (aclOpExecutor * executor))

#endif
