/* fl_save_call: what a file says of a call, and that `flhost run` repeats it. */
#include "cli/safetensors.h"
#include "tests/scenario.h"

#include <flhost/flhost.h>
#include <flhost/testing.h>
#include <math.h>
#include <unistd.h>

#define ck_ok(expression) ck_assert_msg((expression) == FL_OK, "%s: %s", #expression, fl_error_message())

static fl_host *host;

static void set_up(void) {
  static const char *const nothing[] = {NULL};
  fl_host_options options = {.size = sizeof options, .environment = nothing, .flags = FL_HOST_NO_PLUGINS};
  ck_ok(fl_host_create(&options, &host));
  copy_built("plugins/cpu.so", "plugins");
  setting("VLLM_FL_PLUGIN_PATH=%s", scratch("plugins"));
  setting("VLLM_FL_PLATFORM=cpu");
}

static void tear_down(void) {
  fl_host_destroy(host);
  end_scenario();
}

static safetensors read_back(const char *path) {
  char error[SAFETENSORS_ERROR_MAX];
  safetensors file;
  ck_assert_msg(safetensors_read(path, &file, error), "%s", error);
  return file;
}

/* silu_and_mul of rows that lie apart: [0, 1 | 5, 2] is [0, 2 / (1 + exp(-1))]. */
typedef struct apart {
  float data[14], out[4];
  int64_t shape[2], strides[2], out_shape[2];
  DLTensor x, result;
} apart;

static void lay_apart(apart *t) {
  *t = (apart){.data = {0, 1, 5, 2, -9, -9, -9, -9, -9, -9, 0, 1, 5, 2},
               .shape = {2, 4},
               .strides = {10, 1},
               .out_shape = {2, 2}};
  t->out[1] = t->out[3] = 2 / (1 + expf(-1));
  t->x = (DLTensor){.data = t->data,
                    .device = {kDLCPU, 0},
                    .ndim = 2,
                    .dtype = {kDLFloat, 32, 1},
                    .shape = t->shape,
                    .strides = t->strides};
  t->result =
      (DLTensor){.data = t->out, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = t->out_shape};
}

static const char *save(apart *t, const char *note) {
  const char *path = scratch("call.safetensors");
  fl_value expected[] = {fl_none(), fl_tensor(&t->result)};
  fl_value values[] = {fl_tensor(&t->x), fl_none()};
  fl_call call = FL_CALL(values);
  fl_saved_call about = {.size = sizeof about, .expected = expected, .source = "by hand", .note = note};
  ck_ok(fl_save_call(path, fl_find_op(host, "silu_and_mul"), &call, &about));
  return path;
}

START_TEST(a_saved_call_is_repeated_by_the_command_which_agrees_with_what_was_expected) {
  apart t;
  lay_apart(&t);
  outcome run = FLHOST("run", save(&t, NULL));
  assert_status(run, 0);
}
END_TEST

START_TEST(a_saved_call_whose_results_are_wrong_is_found_wrong_by_the_command) {
  apart t;
  lay_apart(&t);
  t.out[3] += 1;
  outcome run = FLHOST("run", save(&t, NULL));
  assert_status(run, 1);
  assert_contains(run.err, "'out.out': 1 of 4 elements differ, worst at 3");
}
END_TEST

START_TEST(tensors_are_saved_without_the_gaps_between_their_rows) {
  apart t;
  lay_apart(&t);
  safetensors file = read_back(save(&t, "row 1"));
  const DLTensor *x = safetensors_find(&file, "x");
  ck_assert_ptr_nonnull(x);
  ck_assert_int_eq(x->shape[0] * x->shape[1], 8);
  ck_assert_mem_eq(x->data, t.data, 4 * sizeof(float));
  ck_assert_mem_eq((float *)x->data + 4, t.data + 10, 4 * sizeof(float));
  ck_assert_str_eq(safetensors_metadata(&file, "op"), "silu_and_mul");
  ck_assert_str_eq(safetensors_metadata(&file, "source"), "by hand");
  ck_assert_str_eq(safetensors_metadata(&file, "note"), "row 1");
  safetensors_free(&file);
}
END_TEST

START_TEST(attributes_are_saved_with_every_bit_and_a_number_that_json_lacks_is_refused) {
  float data[] = {1, 2};
  int64_t shape[] = {2};
  DLTensor x = {.data = data, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = shape};
  fl_op *op = fl_find_op(host, "rms_norm");
  fl_value values[16];
  fl_call call = {.size = sizeof call, .count = fl_op_argument_count(op), .values = values};
  for (uint32_t i = 0; i < call.count; i++)
    values[i] = fl_op_argument(op, i)->default_value;
  uint32_t epsilon = 0;
  while (strcmp(fl_op_argument(op, epsilon)->name, "epsilon"))
    epsilon++;
  values[0] = fl_tensor(&x);
  values[epsilon] = fl_float(0.1);
  ck_ok(fl_save_call(scratch("norm.safetensors"), op, &call, NULL));
  safetensors file = read_back(scratch("norm.safetensors"));
  json_t *attributes = parse_json(safetensors_metadata(&file, "attrs"), JSON_OBJECT);
  ck_assert_double_eq(json_real_value(json_object_get(attributes, "epsilon")), 0.1);
  safetensors_free(&file);
  values[epsilon] = fl_float(NAN);
  ck_assert_int_eq(fl_save_call(scratch("nan.safetensors"), op, &call, NULL), FL_EINVAL);
  assert_contains(fl_error_message(), "attribute 'epsilon'");
  ck_assert(access(scratch("nan.safetensors"), F_OK));
}
END_TEST

START_TEST(nothing_is_written_through_a_link) {
  apart t;
  lay_apart(&t);
  const char *target = scratch_file("target", "kept");
  ck_assert(!symlink(target, scratch("call.safetensors.part")));
  fl_value values[] = {fl_tensor(&t.x), fl_none()};
  fl_call call = FL_CALL(values);
  ck_assert_int_eq(fl_save_call(scratch("call.safetensors"), fl_find_op(host, "silu_and_mul"), &call, NULL),
                   FL_EINTERNAL);
  FILE *stream = fopen(target, "r");
  char text[8] = "";
  ck_assert_ptr_nonnull(fgets(text, sizeof text, stream));
  fclose(stream);
  ck_assert_str_eq(text, "kept");
}
END_TEST

START_TEST(what_is_missing_is_said) {
  fl_value values[] = {fl_none()};
  fl_call call = {.size = sizeof call, .count = 0, .values = values};
  fl_op *op = fl_find_op(host, "silu_and_mul");
  ck_assert_int_eq(fl_save_call(NULL, op, &call, NULL), FL_EINVAL);
  assert_contains(fl_error_message(), "the path is NULL");
  ck_assert_int_eq(fl_save_call("x", NULL, &call, NULL), FL_EINVAL);
  assert_contains(fl_error_message(), "the op is NULL");
  ck_assert_int_eq(fl_save_call("x", op, &call, NULL), FL_EINVAL);
  assert_contains(fl_error_message(), "0 values, expected at least its 1 arguments");
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, a_saved_call_is_repeated_by_the_command_which_agrees_with_what_was_expected);
  tcase_add_test(tests, a_saved_call_whose_results_are_wrong_is_found_wrong_by_the_command);
  tcase_add_test(tests, tensors_are_saved_without_the_gaps_between_their_rows);
  tcase_add_test(tests, attributes_are_saved_with_every_bit_and_a_number_that_json_lacks_is_refused);
  tcase_add_test(tests, nothing_is_written_through_a_link);
  tcase_add_test(tests, what_is_missing_is_said);
}

int main(void) {
  return run_suite("save_call", add_tests, 120);
}
