/*
 * A stand-in for libcudnn 9, a part of that for libcuda: see standin.h. Its descriptors hold attributes as they were
 * set, so that one of a wrong type, one too many or one too few, or a part that is not finished, is refused as the
 * library would refuse it. It proposes engines that round as the caller must not want, before those that do not; a
 * result shows that one was taken.
 */
#include "tests/drivers/gpu/product.h"
#include "tests/drivers/gpu/standin.h"

#include <flhost/dtype.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT STANDIN_EXPORT
int cuCtxGetDevice(int *device);

enum {
  SUCCESS = 0,
  BAD_PARAM = 2000,
  MISALIGNED = 2003,
  NOT_FINALIZED = 2004,
  STREAM_MISMATCH = 2007,
  ATTRIBUTE_TYPE = 2010,
  NOT_SUPPORTED = 3000,
  ALLOCATION_FAILED = 4003,
  EXECUTION_FAILED = 5000
};
enum { TENSOR_DIMS = 5, SPACE = 3 };

/* Descriptors and their attributes, by the library's numbers. */
enum {
  POINTWISE = 0,
  CONVOLUTION = 1,
  ENGINE = 2,
  CONFIGURATION = 3,
  HEURISTIC = 4,
  PLAN = 5,
  FORWARD = 10,
  POINTWISE_OPERATION = 13,
  GRAPH = 15,
  PACK = 16,
  TENSOR = 17,
  DEVICE = 38
};
enum { T_HANDLE = 0, T_DATA_TYPE = 1, T_BOOLEAN = 2, T_INT64 = 3, T_FLOAT = 4, T_POINTER = 6, T_CONVOLUTION_MODE = 7 };
enum { T_HEURISTIC_MODE = 8, T_NOTE = 11, T_POINTWISE_MODE = 14, T_DESCRIPTOR = 15 };
enum { DATA_FLOAT = 0, DATA_HALF = 2, DATA_BFLOAT16 = 9 };
enum { A_MODE = 3, FALLBACK_MODE = 2 };

static const struct known {
  int descriptor, attribute, type;
  size_t size; /* of an element */
  int64_t least, most;
  bool required;
} known[] = {
    {POINTWISE, 0, T_POINTWISE_MODE, 4, 1, 1, true},
    {POINTWISE, 1, T_DATA_TYPE, 4, 1, 1, true},
    {CONVOLUTION, 100, T_DATA_TYPE, 4, 1, 1, true},
    {CONVOLUTION, 101, T_CONVOLUTION_MODE, 4, 1, 1, true},
    {CONVOLUTION, 102, T_INT64, 8, 2, SPACE, true},
    {CONVOLUTION, 103, T_INT64, 8, 2, SPACE, true},
    {CONVOLUTION, 104, T_INT64, 8, 2, SPACE, true},
    {CONVOLUTION, 105, T_INT64, 8, 2, SPACE, true},
    {CONVOLUTION, 106, T_INT64, 8, 1, 1, true},
    {HEURISTIC, 200, T_HEURISTIC_MODE, 4, 1, 1, true},
    {HEURISTIC, 201, T_DESCRIPTOR, 8, 1, 1, true},
    {HEURISTIC, 204, T_DESCRIPTOR, 8, 1, 1, true},
    {PLAN, 401, T_DESCRIPTOR, 8, 1, 1, true},
    {PLAN, 407, T_DESCRIPTOR, 8, 1, 1, true},
    {FORWARD, 700, T_FLOAT, 4, 1, 1, true},
    {FORWARD, 701, T_FLOAT, 4, 1, 1, true},
    {FORWARD, 702, T_DESCRIPTOR, 8, 1, 1, true},
    {FORWARD, 703, T_DESCRIPTOR, 8, 1, 1, true},
    {FORWARD, 704, T_DESCRIPTOR, 8, 1, 1, true},
    {FORWARD, 705, T_DESCRIPTOR, 8, 1, 1, true},
    {POINTWISE_OPERATION, 750, T_DESCRIPTOR, 8, 1, 1, true},
    {POINTWISE_OPERATION, 751, T_DESCRIPTOR, 8, 1, 1, true},
    {POINTWISE_OPERATION, 752, T_DESCRIPTOR, 8, 1, 1, true},
    {POINTWISE_OPERATION, 753, T_DESCRIPTOR, 8, 1, 1, true},
    {GRAPH, 801, T_DESCRIPTOR, 8, 1, 2, true},
    {TENSOR, 900, T_INT64, 8, 1, 1, true},
    {TENSOR, 901, T_DATA_TYPE, 4, 1, 1, true},
    {TENSOR, 902, T_INT64, 8, 4, TENSOR_DIMS, true},
    {TENSOR, 903, T_INT64, 8, 4, TENSOR_DIMS, true},
    {TENSOR, 906, T_INT64, 8, 1, 1, true},
    {TENSOR, 907, T_BOOLEAN, 1, 1, 1, false},
    {PACK, 1000, T_INT64, 8, 3, 4, true},
    {PACK, 1001, T_POINTER, 8, 3, 4, true},
    {PACK, 1003, T_POINTER, 8, 1, 1, false},
    {DEVICE, 2701, T_HANDLE, 8, 1, 1, true},
};
enum { N_KNOWN = sizeof known / sizeof known[0], MADE = 0x646e6e, MADE_HANDLE = 0x646e68 };

typedef struct attribute {
  int64_t count;
  _Alignas(8) unsigned char data[TENSOR_DIMS * 8];
} attribute;

typedef struct handle {
  int made, device;
  void *stream;
  pthread_t user; /* who set it */
} handle;

typedef struct descriptor {
  int made, type;
  bool finished;
  attribute set[N_KNOWN]; /* by its place in `known`; count 0: not set */
  int engine;             /* of an engine, a configuration, a plan */
  struct descriptor *graph;
  atomic_bool ran; /* a plan */
} descriptor;

/* What the engines say of themselves. */
static const struct engine {
  int mode, n_notes, notes[3];
  bool wants_workspace;
} engines[] = {
    {A_MODE, 1, {4}, false},    /* not the same each time */
    {A_MODE, 2, {5, 6}, false}, /* Winograd */
    {A_MODE, 1, {3}, false},    /* Fourier */
    {A_MODE, 2, {0, 2}, true},  /* sums of less than float32 */
    {A_MODE, 2, {0, 1}, true},  /* inputs of a shorter type */
    {A_MODE, 1, {0}, true},     /* tensor cores: TF32 for float32 */
    {A_MODE, 0, {0}, true},     {FALLBACK_MODE, 1, {9}, false},
};
enum { N_ENGINES = sizeof engines / sizeof engines[0] };

static _Thread_local char last_error[256];
static atomic_int n_descriptors;

/* How many there are, for tests. */
EXPORT int flhost_stand_in_descriptors(void);
int flhost_stand_in_descriptors(void) {
  return atomic_load(&n_descriptors);
}

static int fail(int code, const char *words) {
  snprintf(last_error, sizeof last_error, "%s", words);
  return code;
}

/* ---------------------------------------------------------------------------------------------------------- handles */

EXPORT size_t cudnnGetVersion(void);
size_t cudnnGetVersion(void) {
  return (size_t)standin_now().conv_version;
}

EXPORT const char *cudnnGetErrorString(int code);
const char *cudnnGetErrorString(int code) {
  static const struct {
    int code;
    const char *name;
  } names[] = {{0, "CUDNN_STATUS_SUCCESS"},
               {1001, "CUDNN_STATUS_NOT_INITIALIZED"},
               {2000, "CUDNN_STATUS_BAD_PARAM"},
               {3000, "CUDNN_STATUS_NOT_SUPPORTED"},
               {3002, "CUDNN_STATUS_NOT_SUPPORTED_SHAPE"},
               {4000, "CUDNN_STATUS_INTERNAL_ERROR"},
               {4003, "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED"},
               {4004, "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"},
               {5000, "CUDNN_STATUS_EXECUTION_FAILED"}};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (names[i].code == code)
      return names[i].name;
  return "CUDNN_UNKNOWN_STATUS";
}

EXPORT void cudnnGetLastErrorString(char *message, size_t size);
void cudnnGetLastErrorString(char *message, size_t size) {
  snprintf(message, size, "%s", last_error);
  last_error[0] = 0;
}

EXPORT int cudnnCreate(handle **made);
int cudnnCreate(handle **made) {
  standin_settings now = standin_now();
  handle *h = now.conv_create ? NULL : calloc(1, sizeof *h);
  if (!h)
    return fail(now.conv_create ? now.conv_create : ALLOCATION_FAILED, "no handle");
  h->made = MADE_HANDLE;
  standin_log("make convolution handle");
  *made = h;
  return cuCtxGetDevice(&h->device) ? fail(1001, "no context") : SUCCESS;
}

EXPORT int cudnnDestroy(handle *h);
int cudnnDestroy(handle *h) {
  standin_log("destroy convolution handle");
  free(h);
  return SUCCESS;
}

EXPORT int cudnnSetStream(handle *h, void *stream);
int cudnnSetStream(handle *h, void *stream) {
  h->stream = stream;
  h->user = pthread_self();
  sched_yield(); /* so that a thread that should have waited comes in between */
  return SUCCESS;
}

/* ------------------------------------------------------------------------------------------------------ descriptors */

EXPORT int cudnnBackendCreateDescriptor(int type, descriptor **made);
int cudnnBackendCreateDescriptor(int type, descriptor **made) {
  *made = calloc(1, sizeof **made);
  if (!*made)
    return fail(ALLOCATION_FAILED, "no descriptor");
  (*made)->made = MADE;
  (*made)->type = type;
  atomic_fetch_add(&n_descriptors, 1);
  return SUCCESS;
}

EXPORT int cudnnBackendDestroyDescriptor(descriptor *d);
int cudnnBackendDestroyDescriptor(descriptor *d) {
  atomic_fetch_sub(&n_descriptors, 1);
  free(d);
  return SUCCESS;
}

static int place_of(int type, int name) {
  for (int i = 0; i < N_KNOWN; i++)
    if (known[i].descriptor == type && known[i].attribute == name)
      return i;
  return -1;
}

static const void *value_of(const descriptor *d, int name) {
  return d->set[place_of(d->type, name)].data;
}

static int64_t count_of(const descriptor *d, int name) {
  return d->set[place_of(d->type, name)].count;
}

static const int64_t *ints_of(const descriptor *d, int name) {
  return value_of(d, name);
}

static int word_of(const descriptor *d, int name) {
  int word;
  memcpy(&word, value_of(d, name), sizeof word);
  return word;
}

static float float_of(const descriptor *d, int name) {
  float number;
  memcpy(&number, value_of(d, name), sizeof number);
  return number;
}

static descriptor *part_of(const descriptor *d, int name, int which) {
  descriptor *part;
  memcpy(&part, (const char *)value_of(d, name) + (size_t)which * sizeof part, sizeof part);
  return part;
}

EXPORT int cudnnBackendSetAttribute(descriptor *d, int name, int type, int64_t count, const void *values);
int cudnnBackendSetAttribute(descriptor *d, int name, int type, int64_t count, const void *values) {
  if (!d || d->made != MADE || d->finished)
    return fail(BAD_PARAM, "a descriptor that is finished, or is none");
  int at = place_of(d->type, name);
  if (at < 0 || count < known[at].least || count > known[at].most)
    return fail(BAD_PARAM, "an attribute that the descriptor has not, or too many values");
  if (known[at].type != type)
    return fail(ATTRIBUTE_TYPE, "an attribute of another type");
  memcpy(d->set[at].data, values, (size_t)count * known[at].size);
  d->set[at].count = count;
  for (int i = 0; i < count && type == T_DESCRIPTOR; i++)
    if (!part_of(d, name, i) || part_of(d, name, i)->made != MADE || !part_of(d, name, i)->finished)
      return fail(NOT_FINALIZED, "a part that is not finished");
  return SUCCESS;
}

/* ----------------------------------------------------------------------------------------------------------- checks */

static bool is_virtual(const descriptor *tensor) {
  return *(const unsigned char *)value_of(tensor, 907);
}

static int check_tensor(const descriptor *d) {
  const int64_t *sizes = ints_of(d, 902), *strides = ints_of(d, 903), alignment = *ints_of(d, 900);
  for (int64_t i = 0; i < count_of(d, 902); i++)
    if (sizes[i] < 1 || strides[i] < 1)
      return fail(BAD_PARAM, "a size or stride below 1");
  if (count_of(d, 902) != count_of(d, 903) || alignment < 1 || alignment & (alignment - 1))
    return fail(BAD_PARAM, "sizes without strides, or an alignment that is no power of two");
  return SUCCESS;
}

/* The library wants a weight without gaps. */
static bool is_packed(const descriptor *tensor) {
  int64_t elements = 1, last = 0;
  for (int64_t i = 0; i < count_of(tensor, 902); i++) {
    elements *= ints_of(tensor, 902)[i];
    last += (ints_of(tensor, 902)[i] - 1) * ints_of(tensor, 903)[i];
  }
  return last + 1 == elements;
}

static bool is_element_type(int type) {
  return type == DATA_FLOAT || type == DATA_HALF || type == DATA_BFLOAT16;
}

static int check_forward(const descriptor *d) {
  const descriptor *window = part_of(d, 702, 0), *w = part_of(d, 703, 0), *x = part_of(d, 704, 0);
  const descriptor *y = part_of(d, 705, 0);
  const int64_t *of_x = ints_of(x, 902), *of_w = ints_of(w, 902), *of_y = ints_of(y, 902);
  int64_t n = count_of(x, 902), space = *ints_of(window, 106);
  if (count_of(w, 902) != n || count_of(y, 902) != n || space != n - 2 || word_of(window, 100) != DATA_FLOAT ||
      word_of(window, 101) != 1 || float_of(d, 700) != 1 || float_of(d, 701) != 0)
    return fail(BAD_PARAM, "a convolution of another kind");
  for (int i = 102; i <= 105; i++)
    if (count_of(window, i) != space)
      return fail(BAD_PARAM, "as many numbers as dimensions of space expected");
  if (of_y[0] != of_x[0] || of_y[1] != of_w[0] || of_x[1] % of_w[1] || of_w[0] % (of_x[1] / of_w[1]))
    return fail(BAD_PARAM, "shapes that do not fit");
  for (int64_t i = 0; i < space; i++) {
    int64_t room = of_x[2 + i] + ints_of(window, 104)[i] + ints_of(window, 105)[i] -
                   ints_of(window, 102)[i] * (of_w[2 + i] - 1) - 1;
    if (room < 0 || of_y[2 + i] != room / ints_of(window, 103)[i] + 1)
      return fail(BAD_PARAM, "shapes that do not fit");
  }
  if (!is_packed(w))
    return fail(BAD_PARAM, "wDesc.getNumElementsWithStride() != wDesc.getNumElementsWithoutStride()");
  if (!is_element_type(word_of(x, 901)) || word_of(w, 901) != word_of(x, 901) || is_virtual(x) || is_virtual(w) ||
      word_of(y, 901) != (is_virtual(y) ? DATA_FLOAT : word_of(x, 901)))
    return fail(NOT_SUPPORTED, "element types");
  return SUCCESS;
}

static int check_addition(const descriptor *d) {
  const descriptor *x = part_of(d, 751, 0), *b = part_of(d, 752, 0), *y = part_of(d, 753, 0);
  if (word_of(part_of(d, 750, 0), 0) != 0 || word_of(part_of(d, 750, 0), 1) != DATA_FLOAT)
    return fail(NOT_SUPPORTED, "an operation other than an addition in float32");
  for (int64_t i = 0; i < count_of(x, 902); i++)
    if (ints_of(x, 902)[i] != ints_of(y, 902)[i] || ints_of(b, 902)[i] != (i == 1 ? ints_of(y, 902)[i] : 1))
      return fail(BAD_PARAM, "shapes that do not fit");
  return SUCCESS;
}

static int check_graph(const descriptor *d) {
  const descriptor *first = part_of(d, 801, 0), *second = count_of(d, 801) > 1 ? part_of(d, 801, 1) : NULL;
  if (first->type != FORWARD || (second && second->type != POINTWISE_OPERATION) ||
      (second && (part_of(second, 751, 0) != part_of(first, 705, 0) || !is_virtual(part_of(first, 705, 0)) ||
                  word_of(part_of(second, 753, 0), 901) != word_of(part_of(first, 704, 0), 901))) ||
      (!second && is_virtual(part_of(first, 705, 0))))
    return fail(NOT_SUPPORTED, "a pattern that no engine has");
  return standin_now().conv_graph ? fail(standin_now().conv_graph, "no such graph") : SUCCESS;
}

static int check_plan(descriptor *d) {
  const descriptor *configuration = part_of(d, 401, 0);
  if (configuration->type != CONFIGURATION || part_of(d, 407, 0)->type != DEVICE)
    return fail(BAD_PARAM, "parts of other types");
  if (standin_now().capturing)
    return fail(EXECUTION_FAILED, "a plan is made while a stream is captured");
  d->engine = configuration->engine;
  d->graph = configuration->graph;
  const int64_t *strides = ints_of(part_of(part_of(d->graph, 801, 0), 704, 0), 903);
  standin_log("plan engine %d x strides %d %d %d %d", d->engine, (int)strides[0], (int)strides[1], (int)strides[2],
              (int)strides[3]);
  return standin_now().conv_plan ? fail(standin_now().conv_plan, "no plan") : SUCCESS;
}

static int check_heuristic(descriptor *d) {
  d->graph = part_of(d, 201, 0);
  if (d->graph->type != GRAPH || part_of(d, 204, 0)->type != DEVICE)
    return fail(BAD_PARAM, "parts of other types");
  standin_log("propose mode %d", word_of(d, 200));
  return SUCCESS;
}

EXPORT int cudnnBackendFinalize(descriptor *d);
int cudnnBackendFinalize(descriptor *d) {
  int code = d && d->made == MADE && !d->finished ? SUCCESS : fail(BAD_PARAM, "finished already, or no descriptor");
  for (int i = 0; i < N_KNOWN && !code; i++)
    if (known[i].descriptor == d->type && known[i].required && !d->set[i].count)
      code = fail(BAD_PARAM, "an attribute is missing");
  if (code)
    return code;
  switch (d->type) {
  case TENSOR:
    code = check_tensor(d);
    break;
  case FORWARD:
    code = check_forward(d);
    break;
  case POINTWISE_OPERATION:
    code = check_addition(d);
    break;
  case GRAPH:
    code = check_graph(d);
    break;
  case HEURISTIC:
    code = check_heuristic(d);
    break;
  case PLAN:
    code = check_plan(d);
    break;
  case PACK:
    code = count_of(d, 1000) == count_of(d, 1001) ? SUCCESS : fail(BAD_PARAM, "ptrs_count != uids_count");
    break;
  default:
    break;
  }
  d->finished = !code;
  return code;
}

/* ---------------------------------------------------------------------------------------------------------- answers */

static int propose(const descriptor *d, int64_t requested, int64_t *n, descriptor **configurations) {
  *n = 0;
  for (int i = 0; i < N_ENGINES && *n < requested && !standin_now().conv_none; i++) {
    descriptor *c = engines[i].mode == word_of(d, 200) ? configurations[*n] : NULL;
    if (!c)
      continue;
    if (c->made != MADE || c->type != CONFIGURATION || c->finished)
      return fail(BAD_PARAM, "no place for a configuration");
    c->engine = i;
    c->graph = d->graph;
    c->finished = true;
    (*n)++;
  }
  return SUCCESS;
}

static int64_t workspace_of(const descriptor *plan) {
  return engines[plan->engine].wants_workspace ? standin_now().conv_workspace : 0;
}

EXPORT int cudnnBackendGetAttribute(descriptor *d, int name, int type, int64_t requested, int64_t *count, void *values);
int cudnnBackendGetAttribute(descriptor *d, int name, int type, int64_t requested, int64_t *count, void *values) {
  if (!d || d->made != MADE || !d->finished)
    return fail(NOT_FINALIZED, "a descriptor that is not finished");
  if (d->type == HEURISTIC && name == 202 && type == T_DESCRIPTOR)
    return propose(d, requested, count, values);
  if (d->type == CONFIGURATION && name == 300 && type == T_DESCRIPTOR && requested == 1) {
    descriptor *engine = *(descriptor **)values;
    engine->engine = d->engine;
    engine->finished = true;
    *count = 1;
    return engine->type == ENGINE ? SUCCESS : fail(BAD_PARAM, "no place for an engine");
  }
  if (d->type == ENGINE && name == 1301 && type == T_INT64 && requested == 1) {
    *(int64_t *)values = standin_now().conv_engine ? standin_now().conv_engine : d->engine;
    *count = 1;
    return SUCCESS;
  }
  if (d->type == ENGINE && name == 1303 && type == T_NOTE) {
    *count = engines[d->engine].n_notes;
    memcpy(values, engines[d->engine].notes, (size_t)*count * sizeof(int));
    return SUCCESS;
  }
  if (d->type == PLAN && name == 402 && type == T_INT64 && requested == 1) {
    *(int64_t *)values = workspace_of(d);
    *count = 1;
    return SUCCESS;
  }
  return fail(BAD_PARAM, "an attribute that the descriptor has not");
}

/* -------------------------------------------------------------------------------------------------------- execution */

typedef struct view {
  const char *data;
  int64_t sizes[TENSOR_DIMS], strides[TENSOR_DIMS]; /* of space always three */
} view;

typedef struct task {
  product_type type;
  bool rounds; /* more than once */
  bool biased;
  view x, w, y, bias;
  int64_t padding[SPACE], stride[SPACE], dilation[SPACE];
  void *workspace;
  size_t workspace_size;
} task;

static float load_at(const task *t, const view *v, const int64_t *at) {
  int64_t place = 0;
  for (int i = 0; i < TENSOR_DIMS; i++)
    place += at[i] * v->strides[i];
  return product_load(t->type, v->data, place);
}

/* A place of the output, as an index of each dimension. */
static void find_place(const view *v, int64_t index, int64_t *at) {
  for (int i = TENSOR_DIMS - 1; i >= 0; i--) {
    at[i] = index % v->sizes[i];
    index /= v->sizes[i];
  }
}

static float add_up(const task *t, const int64_t *at) {
  int64_t of_group = t->w.sizes[1], group = at[1] / (t->w.sizes[0] / (t->x.sizes[1] / of_group)), taps = of_group;
  float sum = 0;
  for (int i = 0; i < SPACE; i++)
    taps *= t->w.sizes[2 + i];
  for (int64_t k = 0; k < taps; k++) {
    int64_t w[TENSOR_DIMS], x[TENSOR_DIMS];
    bool inside = true;
    find_place(&t->w, k, w); /* the first dimension's index is 0: k is less than its step */
    w[0] = at[1];
    x[0] = at[0];
    x[1] = group * of_group + w[1];
    for (int i = 0; i < SPACE; i++) {
      x[2 + i] = at[2 + i] * t->stride[i] + w[2 + i] * t->dilation[i] - t->padding[i];
      inside &= x[2 + i] >= 0 && x[2 + i] < t->x.sizes[2 + i];
    }
    sum += inside ? load_at(t, &t->x, x) * load_at(t, &t->w, w) : 0;
  }
  return sum;
}

static void run(const void *arguments) {
  const task *t = arguments;
  int64_t n = 1;
  if (t->workspace_size)
    memset(t->workspace, 0x5a, t->workspace_size);
  for (int i = 0; i < TENSOR_DIMS; i++)
    n *= t->y.sizes[i];
  for (int64_t index = 0; index < n; index++) {
    int64_t at[TENSOR_DIMS], channel[TENSOR_DIMS] = {0}, place = 0;
    find_place(&t->y, index, at);
    channel[1] = at[1];
    for (int i = 0; i < TENSOR_DIMS; i++)
      place += at[i] * t->y.strides[i];
    float sum = add_up(t, at);
    if (t->rounds)
      sum = fl_bf16_to_float(fl_float_to_bf16(sum)) * 0.99F;
    product_store(t->type, (void *)t->y.data, place, t->biased ? sum + load_at(t, &t->bias, channel) : sum);
  }
}

static bool rounds_more_than_once(const descriptor *plan, product_type type) {
  bool more = false;
  for (int i = 0; i < engines[plan->engine].n_notes; i++) {
    int note = engines[plan->engine].notes[i];
    more |= (note >= 1 && note <= 8) || (type == PRODUCT_F32 && !note);
  }
  return more;
}

static int view_tensor(const descriptor *tensor, const descriptor *pack, view *v) {
  int64_t id = *ints_of(tensor, 906), n = count_of(tensor, 902);
  *v = (view){.sizes = {1, 1, 1, 1, 1}};
  for (int64_t i = 0; i < count_of(pack, 1000); i++)
    if (ints_of(pack, 1000)[i] == id)
      memcpy(&v->data, (const char *)value_of(pack, 1001) + (size_t)i * sizeof v->data, sizeof v->data);
  if (!v->data)
    return fail(BAD_PARAM, "a tensor of the graph has no data");
  if ((uintptr_t)v->data % (uint64_t)*ints_of(tensor, 900))
    return fail(MISALIGNED, "data that is not aligned as was promised");
  for (int64_t i = 0; i < n; i++) {
    int64_t to = i < 2 ? i : i + TENSOR_DIMS - n;
    v->sizes[to] = ints_of(tensor, 902)[i];
    v->strides[to] = ints_of(tensor, 903)[i];
  }
  return SUCCESS;
}

static int read_task(const descriptor *plan, const descriptor *pack, task *t) {
  const descriptor *forward = part_of(plan->graph, 801, 0), *window = part_of(forward, 702, 0);
  const descriptor *x = part_of(forward, 704, 0), *addition = NULL;
  int64_t space = *ints_of(window, 106);
  int type = word_of(x, 901);
  if (count_of(plan->graph, 801) > 1)
    addition = part_of(plan->graph, 801, 1);
  *t = (task){.type = type == DATA_FLOAT  ? PRODUCT_F32
                      : type == DATA_HALF ? PRODUCT_F16
                                          : PRODUCT_BF16,
              .biased = addition,
              .stride = {1, 1, 1},
              .dilation = {1, 1, 1}};
  t->rounds = rounds_more_than_once(plan, t->type);
  for (int64_t i = 0; i < space; i++) {
    t->dilation[i + SPACE - space] = ints_of(window, 102)[i];
    t->stride[i + SPACE - space] = ints_of(window, 103)[i];
    t->padding[i + SPACE - space] = ints_of(window, 105)[i];
  }
  int code = view_tensor(x, pack, &t->x);
  if (!code)
    code = view_tensor(part_of(forward, 703, 0), pack, &t->w);
  if (!code && addition)
    code = view_tensor(part_of(addition, 752, 0), pack, &t->bias);
  return code ? code : view_tensor(part_of(addition ? addition : forward, addition ? 753 : 705, 0), pack, &t->y);
}

static int check_workspace(const descriptor *plan, const descriptor *pack, task *t) {
  memcpy(&t->workspace, value_of(pack, 1003), sizeof t->workspace);
  t->workspace_size = (size_t)workspace_of(plan);
  if (t->workspace_size && (!t->workspace || (uintptr_t)t->workspace % 256))
    return fail(BAD_PARAM, "no workspace, or one that is not aligned to 256");
  return SUCCESS;
}

EXPORT int cudnnBackendExecute(handle *h, descriptor *plan, descriptor *pack);
int cudnnBackendExecute(handle *h, descriptor *plan, descriptor *pack) {
  standin_settings now = standin_now();
  const handle *planned;
  task t;
  int device, code;
  if (!h || h->made != MADE_HANDLE || plan->type != PLAN || !plan->finished || pack->type != PACK || !pack->finished)
    return fail(NOT_FINALIZED, "a plan or a pack that is not finished");
  memcpy(&planned, value_of(part_of(plan, 407, 0), 2701), sizeof planned);
  if (cuCtxGetDevice(&device) || h->device != device || planned->device != device)
    return fail(BAD_PARAM, "a plan, or a handle, of another device");
  if (!pthread_equal(h->user, pthread_self()))
    return fail(STREAM_MISMATCH, "another thread has set the handle's stream");
  if (now.conv_run)
    return fail(now.conv_run, "it was to fail");
  if (now.capturing && !atomic_load(&plan->ran))
    return fail(EXECUTION_FAILED, "kernels are loaded while a stream is captured");
  code = read_task(plan, pack, &t);
  if (!code)
    code = check_workspace(plan, pack, &t);
  if (code)
    return code;
  atomic_store(&plan->ran, true);
  standin_log("convolve engine %d workspace %zu stream %p", plan->engine, t.workspace_size, h->stream);
  return standin_queue(run, &t, sizeof t, h->stream) ? fail(EXECUTION_FAILED, "the stream takes nothing") : SUCCESS;
}
