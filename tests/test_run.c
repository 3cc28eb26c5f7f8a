/* flhost run, through the command itself: what runs, what is compared, what is written, and what goes wrong. */
#include "cli/run/safetensors.h"
#include "tests/scenario.h"

#include <glob.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

static void set_up(void) {
  copy_built("plugins/cpu.so", "plugins");
  mkdir(scratch("platforms"), 0755);
  setting("VLLM_FL_PLUGIN_PATH=%s", scratch("plugins"));
  setting("VLLM_FL_CONFIG_DIR=%s", scratch("platforms"));
  setting("VLLM_FL_PLATFORM=cpu");
}

/* A file of float32 vectors. */
typedef struct vector {
  const char *name;
  float values[4];
  int n;
} vector;

/* Writes one into the scratch directory; its path. Metadata: key, value, …, NULL; vectors end with a NULL name. */
static const char *file(const char *name, const char *const *metadata, const vector *vectors) {
  char error[SAFETENSORS_ERROR_MAX];
  safetensors_entry entries[8];
  safetensors made = {.metadata = json_object(), .entries = entries};
  const char *path = scratch("%s", name);
  for (; *metadata; metadata += 2)
    json_object_set_new(made.metadata, metadata[0], json_string(metadata[1]));
  for (; vectors->name; vectors++) {
    int64_t shape[] = {vectors->n};
    ck_assert(safetensors_entry_create(&entries[made.n], vectors->name, (DLDataType){kDLFloat, 32, 1}, 1, shape));
    memcpy(entries[made.n++].tensor.data, vectors->values, sizeof(float) * (size_t)vectors->n);
  }
  ck_assert_msg(safetensors_write(path, &made, error), "%s", error);
  for (size_t i = 0; i < made.n; i++)
    safetensors_entry_free(&entries[i]);
  json_decref(made.metadata);
  return path;
}

#define METADATA(...) ((const char *const[]){__VA_ARGS__, NULL})
#define VECTORS(...)  ((const vector[]){__VA_ARGS__, {NULL, {0}, 0}})

/* silu_and_mul of [0, 1 | 5, 2] is [0, 2 / (1 + exp(-1))]. */
static const vector x = {"x", {0, 1, 5, 2}, 4};

static json_t *run_json(const char *path, int status) {
  outcome run = FLHOST("run", "--json", path);
  assert_status(run, status);
  return parse_json(run.out, JSON_ARRAY);
}

/* The command refuses the file: exit status 2, and a message with its name and these words. */
static void check_bad_file(const char *path, const char *words) {
  outcome run = FLHOST("run", path);
  assert_status(run, 2);
  assert_contains(run.err, path);
  assert_contains(run.err, words);
}

/* ------------------------------------------------------------------------------------------------- golden files */

static size_t count_golden_files(void) {
  glob_t found;
  ck_assert_int_eq(glob("tests/golden/*/*.safetensors", 0, NULL, &found), 0);
  size_t n = found.gl_pathc;
  globfree(&found);
  ck_assert_uint_gt(n, 0);
  return n;
}

START_TEST(golden_files_agree_under_the_default_policy_and_say_what_ran_and_why) {
  json_t *reports = run_json("tests/golden", 0), *report;
  size_t i;
  ck_assert_uint_eq(json_array_size(reports), count_golden_files());
  json_array_foreach(reports, i, report) {
    ck_assert_str_eq(text_at(report, "status"), "ok");
    ck_assert_str_eq(text_at(report, "impl_id"), "default.flagos");
    assert_contains(text_at(report, "why"), "prefer flagos: built-in");
    assert_contains(text_at(report, "source"), "PyTorch 2.13.0 CPU");
    ck_assert(json_is_number(json_object_get(report, "max_abs_err")));
    ck_assert(json_real_value(json_object_get(report, "time_us")) >= 0);
    ck_assert(json_number_value(json_object_get(json_object_get(report, "tolerance"), "atol")) >= 0);
    if (i)
      ck_assert_str_lt(text_at(json_array_get(reports, i - 1), "file"), text_at(report, "file"));
  }
}
END_TEST

static bool is_exact(const char *path) {
  safetensors file;
  char error[SAFETENSORS_ERROR_MAX];
  ck_assert_msg(safetensors_read(path, &file, error), "%s: %s", path, error);
  bool exact = safetensors_says(&file, "bitexact", "yes");
  safetensors_free(&file);
  return exact;
}

/* Both modes at once take as long as both. */
START_TEST(golden_files_agree_in_guarded_mode_and_nobody_fails_there_or_in_canary_mode) {
  setting(_i ? "VLLM_FL_CANARY=3" : "VLLM_FL_GUARD=1");
  setting("VLLM_FL_EVIDENCE=%s", scratch("evidence"));
  outcome run = FLHOST("run", "--json", "tests/golden");
  assert_status(run, 0);
  json_t *reports = parse_json(run.out, JSON_ARRAY), *report;
  size_t i;
  ck_assert_uint_eq(json_array_size(reports), count_golden_files());
  json_array_foreach(reports, i, report) ck_assert_str_eq(text_at(report, "impl_id"), "default.flagos");
  assert_lacks(run.err, "WARNING");
  ck_assert(access(scratch("evidence"), F_OK));
}
END_TEST

START_TEST(golden_files_agree_bit_for_bit_with_the_reference_where_they_say_so) {
  size_t i, exact = 0;
  json_t *reports, *report;
  setting("VLLM_FL_PREFER=reference");
  reports = run_json("tests/golden", 0);
  json_array_foreach(reports, i, report) {
    ck_assert_str_eq(text_at(report, "impl_id"), "reference.c");
    assert_contains(text_at(report, "why"), "VLLM_FL_PREFER");
    if (!is_exact(text_at(report, "file")))
      continue;
    ck_assert(json_number_value(json_object_get(json_object_get(report, "tolerance"), "atol")) == 0);
    ck_assert(json_number_value(json_object_get(report, "max_abs_err")) == 0);
    exact++;
  }
  ck_assert_uint_gt(exact, 200);
}
END_TEST

START_TEST(golden_files_agree_under_the_example_policy) {
  char path[4096];
  ck_assert_ptr_nonnull(realpath("examples/policy.yaml", path));
  setting("VLLM_FL_CONFIG=%s", path);
  outcome run =
      FLHOST("run", "--json", "tests/golden/gelu_and_mul", "tests/golden/rotary_embedding", "tests/golden/relu2");
  assert_quiet(run);
  json_t *reports = parse_json(run.out, JSON_ARRAY), *report;
  size_t i;
  json_array_foreach(reports, i, report) {
    bool is_default = !strcmp(text_at(report, "op"), "relu2");
    ck_assert_str_eq(text_at(report, "impl_id"), is_default ? "default.flagos" : "reference.c");
  }
}
END_TEST

START_TEST(the_table_has_a_line_for_each_file_and_sums_up) {
  outcome run = FLHOST("run", "tests/golden/silu_and_mul/awkward_bf16.safetensors",
                       "tests/golden/silu_and_mul/f32_1x64_0.safetensors");
  assert_status(run, 0);
  ck_assert_str_eq(run.err, "");
  assert_contains(run.out, "awkward_bf16.safetensors");
  assert_contains(run.out, "default.flagos");
  assert_contains(run.out, "vLLM 0.32.0 SiluAndMul.forward_native");
  assert_contains(run.out, "2 files: 2 ok\n");
}
END_TEST

/* Two files of one op, one of another: the errors are shares of what is allowed, the worst counts. */
START_TEST(the_summary_has_a_line_for_each_op_with_its_worst_error_as_a_share_of_the_tolerance) {
  file("a.safetensors", METADATA("op", "silu_and_mul"), VECTORS(x, {"out.out", {0, 1.4621172f}, 2}));
  file("b.safetensors", METADATA("op", "silu_and_mul"), VECTORS(x, {"out.out", {0, 1.4621222f}, 2}));
  file("c.safetensors", METADATA("op", "relu2"), VECTORS(x, {"out.out", {0, 1, 25, 4}, 4}));
  outcome run = FLHOST("run", "--summary", scratch_dir());
  assert_quiet(run);
  assert_contains(run.out, "OP            FILES  ERROR  TIME US  IMPL            STATUS\nsilu_and_mul      2 ");
  assert_contains(run.out, "\nrelu2             1      0 ");
  assert_contains(run.out, "\n3 files: 3 ok\n");
  /* 5e-6 of 1e-5 + 1.3e-6 * 1.4621222 */
  ck_assert_double_eq_tol(atof(strstr(run.out, "silu_and_mul      2 ") + strlen("silu_and_mul      2 ")), 0.42, 0.021);
  assert_lacks(run.out, ".safetensors");
}
END_TEST

START_TEST(the_summary_says_how_many_files_of_an_op_are_not_well_and_changes_no_exit_status) {
  file("a.safetensors", METADATA("op", "silu_and_mul"), VECTORS(x));
  file("b.safetensors", METADATA("op", "silu_and_mul"), VECTORS(x, {"out.out", {9, 9}, 2}));
  file("c.safetensors", METADATA("op", "silu_nad_mul"), VECTORS(x));
  outcome run = FLHOST("run", "--summary", scratch_dir());
  assert_status(run, 2);
  assert_contains(run.out, "  1 failed\n");
  assert_contains(run.out, "  1 error\n");
  assert_contains(run.err, "b.safetensors: 'out.out': 2 of 2 elements differ");
  assert_status(FLHOST("run", "--summary", scratch("b.safetensors")), 1);
  run = FLHOST("run", "--summary", "--explain", "--json", scratch("a.safetensors"));
  assert_quiet(run);
  ck_assert_uint_eq(json_array_size(parse_json(run.out, JSON_ARRAY)), 1);
}
END_TEST

/* The template takes float32 only, the files are of three types. */
START_TEST(the_summary_says_where_several_implementations_ran) {
  copy_built("tests/plugins/template.so", "plugins");
  setting("VLLM_FL_PREFER=vendor");
  outcome run = FLHOST("run", "--summary", "tests/golden/silu_and_mul");
  assert_quiet(run);
  assert_contains(run.out, "  (several)  ok\n");
  assert_contains(FLHOST("run", "--summary", "tests/golden/silu_and_mul/f32_1x64_0.safetensors").out,
                  "  vendor.acme  ok\n");
}
END_TEST

/* explain in a process of its own knows nothing of the calls that failed. */
START_TEST(an_explanation_after_the_calls_says_what_failed_in_them) {
  const char *path = file("plain.safetensors", METADATA("op", "silu_and_mul"), VECTORS(x));
  copy_built("tests/plugins/two_vendors.so", "plugins");
  setting("VLLM_FL_PREFER=vendor");
  outcome run = FLHOST("run", "--explain", path);
  assert_status(run, 0);
  ck_assert_msg(!strncmp(run.out, "silu_and_mul: default.flagos, then reference.c\n", 47), "%s", run.out);
  assert_contains(run.out, "  order: vendor, flagos, reference (prefer vendor: VLLM_FL_PREFER)\n");
  assert_contains(run.out, "\n  vendor.bolt: failed: ");
  assert_contains(run.out, "; tried again in ");
  assert_contains(run.out, "\n1 file: 1 ok\n");
  assert_lacks(run.out, "STATUS");
  assert_contains(FLHOST("run", "--explain", "--summary", path).out, "STATUS");
}
END_TEST

START_TEST(json_has_the_documented_keys) {
  static const char *const keys[] = {"file",      "op",      "impl_id", "status", "max_abs_err", "max_rel_err",
                                     "tolerance", "time_us", "why",     "source", "problem",     NULL};
  json_t *reports = run_json("tests/golden/silu_and_mul/awkward_bf16.safetensors", 0);
  assert_keys(json_array_get(reports, 0), keys);
}
END_TEST

/* ------------------------------------------------------------------------------------- comparison, exit statuses */

START_TEST(a_wrong_result_is_exit_status_1_and_names_the_element) {
  const char *path = file("wrong.safetensors", METADATA("op", "silu_and_mul"), VECTORS(x, {"out.out", {0, 9}, 2}));
  outcome run = FLHOST("run", path);
  assert_status(run, 1);
  assert_contains(run.err, "'out.out': 1 of 2 elements differ, worst at 1: 1.46211");
  assert_contains(run.out, "1 file: 1 failed");
}
END_TEST

START_TEST(an_error_that_is_no_number_is_null_in_json) {
  const char *path = file("nan.safetensors", METADATA("op", "silu_and_mul"), VECTORS(x, {"out.out", {0, NAN}, 2}));
  json_t *report = json_array_get(run_json(path, 1), 0);
  ck_assert_str_eq(text_at(report, "status"), "failed");
  ck_assert(json_is_null(json_object_get(report, "max_abs_err")));
}
END_TEST

START_TEST(a_result_of_another_shape_fails) {
  const char *path = file("shape.safetensors", METADATA("op", "silu_and_mul"), VECTORS(x, {"out.out", {0}, 1}));
  outcome run = FLHOST("run", path);
  assert_status(run, 1);
  assert_contains(run.err, "'out.out': shape [2], expected [1]");
}
END_TEST

/* bitexact holds the reference, and only it, to the bits. */
START_TEST(a_file_that_says_bitexact_tells_the_implementations_apart) {
  const char *path = file("exact.safetensors", METADATA("op", "silu_and_mul", "bitexact", "yes"),
                          VECTORS(x, {"out.out", {0, 1.462118f}, 2}));
  assert_status(FLHOST("run", path), 0);
  setting("VLLM_FL_PREFER=reference");
  outcome run = FLHOST("run", path);
  assert_status(run, 1);
  assert_contains(run.err, "differ in their bits");
}
END_TEST

START_TEST(a_string_result_is_compared_with_the_metadata) {
  const char *path =
      file("backend.safetensors",
           METADATA("op", "attention_backend", "out.out", "vllm.v1.attention.backends.cpu_attn.CPUAttentionBackend"),
           VECTORS({NULL, {0}, 0}));
  assert_status(FLHOST("run", path), 0);
  path = file("backend.safetensors", METADATA("op", "attention_backend", "out.out", "other"), VECTORS({NULL, {0}, 0}));
  outcome run = FLHOST("run", path);
  assert_status(run, 1);
  assert_contains(run.err, "expected \"other\"");
}
END_TEST

START_TEST(no_implementation_is_exit_status_3) {
  const char *path = file("mla.safetensors", METADATA("op", "attention_backend", "attrs", "{\"use_mla\": true}"),
                          VECTORS({NULL, {0}, 0}));
  outcome run = FLHOST("run", path);
  assert_status(run, 3);
  assert_contains(run.err, "vLLM has no MLA attention backend for CPUs");
  path = file("plain.safetensors", METADATA("op", "silu_and_mul"), VECTORS(x));
  setting("VLLM_FL_PER_OP=silu_and_mul=vendor");
  run = FLHOST("run", "--json", path);
  assert_status(run, 3);
  ck_assert_str_eq(text_at(json_array_get(parse_json(run.out, JSON_ARRAY), 0), "status"), "no_impl");
}
END_TEST

/* What ran after two vendors failed is neither of them, and the reason says so. */
START_TEST(the_implementation_that_a_fallback_reached_is_the_one_reported) {
  const char *path = file("plain.safetensors", METADATA("op", "silu_and_mul"), VECTORS(x));
  copy_built("tests/plugins/two_vendors.so", "plugins");
  setting("VLLM_FL_PREFER=vendor");
  json_t *report = json_array_get(run_json(path, 0), 0);
  ck_assert_str_eq(text_at(report, "impl_id"), "default.flagos");
  assert_contains(text_at(report, "why"), "fallback from 'vendor.bolt'");
}
END_TEST

START_TEST(the_worst_file_decides_the_exit_status_and_all_are_run) {
  const char *good = file("a.safetensors", METADATA("op", "silu_and_mul"), VECTORS(x));
  file("b.safetensors", METADATA("op", "silu_and_mul"), VECTORS(x, {"out.out", {9, 9}, 2}));
  file("c.safetensors", METADATA("op", "silu_nad_mul"), VECTORS(x));
  json_t *reports = run_json(scratch_dir(), 2);
  ck_assert_uint_eq(json_array_size(reports), 3);
  ck_assert_str_eq(text_at(json_array_get(reports, 0), "file"), good);
  ck_assert_str_eq(text_at(json_array_get(reports, 0), "status"), "ok");
  ck_assert_str_eq(text_at(json_array_get(reports, 1), "status"), "failed");
  ck_assert_str_eq(text_at(json_array_get(reports, 2), "status"), "error");
  assert_contains(text_at(json_array_get(reports, 2), "problem"), "did you mean 'silu_and_mul'?");
}
END_TEST

/* ------------------------------------------------------------------------------------------------------ bad files */

START_TEST(bad_files_are_named_with_the_reason) {
  const char *path = scratch_file("text.safetensors", "this is a text file and no tensor");
  check_bad_file(path, "not a safetensors file");
  path = file("op.safetensors", METADATA("source", "x"), VECTORS(x));
  check_bad_file(path, "names no op");
  path = file("op.safetensors", METADATA("op", "silu_and_mul", "attrs", "{"), VECTORS(x));
  check_bad_file(path, "metadata 'attrs': ");
  path = file("op.safetensors", METADATA("op", "silu_and_mul", "attrs", "[]"), VECTORS(x));
  check_bad_file(path, "metadata 'attrs' is not a JSON object");
  path = file("op.safetensors", METADATA("op", "silu_and_mul"), VECTORS({"z", {0}, 4}));
  check_bad_file(path, "tensor 'z' is none of silu_and_mul(Tensor x) -> Tensor out");
  path = file("op.safetensors", METADATA("op", "silu_and_mul"), VECTORS(x, {"out.put", {0}, 2}));
  check_bad_file(path, "tensor 'out.put' is none of");
  path = file("op.safetensors", METADATA("op", "silu_and_mul"), VECTORS(x, {"after.x", {0}, 2}));
  check_bad_file(path, "tensor 'after.x' is none of");
  path = file("op.safetensors", METADATA("op", "silu_and_mul"), VECTORS({"out.out", {0}, 2}));
  check_bad_file(path, "tensor 'x' is missing");
  path = file("op.safetensors", METADATA("op", "silu_and_mul"), VECTORS({"x", {0}, 3}));
  check_bad_file(path, "argument 'x': shape [3]");
  path = file("op.safetensors", METADATA("op", "gelu_and_mul", "attrs", "{\"approximat\": \"tanh\"}"), VECTORS(x));
  check_bad_file(path, "did you mean 'approximate'?");
  path = file("op.safetensors", METADATA("op", "gelu_and_mul", "attrs", "{\"approximate\": 1}"), VECTORS(x));
  check_bad_file(path, "attribute 'approximate': expected a string");
  path = file("op.safetensors", METADATA("op", "rms_norm", "attrs", "{\"variance_size\": 1.5}"), VECTORS(x));
  check_bad_file(path, "attribute 'variance_size': expected an integer or null");
  path = file("op.safetensors", METADATA("op", "fused_add_rms_norm"), VECTORS(x, {"x_residual", {0}, 4}));
  check_bad_file(path, "attribute 'epsilon' is missing");
}
END_TEST

START_TEST(bad_words_on_the_command_line_are_refused) {
  outcome run = FLHOST("run");
  assert_status(run, 2);
  run = FLHOST("run", "/nonexistent/file");
  assert_status(run, 2);
  assert_contains(run.err, "/nonexistent/file: No such file or directory");
  run = FLHOST("run", scratch("platforms"));
  assert_status(run, 2);
  assert_contains(run.err, "no .safetensors file in it");
  run = FLHOST("run", "--repeat", "0", "tests/golden");
  assert_status(run, 2);
  assert_contains(run.err, "--repeat: '0' is not a number from 1");
  run = FLHOST("run", "--jsno", "tests/golden");
  assert_status(run, 2);
  assert_contains(run.err, "did you mean '--json'?");
  const char *pipe = scratch("pipe");
  ck_assert_int_eq(mkfifo(pipe, 0600), 0);
  check_bad_file(pipe, "not a regular file");
}
END_TEST

/* --------------------------------------------------------------------------------------------------------- writing */

static void read_result(const char *path, const char *name, const float *expected, int64_t n) {
  char error[SAFETENSORS_ERROR_MAX];
  safetensors written;
  ck_assert_msg(safetensors_read(path, &written, error), "%s: %s", path, error);
  const DLTensor *result = safetensors_find(&written, name);
  ck_assert_ptr_nonnull(result);
  ck_assert_int_eq(result->shape[0], n);
  for (int64_t i = 0; i < n; i++)
    ck_assert_float_eq_tol(((const float *)result->data)[i], expected[i], 1e-5f);
  safetensors_free(&written);
}

START_TEST(out_writes_results_that_serve_as_expected_results) {
  const float silu[] = {0, 1.4621172f};
  const char *out = scratch("new/out");
  file("plain.safetensors", METADATA("op", "silu_and_mul"), VECTORS(x));
  outcome run = FLHOST("run", "--json", "--out", out, scratch("plain.safetensors"));
  assert_status(run, 0);
  ck_assert_str_eq(text_at(json_array_get(parse_json(run.out, JSON_ARRAY), 0), "status"), "written");
  read_result(scratch("new/out/plain.safetensors"), "out.out", silu, 2);
}
END_TEST

/* A directory's tree is kept; results of rms_norm are its results, not the copies of its arguments. */
START_TEST(out_keeps_the_tree_of_a_directory) {
  char error[SAFETENSORS_ERROR_MAX];
  safetensors written;
  mkdir(scratch("in"), 0755);
  mkdir(scratch("in/deep"), 0755);
  file("in/deep/norm.safetensors", METADATA("op", "rms_norm", "attrs", "{\"epsilon\": 0.5}"), VECTORS(x));
  file("in/notes.txt", METADATA("op", "not run"), VECTORS(x));
  assert_status(FLHOST("run", "--out", scratch("out"), scratch("in")), 0);
  ck_assert_int_ne(access(scratch("out/notes.txt"), F_OK), 0);
  ck_assert(safetensors_read(scratch("out/deep/norm.safetensors"), &written, error));
  ck_assert_uint_eq(written.n, 1);
  ck_assert_ptr_nonnull(safetensors_find(&written, "out.out"));
  ck_assert_str_eq(safetensors_metadata(&written, "op"), "rms_norm");
  ck_assert_str_eq(safetensors_metadata(&written, "attrs"), "{\"epsilon\": 0.5}");
  assert_contains(safetensors_metadata(&written, "source"), "default.flagos");
  safetensors_free(&written);
}
END_TEST

START_TEST(out_refuses_to_write_two_results_into_one_file) {
  mkdir(scratch("a"), 0755);
  mkdir(scratch("b"), 0755);
  file("a/one.safetensors", METADATA("op", "silu_and_mul"), VECTORS(x));
  file("b/one.safetensors", METADATA("op", "silu_and_mul"), VECTORS(x));
  outcome run = FLHOST("run", "--out", scratch("out"), scratch("a"), scratch("b"));
  assert_status(run, 2);
  assert_contains(run.err, "would both be");
  ck_assert_int_ne(access(scratch("out"), F_OK), 0);
}
END_TEST

/* Recorded results are what a run is compared with: they must not become those of the run. */
START_TEST(out_refuses_to_overwrite_a_file_that_is_run) {
  mkdir(scratch("a"), 0755);
  mkdir(scratch("a/deep"), 0755);
  const char *path = file("a/one.safetensors", METADATA("op", "silu_and_mul"), VECTORS(x));
  file("a/deep/two.safetensors", METADATA("op", "silu_and_mul"), VECTORS(x));
  ck_assert_int_eq(symlink(scratch("a"), scratch("b")), 0);
  const char *const outs[][2] = {{scratch("a"), path}, {scratch("b"), scratch("a")}, {scratch("a/deep/.."), path}};
  for (size_t i = 0; i < sizeof outs / sizeof *outs; i++) {
    assert_refused_with(FLHOST("run", "--out", outs[i][0], outs[i][1]), "' would overwrite the file '");
    assert_status(FLHOST("run", "--out", scratch("out"), path), 0); /* x is still in it */
  }
}
END_TEST

START_TEST(out_where_nothing_can_be_written_is_exit_status_2) {
  const char *path = file("plain.safetensors", METADATA("op", "silu_and_mul"), VECTORS(x));
  outcome run = FLHOST("run", "--out", path, path);
  assert_status(run, 2);
  assert_contains(run.err, "Not a directory");
}
END_TEST

/* ----------------------------------------------------------------------------------------------------------- ranks */

static const struct shared_case {
  const char *ranks, *file, *over;
} shared_cases[] = {
    {"4", "column_parallel_linear/f32_7x64x96.safetensors", "over 4 ranks"},
    {"2", "row_parallel_linear/bf16_7x64x96.safetensors", "over 2 ranks"},
    {"7", "parallel_lm_head/f32_1x33x256.safetensors", "over 3 ranks"}, /* 33 words */
    {"4", "unquantized_fused_moe", "over 4 ranks"},
    {"4", "tensor_model_parallel_all_reduce/bf16_3x66.safetensors", "over 4 ranks"},
    {"3", "silu_and_mul/f32_1x64_0.safetensors", NULL}, /* ranks have no meaning for it */
};
enum { N_SHARED = sizeof shared_cases / sizeof *shared_cases };

START_TEST(a_call_over_ranks_gives_what_one_gives) {
  char path[512];
  copy_built("plugins/shm.so", "plugins");
  snprintf(path, sizeof path, "tests/golden/%s", shared_cases[_i].file);
  outcome run = FLHOST("run", "--ranks", shared_cases[_i].ranks, "--json", path);
  assert_status(run, 0);
  if (shared_cases[_i].over)
    assert_contains(run.out, shared_cases[_i].over);
  else
    ck_assert_ptr_null(strstr(run.out, "ranks"));
}
END_TEST

START_TEST(a_wrong_result_over_ranks_is_found) {
  static const vector wrong[] = {{"x", {1, 2, 3, 4}, 4}, {"out.out", {1, 2, 3, 5}, 4}, {NULL, {0}, 0}};
  copy_built("plugins/shm.so", "plugins");
  outcome run =
      FLHOST("run", "--ranks", "3", file("a.safetensors", METADATA("op", "tensor_model_parallel_all_reduce"), wrong));
  assert_status(run, 1);
  assert_contains(run.err, "'out.out': 1 of 4 elements differ");
}
END_TEST

START_TEST(ranks_that_cannot_come_together_are_an_error_with_the_reason) {
  static const char path[] = "tests/golden/tensor_model_parallel_all_reduce/bf16_3x66.safetensors";
  outcome run = FLHOST("run", "--ranks", "2", path);
  assert_contains(run.err, "no communicator for device type cpu is available");
  ck_assert_int_ne(run.status, 0);
  assert_status(FLHOST("run", "--ranks", "0", path), 2);
  assert_contains(FLHOST("run", "--ranks", "many", path).err, "--ranks: 'many' is not a number from 1 to 64");
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, end_scenario);
  tcase_add_test(tests, golden_files_agree_under_the_default_policy_and_say_what_ran_and_why);
  tcase_add_loop_test(tests, golden_files_agree_in_guarded_mode_and_nobody_fails_there_or_in_canary_mode, 0, 2);
  tcase_add_test(tests, golden_files_agree_bit_for_bit_with_the_reference_where_they_say_so);
  tcase_add_test(tests, golden_files_agree_under_the_example_policy);
  tcase_add_test(tests, the_table_has_a_line_for_each_file_and_sums_up);
  tcase_add_test(tests, the_summary_has_a_line_for_each_op_with_its_worst_error_as_a_share_of_the_tolerance);
  tcase_add_test(tests, the_summary_says_how_many_files_of_an_op_are_not_well_and_changes_no_exit_status);
  tcase_add_test(tests, the_summary_says_where_several_implementations_ran);
  tcase_add_test(tests, an_explanation_after_the_calls_says_what_failed_in_them);
  tcase_add_test(tests, json_has_the_documented_keys);
  tcase_add_loop_test(tests, a_call_over_ranks_gives_what_one_gives, 0, N_SHARED);
  tcase_add_test(tests, a_wrong_result_over_ranks_is_found);
  tcase_add_test(tests, ranks_that_cannot_come_together_are_an_error_with_the_reason);
  tcase_add_test(tests, a_wrong_result_is_exit_status_1_and_names_the_element);
  tcase_add_test(tests, an_error_that_is_no_number_is_null_in_json);
  tcase_add_test(tests, a_result_of_another_shape_fails);
  tcase_add_test(tests, a_file_that_says_bitexact_tells_the_implementations_apart);
  tcase_add_test(tests, a_string_result_is_compared_with_the_metadata);
  tcase_add_test(tests, no_implementation_is_exit_status_3);
  tcase_add_test(tests, the_implementation_that_a_fallback_reached_is_the_one_reported);
  tcase_add_test(tests, the_worst_file_decides_the_exit_status_and_all_are_run);
  tcase_add_test(tests, bad_files_are_named_with_the_reason);
  tcase_add_test(tests, bad_words_on_the_command_line_are_refused);
  tcase_add_test(tests, out_writes_results_that_serve_as_expected_results);
  tcase_add_test(tests, out_keeps_the_tree_of_a_directory);
  tcase_add_test(tests, out_refuses_to_write_two_results_into_one_file);
  tcase_add_test(tests, out_refuses_to_overwrite_a_file_that_is_run);
  tcase_add_test(tests, out_where_nothing_can_be_written_is_exit_status_2);
}

int main(void) {
  return run_suite("run", add_tests, 30);
}
