/*
 * Convolutions of the CUDA plugin by a stand-in for cuDNN: what a call asks the library for and what it does not, what
 * our own kernels take over, and what becomes of each error. That results are right for all forms is what
 * test_gpu_kernels finds out. The plugin's functions are called as the host calls them, without one, but where the host
 * has to choose between the two implementations.
 */
#include "tests/gpu.h"
#include "tests/kernels.h"

#include <math.h>
#include <pthread.h>

enum { MOST_WORKSPACE = 8192, WORKSPACE = 4096, N_VALUES = 8, MOST_SPACE = 3 };

static const gpu_setup *const cuda = &gpu_setups[0];
static gpu_plugin plugin;
static _Thread_local char words[512];
static _Alignas(256) char workspace[MOST_WORKSPACE];

/* `library` is in cuDNN's place; NULL: the stand-in. */
static void choose_library(const char *library) {
  stand_in_open(cuda->driver);
  setenv("FLHOST_CUDNN", library ? library : stand_in_path(), 1);
}

static void set_up(const char *library, const char *settings) {
  choose_library(library);
  gpu_plugin_on_stand_in(&plugin, cuda, NULL);
  stand_in_set(settings);
}

static const fl_impl *cudnn_conv2d(void) {
  return gpu_plugin_impl(&plugin, "conv2d", "vendor.cuda.cudnn");
}

static int descriptors(void) {
  int (*ask)(void);
  stand_in_find("flhost_stand_in_descriptors", &ask);
  return ask();
}

#define assert_status(call, expected) assert_call_status(call, expected, words)

/* ----------------------------------------------------------------------------------------------------- convolutions */

/* All sizes of space alike. */
typedef struct conv {
  owned *x, *weight, *bias, *out;
  int64_t stride[MOST_SPACE], padding[MOST_SPACE], dilation[MOST_SPACE], groups;
  fl_value values[N_VALUES];
} conv;

typedef struct conv_sizes {
  DLDataType dtype;
  int space;
  int64_t n, channels, size, outputs, window, stride, padding, dilation, groups;
} conv_sizes;

#define F32                                                                                                            \
  { kDLFloat, 32, 1 }
#define F16                                                                                                            \
  { kDLFloat, 16, 1 }
#define BF16                                                                                                           \
  { kDLBfloat, 16, 1 }
#define SMALL                                                                                                          \
  {                                                                                                                    \
    .dtype = F32, .space = 2, .n = 2, .channels = 4, .size = 5, .outputs = 6, .window = 3, .stride = 1, .padding = 1,  \
    .dilation = 1, .groups = 2                                                                                         \
  }

static owned *filled(DLDataType dtype, int ndim, const int64_t *shape, uint32_t seed, int device) {
  owned *made = make_filled(dtype, ndim, shape, 0, seed);
  made->tensor.device = (DLDevice){kDLCUDA, device};
  return made;
}

static conv make_conv(const conv_sizes *s, bool bias, int device) {
  conv c = {.groups = s->groups};
  int64_t x[] = {s->n, s->channels, 0, 0, 0}, w[] = {s->outputs, s->channels / s->groups, 0, 0, 0};
  int64_t out[] = {s->n, s->outputs, 0, 0, 0};
  for (int d = 0; d < s->space; d++) {
    c.stride[d] = s->stride;
    c.padding[d] = s->padding;
    c.dilation[d] = s->dilation;
    x[2 + d] = s->size;
    w[2 + d] = s->window;
    out[2 + d] = (s->size + 2 * s->padding - s->dilation * (s->window - 1) - 1) / s->stride + 1;
  }
  c.x = filled(s->dtype, s->space + 2, x, 1, device);
  c.weight = filled(s->dtype, s->space + 2, w, 2, device);
  c.bias = bias ? filled(s->dtype, 1, (int64_t[]){s->outputs}, 3, device) : NULL;
  c.out = filled(s->dtype, s->space + 2, out, 4, device);
  return c;
}

static void free_conv(conv *c) {
  unmake(c->x);
  unmake(c->weight);
  unmake(c->bias);
  unmake(c->out);
}

static fl_call call_of(conv *c, size_t workspace_size, void *stream) {
  int space = c->x->tensor.ndim - 2;
  const fl_value values[N_VALUES] = {fl_tensor(&c->x->tensor),
                                     fl_tensor(&c->weight->tensor),
                                     c->bias ? fl_tensor(&c->bias->tensor) : fl_none(),
                                     fl_ints(c->stride, (uint32_t)space),
                                     fl_ints(c->padding, (uint32_t)space),
                                     fl_ints(c->dilation, (uint32_t)space),
                                     fl_int(c->groups),
                                     fl_tensor(&c->out->tensor)};
  memcpy(c->values, values, sizeof values);
  words[0] = 0;
  return (fl_call){.size = sizeof(fl_call),
                   .count = N_VALUES,
                   .values = c->values,
                   .stream = stream,
                   .message = words,
                   .message_size = sizeof words,
                   .workspace = workspace_size ? workspace : NULL,
                   .workspace_size = workspace_size};
}

static const fl_impl *impl_for(const conv *c) {
  return gpu_plugin_impl(&plugin, c->x->tensor.ndim == 4 ? "conv2d" : "conv3d", "vendor.cuda.cudnn");
}

static fl_status run(conv *c, size_t workspace_size, void *stream) {
  const fl_impl *impl = impl_for(c);
  fl_call call = call_of(c, workspace_size, stream);
  return impl->fn(impl->self, &call);
}

static bool supports(conv *c, const char **reason) {
  const fl_impl *impl = impl_for(c);
  fl_call call = call_of(c, 0, NULL);
  return impl->supports_args(impl->self, &call, reason);
}

static double at(const DLTensor *tensor, const int64_t *index) {
  int64_t place = 0;
  for (int d = 0; d < tensor->ndim; d++)
    place += index[d] * fl_stride(tensor, d);
  return get(tensor, place);
}

static void split(const DLTensor *tensor, int first, int64_t number, int64_t *index) {
  for (int d = tensor->ndim - 1; d >= first; d--) {
    index[d] = number % tensor->shape[d];
    number /= tensor->shape[d];
  }
}

/* By the definition. */
static double expected_at(const conv *c, const int64_t *index) {
  const DLTensor *x = &c->x->tensor, *w = &c->weight->tensor;
  int64_t taps = count(w) / w->shape[0], of_group = w->shape[1], group = index[1] / (w->shape[0] / c->groups);
  double sum = c->bias ? get(&c->bias->tensor, index[1] * fl_stride(&c->bias->tensor, 0)) : 0;
  for (int64_t k = 0; k < taps; k++) {
    int64_t tap[5] = {index[1]}, from[5] = {index[0]};
    bool inside = true;
    split(w, 1, k, tap);
    from[1] = group * of_group + tap[1];
    for (int d = 0; d < x->ndim - 2; d++) {
      from[2 + d] = index[2 + d] * c->stride[d] + tap[2 + d] * c->dilation[d] - c->padding[d];
      inside &= from[2 + d] >= 0 && from[2 + d] < x->shape[2 + d];
    }
    sum += inside ? at(x, from) * at(w, tap) : 0;
  }
  return sum;
}

static double tolerance_of(DLDataType dtype) {
  return dtype.bits == 32 ? 1e-5 : dtype.code == kDLBfloat ? 1.0 / 128 : 1.0 / 1024; /* of the last place */
}

static bool has_results(const conv *c) {
  const DLTensor *out = &c->out->tensor;
  double tolerance = tolerance_of(out->dtype);
  for (int64_t i = 0; i < count(out); i++) {
    int64_t index[5] = {0};
    split(out, 0, i, index);
    double expected = expected_at(c, index), got = at(out, index);
    if (!(fabs(got - expected) <= tolerance * (1 + fabs(expected))))
      return false;
  }
  return true;
}

#define assert_results(c) ck_assert_msg(has_results(c), "a wrong result")

/* ------------------------------------------------------------------------------------------------- what a call does */

static const struct {
  conv_sizes sizes;
  bool bias;
} forms[] = {
    {SMALL, true},
    {SMALL, false},
    {{F16, 2, 1, 3, 9, 4, 3, 2, 1, 1, 1}, true},
    {{BF16, 2, 1, 4, 9, 4, 2, 1, 0, 2, 4}, true},
    {{F32, 2, 3, 2, 4, 5, 1, 1, 0, 1, 1}, false},
    {{F32, 3, 1, 2, 4, 3, 2, 2, 1, 1, 1}, true},
    {{BF16, 3, 2, 4, 5, 4, 3, 1, 2, 2, 2}, false},
};
enum { N_FORMS = sizeof forms / sizeof forms[0] };

START_TEST(a_form_that_was_seen_before_asks_for_nothing_but_the_convolution) {
  char room[FL_REASON_MAX] = "";
  const char *reason = room;
  set_up(NULL, "");
  conv c = make_conv(&forms[_i].sizes, forms[_i].bias, 0);
  ck_assert_msg(supports(&c, &reason), "%s", reason);
  assert_status(run(&c, WORKSPACE, NULL), FL_OK);
  assert_results(&c);
  ck_assert_int_eq(stand_in_lines("make convolution handle"), 1);
  int made = descriptors();
  fill(&c.x->tensor, 9);
  stand_in_clear();
  ck_assert(supports(&c, &reason));
  assert_status(run(&c, WORKSPACE, NULL), FL_OK);
  assert_results(&c);
  ck_assert_int_eq(stand_in_lines("convolve"), 1);
  ck_assert_int_eq(stand_in_lines("make") + stand_in_lines("propose") + stand_in_lines("plan") +
                       stand_in_lines("allocate") + stand_in_lines("synchronize") + stand_in_lines("load") +
                       stand_in_lines("launch"),
                   0);
  ck_assert_int_eq(descriptors(), made);
  free_conv(&c);
}
END_TEST

/* Engines 0 to 3 round more than once, or not the same each time; 4 shortens its inputs; 5 has tensor cores, which are
 * TF32 where the type is float32. */
START_TEST(an_engine_that_rounds_otherwise_than_the_op_is_not_taken) {
  static const struct {
    DLDataType dtype;
    const char *engine;
  } cases[] = {{F32, "convolve engine 6 "}, {F16, "convolve engine 5 "}, {BF16, "convolve engine 5 "}};
  conv_sizes sizes = SMALL;
  set_up(NULL, "");
  sizes.dtype = cases[_i].dtype;
  conv c = make_conv(&sizes, true, 0);
  assert_status(run(&c, WORKSPACE, NULL), FL_OK);
  ck_assert_int_eq(stand_in_lines(cases[_i].engine), 1);
  assert_results(&c);
  free_conv(&c);
}
END_TEST

START_TEST(a_plan_is_made_once_for_each_form) {
  enum { FORMS = 5 };
  conv convs[FORMS];
  conv_sizes sizes = SMALL;
  set_up(NULL, "");
  for (int i = 0; i < FORMS; i++) {
    sizes.n = 1 + i;
    convs[i] = make_conv(&sizes, i % 2, 0);
  }
  for (int i = 0; i < 3 * FORMS; i++) {
    assert_status(run(&convs[i % FORMS], WORKSPACE, NULL), FL_OK);
    assert_results(&convs[i % FORMS]);
  }
  ck_assert_int_eq(stand_in_lines("plan engine 6"), FORMS);
  for (int i = 0; i < FORMS; i++)
    free_conv(&convs[i]);
}
END_TEST

START_TEST(the_convolution_is_queued_on_the_calls_stream) {
  char stream;
  conv_sizes sizes = SMALL;
  int (*synchronize)(void *), (*retain)(void **, int), (*push)(void *);
  void *context;
  set_up(NULL, "delay=1");
  stand_in_find("cuStreamSynchronize", &synchronize);
  stand_in_find("cuDevicePrimaryCtxRetain", &retain);
  stand_in_find("cuCtxPushCurrent_v2", &push);
  conv c = make_conv(&sizes, true, 0);
  assert_status(run(&c, WORKSPACE, &stream), FL_OK);
  ck_assert(!has_results(&c)); /* nobody has waited */
  ck_assert_int_eq(retain(&context, 0), 0);
  ck_assert_int_eq(push(context), 0);
  ck_assert_int_eq(synchronize(&stream), 0);
  assert_results(&c);
  free_conv(&c);
}
END_TEST

START_TEST(a_workspace_is_used_as_far_as_it_goes) {
  static const struct {
    size_t given;
    const char *used;
  } cases[] = {{0, "convolve engine 7 workspace 0 "},
               {4095, "convolve engine 7 workspace 0 "},
               {4096, "convolve engine 6 workspace 4096 "},
               {8192, "convolve engine 6 workspace 4096 "}};
  conv_sizes sizes = SMALL;
  set_up(NULL, "");
  const fl_impl *impl = cudnn_conv2d();
  conv c = make_conv(&sizes, true, 0);
  fl_call call = call_of(&c, 0, NULL);
  ck_assert_uint_eq(impl->workspace_size(impl->self, &call), WORKSPACE);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    stand_in_clear();
    fill(&c.out->tensor, 5);
    assert_status(run(&c, cases[i].given, NULL), FL_OK);
    ck_assert_int_eq(stand_in_lines(cases[i].used), 1);
    assert_results(&c);
  }
  free_conv(&c);
}
END_TEST

/* A result that has no memory yet counts as aligned as memory is. */
START_TEST(a_workspace_can_be_planned_before_there_is_memory) {
  conv_sizes sizes = SMALL;
  set_up(NULL, "");
  const fl_impl *impl = cudnn_conv2d();
  conv c = make_conv(&sizes, true, 0);
  void *memory[] = {c.x->tensor.data, c.out->tensor.data};
  fl_call call = call_of(&c, 0, NULL);
  c.x->tensor.data = c.out->tensor.data = NULL;
  ck_assert_uint_eq(impl->workspace_size(impl->self, &call), WORKSPACE);
  c.x->tensor.data = memory[0];
  c.out->tensor.data = memory[1];
  free_conv(&c);
}
END_TEST

START_TEST(each_device_has_a_handle_and_plans_of_its_own) {
  conv_sizes sizes = SMALL;
  set_up(NULL, "devices=2");
  for (int i = 0; i < 4; i++) {
    conv c = make_conv(&sizes, true, i % 2);
    assert_status(run(&c, WORKSPACE, NULL), FL_OK);
    assert_results(&c);
    free_conv(&c);
  }
  ck_assert_int_eq(stand_in_lines("make convolution handle"), 2);
  ck_assert_int_eq(stand_in_lines("plan engine 6"), 2);
}
END_TEST

/* The stand-in refuses data that is less aligned than a plan was promised. */
START_TEST(data_that_begins_anywhere_gets_a_plan_for_that) {
  conv_sizes sizes = SMALL;
  set_up(NULL, "");
  conv c = make_conv(&sizes, true, 0), apart = make_conv(&sizes, true, 0);
  apart.x->tensor.shape[0] = apart.out->tensor.shape[0] = 1; /* the second of two images, one element earlier */
  apart.x->tensor.byte_offset = (uint64_t)(count(&c.x->tensor) * 2 - 4);
  assert_status(run(&c, WORKSPACE, NULL), FL_OK);
  assert_results(&c);
  assert_status(run(&apart, WORKSPACE, NULL), FL_OK);
  assert_results(&apart);
  free_conv(&c);
  free_conv(&apart);
}
END_TEST

START_TEST(no_images_ask_the_library_for_nothing) {
  char room[FL_REASON_MAX] = "";
  const char *reason = room;
  conv_sizes sizes = SMALL;
  set_up(NULL, "");
  const fl_impl *impl = cudnn_conv2d();
  conv c = make_conv(&sizes, true, 0);
  c.x->tensor.shape[0] = c.out->tensor.shape[0] = 0;
  fl_call call = call_of(&c, 0, NULL);
  ck_assert(supports(&c, &reason));
  ck_assert_uint_eq(impl->workspace_size(impl->self, &call), 0);
  assert_status(run(&c, 0, NULL), FL_OK);
  ck_assert_str_eq(stand_in_log(), "");
  free_conv(&c);
}
END_TEST

/* The stride of a dimension of size 1 is never used, so a tensor may have any. */
START_TEST(layouts_are_what_the_tensors_have) {
  conv_sizes sizes = SMALL;
  set_up(NULL, "");
  sizes.n = 1;
  conv c = make_conv(&sizes, true, 0);
  assert_status(run(&c, WORKSPACE, NULL), FL_OK);
  c.x->tensor.strides = (int64_t[]){0, 25, 5, 1};
  c.out->tensor.strides = (int64_t[]){77, 25, 5, 1};
  assert_status(run(&c, WORKSPACE, NULL), FL_OK);
  assert_results(&c);
  ck_assert_int_eq(stand_in_lines("plan engine 6 x strides 100 25 5 1\n"), 1);
  ck_assert_int_eq(stand_in_lines("plan engine 6"), 1); /* the same form */
  c.x->tensor.strides = (int64_t[]){77, 1, 20, 4};
  c.weight->tensor.strides = (int64_t[]){18, 1, 6, 2};
  c.out->tensor.strides = (int64_t[]){77, 1, 30, 6};
  assert_status(run(&c, WORKSPACE, NULL), FL_OK);
  assert_results(&c);
  ck_assert_int_eq(stand_in_lines("plan engine 6 x strides 100 1 20 4\n"), 1);
  ck_assert_int_eq(stand_in_lines("plan engine 6"), 2);
  free_conv(&c);
}
END_TEST

static pthread_barrier_t line;

/* Each thread with its own stream, several times. */
static void *run_often(void *argument) {
  enum { TIMES = 20 };
  conv_sizes sizes = SMALL;
  conv c = make_conv(&sizes, true, 0);
  char said[512];
  const fl_impl *impl = cudnn_conv2d();
  fl_call call = call_of(&c, 0, &said);
  bool right = true;
  call.message = said;
  pthread_barrier_wait(&line);
  for (int i = 0; i < TIMES && right; i++) {
    fill(&c.out->tensor, 6);
    right = !impl->fn(impl->self, &call) && has_results(&c);
  }
  free_conv(&c);
  return right ? argument : NULL;
}

START_TEST(threads_that_call_together_share_a_handle_and_a_plan) {
  enum { THREADS = 8 };
  pthread_t threads[THREADS];
  set_up(NULL, "conv_workspace=0");
  pthread_barrier_init(&line, NULL, THREADS);
  for (int i = 0; i < THREADS; i++)
    ck_assert_int_eq(pthread_create(&threads[i], NULL, run_often, &line), 0);
  for (int i = 0; i < THREADS; i++) {
    void *right;
    pthread_join(threads[i], &right);
    ck_assert_ptr_nonnull(right);
  }
  ck_assert_int_eq(stand_in_lines("make convolution handle"), 1);
  ck_assert_int_eq(stand_in_lines("plan engine 6"), 1);
}
END_TEST

/* --------------------------------------------------------------------------------------------------------- refusals */

static const struct {
  const char *library, *settings, *reason;
} missing[] = {
    {"/nonexistent/libcudnn.so.9", "", "FLHOST_CUDNN: /nonexistent/libcudnn.so.9: cannot open shared object"},
    {"libm.so.6", "", "cuDNN lacks cudnnGetVersion: is it too old?"},
    {NULL, "conv_version=8907", "cuDNN 8.9 is too old: 9.8 or newer, of major 9, is needed"},
    {NULL, "conv_version=90701", "cuDNN 9.7 is too old: 9.8 or newer, of major 9, is needed"},
    {NULL, "conv_version=100000", "cuDNN 10.0 is too new: 9.8 or newer, of major 9, is needed"},
};
enum { N_MISSING = sizeof missing / sizeof missing[0] };

START_TEST(a_library_that_is_missing_or_unknown_is_told_and_our_kernels_do_without) {
  const char *reason = NULL;
  conv_sizes sizes = SMALL;
  set_up(missing[_i].library, missing[_i].settings);
  const fl_impl *impl = cudnn_conv2d(), *own = gpu_plugin_impl(&plugin, "conv2d", "vendor.cuda");
  ck_assert(!impl->is_available(impl->self, &reason));
  ck_contains(reason, missing[_i].reason);
  ck_assert(own->is_available(own->self, &reason));
  conv c = make_conv(&sizes, true, 0);
  assert_status(run(&c, 0, NULL), FL_ENOTSUP);
  ck_contains(words, missing[_i].reason);
  fl_call call = call_of(&c, 0, NULL);
  assert_status(own->fn(own->self, &call), FL_OK);
  assert_results(&c);
  free_conv(&c);
}
END_TEST

static const struct {
  const char *settings, *words;
  fl_status status;
} failures[] = {
    {"conv_create=1001", "cuDNN: making a handle: CUDNN_STATUS_NOT_INITIALIZED (1001): no handle", FL_EDEVICE},
    {"conv_create=4003", "cuDNN: making a handle: CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED (4003)",
     FL_ENOMEM},
    {"conv_graph=4000", "cuDNN: making a plan: CUDNN_STATUS_INTERNAL_ERROR (4000): no such graph", FL_EINTERNAL},
    {"conv_run=4004", "cuDNN: running a plan: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED (4004)", FL_ENOMEM},
    {"conv_run=5000", "cuDNN: running a plan: CUDNN_STATUS_EXECUTION_FAILED (5000): it was to fail", FL_EDEVICE},
    {"conv_run=4999", "cuDNN: running a plan: CUDNN_UNKNOWN_STATUS (4999)", FL_EINTERNAL},
};
enum { N_FAILURES = sizeof failures / sizeof failures[0] };

START_TEST(a_failure_says_where_leaves_nothing_and_the_next_call_works) {
  char room[FL_REASON_MAX] = "";
  const char *reason = room;
  conv_sizes sizes = SMALL;
  set_up(NULL, failures[_i].settings);
  conv c = make_conv(&sizes, true, 0);
  ck_assert(supports(&c, &reason)); /* the host's failure rules are for it, not the search for another */
  assert_status(run(&c, WORKSPACE, NULL), failures[_i].status);
  ck_contains(words, "conv2d: ");
  ck_contains(words, failures[_i].words);
  int made = descriptors();
  run(&c, WORKSPACE, NULL);
  ck_assert_int_eq(descriptors(), made);
  stand_in_set("");
  assert_status(run(&c, WORKSPACE, NULL), FL_OK);
  assert_results(&c);
  free_conv(&c);
}
END_TEST

static const struct {
  const char *settings, *reason;
} refusals[] = {
    {"conv_graph=3002", "cuDNN has no engine for it that rounds once: CUDNN_STATUS_NOT_SUPPORTED_SHAPE (3002)"},
    {"conv_graph=2000", "cuDNN has no engine for it that rounds once: CUDNN_STATUS_BAD_PARAM (2000)"},
    {"conv_plan=3000", "cuDNN has no engine for it that rounds once: CUDNN_STATUS_NOT_SUPPORTED (3000)"},
    {"conv_none=1", "cuDNN has no engine for it that rounds once: CUDNN_STATUS_NOT_SUPPORTED (3000)"},
};
enum { N_REFUSALS = sizeof refusals / sizeof refusals[0] };

START_TEST(a_form_that_the_library_refuses_is_not_taken_and_asked_for_once) {
  char room[FL_REASON_MAX] = "";
  const char *reason = room;
  conv_sizes sizes = SMALL;
  set_up(NULL, refusals[_i].settings);
  const fl_impl *impl = cudnn_conv2d();
  ck_assert(impl->is_available(impl->self, &reason));
  conv c = make_conv(&sizes, true, 0);
  fl_call call = call_of(&c, 0, NULL);
  assert_status(run(&c, WORKSPACE, NULL), FL_ENOTSUP); /* and the device is in use from now on */
  ck_contains(words, refusals[_i].reason);
  ck_assert_int_eq(descriptors(), 1); /* the device's; nothing of the attempt */
  stand_in_clear();
  ck_assert(!supports(&c, &reason));
  ck_assert_str_eq(reason, refusals[_i].reason);
  ck_assert(!supports(&c, NULL));
  ck_assert_uint_eq(impl->workspace_size(impl->self, &call), 0);
  ck_assert_int_eq(stand_in_lines("propose") + stand_in_lines("plan"), 0);
  ck_assert_int_eq(descriptors(), 1);
  free_conv(&c);
}
END_TEST

START_TEST(a_plan_that_is_refused_when_it_runs_is_not_tried_again) {
  char room[FL_REASON_MAX] = "";
  const char *reason = room;
  conv_sizes sizes = SMALL;
  set_up(NULL, "conv_run=3000");
  conv c = make_conv(&sizes, true, 0);
  assert_status(run(&c, WORKSPACE, NULL), FL_ENOTSUP);
  ck_contains(words, "conv2d: cuDNN: running a plan: CUDNN_STATUS_NOT_SUPPORTED (3000)");
  stand_in_set("");
  ck_assert(!supports(&c, &reason));
  ck_assert_str_eq(reason, "cuDNN refused to run its plan: CUDNN_STATUS_NOT_SUPPORTED (3000)");
  free_conv(&c);
}
END_TEST

START_TEST(what_cudnn_is_not_asked_for_is_refused_with_a_reason) {
  char room[FL_REASON_MAX] = "";
  const char *reason = room;
  conv_sizes sizes = SMALL;
  set_up(NULL, "");
  conv c = make_conv(&sizes, true, 0);
  c.x->tensor.strides = (int64_t[]){0, 25, 5, 1};
  ck_assert(!supports(&c, &reason));
  ck_assert_str_eq(reason, "elements that lie in one place, or backwards");
  assert_status(run(&c, WORKSPACE, NULL), FL_ENOTSUP);
  c.x->tensor.strides = NULL;
  c.x->tensor.shape[1] = 0;
  ck_assert(!supports(&c, &reason));
  ck_assert_str_eq(reason, "nothing to add up");
  c.x->tensor.shape[1] = 4;
  c.weight->tensor.dtype = bfloat16;
  ck_assert(!supports(&c, &reason));
  ck_contains(reason, "and the same, expected");
  ck_assert_str_eq(stand_in_log(), "");
  free_conv(&c);
}
END_TEST

/* Engine 47 of the library writes 0 for -inf there. */
START_TEST(an_engine_that_loses_infinities_is_not_taken) {
  static const struct {
    DLDataType dtype;
    int space;
    bool taken;
  } asked[] = {{F16, 3, false}, {F16, 2, true}, {BF16, 3, true}, {F32, 3, true}};
  set_up(NULL, "conv_engine=47");
  for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
    conv_sizes sizes = SMALL;
    sizes.dtype = asked[i].dtype;
    sizes.space = asked[i].space;
    conv c = make_conv(&sizes, true, 0);
    assert_status(run(&c, WORKSPACE, NULL), asked[i].taken ? FL_OK : FL_ENOTSUP);
    free_conv(&c);
  }
}
END_TEST

/* They are refused when the plan runs, and only then. */
START_TEST(weights_with_gaps_and_odd_addresses_are_not_taken) {
  char room[FL_REASON_MAX] = "";
  const char *reason = room;
  conv_sizes sizes = SMALL;
  set_up(NULL, "");
  conv c = make_conv(&sizes, true, 0);
  int64_t strides[] = {64, 12, 4, 1};
  c.weight->tensor.strides = strides;
  ck_assert(!supports(&c, &reason));
  ck_assert_str_eq(reason, "a weight with gaps between its elements");
  free_conv(&c);
  sizes.dtype = (DLDataType)F16;
  c = make_conv(&sizes, true, 0);
  c.x->tensor.shape[0] = c.out->tensor.shape[0] = 1;
  c.x->tensor.byte_offset = 2;
  ck_assert(!supports(&c, &reason));
  ck_assert_str_eq(reason, "a tensor that does not begin at a multiple of 4 bytes");
  free_conv(&c);
}
END_TEST

/* More forms than there are places to remember them: our kernels take those. */
START_TEST(forms_that_cannot_be_remembered_are_not_taken) {
  enum { FORMS = 6000 };
  conv_sizes sizes = {F32, 2, 1, 1, 1, 1, 1, 1, 0, 1, 1};
  int refused = 0;
  set_up(NULL, "conv_none=1");
  conv c = make_conv(&sizes, false, 0);
  for (int i = 0; i < FORMS; i++) {
    char room[FL_REASON_MAX] = "";
    const char *reason = room;
    c.dilation[0] = 1 + i;
    assert_status(run(&c, 0, NULL), FL_ENOTSUP);
    ck_assert(!supports(&c, &reason));
    refused += !strcmp(reason, "cuDNN has plans for as many forms of convolutions as are kept");
  }
  ck_assert_int_gt(refused, 0);
  free_conv(&c);
}
END_TEST

START_TEST(a_captured_stream_gets_convolutions_that_ran_before) {
  char room[FL_REASON_MAX] = "";
  const char *reason = room;
  conv_sizes sizes = SMALL;
  set_up(NULL, "");
  conv c = make_conv(&sizes, true, 0), other = make_conv(&sizes, false, 0);
  assert_status(run(&c, WORKSPACE, NULL), FL_OK);
  stand_in_set("capturing=1");
  fill(&c.out->tensor, 7);
  ck_assert(supports(&c, &reason));
  assert_status(run(&c, WORKSPACE, NULL), FL_OK);
  assert_results(&c);
  ck_assert(!supports(&other, &reason));
  ck_contains(reason, "cannot load its kernels while a stream is captured");
  assert_status(run(&other, WORKSPACE, NULL), FL_ENOTSUP);
  free_conv(&c);
  free_conv(&other);
}
END_TEST

START_TEST(a_captured_stream_finds_no_handle_that_was_not_made_before) {
  conv_sizes sizes = SMALL;
  set_up(NULL, "capturing=1");
  conv c = make_conv(&sizes, true, 0);
  assert_status(run(&c, WORKSPACE, NULL), FL_ENOTSUP);
  ck_contains(words, "conv2d: cuDNN is not used on device 0 yet, and cannot be made ready while a stream is captured");
  free_conv(&c);
}
END_TEST

/* ---------------------------------------------------------------------------------------------------- with the host */

/* A host that has both implementations, on the stand-in. */
static fl_host *host_with(const char *library, const char *settings) {
  choose_library(library);
  fl_host *host = gpu_host(cuda);
  stand_in_set(settings);
  return host;
}

static fl_status invoke(fl_host *host, conv *c) {
  fl_call call = call_of(c, WORKSPACE, NULL);
  return fl_invoke(fl_find_op(host, "conv2d"), &call);
}

static void assert_failed_impls(fl_host *host, uint32_t n) {
  fl_failed_impls *failed = NULL;
  ck_ok(fl_get_failed_impls(host, "conv2d", &failed));
  ck_assert_uint_eq(failed->n, n);
  fl_failed_impls_free(failed);
}

START_TEST(S2_cudnn_goes_before_our_kernels) {
  conv_sizes sizes = SMALL;
  char id[64];
  fl_host *host = host_with(NULL, "");
  conv c = make_conv(&sizes, true, 0);
  ck_ok(fl_get_selected_impl_id(host, "conv2d", kDLCUDA, id, sizeof id));
  ck_assert_str_eq(id, "vendor.cuda.cudnn");
  ck_ok(invoke(host, &c));
  assert_results(&c);
  ck_assert_int_eq(stand_in_lines("convolve"), 1);
  ck_assert_int_eq(stand_in_lines("launch convolve_"), 0);
  free_conv(&c);
  fl_host_destroy(host);
}
END_TEST

START_TEST(S3_what_cudnn_refuses_is_computed_by_our_kernels_also_under_strict) {
  conv_sizes sizes = SMALL;
  fl_host *host = host_with(NULL, "conv_none=1");
  conv c = make_conv(&sizes, true, 0);
  ck_ok(invoke(host, &c)); /* the device is in use from now on */
  assert_results(&c);
  fill(&c.out->tensor, 8);
  fl_scope scope;
  ck_ok(fl_scope_strict(host, &scope));
  ck_ok(invoke(host, &c));
  assert_results(&c);
  fl_scope_leave(&scope);
  ck_assert_int_eq(stand_in_lines("launch convolve_few_f32"), 2);
  ck_assert_int_eq(stand_in_lines("convolve"), 0);
  assert_failed_impls(host, 0);
  free_conv(&c);
  fl_host_destroy(host);
}
END_TEST

START_TEST(F2_what_cudnn_fails_at_is_computed_by_our_kernels_and_logged) {
  conv_sizes sizes = SMALL;
  fl_host *host = host_with(NULL, "conv_run=5000");
  conv c = make_conv(&sizes, true, 0);
  ck_ok(invoke(host, &c));
  assert_results(&c);
  ck_contains(test_log.text,
              "WARNING Implementation 'vendor.cuda.cudnn' failed for op 'conv2d': conv2d: cuDNN: running a "
              "plan: CUDNN_STATUS_EXECUTION_FAILED (5000): it was to fail");
  ck_assert_int_eq(test_log_count("INFO Op 'conv2d' fallback to 'vendor.cuda' (kind=vendor, vendor=cuda)"), 1);
  assert_failed_impls(host, 1);
  free_conv(&c);
  fl_host_destroy(host);
}
END_TEST

START_TEST(explain_says_why_cudnn_is_not_used) {
  fl_explanation *explanation = NULL;
  const char *reason = NULL;
  fl_host *host = host_with("/nonexistent/libcudnn.so.9", "");
  ck_ok(fl_explain(host, "conv3d", kDLCUDA, &explanation));
  ck_assert_str_eq(explanation->selected, "vendor.cuda");
  for (uint32_t i = 0; i < explanation->n_impls; i++)
    if (!strcmp(fl_explained_at(explanation, i)->impl_id, "vendor.cuda.cudnn"))
      reason = fl_explained_at(explanation, i)->reason;
  ck_assert_ptr_nonnull(reason);
  ck_contains(reason, "FLHOST_CUDNN: /nonexistent/libcudnn.so.9: cannot open shared object");
  fl_explanation_free(explanation);
  fl_host_destroy(host);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_loop_test(tests, a_form_that_was_seen_before_asks_for_nothing_but_the_convolution, 0, N_FORMS);
  tcase_add_loop_test(tests, an_engine_that_rounds_otherwise_than_the_op_is_not_taken, 0, 3);
  tcase_add_test(tests, a_plan_is_made_once_for_each_form);
  tcase_add_test(tests, the_convolution_is_queued_on_the_calls_stream);
  tcase_add_test(tests, a_workspace_is_used_as_far_as_it_goes);
  tcase_add_test(tests, a_workspace_can_be_planned_before_there_is_memory);
  tcase_add_test(tests, each_device_has_a_handle_and_plans_of_its_own);
  tcase_add_test(tests, data_that_begins_anywhere_gets_a_plan_for_that);
  tcase_add_test(tests, no_images_ask_the_library_for_nothing);
  tcase_add_test(tests, layouts_are_what_the_tensors_have);
  tcase_add_test(tests, threads_that_call_together_share_a_handle_and_a_plan);
  tcase_add_loop_test(tests, a_library_that_is_missing_or_unknown_is_told_and_our_kernels_do_without, 0, N_MISSING);
  tcase_add_loop_test(tests, a_failure_says_where_leaves_nothing_and_the_next_call_works, 0, N_FAILURES);
  tcase_add_loop_test(tests, a_form_that_the_library_refuses_is_not_taken_and_asked_for_once, 0, N_REFUSALS);
  tcase_add_test(tests, a_plan_that_is_refused_when_it_runs_is_not_tried_again);
  tcase_add_test(tests, what_cudnn_is_not_asked_for_is_refused_with_a_reason);
  tcase_add_test(tests, an_engine_that_loses_infinities_is_not_taken);
  tcase_add_test(tests, weights_with_gaps_and_odd_addresses_are_not_taken);
  tcase_add_test(tests, forms_that_cannot_be_remembered_are_not_taken);
  tcase_add_test(tests, a_captured_stream_gets_convolutions_that_ran_before);
  tcase_add_test(tests, a_captured_stream_finds_no_handle_that_was_not_made_before);
  tcase_add_test(tests, S2_cudnn_goes_before_our_kernels);
  tcase_add_test(tests, S3_what_cudnn_refuses_is_computed_by_our_kernels_also_under_strict);
  tcase_add_test(tests, F2_what_cudnn_fails_at_is_computed_by_our_kernels_and_logged);
  tcase_add_test(tests, explain_says_why_cudnn_is_not_used);
}

int main(void) {
  return run_suite("gpu_cudnn", add_tests, 60);
}
