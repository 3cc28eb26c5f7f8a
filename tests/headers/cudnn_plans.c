/*
 * Does the real cuDNN take the graphs that plugins/gpu/cudnn_graph.c makes? It plans for a device that is described to
 * it and need not be there; nothing is run. tests/cuda-headers runs this where the library lies beside its header.
 *
 * cudnn_plans LIBRARY: the status is 0 when each convolution below got a plan; 77 when that cannot be told here.
 */
#include "plugins/gpu/cudnn.h"

#include <stdlib.h>

enum { ATTR_DEVICEPROP_JSON_REPRESENTATION = 2702, TYPE_CHAR = 24, CANNOT_TELL = 77 };

/* What the library writes of an H200. */
static const char h200[] =
    "{\"deviceName\":\"NVIDIA H200\",\"cudaDeviceId\":0,\"deviceId\":0,\"deviceVer\":900,\"driverVer\":13000,"
    "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,"
    "\"multiProcessorCount\":132,\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,"
    "\"maxSharedMemoryPerBlockOptin\":232448,\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,"
    "\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,"
    "\"supportCoopLaunch\":1,\"smClockRateKHz\":1980000,\"memClockRateKHz\":3201000,\"l2CacheSize\":62914560,"
    "\"totalGlobalMem\":150754820096}";

/* Rows of x and of the result, that is: a weight with gaps is not taken. */
typedef enum layout { CHANNELS_FIRST, CHANNELS_LAST, ROWS_APART } layout;

/* Sizes of all dimensions of space alike; x [n, channels, ...], weight [outputs, channels / groups, ...]. */
typedef struct convolution {
  const char *what;
  int space;
  int64_t n, channels, size, outputs, window, stride, padding, dilation, groups;
  layout layout;
  uint8_t alignment; /* 0: of an element */
} convolution;

static const convolution convolutions[] = {
    {"3 x 3", 2, 2, 32, 28, 64, 3, 1, 1, 1, 1, CHANNELS_FIRST, 16},
    {"3 x 3, channels last", 2, 2, 32, 28, 64, 3, 1, 1, 1, 1, CHANNELS_LAST, 16},
    {"3 x 3, rows apart", 2, 2, 32, 28, 64, 3, 1, 1, 1, 1, ROWS_APART, 16},
    {"patches of CLIP", 2, 1, 3, 336, 1024, 14, 14, 0, 1, 1, CHANNELS_FIRST, 16},
    {"patches of Qwen2-VL", 3, 64, 3, 14, 1280, 14, 14, 0, 1, 1, CHANNELS_FIRST, 16},
    {"odd sizes, unaligned", 2, 2, 3, 17, 7, 3, 2, 1, 1, 1, CHANNELS_FIRST, 0},
    {"1 x 1", 2, 1, 4, 1, 8, 1, 1, 0, 1, 1, CHANNELS_FIRST, 0},
    {"dilation", 2, 1, 8, 16, 8, 3, 1, 2, 2, 1, CHANNELS_FIRST, 16},
    {"groups", 2, 2, 8, 16, 4, 3, 1, 1, 1, 2, CHANNELS_FIRST, 16},
    {"one channel a group", 2, 2, 8, 16, 8, 3, 2, 1, 1, 8, CHANNELS_FIRST, 16},
    {"three dimensions", 3, 1, 4, 9, 8, 2, 2, 1, 1, 1, CHANNELS_FIRST, 16},
    {"three dimensions, groups, dilation", 3, 2, 4, 9, 4, 2, 1, 1, 2, 2, CHANNELS_FIRST, 0},
    {"three dimensions, channels last", 3, 1, 16, 9, 32, 3, 1, 1, 1, 1, CHANNELS_LAST, 16},
};

static bool open_library(const char *path) {
  void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  if (!library)
    return false;
#define FIND(result, name, field, arguments)                                                                           \
  *(void **)&cudnn.field = dlsym(library, #name);                                                                      \
  if (!cudnn.field)                                                                                                    \
    return false;
  DNN_FUNCTIONS(FIND)
#undef FIND
  return true;
}

static cudnnBackendDescriptor_t describe_device(void) {
  cudnnBackendDescriptor_t device = NULL;
  if (cudnn.create_descriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &device) ||
      cudnn.set(device, ATTR_DEVICEPROP_JSON_REPRESENTATION, TYPE_CHAR, sizeof h200 - 1, h200) ||
      cudnn.finalize(device))
    return NULL;
  return device;
}

static void lay_out(cudnn_form *f, int which, layout layout) {
  enum { APART = 16 };
  int64_t step = layout == CHANNELS_LAST ? f->shape[which][1] : 1, *strides = f->strides[which];
  strides[1] = 1;
  for (int d = f->ndim - 1; d >= (layout == CHANNELS_LAST ? 2 : 1); d--) {
    strides[d] = step;
    step = step * f->shape[which][d] + (layout == ROWS_APART ? APART : 0);
  }
  strides[0] = step;
}

static cudnn_form form_of(const convolution *c, gpu_dtype dtype, bool bias, int64_t workspace) {
  cudnn_form f = {.workspace = workspace,
                  .dtype = (uint8_t)dtype,
                  .ndim = (uint8_t)(c->space + 2),
                  .bias = bias,
                  .shape = {{c->n, c->channels}, {c->outputs, c->channels / c->groups}, {c->n, c->outputs}}};
  for (int d = 0; d < c->space; d++) {
    f.stride[d] = c->stride;
    f.padding[d] = c->padding;
    f.dilation[d] = c->dilation;
    f.shape[CUDNN_X][2 + d] = c->size;
    f.shape[CUDNN_WEIGHT][2 + d] = c->window;
    f.shape[CUDNN_OUT][2 + d] = (c->size + 2 * c->padding - c->dilation * (c->window - 1) - 1) / c->stride + 1;
  }
  for (int d = 0; d < f.ndim; d++) {
    f.shape[CUDNN_BIAS][d] = d == 1 ? c->outputs : 1;
    f.strides[CUDNN_BIAS][d] = d ? 1 : c->outputs;
  }
  for (int t = 0; t < CUDNN_TENSORS; t++)
    f.alignment[t] = c->alignment ? c->alignment : dtype == GPU_FLOAT32 ? 4 : 2;
  for (int t = 0; t < CUDNN_BIAS; t++)
    lay_out(&f, t, c->layout == ROWS_APART && t == CUDNN_WEIGHT ? CHANNELS_FIRST : c->layout);
  return f;
}

/* The status of the convolution's plan, which must keep to the workspace. */
static int plan(const convolution *c, cudnnBackendDescriptor_t device, gpu_dtype dtype, bool bias, int64_t workspace) {
  static const char *const types[GPU_N_DTYPES] = {"float32", "float16", "bfloat16"};
  char words[512] = "";
  cudnn_plan made;
  cudnn_form form = form_of(c, dtype, bias, workspace);
  cudnnStatus_t code = cudnn_make_plan(&form, device, &made);
  if (!code && made.workspace <= workspace)
    return 0;
  cudnn.last_error(words, sizeof words);
  printf("no plan: %s, %s, %s, workspace %lld: %s: %s\n", c->what, types[dtype], bias ? "bias" : "no bias",
         (long long)workspace, cudnn.error_name(code), words);
  return 1;
}

int main(int argc, char **argv) {
  static const int64_t workspaces[] = {128 << 20, 0};
  int planned = 0, wrong = 0;
  if (argc != 2 || !open_library(argv[1]))
    return CANNOT_TELL;
  cudnnBackendDescriptor_t device = describe_device();
  if (!device)
    return CANNOT_TELL;
  for (size_t i = 0; i < sizeof convolutions / sizeof convolutions[0]; i++)
    for (int dtype = 0; dtype < GPU_N_DTYPES; dtype++)
      for (int bias = 0; bias < 2; bias++)
        for (int w = 0; w < 2; w++, planned++)
          wrong += plan(&convolutions[i], device, (gpu_dtype)dtype, bias, workspaces[w]);
  printf("%d plans of cuDNN %zu made, %d missing\n", planned - wrong, cudnn.version(), wrong);
  return wrong != 0;
}
