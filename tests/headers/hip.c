/* What plugins/gpu/work_functions.h says of HIP, as cuda.c does it for CUDA. */
#define __HIP_PLATFORM_AMD__
#include <hip/hip_runtime_api.h>

#define VENDOR            "HIP"
#define RESULT            hipError_t
#define THEIRS(cuda, hip) hip
#define POOL_PROPERTIES   hipMemPoolProps

typedef hipStream_t gpu_stream;
typedef hipEvent_t gpu_event;
typedef hipMemPool_t gpu_pool;
typedef hipMemPoolProps gpu_pool_properties;
typedef hipMemPoolAttr gpu_pool_attribute;
typedef void *gpu_address;
typedef hipStreamCaptureMode gpu_capture_mode;
typedef hipGraph_t gpu_graph;
typedef hipGraphExec_t gpu_instance;

/* Later headers deprecate the names of pinned memory, and ROCm 5 those that they prefer; the libraries have both. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#include "tests/headers/work.h"
