/*
 * What this plugin uses of cuDNN 9: functions and constants, as the vendor's header cudnn_graph.h declares them. Lists,
 * so that the table of functions (cudnn.c) and the check against the real header (tests/headers/cudnn.c) are made of
 * the same lines. No type is declared here: cudnn.h has ours, the check has the vendor's.
 */
#ifndef FLHOST_GPU_CUDNN_FUNCTIONS_H
#define FLHOST_GPU_CUDNN_FUNCTIONS_H

/* X(result, name, field of the table, arguments) */
#define DNN_FUNCTIONS(X)                                                                                               \
  X(size_t, cudnnGetVersion, version, (void))                                                                          \
  X(const char *, cudnnGetErrorString, error_name, (cudnnStatus_t status))                                             \
  X(void, cudnnGetLastErrorString, last_error, (char *message, size_t size))                                           \
  X(cudnnStatus_t, cudnnCreate, create, (cudnnHandle_t * handle))                                                      \
  X(cudnnStatus_t, cudnnDestroy, destroy, (cudnnHandle_t handle))                                                      \
  X(cudnnStatus_t, cudnnSetStream, set_stream, (cudnnHandle_t handle, cudaStream_t stream))                            \
  X(cudnnStatus_t, cudnnBackendCreateDescriptor, create_descriptor,                                                    \
    (cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t * descriptor))                                        \
  X(cudnnStatus_t, cudnnBackendDestroyDescriptor, destroy_descriptor, (cudnnBackendDescriptor_t descriptor))           \
  X(cudnnStatus_t, cudnnBackendFinalize, finalize, (cudnnBackendDescriptor_t descriptor))                              \
  X(cudnnStatus_t, cudnnBackendSetAttribute, set,                                                                      \
    (cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,          \
     int64_t count, const void *elements))                                                                             \
  X(cudnnStatus_t, cudnnBackendGetAttribute, get,                                                                      \
    (cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,          \
     int64_t requested, int64_t * count, void *elements))                                                              \
  X(cudnnStatus_t, cudnnBackendExecute, execute,                                                                       \
    (cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack))

/* X(name, value) */
#define DNN_CONSTANTS(X)                                                                                               \
  X(CUDNN_STATUS_SUCCESS, 0)                                                                                           \
  X(CUDNN_STATUS_NOT_INITIALIZED, 1001)                                                                                \
  X(CUDNN_STATUS_BAD_PARAM, 2000)                                                                                      \
  X(CUDNN_STATUS_NOT_SUPPORTED, 3000)                                                                                  \
  X(CUDNN_STATUS_INTERNAL_ERROR, 4000)                                                                                 \
  X(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, 4003)                                                          \
  X(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED, 4004)                                                        \
  X(CUDNN_STATUS_EXECUTION_FAILED, 5000)                                                                               \
  X(CUDNN_DATA_FLOAT, 0)                                                                                               \
  X(CUDNN_DATA_HALF, 2)                                                                                                \
  X(CUDNN_DATA_BFLOAT16, 9)                                                                                            \
  X(CUDNN_CROSS_CORRELATION, 1)                                                                                        \
  X(CUDNN_POINTWISE_ADD, 0)                                                                                            \
  X(CUDNN_HEUR_MODE_FALLBACK, 2)                                                                                       \
  X(CUDNN_HEUR_MODE_A, 3)                                                                                              \
  X(CUDNN_NUMERICAL_NOTE_TENSOR_CORE, 0)                                                                               \
  X(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, 1)                                                                       \
  X(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, 2)                                                               \
  X(CUDNN_NUMERICAL_NOTE_FFT, 3)                                                                                       \
  X(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, 4)                                                                          \
  X(CUDNN_NUMERICAL_NOTE_WINOGRAD, 5)                                                                                  \
  X(CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4, 6)                                                                         \
  X(CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6, 7)                                                                         \
  X(CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13, 8)                                                                       \
  X(CUDNN_TYPE_HANDLE, 0)                                                                                              \
  X(CUDNN_TYPE_DATA_TYPE, 1)                                                                                           \
  X(CUDNN_TYPE_BOOLEAN, 2)                                                                                             \
  X(CUDNN_TYPE_INT64, 3)                                                                                               \
  X(CUDNN_TYPE_FLOAT, 4)                                                                                               \
  X(CUDNN_TYPE_VOID_PTR, 6)                                                                                            \
  X(CUDNN_TYPE_CONVOLUTION_MODE, 7)                                                                                    \
  X(CUDNN_TYPE_HEUR_MODE, 8)                                                                                           \
  X(CUDNN_TYPE_NUMERICAL_NOTE, 11)                                                                                     \
  X(CUDNN_TYPE_POINTWISE_MODE, 14)                                                                                     \
  X(CUDNN_TYPE_BACKEND_DESCRIPTOR, 15)                                                                                 \
  X(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, 0)                                                                             \
  X(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, 1)                                                                           \
  X(CUDNN_BACKEND_ENGINE_DESCRIPTOR, 2)                                                                                \
  X(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, 3)                                                                             \
  X(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, 4)                                                                            \
  X(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, 5)                                                                        \
  X(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, 10)                                                        \
  X(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, 13)                                                                  \
  X(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, 15)                                                                       \
  X(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, 16)                                                                         \
  X(CUDNN_BACKEND_TENSOR_DESCRIPTOR, 17)                                                                               \
  X(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, 38)                                                                           \
  X(CUDNN_ATTR_POINTWISE_MODE, 0)                                                                                      \
  X(CUDNN_ATTR_POINTWISE_MATH_PREC, 1)                                                                                 \
  X(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, 100)                                                                             \
  X(CUDNN_ATTR_CONVOLUTION_CONV_MODE, 101)                                                                             \
  X(CUDNN_ATTR_CONVOLUTION_DILATIONS, 102)                                                                             \
  X(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 103)                                                                        \
  X(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 104)                                                                         \
  X(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 105)                                                                          \
  X(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 106)                                                                          \
  X(CUDNN_ATTR_ENGINEHEUR_MODE, 200)                                                                                   \
  X(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, 201)                                                                        \
  X(CUDNN_ATTR_ENGINEHEUR_RESULTS, 202)                                                                                \
  X(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, 204)                                                                             \
  X(CUDNN_ATTR_ENGINECFG_ENGINE, 300)                                                                                  \
  X(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 401)                                                                      \
  X(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 402)                                                                     \
  X(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, 407)                                                                         \
  X(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 700)                                                               \
  X(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 701)                                                                \
  X(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, 702)                                                           \
  X(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, 703)                                                                   \
  X(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, 704)                                                                   \
  X(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, 705)                                                                   \
  X(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 750)                                                                 \
  X(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, 751)                                                                         \
  X(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, 752)                                                                         \
  X(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, 753)                                                                         \
  X(CUDNN_ATTR_OPERATIONGRAPH_OPS, 801)                                                                                \
  X(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 900)                                                                             \
  X(CUDNN_ATTR_TENSOR_DATA_TYPE, 901)                                                                                  \
  X(CUDNN_ATTR_TENSOR_DIMENSIONS, 902)                                                                                 \
  X(CUDNN_ATTR_TENSOR_STRIDES, 903)                                                                                    \
  X(CUDNN_ATTR_TENSOR_UNIQUE_ID, 906)                                                                                  \
  X(CUDNN_ATTR_TENSOR_IS_VIRTUAL, 907)                                                                                 \
  X(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, 1000)                                                                          \
  X(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, 1001)                                                                       \
  X(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 1003)                                                                           \
  X(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 1301)                                                                              \
  X(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, 1303)                                                                            \
  X(CUDNN_ATTR_DEVICEPROP_HANDLE, 2701)

#endif
