/*
 * What work.c calls of a driver: functions and constants of CUDA's driver API (11.4 and later) and of HIP (ROCm 5.2 and
 * later), which agree but for names, and for the types that stand for handles. Lists, so that the table of functions
 * (driver.h), the stand-in drivers and the checks against the real headers (tests/headers/cuda.c, hip.c) are made of
 * the same lines. No type is declared here: driver.h has ours, the checks have the vendors'.
 *
 * The names are those of the libraries. Headers of CUDA 13 call cuEventElapsedTime_v2 by the name that is here, which
 * libraries before 12.8 lack.
 */
#ifndef FLHOST_GPU_WORK_FUNCTIONS_H
#define FLHOST_GPU_WORK_FUNCTIONS_H

/* X(what a driver without it lacks, field of the table, CUDA's name, HIP's name, arguments) */
#define GPU_WORK_FUNCTIONS(X)                                                                                          \
  X(STREAMS, priorities, cuCtxGetStreamPriorityRange, hipDeviceGetStreamPriorityRange, (int *least, int *greatest))    \
  X(STREAMS, create_stream, cuStreamCreateWithPriority, hipStreamCreateWithPriority,                                   \
    (gpu_stream * stream, unsigned flags, int priority))                                                               \
  X(STREAMS, destroy_stream, cuStreamDestroy_v2, hipStreamDestroy, (gpu_stream stream))                                \
  X(EVENTS, create_event, cuEventCreate, hipEventCreateWithFlags, (gpu_event * event, unsigned flags))                 \
  X(EVENTS, destroy_event, cuEventDestroy_v2, hipEventDestroy, (gpu_event event))                                      \
  X(EVENTS, record_event, cuEventRecord, hipEventRecord, (gpu_event event, gpu_stream stream))                         \
  X(EVENTS, wait_event, cuStreamWaitEvent, hipStreamWaitEvent, (gpu_stream stream, gpu_event event, unsigned flags))   \
  X(EVENTS, query_event, cuEventQuery, hipEventQuery, (gpu_event event))                                               \
  X(EVENTS, synchronize_event, cuEventSynchronize, hipEventSynchronize, (gpu_event event))                             \
  X(EVENTS, elapsed, cuEventElapsedTime, hipEventElapsedTime, (float *ms, gpu_event first, gpu_event last))            \
  X(HOST_MEMORY, allocate_host, cuMemHostAlloc, hipHostMalloc, (void **memory, size_t size, unsigned flags))           \
  X(HOST_MEMORY, release_host, cuMemFreeHost, hipHostFree, (void *memory))                                             \
  X(POOLS, create_pool, cuMemPoolCreate, hipMemPoolCreate, (gpu_pool * pool, const gpu_pool_properties *properties))   \
  X(POOLS, set_pool, cuMemPoolSetAttribute, hipMemPoolSetAttribute,                                                    \
    (gpu_pool pool, gpu_pool_attribute attribute, void *value))                                                        \
  X(POOLS, ask_pool, cuMemPoolGetAttribute, hipMemPoolGetAttribute,                                                    \
    (gpu_pool pool, gpu_pool_attribute attribute, void *value))                                                        \
  X(POOLS, trim_pool, cuMemPoolTrimTo, hipMemPoolTrimTo, (gpu_pool pool, size_t keep))                                 \
  X(POOLS, destroy_pool, cuMemPoolDestroy, hipMemPoolDestroy, (gpu_pool pool))                                         \
  X(POOLS, allocate_async, cuMemAllocFromPoolAsync, hipMallocFromPoolAsync,                                            \
    (gpu_address * memory, size_t size, gpu_pool pool, gpu_stream stream))                                             \
  X(POOLS, release_async, cuMemFreeAsync, hipFreeAsync, (gpu_address memory, gpu_stream stream))                       \
  X(GRAPHS, begin_capture, cuStreamBeginCapture_v2, hipStreamBeginCapture, (gpu_stream stream, gpu_capture_mode mode)) \
  X(GRAPHS, end_capture, cuStreamEndCapture, hipStreamEndCapture, (gpu_stream stream, gpu_graph * graph))              \
  X(GRAPHS, instantiate, cuGraphInstantiateWithFlags, hipGraphInstantiateWithFlags,                                    \
    (gpu_instance * instance, gpu_graph graph, unsigned long long flags))                                              \
  X(GRAPHS, destroy_graph, cuGraphDestroy, hipGraphDestroy, (gpu_graph graph))                                         \
  X(GRAPHS, launch_graph, cuGraphLaunch, hipGraphLaunch, (gpu_instance instance, gpu_stream stream))                   \
  X(GRAPHS, destroy_instance, cuGraphExecDestroy, hipGraphExecDestroy, (gpu_instance instance))                        \
  X(HEALTH, query_stream, cuStreamQuery, hipStreamQuery, (gpu_stream stream))

/* X(our name, value, CUDA's name, HIP's name) */
#define GPU_WORK_CONSTANTS(X)                                                                                          \
  X(GPU_NOT_READY, 600, CUDA_ERROR_NOT_READY, hipErrorNotReady)                                                        \
  X(GPU_STREAM_NON_BLOCKING, 1, CU_STREAM_NON_BLOCKING, hipStreamNonBlocking)                                          \
  X(GPU_EVENT_UNTIMED, 2, CU_EVENT_DISABLE_TIMING, hipEventDisableTiming)                                              \
  X(GPU_HOST_PORTABLE, 1, CU_MEMHOSTALLOC_PORTABLE, hipHostMallocPortable)                                             \
  X(GPU_MEMORY_PINNED, 1, CU_MEM_ALLOCATION_TYPE_PINNED, hipMemAllocationTypePinned)                                   \
  X(GPU_MEMORY_ON_DEVICE, 1, CU_MEM_LOCATION_TYPE_DEVICE, hipMemLocationTypeDevice)                                    \
  X(GPU_POOL_KEEPS, 4, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, hipMemPoolAttrReleaseThreshold)                              \
  X(GPU_POOL_HELD, 5, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, hipMemPoolAttrReservedMemCurrent)                          \
  X(GPU_POOL_USED, 7, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, hipMemPoolAttrUsedMemCurrent)                                  \
  X(GPU_CAPTURE_THREAD, 1, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, hipStreamCaptureModeThreadLocal)                       \
  X(GPU_CAPTURE_UNSUPPORTED, 900, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, hipErrorStreamCaptureUnsupported)             \
  X(GPU_CAPTURE_IMPLICIT, 906, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, hipErrorStreamCaptureImplicit)

#endif
