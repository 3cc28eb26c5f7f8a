/*
 * What plugins/gpu/work_functions.h says of CUDA's driver API, against the vendor's own header: each prototype when
 * this is compiled, each value when it is run. tests/cuda-headers does both.
 */
#include <cuda.h>

#define VENDOR            "CUDA's driver"
#define RESULT            CUresult
#define THEIRS(cuda, hip) cuda
#define POOL_PROPERTIES   CUmemPoolProps

typedef CUstream gpu_stream;
typedef CUevent gpu_event;
typedef CUmemoryPool gpu_pool;
typedef CUmemPoolProps gpu_pool_properties;
typedef CUmemPool_attribute gpu_pool_attribute;
typedef CUdeviceptr gpu_address;
typedef CUstreamCaptureMode gpu_capture_mode;
typedef CUgraph gpu_graph;
typedef CUgraphExec gpu_instance;

#include "tests/headers/work.h"
