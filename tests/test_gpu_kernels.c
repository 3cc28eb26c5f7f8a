/*
 * The GPU plugins' kernels against the reference implementations, op by op: on a stand-in driver that runs the very
 * sources on the CPU, with warps of 32 and of 64 threads. Generated calls, and vLLM's own results in the golden files.
 */
#include "cli/trials/compare.h"
#include "cli/trials/fill.h"
#include "core/cases.h"
#include "core/ops.h"
#include "tests/golden_files.h"
#include "tests/gpu.h"
#include "tests/kernels.h"

#include <flhost/testing.h>
#include <stdint.h>

enum { CALLS = 12, MAX_VALUES = FL_SCHEMA_MAX_VALUES, MOST_ELEMENTS = 1 << 14 };

/* How a tensor lies in memory. */
typedef enum placement { COMPACT, PADDED, OFFSET, N_PLACEMENTS } placement;

/* A call twice: on the CPU, and as the device gets it. */
typedef struct twin {
  fl_op *op;
  uint32_t n_arguments, n_values;
  fl_input inputs[MAX_VALUES];
  fl_tensor_spec results[MAX_VALUES];
  owned *tensors[2][MAX_VALUES]; /* NULL: none, or the argument that a result is in place of */
  fl_value values[2][MAX_VALUES];
} twin;

static bool is_tensor(const twin *t, uint32_t i) {
  const fl_tensor_spec *spec = i < t->n_arguments ? &t->inputs[i].spec : &t->results[i - t->n_arguments];
  return fl_op_argument(t->op, i)->type == FL_TENSOR && spec->present;
}

static const fl_tensor_spec *spec_at(const twin *t, uint32_t i) {
  return i < t->n_arguments ? &t->inputs[i].spec : &t->results[i - t->n_arguments];
}

static owned *place(const fl_tensor_spec *spec, placement where) {
  enum { ODD = 3 };
  int64_t shape[FL_MAX_DIMS];
  memcpy(shape, spec->shape, sizeof shape);
  if (where == OFFSET && spec->ndim == 0)
    where = COMPACT;
  if (where != OFFSET)
    return make(spec->dtype, spec->ndim, shape, where == PADDED && spec->ndim > 1 ? 16 : 0);
  /* Behind some elements of the storage, so that nothing is aligned. */
  int64_t n = 1;
  for (int d = 0; d < spec->ndim; d++)
    n *= shape[d];
  owned *made = make(spec->dtype, 1, &(int64_t){n + ODD}, 0);
  made->tensor.ndim = spec->ndim;
  memcpy(made->shape, shape, sizeof shape);
  made->tensor.byte_offset = ODD * spec->dtype.bits / 8u;
  return made;
}

/* Element by element, in the order of the shape. */
static void copy_elements(owned *to, const DLTensor *from) {
  size_t size = from->dtype.bits / 8;
  for (int64_t i = 0; i < count(from); i++)
    memcpy((char *)fl_data(&to->tensor) + (size_t)element_offset(&to->tensor, i) * size,
           (const char *)fl_data(from) + (size_t)element_offset(from, i) * size, size);
}

static bool same_shape(const fl_tensor_spec *a, const fl_tensor_spec *b) {
  return a->ndim == b->ndim && !memcmp(&a->dtype, &b->dtype, sizeof a->dtype) &&
         !memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape);
}

/* false: the number makes no call. */
static bool generate(twin *t, fl_op *op, uint32_t dtype, uint64_t number) {
  fl_value values[MAX_VALUES];
  DLTensor tensors[MAX_VALUES];
  int64_t elements = 0;
  *t = (twin){.op = op, .n_arguments = fl_op_argument_count(op)};
  t->n_values = t->n_arguments + fl_op_result_count(op);
  if (fl_generate_inputs(op, dtype, 1, number, t->inputs, t->n_arguments, sizeof(fl_input)))
    return false;
  for (uint32_t i = 0; i < t->n_arguments; i++) {
    fl_tensor_spec *spec = &t->inputs[i].spec;
    values[i] = t->inputs[i].value;
    if (!is_tensor(t, i))
      continue;
    tensors[i] = (DLTensor){.device = {kDLCPU, 0}, .ndim = spec->ndim, .dtype = spec->dtype, .shape = spec->shape};
    values[i] = fl_tensor(&tensors[i]);
    elements += count(&tensors[i]);
  }
  fl_call call = {.size = sizeof call, .count = t->n_arguments, .values = values};
  return elements <= MOST_ELEMENTS &&
         !fl_infer(op, &call, t->results, t->n_values - t->n_arguments, sizeof(fl_tensor_spec));
}

/* The device's tensors lie as the number has it; every third call has its results in place where they may be. */
static bool fill_twin(twin *t, uint64_t number, DLDevice device) {
  for (uint32_t i = 0; i < t->n_values; i++) {
    int32_t alias = fl_op_argument(t->op, i)->alias;
    bool in_place = number % 3 == 1 && alias >= 0 && is_tensor(t, (uint32_t)alias) && is_tensor(t, i) &&
                    same_shape(spec_at(t, i), spec_at(t, (uint32_t)alias));
    for (int side = 0; side < 2; side++) {
      if (!is_tensor(t, i)) {
        t->values[side][i] = i < t->n_arguments ? t->inputs[i].value : fl_none();
        continue;
      }
      if (in_place) {
        t->values[side][i] = t->values[side][alias];
        continue;
      }
      owned *made = place(spec_at(t, i), side ? (placement)((number + i) % N_PLACEMENTS) : COMPACT);
      t->tensors[side][i] = made;
      t->values[side][i] = fl_tensor(&made->tensor);
      if (i < t->n_arguments && !side &&
          !fill_tensor(&t->inputs[i], number * 64 + i, number % 4 == 3, made->tensor.data))
        return false;
      if (side) {
        copy_elements(made, &t->tensors[0][i]->tensor);
        made->tensor.device = device;
      }
    }
  }
  return true;
}

static void free_twin(twin *t) {
  for (uint32_t i = 0; i < t->n_values; i++)
    for (int side = 0; side < 2; side++)
      unmake(t->tensors[side][i]);
}

/* With the workspace that it should have, which holds no zeros. A call's stream is the default one; the stand-in has
 * run all of it when it returns. */
static fl_status invoke(fl_op *op, fl_value *values, uint32_t n) {
  enum { ALIGNMENT = 256, JUNK = 0xa5 };
  fl_call call = {.size = sizeof call, .count = n, .values = values};
  fl_status status = fl_workspace_size(op, &call, &call.workspace_size);
  if (status)
    return status;
  size_t size = (call.workspace_size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  if (size) {
    call.workspace = aligned_alloc(ALIGNMENT, size);
    ck_assert_ptr_nonnull(call.workspace);
    memset(call.workspace, JUNK, size);
  }
  status = fl_invoke(op, &call);
  free(call.workspace);
  return status;
}

static fl_tolerance wider(fl_op *op, DLDataType dtype, DLDataType activations) {
  fl_tolerance allowed = {0}, other = {0};
  fl_op_tolerance(op, dtype, &allowed.atol, &allowed.rtol);
  fl_op_tolerance(op, activations, &other.atol, &other.rtol);
  if (allowed.atol > 0 && other.atol > allowed.atol)
    allowed.atol = other.atol;
  if (allowed.rtol > 0 && other.rtol > allowed.rtol)
    allowed.rtol = other.rtol;
  return allowed;
}

static void compare_twin(twin *t, uint64_t number, const char *id) {
  for (uint32_t i = 0; i < t->n_values; i++) {
    if (!t->tensors[0][i])
      continue;
    const DLTensor *expected = &t->tensors[0][i]->tensor;
    owned *got = make(expected->dtype, expected->ndim, t->tensors[0][i]->shape, 0);
    copy_elements(got, &t->tensors[1][i]->tensor);
    fl_tolerance allowed = wider(t->op, expected->dtype, spec_at(t, 0)->dtype);
    comparison c = compare_tensors(&got->tensor, expected, allowed.atol, allowed.rtol, false);
    ck_assert_msg(c.pass, "%s of %s, call %d: '%s': %s", id, fl_op_name(t->op), (int)number,
                  fl_op_argument(t->op, i)->name, c.problem);
    unmake(got);
  }
}

/* No kernel takes experts' weights that are codes. */
static bool is_beyond_kernels(fl_op *op, const fl_value *values) {
  for (uint32_t i = 0; i < fl_op_argument_count(op); i++) {
    const char *name = fl_op_argument(op, i)->name;
    if (values[i].type == FL_TENSOR && (!strcmp(name, "w13_scale") || !strcmp(name, "w2_scale")))
      return true;
  }
  return false;
}

/* How many calls were compared, of those that are wanted; NULL: all are. */
static int check_op(fl_op *op, const gpu_setup *setup, uint32_t dtype, bool (*wanted)(const twin *, uint64_t)) {
  static twin t;                                                /* large */
  int compared = 0, most = is_sparse() ? rounds(CALLS) : CALLS; /* fewer would leave out forms that are looked for */
  for (uint64_t number = 0; compared < most && number < CALLS * (wanted ? 1000 : 20); number++) {
    if (!generate(&t, op, dtype, number) || (wanted && !wanted(&t, number)))
      continue;
    if (fill_twin(&t, number, (DLDevice){(DLDeviceType)setup->device_type, 0})) {
      fl_status expected = invoke(op, t.values[0], t.n_values), status = invoke(op, t.values[1], t.n_values);
      expected = is_beyond_kernels(op, t.values[1]) ? FL_ENOIMPL : expected;
      ck_assert_msg(status == expected, "%s of %s, call %d: %s", setup->impl_id, fl_op_name(op), (int)number,
                    fl_error_message());
      if (!status)
        compare_twin(&t, number, setup->impl_id);
      compared += !status;
    }
    free_twin(&t);
  }
  return compared;
}

/* In each type that activations may have; an op of indices alone has one kind of call. */
static void check_op_in_its_types(fl_op *op, const gpu_setup *setup) {
  static const uint32_t dtypes[] = {FL_FLOAT32, FL_FLOAT16, FL_BFLOAT16};
  fl_input inputs[MAX_VALUES];
  bool indices =
      fl_generate_inputs(op, FL_FLOAT32, 1, 0, inputs, fl_op_argument_count(op), sizeof(fl_input)) == FL_ENOENT;
  for (size_t i = 0; i < (indices ? 1 : sizeof dtypes / sizeof dtypes[0]); i++)
    ck_assert_msg(check_op(op, setup, indices ? 0 : dtypes[i], NULL) > 0, "no call of %s", fl_op_name(op));
}

START_TEST(O5_kernels_agree_with_the_reference_within_tolerance) {
  const gpu_setup *setup = &gpu_setups[_i]; /* warps of 32, and of 64 */
  fl_host *host = gpu_host(setup);
  fl_snapshot *snapshot = fl_registry_snapshot(host);
  int n_ops = 0;
  for (uint32_t i = 0; i < fl_snapshot_op_count(snapshot); i++)
    for (uint32_t j = 0; j < fl_snapshot_impl_count(snapshot, i); j++) {
      const fl_impl_info *info = fl_snapshot_impl(snapshot, i, j);
      if (strcmp(info->impl_id, setup->impl_id))
        continue;
      ck_assert_msg(info->available, "%s", info->reason);
      check_op_in_its_types(fl_find_op(host, fl_snapshot_op_name(snapshot, i)), setup);
      n_ops++;
    }
  ck_assert_int_gt(n_ops, 0);
  fl_snapshot_release(snapshot);
  fl_host_destroy(host);
}
END_TEST

/* On which device, of which host. */
typedef struct golden_device {
  fl_host *host;
  DLDevice device;
} golden_device;

static void set_device(fl_value *values, uint32_t n, DLDevice device) {
  for (uint32_t i = 0; i < n; i++)
    if (values[i].type == FL_TENSOR)
      values[i].v.tensor->device = device;
}

/* Gives results that are longer than what a file holds of them, which has only what is valid, tensors of their own. */
static void lengthen_results(fl_op *op, fl_value *values, owned **longer) {
  fl_tensor_spec specs[MAX_VALUES];
  uint32_t n_arguments = fl_op_argument_count(op), n_results = fl_op_result_count(op);
  fl_call call = {.size = sizeof call, .count = n_arguments, .values = values};
  ck_ok(fl_infer(op, &call, specs, n_results, sizeof(fl_tensor_spec)));
  for (uint32_t i = 0; i < n_results; i++) {
    fl_value *value = &values[n_arguments + i];
    longer[n_arguments + i] = NULL;
    if (value->type != FL_TENSOR || specs[i].ndim != 1 || specs[i].shape[0] <= value->v.tensor->shape[0])
      continue;
    longer[n_arguments + i] = make(specs[i].dtype, 1, specs[i].shape, 0);
    longer[n_arguments + i]->tensor.device = value->v.tensor->device;
    value->v.tensor = &longer[n_arguments + i]->tensor;
  }
}

static void call_on_device(void *user, const fl_schema *schema, fl_value *values, uint32_t n) {
  const golden_device *where = user;
  fl_op *op = fl_find_op(where->host, schema->op_name);
  fl_value given[MAX_VALUES];
  owned *longer[MAX_VALUES];
  set_device(values, n, where->device);
  memcpy(given, values, n * sizeof *values);
  lengthen_results(op, given, longer);
  if (is_beyond_kernels(op, given)) {
    ck_assert_int_eq(invoke(op, given, n), FL_ENOIMPL);
    set_device(given, n, (DLDevice){kDLCPU, 0});
  }
  ck_ok(invoke(op, given, n));
  set_device(values, n, (DLDevice){kDLCPU, 0});
  for (uint32_t i = schema->n_arguments; i < n; i++)
    if (longer[i]) {
      const DLTensor *valid = values[i].v.tensor;
      memcpy(fl_data(valid), fl_data(&longer[i]->tensor), (size_t)valid->shape[0] * (valid->dtype.bits / 8u));
      unmake(longer[i]);
    }
}

static bool has_impl(fl_host *host, const char *op, const char *id) {
  fl_snapshot *snapshot = fl_registry_snapshot(host);
  bool found = false;
  for (uint32_t i = 0; i < fl_snapshot_op_count(snapshot); i++)
    for (uint32_t j = 0; j < fl_snapshot_impl_count(snapshot, i); j++)
      found |= !strcmp(fl_snapshot_op_name(snapshot, i), op) && !strcmp(fl_snapshot_impl(snapshot, i, j)->impl_id, id);
  fl_snapshot_release(snapshot);
  return found;
}

START_TEST(O5_kernels_agree_with_the_golden_files_within_tolerance) {
  const gpu_setup *setup = &gpu_setups[_i]; /* warps of 32, and of 64 */
  golden_device where = {gpu_host(setup), {(DLDeviceType)setup->device_type, 0}};
  int compared = 0;
  for (const fl_op_def *const *entry = fl_builtin_ops; *entry; entry++) {
    fl_schema *schema = NULL;
    ck_ok(fl_schema_create_checked(*entry, &schema));
    if (has_impl(where.host, schema->op_name, setup->impl_id))
      compared += check_golden_op(schema, false, call_on_device, &where);
    fl_schema_free(schema);
  }
  ck_assert_int_gt(compared, 0);
  fl_host_destroy(where.host);
}
END_TEST

/* As above, with the stand-in for cuDNN: it computes what it takes, and our kernels the rest. */
START_TEST(O5_convolutions_of_cudnn_agree_with_the_reference_within_tolerance) {
  static const char *const ops[] = {"conv2d", "conv3d"};
  const gpu_setup *setup = &gpu_setups[0];
  stand_in_open(setup->driver);
  setenv("FLHOST_CUDNN", stand_in_path(), 1);
  golden_device where = {gpu_host(setup), {(DLDeviceType)setup->device_type, 0}};
  fl_op *op = fl_find_op(where.host, ops[_i]);
  ck_assert(has_impl(where.host, ops[_i], "vendor.cuda.cudnn"));
  check_op_in_its_types(op, setup);
  ck_contains(stand_in_log(), "\nconvolve engine 6 "); /* float32; 16 bits at odd addresses it does not take */
  fl_schema *schema = schema_of(ops[_i]);
  ck_assert_int_gt(check_golden_op(schema, false, call_on_device, &where), 0);
  ck_contains(stand_in_log(), "\nconvolve engine 5 ");
  fl_schema_free(schema);
  fl_host_destroy(where.host);
}
END_TEST

/* 64 pairs of a token and an expert to each expert, and weights that lie as fill_twin() aligns them. */
static bool has_many_tokens(const twin *t, uint64_t number) {
  const fl_value *topk = &t->inputs[4].value;
  int64_t k = topk->type == FL_INT ? topk->v.i : spec_at(t, 3)->shape[1];
  return number % N_PLACEMENTS == 2 && spec_at(t, 0)->shape[0] * k >= 64 * spec_at(t, 1)->shape[0];
}

/* Those calls, which cuBLASLt takes unless a row's length or a bias's type is against it. */
START_TEST(O5_experts_by_cublaslt_agree_with_the_reference_within_tolerance) {
  static const char *const ops[] = {"unquantized_fused_moe", "modular_fused_moe", "transformers_fused_moe",
                                    "fused_moe"};
  static const uint32_t dtypes[] = {FL_FLOAT16, FL_BFLOAT16};
  const gpu_setup *setup = &gpu_setups[0];
  fl_host *host = gpu_host(setup);
  fl_op *op = fl_find_op(host, ops[_i]);
  ck_assert(has_impl(host, ops[_i], "vendor.cuda.cublaslt"));
  for (int i = 0; i < 2; i++) {
    stand_in_clear();
    ck_assert_int_gt(check_op(op, setup, dtypes[i], has_many_tokens), 0);
    ck_assert_int_gt(stand_in_lines("batch "), is_sparse() ? 0 : 4);
    ck_assert_int_eq(stand_in_lines("product "), 0); /* of an address that is not good */
  }
  fl_host_destroy(host);
}
END_TEST

/* ---------------------------------------------------------------------------------------- indices out of range */

/* On the device that `setup` has, and with results already there. */
static void call_with(const gpu_setup *setup, const char *op, fl_value *values, uint32_t n) {
  fl_host *host = gpu_host(setup);
  set_device(values, n, (DLDevice){(DLDeviceType)setup->device_type, 0});
  ck_ok(invoke(fl_find_op(host, op), values, n));
  fl_host_destroy(host);
}

/* Far ones lie beyond what 32 bits count. */
enum { N_INDICES = 5, ROWS = 4, COLUMNS = 16 };
static const int64_t wide_indices[N_INDICES] = {1, -1, ROWS, INT64_C(1) << 40, 3};

START_TEST(an_id_that_the_table_does_not_have_is_embedded_as_zeros) {
  owned *ids = make_indices(int64, SHAPE(N_INDICES), wide_indices),
        *weight = make(float16, 2, (int64_t[]){ROWS, COLUMNS}, 0);
  owned *out = make(float16, 2, (int64_t[]){N_INDICES, COLUMNS}, 0);
  fill(&weight->tensor, 1);
  fill(&out->tensor, 2);
  fl_value values[] = {
      fl_tensor(&ids->tensor), fl_tensor(&weight->tensor), fl_int(0), fl_none(), fl_int(0), fl_int(0), fl_int(0),
      fl_tensor(&out->tensor)};
  call_with(&gpu_setups[_i], "vocab_parallel_embedding", values, sizeof values / sizeof values[0]);
  for (int64_t i = 0; i < N_INDICES; i++)
    for (int64_t j = 0; j < COLUMNS; j++) {
      bool there = wide_indices[i] >= 0 && wide_indices[i] < ROWS;
      double expected = there ? get(&weight->tensor, wide_indices[i] * COLUMNS + j) : 0;
      ck_assert_double_eq(get(&out->tensor, i * COLUMNS + j), expected);
    }
  unmake(ids);
  unmake(weight);
  unmake(out);
}
END_TEST

/* A rotation by a quarter: the first half becomes minus the second. */
START_TEST(a_token_whose_position_the_table_does_not_have_is_left_out) {
  enum { MARK = 9, HALF = COLUMNS / 2 };
  owned *ids = make_indices(int64, SHAPE(N_INDICES), wide_indices);
  owned *cos = make(float32, 2, (int64_t[]){ROWS, HALF}, 0), *sin = make(float32, 2, (int64_t[]){ROWS, HALF}, 0);
  owned *query = make(float32, 2, (int64_t[]){N_INDICES, COLUMNS}, 0);
  owned *out = make(float32, 2, (int64_t[]){N_INDICES, COLUMNS}, 0);
  for (int64_t i = 0; i < N_INDICES * COLUMNS; i++) {
    set(&query->tensor, i, (double)(i + 1));
    set(&out->tensor, i, MARK);
  }
  for (int64_t i = 0; i < ROWS * HALF; i++) {
    set(&cos->tensor, i, 0);
    set(&sin->tensor, i, 1);
  }
  fl_value values[] = {fl_tensor(&query->tensor),
                       fl_none(),
                       fl_tensor(&cos->tensor),
                       fl_tensor(&sin->tensor),
                       fl_tensor(&ids->tensor),
                       fl_bool(false),
                       fl_int(0),
                       fl_bool(false),
                       fl_tensor(&out->tensor),
                       fl_none()};
  call_with(&gpu_setups[_i], "rotary_embedding", values, sizeof values / sizeof values[0]);
  for (int64_t i = 0; i < N_INDICES; i++)
    for (int64_t j = 0; j < HALF; j++) {
      bool there = wide_indices[i] >= 0 && wide_indices[i] < ROWS;
      double second = get(&query->tensor, i * COLUMNS + HALF + j);
      ck_assert_double_eq(get(&out->tensor, i * COLUMNS + j), there ? -second : MARK);
    }
  unmake(ids);
  unmake(cos);
  unmake(sin);
  unmake(query);
  unmake(out);
}
END_TEST

START_TEST(an_expert_that_there_is_not_gets_no_place) {
  enum { EXPERTS = 4, BLOCK = 2, SORTED = N_INDICES + EXPERTS * (BLOCK - 1), BLOCKS = (SORTED + 1) / BLOCK };
  static const int expected[SORTED] = {0, 5, 4, 5, 5, 5, 5, 5, 5}, of_block[BLOCKS] = {1, 3, -1, -1, -1};
  owned *ids = make_indices(int64, SHAPE(N_INDICES), wide_indices), *sorted = make(int32, 1, (int64_t[]){SORTED}, 0);
  owned *experts = make(int32, 1, (int64_t[]){BLOCKS}, 0), *padded = make(int32, 1, (int64_t[]){1}, 0);
  ids->tensor.ndim = 2;
  ids->shape[1] = ids->strides[0] = ids->strides[1] = 1;
  fl_value values[] = {
      fl_tensor(&ids->tensor),     fl_int(EXPERTS),           fl_int(BLOCK), fl_tensor(&sorted->tensor),
      fl_tensor(&experts->tensor), fl_tensor(&padded->tensor)};
  call_with(&gpu_setups[_i], "moe_align_block_size", values, sizeof values / sizeof values[0]);
  for (int64_t i = 0; i < SORTED; i++)
    ck_assert_double_eq(get(&sorted->tensor, i), expected[i]);
  for (int64_t i = 0; i < BLOCKS; i++)
    ck_assert_double_eq(get(&experts->tensor, i), of_block[i]);
  ck_assert_double_eq(get(&padded->tensor, 0), 2 * BLOCK);
  unmake(ids);
  unmake(sorted);
  unmake(experts);
  unmake(padded);
}
END_TEST

/* More places than a block takes, so that blocks have to know each other's counts; an uneven share of the experts. */
START_TEST(places_of_several_blocks_are_sorted_in_order) {
  enum { TOKENS = 3000, TOPK = 3, PLACES = TOKENS * TOPK, EXPERTS = 7, BLOCK = 16 };
  enum { SORTED = PLACES + EXPERTS * (BLOCK - 1), BLOCKS = (SORTED + BLOCK - 1) / BLOCK };
  owned *ids = make(int32, 2, (int64_t[]){TOKENS, TOPK}, 0), *sorted = make(int32, 1, (int64_t[]){SORTED}, 0);
  owned *experts = make(int32, 1, (int64_t[]){BLOCKS}, 0), *padded = make(int32, 1, (int64_t[]){1}, 0);
  for (int64_t i = 0; i < PLACES; i++)
    set(&ids->tensor, i, (double)(i * i % 11 % EXPERTS));
  fl_value values[] = {
      fl_tensor(&ids->tensor),     fl_int(EXPERTS),           fl_int(BLOCK), fl_tensor(&sorted->tensor),
      fl_tensor(&experts->tensor), fl_tensor(&padded->tensor)};
  call_with(&gpu_setups[_i], "moe_align_block_size", values, sizeof values / sizeof values[0]);
  int64_t at = 0;
  for (int expert = 0; expert < EXPERTS; expert++) {
    for (int64_t i = 0; i < PLACES; i++)
      if (i * i % 11 % EXPERTS == expert) {
        ck_assert_int_eq((int)get(&experts->tensor, at / BLOCK), expert);
        ck_assert_int_eq((int)get(&sorted->tensor, at++), (int)i);
      }
    for (; at % BLOCK; at++)
      ck_assert_int_eq((int)get(&sorted->tensor, at), PLACES);
  }
  ck_assert_int_eq((int)get(&padded->tensor, 0), (int)at);
  unmake(ids);
  unmake(sorted);
  unmake(experts);
  unmake(padded);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_loop_test(tests, O5_kernels_agree_with_the_reference_within_tolerance, 0, 2);
  tcase_add_loop_test(tests, O5_kernels_agree_with_the_golden_files_within_tolerance, 0, 2);
  tcase_add_loop_test(tests, O5_convolutions_of_cudnn_agree_with_the_reference_within_tolerance, 0, 2);
  tcase_add_loop_test(tests, O5_experts_by_cublaslt_agree_with_the_reference_within_tolerance, 0, 4);
  tcase_add_loop_test(tests, an_id_that_the_table_does_not_have_is_embedded_as_zeros, 0, 2);
  tcase_add_loop_test(tests, a_token_whose_position_the_table_does_not_have_is_left_out, 0, 2);
  tcase_add_loop_test(tests, an_expert_that_there_is_not_gets_no_place, 0, 2);
  tcase_add_loop_test(tests, places_of_several_blocks_are_sorted_in_order, 0, 2);
}

int main(void) {
  return run_suite("gpu_kernels", add_tests, 120);
}
