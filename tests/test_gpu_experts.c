/*
 * Experts of a mixture on the GPU plugins: what a call launches, and what becomes of routing that the host cannot look
 * at. That results are right is what test_gpu_kernels finds out. The plugins' functions are called as the host calls
 * them, without one.
 */
#include "tests/gpu.h"
#include "tests/kernels.h"

enum { HIDDEN = 24, INNER = 20, EXPERTS = 3 };

static gpu_plugin plugin;
static const fl_impl *moe;
static const gpu_setup *setup;
static char words[512];

static void set_up(int index) {
  setup = &gpu_setups[index];
  gpu_plugin_on_stand_in(&plugin, setup, NULL);
  moe = gpu_plugin_impl(&plugin, "unquantized_fused_moe", setup->impl_id);
}

/* Every expert gives silu(1) for every token, weighted 0.5. */
typedef struct mixture {
  owned *x, *w13, *w2, *weights, *ids, *out;
  fl_value values[11];
  fl_call call;
} mixture;

static owned *filled(DLDataType dtype, int ndim, const int64_t *shape, double value) {
  owned *made = make_constant(dtype, ndim, shape, 0, value);
  made->tensor.device = (DLDevice){(DLDeviceType)setup->device_type, 0};
  return made;
}

static void begin(mixture *m, int64_t tokens, int64_t topk) {
  *m = (mixture){.x = filled(float32, 2, (int64_t[]){tokens, HIDDEN}, 1),
                 .w13 = filled(float32, 3, (int64_t[]){EXPERTS, 2 * INNER, HIDDEN}, 1.0 / HIDDEN),
                 .w2 = filled(float32, 3, (int64_t[]){EXPERTS, HIDDEN, INNER}, 1.0 / INNER),
                 .weights = filled(float32, 2, (int64_t[]){tokens, topk}, 0.5),
                 .ids = filled(int32, 2, (int64_t[]){tokens, topk}, 1),
                 .out = filled(float32, 2, (int64_t[]){tokens, HIDDEN}, -1)};
  const fl_value values[] = {fl_tensor(&m->x->tensor),
                             fl_tensor(&m->w13->tensor),
                             fl_tensor(&m->w2->tensor),
                             fl_tensor(&m->weights->tensor),
                             fl_tensor(&m->ids->tensor),
                             fl_string("silu"),
                             fl_bool(false),
                             fl_none(),
                             fl_none(),
                             fl_none(),
                             fl_tensor(&m->out->tensor)};
  memcpy(m->values, values, sizeof values);
  m->call = (fl_call){
      .size = sizeof m->call, .count = 11, .values = m->values, .message = words, .message_size = sizeof words};
  m->call.workspace_size = moe->workspace_size(moe->self, &m->call);
  m->call.workspace = aligned_alloc(256, (m->call.workspace_size + 255) / 256 * 256 + 256);
}

static void end(mixture *m) {
  free(m->call.workspace);
  unmake(m->x);
  unmake(m->w13);
  unmake(m->w2);
  unmake(m->weights);
  unmake(m->ids);
  unmake(m->out);
}

static void assert_row(const mixture *m, int64_t token, double experts) {
  for (int64_t i = 0; i < HIDDEN; i++)
    ck_assert_double_eq_tol(get(&m->out->tensor, token * HIDDEN + i), experts * 0.5 * 0.731058579, 1e-5);
}

#define assert_status(call, expected) assert_call_status(call, expected, words)

START_TEST(a_call_is_five_launches_and_nothing_else) {
  mixture m;
  set_up(_i);
  begin(&m, 4, 2);
  assert_status(moe->fn(moe->self, &m.call), FL_OK); /* loads */
  stand_in_clear();
  assert_status(moe->fn(moe->self, &m.call), FL_OK);
  ck_assert_int_eq(stand_in_lines("launch"), 5);
  ck_assert_int_eq(stand_in_lines("launch multiply_few_f32 "), 2);
  ck_assert_int_eq(
      stand_in_lines("allocate") + stand_in_lines("synchronize") + stand_in_lines("load") + stand_in_lines("copy"), 0);
  for (int64_t token = 0; token < 4; token++)
    assert_row(&m, token, 2);
  end(&m);
}
END_TEST

START_TEST(many_tokens_an_expert_take_larger_tiles) {
  enum { TOKENS = 150 };
  mixture m;
  set_up(_i);
  begin(&m, TOKENS, 2);
  for (int64_t i = 0; i < 2 * TOKENS; i++)
    set(&m.ids->tensor, i, (double)(i % 5 % EXPERTS)); /* not as many for each */
  assert_status(moe->fn(moe->self, &m.call), FL_OK);
  ck_assert_int_eq(stand_in_lines("launch multiply_many_f32 "), 2);
  for (int64_t token = 0; token < TOKENS; token++)
    assert_row(&m, token, 2);
  end(&m);
}
END_TEST

START_TEST(ids_that_there_cannot_be_count_as_none) {
  static const double ids[] = {0, -5, EXPERTS, 2147483647, 2, 1, -2147483647, -1};
  static const double experts[] = {1, 0, 2, 0};
  mixture m;
  set_up(_i);
  begin(&m, 4, 2);
  for (int64_t i = 0; i < 8; i++)
    set(&m.ids->tensor, i, ids[i]);
  assert_status(moe->fn(moe->self, &m.call), FL_OK);
  for (int64_t token = 0; token < 4; token++)
    assert_row(&m, token, experts[token]);
  end(&m);
}
END_TEST

START_TEST(a_token_without_experts_gets_zeros) {
  mixture m;
  set_up(_i);
  begin(&m, 3, 0);
  assert_status(moe->fn(moe->self, &m.call), FL_OK);
  for (int64_t token = 0; token < 3; token++)
    assert_row(&m, token, 0);
  end(&m);
}
END_TEST

START_TEST(a_call_without_its_workspace_is_refused_with_its_size) {
  char expected[64];
  mixture m;
  set_up(_i);
  begin(&m, 4, 2);
  snprintf(expected, sizeof expected, "a workspace of %zu bytes, needs %zu (fl_workspace_size)",
           m.call.workspace_size - 1, m.call.workspace_size);
  m.call.workspace_size--;
  assert_status(moe->fn(moe->self, &m.call), FL_ENOTSUP);
  ck_contains(words, expected);
  ck_assert_double_eq(get(&m.out->tensor, 0), -1);
  end(&m);
}
END_TEST

START_TEST(what_there_is_no_kernel_for_is_said_beforehand) {
  const char *reason = NULL;
  mixture m;
  set_up(_i);
  begin(&m, 4, 2);
  ck_assert(moe->supports_args(moe->self, &m.call, &reason));
  m.values[5] = fl_string("relu2");
  ck_assert(!moe->supports_args(moe->self, &m.call, &reason));
  ck_assert_str_eq(reason, "an activation that there is no kernel of");
  m.values[5] = fl_string("silu");
  m.w2->tensor.dtype = float16;
  ck_assert(!moe->supports_args(moe->self, &m.call, &reason));
  ck_contains(reason, "the same for x, w13, w2 and out");
  ck_assert(!moe->supports_args(moe->self, &m.call, NULL));
  end(&m);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_loop_test(tests, a_call_is_five_launches_and_nothing_else, 0, 2);
  tcase_add_loop_test(tests, many_tokens_an_expert_take_larger_tiles, 0, 2);
  tcase_add_loop_test(tests, ids_that_there_cannot_be_count_as_none, 0, 2);
  tcase_add_loop_test(tests, a_token_without_experts_gets_zeros, 0, 2);
  tcase_add_test(tests, a_call_without_its_workspace_is_refused_with_its_size);
  tcase_add_test(tests, what_there_is_no_kernel_for_is_said_beforehand);
}

int main(void) {
  return run_suite("gpu_experts", add_tests, 60);
}
