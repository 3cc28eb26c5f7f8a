/* Public headers: what flhost.h includes; flhost/ops.h: that it compiles alone in C and C++, is what the generator
 * writes, and passes on what it is given. */
#include "core/ops.h"
#include "tests/tensors.h"

#include <flhost/ops.h>
#include <sys/wait.h>

/* Exit status of a shell command. */
static int run(const char *format, ...) FL_PRINTF(1, 2);
static int run(const char *format, ...) {
  char command[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(command, sizeof command, format, arguments);
  va_end(arguments);
  int status = system(command);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool have(const char *program, const char *test) {
  bool found = run("command -v %s >/dev/null", program) == 0;
  if (!found)
    printf("skip: %s: no %s\n", test, program);
  return found;
}

/* --------------------------------------------------------------------------------------------------------- the text */

static const char *const compilers[][2] = {{"gcc", "-x c -std=c11"},
                                           {"clang", "-x c -std=c11"},
                                           {"g++", "-x c++ -std=c++17"},
                                           {"clang++", "-x c++ -std=c++17"}};

START_TEST(the_header_compiles_alone_in_c_and_cpp) {
  if (!have(compilers[_i][0], "the_header_compiles_alone_in_c_and_cpp"))
    return;
  ck_assert_int_eq(run("echo '#include <flhost/ops.h>' | %s %s -Wall -Wextra -Wpedantic -Werror -Wshadow -Wconversion "
                       "-Iinclude -fsyntax-only -",
                       compilers[_i][0], compilers[_i][1]),
                   0);
}
END_TEST

/* Those of vendors, tools and special uses are asked for by name. */
START_TEST(flhost_h_includes_a_header_a_concept_and_no_other) {
  ck_assert_int_eq(run("cd include && bash -c \"diff <(ls flhost/*.h | grep -vxE "
                       "'flhost/(dtype|flhost|ops|testing|vllm)\\.h' | sort)"
                       " <(echo '#include <flhost/flhost.h>' | cc -I. -H -fsyntax-only -x c - 2>&1 | "
                       "sed -n 's,^\\.* .*\\(flhost/.*\\.h\\),\\1,p' | grep -v flhost/flhost | sort -u)\""),
                   0);
}
END_TEST

START_TEST(the_committed_header_is_what_the_entries_say) {
  ck_assert_int_eq(run("%s/generate-ops header | cmp - include/flhost/ops.h", build_dir()), 0);
}
END_TEST

START_TEST(the_header_is_written_as_clang_format_leaves_it) {
  if (have("clang-format", "the_header_is_written_as_clang_format_leaves_it"))
    ck_assert_int_eq(run("clang-format include/flhost/ops.h | cmp - include/flhost/ops.h"), 0);
}
END_TEST

START_TEST(the_generator_refuses_other_words) {
  ck_assert_int_eq(run("%s/generate-ops haeder 2>/dev/null", build_dir()), 2);
  ck_assert_int_eq(run("%s/generate-ops 2>/dev/null", build_dir()), 2);
}
END_TEST

/* -------------------------------------------------------------------------------------------------------- the calls */

static fl_value seen[16]; /* values of the last call */
static void *seen_stream;

static fl_status record(void *self, fl_call *call) {
  (void)self;
  ck_assert_uint_le(call->count, sizeof seen / sizeof seen[0]);
  memcpy(seen, call->values, call->count * sizeof *seen);
  seen_stream = call->stream;
  return FL_OK;
}

static fl_status name_backend(void *self, fl_call *call) {
  (void)self;
  call->values[2] = fl_string(call->values[0].v.b && !call->values[1].v.b ? "mla" : "other");
  return FL_OK;
}

static fl_host *host;
static fl_ops ops;
static DLTensor x8, out8, weight8, residual8, residual_out8;

/* A host whose only implementations are those above. */
static void set_up(void) {
  static const char *const environment[] = {"VLLM_FL_LOG_LEVEL=ERROR", NULL};
  fl_host_options options = {.size = sizeof options, .flags = FL_HOST_NO_PLUGINS, .environment = environment};
  static int64_t shape[] = {2, 8}, last[] = {8};
  ck_assert_msg(fl_host_create(&options, &host) == FL_OK, "%s", fl_error_message());
  for (const fl_op_def *const *def = fl_builtin_ops; *def; def++) {
    char name[FL_NAME_MAX + 1];
    snprintf(name, sizeof name, "%.*s", (int)strcspn((*def)->schema, "("), (*def)->schema);
    fl_impl impl = {.size = sizeof impl,
                    .op_name = name,
                    .impl_id = "reference.test",
                    .kind = FL_KIND_REFERENCE,
                    .devices = FL_DEVICE_ANY,
                    .fn = strcmp(name, "attention_backend") ? record : name_backend};
    ck_assert_msg(fl_register_impl(host, &impl) == FL_OK, "%s", fl_error_message());
  }
  ck_assert_int_eq(fl_ops_init(&ops, host), FL_OK);
  x8 = tensor(f32, place(0), 2, shape);
  out8 = tensor(f32, place(1), 2, shape);
  weight8 = tensor(f32, place(2), 1, last);
  residual8 = tensor(f32, place(3), 2, shape);
  residual_out8 = tensor(f32, place(4), 2, shape);
}

static void tear_down(void) {
  fl_host_destroy(host);
}

START_TEST(every_handle_is_found) {
  fl_op *const *handles = &ops.silu_and_mul;
  size_t n = (sizeof ops - offsetof(fl_ops, silu_and_mul)) / sizeof *handles;
  ck_assert_uint_eq(ops.size, sizeof ops);
  for (size_t i = 0; i < n; i++) {
    ck_assert_ptr_nonnull(handles[i]);
    ck_assert_ptr_eq(handles[i], fl_find_op(host, fl_op_name(handles[i])));
  }
  ck_assert_ptr_null(fl_builtin_ops[n]);
  ck_assert_int_eq(fl_ops_init(NULL, host), FL_EINVAL);
  ck_assert_int_eq(fl_ops_init(&ops, NULL), FL_EINVAL);
}
END_TEST

START_TEST(a_typed_call_passes_values_in_the_schemas_order) {
  const int64_t variance_size = 4;
  int stream;
  ck_assert_msg(fl_rms_norm(&ops, &stream, &x8, &residual8, &weight8, 1e-5, &variance_size, &out8, &residual_out8) ==
                    FL_OK,
                "%s", fl_error_message());
  DLTensor *const expected[] = {&x8, &residual8, &weight8, NULL, NULL, &out8, &residual_out8};
  for (int i = 0; i < 7; i++)
    if (expected[i]) {
      ck_assert_uint_eq(seen[i].type, FL_TENSOR);
      ck_assert_ptr_eq(seen[i].v.tensor, expected[i]);
    }
  ck_assert_uint_eq(seen[3].type, FL_FLOAT);
  ck_assert(seen[3].v.f == 1e-5);
  ck_assert_uint_eq(seen[4].type, FL_INT);
  ck_assert_int_eq(seen[4].v.i, 4);
  ck_assert_ptr_eq(seen_stream, &stream);
}
END_TEST

START_TEST(null_is_none) {
  ck_assert_msg(fl_rms_norm(&ops, NULL, &x8, NULL, NULL, 1e-6, NULL, &x8, NULL) == FL_OK, "%s", fl_error_message());
  const int none[] = {1, 2, 4, 6};
  for (int i = 0; i < 4; i++)
    ck_assert_uint_eq(seen[none[i]].type, FL_NONE);
  ck_assert_ptr_null(seen_stream);
}
END_TEST

START_TEST(strings_bools_and_ints_are_passed) {
  DLTensor half = tensor(f32, place(5), DIMS(2, 4)), query = tensor(f32, place(6), DIMS(2, 1, 8));
  DLTensor cos = tensor(f32, place(7), DIMS(9, 3)), positions = tensor(i32, place(8), DIMS(2));
  ck_assert_int_eq(fl_gelu_and_mul(&ops, NULL, &x8, "tanh", &half), FL_OK);
  ck_assert_str_eq(seen[1].v.s, "tanh");
  ck_assert_int_eq(fl_rotary_embedding(&ops, NULL, &query, NULL, &cos, &cos, &positions, true, 2, false, &query, NULL),
                   FL_OK);
  ck_assert_uint_eq(seen[5].type, FL_BOOL);
  ck_assert(seen[5].v.b && !seen[7].v.b);
  ck_assert_int_eq(seen[6].v.i, 2);
}
END_TEST

START_TEST(O8_a_string_result_is_handed_out) {
  const char *backend = NULL;
  ck_assert_msg(fl_attention_backend(&ops, NULL, true, false, &backend) == FL_OK, "%s", fl_error_message());
  ck_assert_str_eq(backend, "mla");
}
END_TEST

START_TEST(errors_come_back_and_a_missing_op_is_one) {
  const char *backend = "untouched";
  ck_assert_int_eq(fl_silu_and_mul(&ops, NULL, &x8, &out8), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), "silu_and_mul: result 'out': shape [2, 8], expected [2, 4] (d of 'x')");
  ops.attention_backend = NULL;
  ck_assert_int_eq(fl_attention_backend(&ops, NULL, true, false, &backend), FL_ENOENT);
  ck_assert_str_eq(backend, "untouched");
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_loop_test(tests, the_header_compiles_alone_in_c_and_cpp, 0, sizeof compilers / sizeof compilers[0]);
  tcase_add_test(tests, flhost_h_includes_a_header_a_concept_and_no_other);
  tcase_add_test(tests, the_committed_header_is_what_the_entries_say);
  tcase_add_test(tests, the_header_is_written_as_clang_format_leaves_it);
  tcase_add_test(tests, the_generator_refuses_other_words);
  tcase_add_test(tests, every_handle_is_found);
  tcase_add_test(tests, a_typed_call_passes_values_in_the_schemas_order);
  tcase_add_test(tests, null_is_none);
  tcase_add_test(tests, strings_bools_and_ints_are_passed);
  tcase_add_test(tests, O8_a_string_result_is_handed_out);
  tcase_add_test(tests, errors_come_back_and_a_missing_op_is_one);
}

int main(void) {
  return run_suite("ops_header", add_tests, 60);
}
