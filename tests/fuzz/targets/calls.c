/*
 * Calls, eight of one input after the other: fl_invoke, which remembers the forms of good calls, against fl_check,
 * which remembers nothing. A call that one takes and the other refuses is a mistake of one of them. The kernel does
 * nothing, so that a tensor's data is never looked at.
 */
#include <flhost/flhost.h>

#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <string.h>

enum { VALUES = 8, CALLS = 8, DIMS = 5 };

static const fl_op_def ops[] = {
    {.size = sizeof *ops,
     .schema = "gated(Tensor x, float limit=1.0) -> Tensor out",
     .rules = "x: T[..., 2*d]; out: T[..., d]; T = float32|float16|bfloat16"},
    {.size = sizeof *ops,
     .schema = "norm(Tensor x, Tensor? weight, float epsilon=1e-6, Tensor? residual=None) -> (Tensor out, Tensor? sum)",
     .rules = "x: T[..., d]; weight: T[d]; residual: T[..., d]; out: T[..., d]; sum: T[..., d]"},
    {.size = sizeof *ops,
     .schema = "product(Tensor x, Tensor w, int groups=1, bool transpose=False, str how=\"none\", int[] sizes=[1, 2])"
               " -> Tensor out",
     .rules = "x: T[n, k]; w: T[m, k/groups]; out: T[n, m]"},
    {.size = sizeof *ops,
     .schema = "turn(Tensor(a!) x, Tensor index) -> Tensor(a) out",
     .rules = "x: T[n, h, d] or T[n, hd]; index: int64[n]"},
};
enum { OPS = sizeof ops / sizeof *ops };

static fl_status nothing(void *self, fl_call *call) {
  (void)self, (void)call;
  return FL_OK;
}

static void quiet(void *user, int level, const char *line) {
  (void)user, (void)level, (void)line;
}

static fl_op *op_handle(uint8_t which) {
  static fl_op *handles[OPS];
  static fl_host *host;
  if (!host) {
    static const char *const none[] = {NULL};
    fl_host_options options = {
        .size = sizeof options, .flags = FL_HOST_NO_PLUGINS, .environment = none, .platform = "cpu", .log = quiet};
    if (fl_host_create(&options, &host))
      fuzz_broken("no host: %s", fl_error_message());
    for (size_t i = 0; i < OPS; i++) {
      char name[32];
      snprintf(name, sizeof name, "%.*s", (int)strcspn(ops[i].schema, "("), ops[i].schema);
      fl_impl impl = {.size = sizeof impl,
                      .op_name = name,
                      .impl_id = "default.fuzz",
                      .kind = FL_KIND_DEFAULT,
                      .devices = FL_DEVICE(kDLCPU),
                      .fn = nothing};
      if (fl_register_op(host, &ops[i]) || fl_register_impl(host, &impl))
        fuzz_broken("%s: %s", name, fl_error_message());
      handles[i] = fl_find_op(host, name);
    }
  }
  return handles[which % OPS];
}

/* The input's bytes, then zeros. */
typedef struct bytes {
  const uint8_t *data;
  size_t left;
} bytes;

static uint8_t next(bytes *in) {
  if (!in->left)
    return 0;
  in->left--;
  return *in->data++;
}

/* Mostly small, now and then as wild as can be. */
static int64_t number(bytes *in) {
  static const int64_t wild[] = {INT64_MAX, INT64_MIN, INT32_MAX, INT64_MAX / 2, -1, -7, (int64_t)1 << 40, 1 << 20};
  uint8_t byte = next(in);
  return byte < 240 ? byte % 12 : wild[byte % 8];
}

typedef struct one_call {
  fl_value values[VALUES];
  DLTensor tensors[VALUES];
  int64_t shapes[VALUES][DIMS], strides[VALUES][DIMS], lists[VALUES][2];
} one_call;

static void make_tensor(bytes *in, one_call *call, size_t i) {
  static char memory[VALUES + 1][4096];
  static const DLDataType dtypes[] = {{kDLFloat, 32, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1}, {kDLInt, 64, 1},
                                      {kDLInt, 32, 1},   {kDLFloat, 64, 1}, {kDLInt, 7, 3},     {99, 0, 0}};
  uint8_t how = next(in);
  DLTensor *t = &call->tensors[i];
  *t = (DLTensor){.data = memory[how & 1 ? i : how >> 1 & 3],
                  .device = {how & 8 ? (DLDeviceType)next(in) : kDLCPU, how & 16 ? (int32_t)number(in) : 0},
                  .ndim = how & 32 ? (int32_t)number(in) : next(in) % DIMS,
                  .dtype = dtypes[next(in) % (how & 64 ? 8 : 2)],
                  .shape = call->shapes[i]};
  for (int d = 0; d < DIMS; d++)
    call->shapes[i][d] = number(in);
  if (t->ndim > DIMS && t->ndim <= FL_MAX_DIMS)
    t->ndim = DIMS; /* more than there are of would be a lie that nobody can see through */
  if (how & 128) {
    t->strides = call->strides[i];
    for (int d = 0; d < DIMS; d++)
      call->strides[i][d] = number(in);
    t->byte_offset = (uint64_t)number(in);
  }
}

static void make_value(bytes *in, one_call *call, size_t i, fl_type type) {
  static const char *const words[] = {"none", "tanh", "", NULL};
  uint8_t how = next(in);
  if (how >= 224)
    type = (fl_type)(next(in) % 9);
  switch (type) {
  case FL_TENSOR:
    make_tensor(in, call, i);
    call->values[i] = how < 216 ? fl_tensor(&call->tensors[i]) : fl_none();
    break;
  case FL_STRING:
    call->values[i] = fl_string(words[next(in) % 4]);
    break;
  case FL_INT_LIST:
    for (size_t j = 0; j < 2; j++)
      call->lists[i][j] = number(in);
    call->values[i] = fl_ints(call->lists[i], next(in) % 3);
    break;
  case FL_FLOAT:
    call->values[i] = fl_float((double)number(in) / 4);
    break;
  default:
    call->values[i] = (fl_value){.type = (uint32_t)type, .v.i = number(in)};
    break;
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  bytes in = {data, size};
  fl_op *op = op_handle(next(&in));
  uint32_t n_arguments = fl_op_argument_count(op), n = n_arguments + fl_op_result_count(op);
  one_call calls[2] = {0};
  for (int i = 0; i < CALLS && in.left; i++) {
    uint8_t which = next(&in);
    /* One of the two is changed, the other is repeated: forms are remembered and looked up. */
    one_call *call = &calls[which & 1];
    for (uint32_t v = 0; v < n && v < VALUES; v++)
      if (which & 2 || !i || v == (uint32_t)(which >> 2) % n)
        make_value(&in, call, v, fl_op_argument(op, v)->type);
    fl_call made = {.size = sizeof made, .count = which < 250 ? n : which % 10, .values = call->values};
    fl_status checked = fl_check(op, &made), invoked = fl_invoke(op, &made);
    if ((checked == FL_OK) != (invoked == FL_OK) && invoked != FL_ENOIMPL)
      fuzz_broken("fl_check says %d, fl_invoke %d: %s", (int)checked, (int)invoked, fl_error_message());
  }
  return 0;
}
