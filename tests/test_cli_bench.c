/* flhost bench, through the command itself: what it times, what it says of it, what it refuses. */
#include "tests/scenario.h"

#include <signal.h>

static void set_up(void) {
  mkdir(scratch("platforms"), 0755);
  mkdir(scratch("plugins"), 0755);
  setting("VLLM_FL_PLUGIN_PATH=%s", scratch("plugins"));
  setting("VLLM_FL_CONFIG_DIR=%s", scratch("platforms"));
  setting("VLLM_FL_PLATFORM=cpu");
  setting("HWLOC_COMPONENTS=-pci,-x86"); /* see tests/scenario.h */
}

static double number_at(const json_t *object, const char *key) {
  ck_assert_msg(json_is_number(json_object_get(object, key)), "no number at '%s'", key);
  return json_number_value(json_object_get(object, key));
}

static bool is_null_at(const json_t *object, const char *key) {
  return json_is_null(json_object_get(object, key));
}

static json_t *timings_of(outcome run) {
  return json_object_get(parse_json(run.out, JSON_OBJECT), "timings");
}

/* Long beside a first call, even under valgrind. */
#define SMALL "--seconds", "0.2", "--dims", "...: [2]; d: 8"

/* ---------------------------------------------------------------------------------------------------------- figures */

START_TEST(weights_are_prepared_where_that_is_asked_for) {
  copy_built("tests/plugins/planted_prepares.so", "plugins");
  json_t *timings = timings_of(FLHOST("bench", "--json", "--prepared", "--rotate", "0.0001", SMALL, "planted"));
  json_t *row = entry_of(timings, "impl_id", "vendor.wrong");
  ck_assert_double_gt(number_at(row, "us"), 0);
  ck_assert_double_eq(number_at(row, "prepared_bytes"), 8 * sizeof(float));
  ck_assert(is_null_at(entry_of(timings, "impl_id", "reference.right"), "prepared_bytes"));
  assert_contains(FLHOST("bench", "--prepared", SMALL, "planted").out, "PREPARED MB");
  timings = timings_of(FLHOST("bench", "--json", SMALL, "planted"));
  ck_assert(is_null_at(entry_of(timings, "impl_id", "vendor.wrong"), "prepared_bytes"));
}
END_TEST

START_TEST(weights_that_cannot_be_prepared_are_a_failure) {
  copy_built("tests/plugins/planted_fails_to_prepare.so", "plugins");
  outcome run = FLHOST("bench", "--json", "--prepared", SMALL, "planted");
  assert_status(run, 1);
  assert_contains(text_at(entry_of(timings_of(run), "impl_id", "vendor.wrong"), "reason"), "no packing today");
}
END_TEST

START_TEST(each_implementation_stands_beside_the_reference_and_memcpy) {
  copy_built("plugins/cpu.so", "plugins");
  outcome run = FLHOST("bench", SMALL, "silu_and_mul");
  assert_status(run, 0);
  assert_contains(run.out, "OP            IMPL            DTYPE");
  assert_contains(run.out, " US  ");
  assert_contains(run.out, " GB/S  ");
  assert_contains(run.out, " GFLOP/S  X REFERENCE  X MEMCPY  ARGUMENTS\n");
  assert_contains(run.out, "silu_and_mul  reference.c     bfloat16");
  assert_contains(run.out, "silu_and_mul  default.flagos  bfloat16");
  assert_contains(run.out, "silu_and_mul  memcpy          bfloat16");
  assert_contains(run.out, "  x[2, 16]\n");
  ck_assert_str_eq(run.err, "");
}
END_TEST

START_TEST(figures_are_what_the_counts_and_the_time_make) {
  copy_built("plugins/cpu.so", "plugins");
  outcome run = FLHOST("bench", "--json", SMALL, "silu_and_mul");
  assert_status(run, 0);
  const json_t *timings = timings_of(run), *row = entry_of(timings, "impl_id", "default.flagos"),
               *copy = entry_of(timings, "impl_id", "memcpy");
  ck_assert_uint_eq(json_array_size(timings), 3);
  ck_assert_str_eq(text_at(row, "dtype"), "bfloat16");
  ck_assert_str_eq(text_at(row, "arguments"), "x[2, 16]");
  ck_assert_double_eq(number_at(row, "bytes"), 2 * (32 + 16));
  ck_assert_double_eq(number_at(row, "flops"), 4 * 16);
  double us = number_at(row, "us");
  ck_assert_double_gt(us, 0);
  ck_assert_double_eq_tol(number_at(row, "gb_per_s"), 96 / us / 1e3, 1e-9);
  ck_assert_double_eq_tol(number_at(row, "gflop_per_s"), 64 / us / 1e3, 1e-9);
  ck_assert_double_gt(number_at(row, "times_as_fast_as_reference"), 0);
  ck_assert_double_gt(number_at(row, "times_as_fast_as_memcpy"), 0);
  ck_assert_int_ge((int)number_at(row, "rounds"), 5);
  ck_assert_double_eq(number_at(row, "rounds"), number_at(copy, "rounds")); /* they took turns */
  ck_assert(is_null_at(entry_of(timings, "impl_id", "reference.c"), "times_as_fast_as_reference"));
  ck_assert(is_null_at(copy, "gflop_per_s"));
  ck_assert_double_eq(number_at(copy, "bytes"), 96);
}
END_TEST

START_TEST(the_report_says_where_and_when) {
  static const char *const machine[] = {"cpu",    "architecture", "processors", "kernel", "compiler",
                                        "flhost", "date",         "load",       NULL};
  static const char *const report[] = {"machine", "device", "threads", "seconds", "rotated",
                                       "peers",   "old",    "timings", NULL};
  copy_built("plugins/cpu.so", "plugins");
  json_t *root = parse_json(FLHOST("bench", "--json", SMALL, "gelu_new").out, JSON_OBJECT);
  assert_keys(root, report);
  assert_keys(json_object_get(root, "machine"), machine);
  ck_assert_uint_eq(strlen(text_at(json_object_get(root, "machine"), "date")), strlen("2026-01-01T00:00:00Z"));
  ck_assert_double_eq(number_at(root, "seconds"), 0.2);
}
END_TEST

START_TEST(peers_get_as_many_threads_as_kernels_do) {
  copy_built("plugins/cpu.so", "plugins");
  setting("OMP_NUM_THREADS=3");
  ck_assert_double_eq(number_at(parse_json(FLHOST("bench", "--json", SMALL, "gelu").out, JSON_OBJECT), "threads"), 3);
  setting("VLLM_FL_CPU_THREADS=2");
  ck_assert_double_eq(number_at(parse_json(FLHOST("bench", "--json", SMALL, "gelu").out, JSON_OBJECT), "threads"), 2);
}
END_TEST

START_TEST(one_implementation_is_still_held_against_the_reference_unless_that_is_left_out) {
  copy_built("plugins/cpu.so", "plugins");
  const json_t *timings = timings_of(FLHOST("bench", "--json", "--impl", "default.flagos", SMALL, "gelu"));
  ck_assert_uint_eq(json_array_size(timings), 2);
  ck_assert_str_eq(text_at(json_array_get(timings, 0), "impl_id"), "default.flagos");
  ck_assert_double_gt(number_at(json_array_get(timings, 0), "times_as_fast_as_reference"), 0);
  timings = timings_of(FLHOST("bench", "--json", "--no-reference", SMALL, "gelu"));
  ck_assert_uint_eq(json_array_size(timings), 2);
  ck_assert_str_eq(text_at(json_array_get(timings, 0), "impl_id"), "default.flagos");
  ck_assert(is_null_at(json_array_get(timings, 0), "times_as_fast_as_reference"));
}
END_TEST

/* ------------------------------------------------------------------------------------------------------ which calls */

static int count_rows(outcome run, const char *arguments) {
  size_t i;
  json_t *row;
  int n = 0;
  json_array_foreach(timings_of(run), i, row) n += !strcmp(text_at(row, "arguments"), arguments);
  return n;
}

START_TEST(the_entry_says_which_calls_and_size_picks_the_first_or_last) {
  copy_built("plugins/cpu.so", "plugins");
  outcome all = FLHOST("bench", "--json", "--seconds", "0.1", "moe_align_block_size");
  assert_status(all, 0);
  ck_assert_int_eq(count_rows(all, "topk_ids[1, 8]"), 3);
  ck_assert_int_eq(count_rows(all, "topk_ids[128, 8]"), 3);
  ck_assert_int_eq(count_rows(all, "topk_ids[4096, 8]"), 3);
  outcome small = FLHOST("bench", "--json", "--seconds", "0.1", "--size", "small", "moe_align_block_size");
  ck_assert_int_eq(count_rows(small, "topk_ids[1, 8]"), 3);
  ck_assert_uint_eq(json_array_size(timings_of(small)), 3);
  outcome large = FLHOST("bench", "--json", "--seconds", "0.1", "--size", "large", "moe_align_block_size");
  ck_assert_int_eq(count_rows(large, "topk_ids[4096, 8]"), 3);
  ck_assert_uint_eq(json_array_size(timings_of(large)), 3);
}
END_TEST

START_TEST(the_element_type_is_bfloat16_or_what_is_asked_for_or_taken) {
  copy_built("plugins/cpu.so", "plugins");
  const json_t *row = json_array_get(timings_of(FLHOST("bench", "--json", "--dtype", "float32", SMALL, "gelu")), 0);
  ck_assert_str_eq(text_at(row, "dtype"), "float32");
  ck_assert_double_eq(number_at(row, "bytes"), 4 * (16 + 16));
  row = json_array_get(
      timings_of(FLHOST("bench", "--json", "--seconds", "0.001", "--size", "small", "moe_align_block_size")), 0);
  ck_assert_str_eq(text_at(row, "dtype"), "int32");
  outcome none = FLHOST("bench", "--dtype", "int8", SMALL, "gelu");
  assert_status(none, 3);
  assert_contains(none.err, "nothing to time");
}
END_TEST

/* 1 ns: the first call is longer, and so would be the others. */
START_TEST(a_call_that_would_take_too_long_is_left_out_with_the_reason) {
  size_t i;
  json_t *row;
  copy_built("plugins/cpu.so", "plugins");
  const json_t *timings = timings_of(FLHOST("bench", "--json", "--seconds", "1e-9", "moe_align_block_size"));
  json_array_foreach(timings, i, row) {
    bool is_first = !strcmp(text_at(row, "arguments"), "topk_ids[1, 8]");
    if (!strcmp(text_at(row, "impl_id"), "memcpy"))
      continue;
    ck_assert_double_eq(number_at(row, "rounds"), is_first ? 1 : 0);
    ck_assert(is_null_at(row, "us") != is_first);
    if (!is_first)
      assert_contains(text_at(row, "reason"), "not timed: one call would take about ");
  }
}
END_TEST

/* ------------------------------------------------------------------------------------------------ what is not timed */

/* Through the plugin that brings a device of its own. */
START_TEST(a_device_is_timed_in_its_own_memory) {
  copy_built("tests/plugins/device.so", "plugins");
  copy_built("plugins/cpu.so", "plugins");
  outcome run = FLHOST("bench", "--json", "--device", "ext_dev:1", "--dtype", "float32", "--seconds", "0.2", "--dims",
                       "...: [2]; d: 8", "silu_and_mul");
  assert_status(run, 0);
  ck_assert_str_eq(text_at(parse_json(run.out, JSON_OBJECT), "device"), "ext_dev:1");
  const json_t *timings = timings_of(run), *row = entry_of(timings, "impl_id", "vendor.test_device");
  ck_assert_uint_eq(json_array_size(timings), 2); /* the rest is for the processor */
  ck_assert_double_gt(number_at(row, "us"), 0);
  ck_assert_double_gt(number_at(row, "times_as_fast_as_memcpy"), 0);
  run = FLHOST("bench", "--json", "--device", "ext_dev", "--impl", "default.flagos", SMALL, "silu_and_mul");
  assert_status(run, 3);
  assert_contains(text_at(json_array_get(timings_of(run), 0), "reason"),
                  "it is for tensors on cpu,cuda_host,rocm_host (--device)");
}
END_TEST

START_TEST(an_unavailable_implementation_has_its_reason) {
  copy_built("tests/plugins/unavailable.so", "plugins");
  outcome run = FLHOST("bench", "--json");
  assert_status(run, 3);
  assert_contains(text_at(json_array_get(timings_of(run), 0), "reason"), "not available: ");
}
END_TEST

START_TEST(an_implementation_that_fails_is_named_and_the_exit_status_1) {
  copy_built("tests/plugins/failing.so", "plugins");
  outcome run = FLHOST("bench", "--json", "--seconds", "0.001", "--dtype", "float32", "test_scale");
  assert_status(run, 1);
  const json_t *row = json_array_get(timings_of(run), 0);
  ck_assert(json_is_true(json_object_get(row, "failed")));
  assert_contains(text_at(row, "reason"), "returned FL_E");
  ck_assert(is_null_at(row, "us"));
}
END_TEST

START_TEST(a_call_that_an_implementation_does_not_take_is_no_failure) {
  copy_built("tests/plugins/planted_writes_before_enotsup.so", "plugins");
  outcome run = FLHOST("bench", "--json", "--seconds", "0.001", "--dims", "...: [2]; d: 64", "planted");
  assert_status(run, 0);
  const json_t *wrong = entry_of(timings_of(run), "impl_id", "vendor.wrong");
  ck_assert_str_eq(text_at(wrong, "reason"), "planted: rows of 64 are too long");
  ck_assert(!json_is_true(json_object_get(wrong, "failed")));
}
END_TEST

START_TEST(a_call_for_which_there_is_no_memory_is_left_out_with_the_reason) {
  copy_built("plugins/cpu.so", "plugins");
  outcome run = FLHOST("bench", "--json", "--dims", "...: [1000000, 1000000]; d: 8", "gelu");
  assert_status(run, 3);
  const json_t *timings = timings_of(run);
  ck_assert_uint_eq(json_array_size(timings), 2);
  assert_contains(text_at(json_array_get(timings, 1), "reason"), "not timed: there is no memory for tensors of ");
}
END_TEST

START_TEST(nothing_to_time_is_exit_status_3) {
  outcome run = FLHOST("bench");
  assert_status(run, 3);
  assert_contains(run.err, "nothing to time");
}
END_TEST

START_TEST(a_wrong_word_is_refused_with_the_nearest_right_one) {
  copy_built("plugins/cpu.so", "plugins");
  assert_refused_with(FLHOST("bench", "silu_and_mull"), "did you mean 'silu_and_mul'?");
  assert_refused_with(FLHOST("bench", "--impl", "default.flagoss"), "did you mean 'default.flagos'?");
  assert_refused_with(FLHOST("bench", "--dtype", "bfloat61"), "did you mean 'bfloat16'?");
  assert_refused_with(FLHOST("bench", "--size", "smal"), "unknown size 'smal'; did you mean 'small'?");
  assert_refused_with(FLHOST("bench", "--device", "cdua"), "did you mean 'cuda'?");
  assert_refused_with(FLHOST("bench", "--seconds", "0"), "--seconds: '0' is not a number above 0");
  assert_refused_with(FLHOST("bench", "--seconds", "1s"), "--seconds: '1s' is not a number above 0");
  assert_refused_with(FLHOST("bench", "--dims", " ", "gelu"), "--dims: ' ' has no sizes, expected some as in 'n: 1");
  assert_refused_with(FLHOST("bench", "--dims", "n: 1"), "--dims needs the operator");
  assert_refused_with(FLHOST("bench", "--dims", "m: 1", "gelu"), "sizes 'm: 1', column 1: found 'm'");
  assert_refused_with(FLHOST("bench", "--dims", "approximate: tanh", "gelu"),
                      "'approximate' is neither a dimension nor an int");
  assert_refused_with(FLHOST("bench", "--dims", "topk: 100", "topk_softmax"),
                      "topk_softmax: argument 'topk': 100, expected 1 to");
  assert_refused_with(FLHOST("bench", "--dims", "p: 0", "rotary_embedding"),
                      "rotary_embedding: with these sizes an argument has no");
}
END_TEST

/* ------------------------------------------------------------------------------------------------------------ peers */

START_TEST(a_loop_that_moves_as_many_bytes_stands_beside) {
  copy_built("plugins/cpu.so", "plugins");
  outcome run = FLHOST("bench", "--json", "--peer", "copy", SMALL, "silu_and_mul");
  assert_status(run, 0);
  const json_t *timings = timings_of(run), *row = entry_of(timings, "impl_id", "default.flagos"),
               *copy = entry_of(timings, "impl_id", "copy");
  ck_assert_uint_eq(json_array_size(timings), 4);
  ck_assert_double_eq(number_at(copy, "bytes"), 96);
  ck_assert_double_eq(number_at(copy, "rounds"), number_at(row, "rounds"));
  double ratio = number_at(json_object_get(row, "times_as_fast_as_peers"), "copy");
  ck_assert_double_gt(ratio, 0);
  ck_assert(is_null_at(json_object_get(copy, "times_as_fast_as_peers"), "copy"));
  run = FLHOST("bench", "--peer", "copy", SMALL, "silu_and_mul");
  assert_contains(run.out, "  X COPY  ARGUMENTS\n");
  assert_lacks(run.out, "X TORCH");
}
END_TEST

/* In place of Python: a shell that gets each request as $line with its number $id, and does `body`. */
static void stand_in(const char *body) {
  FILE *file = fopen(scratch("python"), "w");
  ck_assert_ptr_nonnull(file);
  fprintf(file,
          "#!/bin/sh\necho $$ >%s\nanswer() { echo \"{\\\"id\\\": $id, $1}\" >&3; }\n"
          "while read -r line <&3; do\nid=${line##*:} id=${id%%%%\\}*}\necho \"$line\" >>%s\n%s\ndone\n",
          scratch("pid"), scratch("requests"), body);
  ck_assert(!fchmod(fileno(file), 0755) && !fclose(file));
  setting("PYTHON=%s", scratch("python"));
  setting("PATH=%s", getenv("PATH"));
}

#define ALL_WELL                                                                                                       \
  "case $line in *begin*) answer '\"version\": \"torch 0.1\"';; *ready*) answer '\"more\": 1';; *) answer '\"ns\": "   \
  "2000';; esac"

/* The stand-in, if it ever ran, is gone. */
static void assert_gone(void) {
  long pid;
  FILE *file = fopen(scratch("pid"), "r");
  ck_assert_ptr_nonnull(file);
  ck_assert_int_eq(fscanf(file, "%ld", &pid), 1);
  fclose(file);
  ck_assert_int_ne(kill((pid_t)pid, 0), 0);
}

static json_t *request_with(const char *word, const char *other) {
  static char line[1 << 16];
  FILE *file = fopen(scratch("requests"), "r");
  ck_assert_ptr_nonnull(file);
  bool found = false;
  while (!found && fgets(line, sizeof line, file))
    found = strstr(line, word) && strstr(line, other);
  fclose(file);
  ck_assert_msg(found, "no request with %s and %s", word, other);
  return parse_json(line, JSON_OBJECT);
}

START_TEST(torch_takes_its_turns_by_its_own_clock) {
  copy_built("plugins/cpu.so", "plugins");
  stand_in(ALL_WELL);
  outcome run = FLHOST("bench", "--json", "--peer", "torch,torch.compile", SMALL, "gelu");
  assert_status(run, 0);
  const json_t *timings = timings_of(run), *row = entry_of(timings, "impl_id", "default.flagos"),
               *torch = entry_of(timings, "impl_id", "torch");
  ck_assert_double_eq(number_at(torch, "us"), 2);
  ck_assert_double_eq(number_at(torch, "rounds"), number_at(row, "rounds"));
  ck_assert_double_eq_tol(number_at(json_object_get(row, "times_as_fast_as_peers"), "torch") * number_at(row, "us"), 2,
                          0.2);
  ck_assert_double_eq(number_at(json_object_get(torch, "times_as_fast_as_peers"), "torch.compile"), 1);
  ck_assert_str_eq(text_at(json_object_get(parse_json(run.out, JSON_OBJECT), "peers"), "torch"), "torch 0.1");
  ck_assert_str_eq(text_at(entry_of(timings, "impl_id", "torch.compile"), "arguments"), "x[2, 8]");
  assert_gone();
  run = FLHOST("bench", "--peer", "torch,torch.compile", SMALL, "gelu");
  assert_contains(run.out, "  X TORCH  X COMPILED  ARGUMENTS\n");
}
END_TEST

START_TEST(torch_is_told_what_the_call_has) {
  copy_built("plugins/cpu.so", "plugins");
  stand_in(ALL_WELL);
  assert_status(FLHOST("bench", "--peer", "torch", "--rotate", "7e-7", "--seconds", "0.05", "--dtype", "float32",
                       "--dims", "...: [3]; v: 7; h: 8", "vocab_parallel_embedding"),
                0);
  const json_t *begin = request_with("\"begin\"", ""), *ready = request_with("\"ready\"", ""),
               *arguments = json_object_get(ready, "arguments"), *ids = json_object_get(arguments, "input_ids");
  ck_assert_str_eq(text_at(begin, "device"), "cpu");
  ck_assert_double_ge(number_at(begin, "threads"), 1);
  ck_assert_str_eq(text_at(ready, "op"), "vocab_parallel_embedding");
  ck_assert_double_eq(number_at(ready, "copies"), 3); /* of 332 or 344 bytes, by the type of the ids */
  ck_assert_double_eq(json_number_value(json_array_get(json_object_get(ids, "shape"), 0)), 3);
  assert_contains(text_at(ids, "dtype"), "int");
  ck_assert_double_eq(number_at(ids, "low"), 0);
  ck_assert_double_eq(number_at(ids, "high"), 6);
  ck_assert_str_eq(text_at(json_object_get(arguments, "weight"), "dtype"), "float32");
  ck_assert(is_null_at(arguments, "org_vocab_end"));
  ck_assert_double_eq(number_at(arguments, "org_vocab_start"), 0);
}
END_TEST

/* It keeps tensors and function while the number stays: what is timed together has one, whatever operator is next. */
START_TEST(torch_can_tell_calls_apart) {
  copy_built("plugins/cpu.so", "plugins");
  stand_in(ALL_WELL);
  assert_status(FLHOST("bench", "--peer", "torch,torch.compile", SMALL, "gelu", "gelu_new", "relu2"), 0);
  double numbers[3], again;
  static const char *const ops[] = {"\"gelu\"", "\"gelu_new\"", "\"relu2\""};
  for (int i = 0; i < 3; i++) {
    numbers[i] = number_at(request_with("\"peer\":\"torch\"", ops[i]), "call");
    again = number_at(request_with("\"peer\":\"torch.compile\"", ops[i]), "call");
    ck_assert_double_eq(numbers[i], again);
  }
  ck_assert(numbers[0] != numbers[1] && numbers[1] != numbers[2] && numbers[0] != numbers[2]);
}
END_TEST

/* Threads of its own, which look for what comes next, would take processors from what is timed. */
START_TEST(torch_stands_still_while_others_are_timed) {
  copy_built("plugins/cpu.so", "plugins");
  char watched[600];
  snprintf(watched, sizeof watched,
           "case $line in *begin*) setsid sh -c \"while kill -0 $$; do cut -d' ' -f3 /proc/$$/stat; done\" >%s "
           "2>/dev/null &\n esac\n" ALL_WELL,
           scratch("states"));
  stand_in(watched);
  assert_status(FLHOST("bench", "--peer", "torch", SMALL, "gelu"), 0);
  char states[1 << 12] = "";
  FILE *file = fopen(scratch("states"), "r");
  ck_assert_ptr_nonnull(file);
  ck_assert(fread(states, 1, sizeof states - 1, file) > 0 && !fclose(file));
  assert_contains(states, "T\n");
}
END_TEST

START_TEST(a_call_that_torch_does_not_make_has_its_reason) {
  copy_built("plugins/cpu.so", "plugins");
  stand_in("case $line in *begin*) answer '\"version\": \"\"';; *) answer '\"reason\": \"not for Half\"';; esac");
  outcome run = FLHOST("bench", "--json", "--peer", "torch", SMALL, "gelu");
  assert_status(run, 0);
  const json_t *torch = entry_of(timings_of(run), "impl_id", "torch");
  ck_assert_str_eq(text_at(torch, "reason"), "not for Half");
  ck_assert(is_null_at(torch, "us"));
  ck_assert(!json_is_true(json_object_get(torch, "failed")));
}
END_TEST

/* What it prints is not the command's, however much it is; answers to who is gone are passed over. */
START_TEST(what_torch_prints_is_not_read_as_an_answer) {
  copy_built("plugins/cpu.so", "plugins");
  stand_in("case $line in *begin*) head -c 3000000 /dev/zero; echo warning >&2; head -c 3000000 /dev/zero >&2;"
           " answer '\"version\": \"\"';; *ready*) answer '\"more\": 1';;"
           " *) echo '{\"id\": 1, \"ns\": 5}' >&3; answer '\"ns\": 2000';; esac 2>/dev/null");
  outcome run = FLHOST("bench", "--json", "--peer", "torch", SMALL, "gelu");
  assert_quiet(run);
  ck_assert_double_eq(number_at(entry_of(timings_of(run), "impl_id", "torch"), "us"), 2);
}
END_TEST

/* In the midst of things: the implementations have their figures, the rest of the calls no torch. */
START_TEST(torch_that_goes_takes_nobody_with_it) {
  static const struct {
    const char *body, *said;
  } rows[] = {
      {"echo noise; echo Segmentation fault >&2; exit 3", " ended: Segmentation fault"},
      {"sleep 60", " gave no answer within 3 s"},
      {"echo hello >&3", " answered 'hello', expected a line of JSON with an id"},
      {"echo '[]' >&3", " answered '[]', expected a line of JSON with an id"},
      {"head -c 100000 /dev/zero | tr '\\0' x >&3", " answered with more than 65536 bytes, expected a line of JSON"},
      {"answer '\"ns\": -1'", " answered without a time above 0"},
      {"answer '\"fault\": \"out of luck\"'", ": out of luck"},
  };
  char body[512];
  copy_built("plugins/cpu.so", "plugins");
  snprintf(body, sizeof body,
           "case $line in *begin*) answer '\"version\": \"\"';; *ready*) answer '\"more\": 1';; *) %s;; esac",
           rows[_i].body);
  stand_in(body);
  outcome run = FLHOST("bench", "--json", "--peer", "torch", "--timeout", "3", "--seconds", "0.2", "--dims",
                       "...: [2] [3]; d: 8", "gelu");
  assert_status(run, 1);
  size_t i;
  json_t *row;
  json_array_foreach(timings_of(run), i, row) {
    bool is_torch = !strcmp(text_at(row, "impl_id"), "torch");
    ck_assert(json_is_true(json_object_get(row, "failed")) == is_torch);
    ck_assert(is_null_at(row, "us") == is_torch);
    if (is_torch)
      assert_contains(text_at(row, "reason"), rows[_i].said);
  }
  ck_assert_uint_eq(i, 8);
  assert_gone();
}
END_TEST

START_TEST(without_torch_nothing_is_timed_and_one_line_says_why) {
  copy_built("plugins/cpu.so", "plugins");
  stand_in("answer '\"fault\": \"it cannot import torch (ModuleNotFoundError)\"'");
  outcome run = FLHOST("bench", "--peer", "torch", "gelu");
  assert_refused_with(run,
                      "/python: it cannot import torch (ModuleNotFoundError); the environment variable PYTHON names "
                      "another Python\n");
  ck_assert_ptr_eq(strchr(run.err, '\n'), run.err + strlen(run.err) - 1);
  setting("PYTHON=%s", scratch("nothing"));
  assert_refused_with(FLHOST("bench", "--peer", "torch", "gelu"), "nothing: No such file or directory");
  setting("PYTHON=true");
  assert_refused_with(FLHOST("bench", "--peer", "torch", "gelu"), "true ended without a word");
  assert_refused_with(FLHOST("bench", "--peer", "touch", "gelu"), "unknown peer 'touch'; did you mean 'torch'?");
  assert_refused_with(FLHOST("bench", "--peer", "copy,copy", "gelu"), "--peer: 'copy' stands twice");
  assert_refused_with(FLHOST("bench", "--peer", "copy,", "gelu"), "unknown peer ''");
}
END_TEST

/* Copies of the tensors take turns: each call of a round has others. */
START_TEST(tensors_are_rotated_through_as_much_memory_as_is_asked_for) {
  copy_built("plugins/cpu.so", "plugins");
  outcome run = FLHOST("bench", "--json", "--rotate", "0.001", "--peer", "copy", SMALL, "silu_and_mul");
  assert_status(run, 0);
  ck_assert_double_eq(number_at(parse_json(run.out, JSON_OBJECT), "rotated"), 1e6);
  size_t i;
  json_t *row;
  json_array_foreach(timings_of(run), i, row) ck_assert_double_gt(number_at(row, "us"), 0);
  run = FLHOST("bench", "--json", "--rotate", "900000", "--seconds", "0.1", "--dims", "...: [100000]; d: 8000",
               "silu_and_mul");
  assert_status(run, 3);
  assert_contains(text_at(entry_of(timings_of(run), "impl_id", "reference.c"), "reason"),
                  "not timed: there is no memory for tensors of 9e+05 GB");
  assert_refused_with(FLHOST("bench", "--rotate", "much"), "--rotate");
}
END_TEST

/* --------------------------------------------------------------------------------------------------- an earlier run */

/* A report of such rows. */
static const char *earlier_report(const char *device, const char *rows) {
  char *text = NULL;
  ck_assert_int_gt(
      asprintf(&text, "{\"machine\": {\"cpu\": \"an abacus\"}, \"device\": \"%s\", \"timings\": [%s]}", device, rows),
      0);
  const char *path = scratch_file("old.json", text);
  free(text);
  return path;
}

#define EARLIER(op_, impl_, dtype_, arguments_, us_)                                                                   \
  "{\"op\": \"" op_ "\", \"impl_id\": \"" impl_ "\", \"dtype\": \"" dtype_ "\", \"arguments\": \"" arguments_          \
  "\", \"us\": " us_ "}"

START_TEST(an_earlier_run_stands_beside_this_one) {
  copy_built("plugins/cpu.so", "plugins");
  const char *old =
      earlier_report("cpu", EARLIER("gelu", "default.flagos", "bfloat16", "x[2, 8]",
                                    "1000000.5") "," EARLIER("gelu", "memcpy", "bfloat16", "x[2, 8]", "null"));
  outcome run = FLHOST("bench", "--json", "--compare", old, SMALL, "gelu");
  assert_status(run, 0);
  const json_t *timings = timings_of(run), *row = entry_of(timings, "impl_id", "default.flagos");
  ck_assert_double_eq(number_at(row, "old_us"), 1000000.5);
  ck_assert_double_eq_tol(number_at(row, "times_as_fast_as_old"), 1000000.5 / number_at(row, "us"), 1e-6);
  ck_assert_double_gt(number_at(row, "times_as_fast_as_old"), 1);
  ck_assert(is_null_at(entry_of(timings, "impl_id", "memcpy"), "old_us"));
  ck_assert(is_null_at(entry_of(timings, "impl_id", "reference.c"), "times_as_fast_as_old"));
  assert_contains(run.err, "was measured on another machine: 'an abacus', this is '");
  run = FLHOST("bench", "--compare", old, SMALL, "gelu");
  assert_status(run, 0);
  assert_contains(run.out, " OLD US ");
  assert_contains(run.out, " X OLD  ARGUMENTS\n"); /* as wide as its figures */
  assert_contains(run.out, " 1000000 ");
  assert_contains(run.out, "    not in ");
}
END_TEST

START_TEST(what_only_one_of_two_runs_has_is_said) {
  copy_built("plugins/cpu.so", "plugins");
  const char *old = earlier_report(
      "cpu", EARLIER("gelu", "vendor.gone", "bfloat16", "x[2, 8]", "5") "," EARLIER(
                 "gelu", "default.flagos", "bfloat16", "x[3, 8]",
                 "6") "," EARLIER("gelu", "default.flagos", "float32", "x[2, 8]",
                                  "7") "," EARLIER("relu2", "default.flagos", "bfloat16", "x[2, 8]", "8"));
  outcome run = FLHOST("bench", "--json", "--dtype", "bfloat16", "--compare", old, SMALL, "gelu");
  const json_t *said = json_object_get(parse_json(run.out, JSON_OBJECT), "old"),
               *only = json_object_get(said, "only_there");
  ck_assert_str_eq(text_at(said, "file"), old);
  ck_assert_str_eq(text_at(said, "device"), "cpu");
  ck_assert_uint_eq(json_array_size(only), 2); /* another type, and another op, were not asked for */
  ck_assert_double_eq(number_at(entry_of(only, "impl_id", "vendor.gone"), "us"), 5);
  ck_assert_str_eq(text_at(entry_of(only, "impl_id", "default.flagos"), "arguments"), "x[3, 8]");
  run = FLHOST("bench", "--impl", "default.flagos", "--dtype", "bfloat16", "--compare", old, SMALL, "gelu");
  assert_contains(run.out, "x[3, 8]\n    only in ");
  assert_lacks(run.out, "vendor.gone");
}
END_TEST

START_TEST(another_device_s_figures_are_not_compared) {
  copy_built("plugins/cpu.so", "plugins");
  const char *old = earlier_report("cuda:0", EARLIER("gelu", "default.flagos", "bfloat16", "x[2, 8]", "9"));
  const json_t *row =
      entry_of(timings_of(FLHOST("bench", "--json", "--compare", old, SMALL, "gelu")), "impl_id", "default.flagos");
  ck_assert(is_null_at(row, "old_us"));
}
END_TEST

/* Of two calls whose shapes are alike the first is held against the first. */
START_TEST(rows_that_are_alike_are_compared_in_order) {
  copy_built("plugins/cpu.so", "plugins");
  const char *old = earlier_report("cpu", EARLIER("gelu", "default.flagos", "bfloat16", "x[2, 8]", "11") "," EARLIER(
                                              "gelu", "default.flagos", "bfloat16", "x[2, 8]", "12"));
  const json_t *timings = timings_of(FLHOST("bench", "--json", "--impl", "default.flagos", "--compare", old,
                                            "--seconds", "0.05", "--dims", "...: [2] [2]; d: 8", "gelu"));
  ck_assert_uint_eq(json_array_size(timings), 4); /* a memcpy each */
  ck_assert_double_eq(number_at(json_array_get(timings, 0), "old_us"), 11);
  ck_assert_double_eq(number_at(json_array_get(timings, 2), "old_us"), 12);
}
END_TEST

START_TEST(what_is_no_report_is_refused_before_anything_is_timed) {
  static const struct {
    const char *text, *said;
  } rows[] = {
      {"", "line 1, column 0: '[' or '{' expected near end of file, expected the JSON of 'flhost bench --json'"},
      {"{\"timings\": [", "line 1, column 13: "},
      {"[]", "is JSON, but no report of 'flhost bench --json': it has no list 'timings'"},
      {"{\"seed\": 1, \"tests\": []}", "it has no list 'timings'"},
      {"{\"timings\": []}", "it has no device"},
      {"{\"device\": \"cpu\", \"timings\": [{\"op\": 3}]}", "timings[0] has no good 'op', expected a string"},
      {"{\"device\": \"cpu\", \"timings\": [7]}", "timings[0] has no good 'op', expected a string"},
      {"{\"device\": \"cpu\", \"timings\": [" EARLIER("gelu", "a.b", "float32", "x[1]", "-1") "]}",
       "timings[0] has no good 'us', expected a number above 0, or null"},
  };
  copy_built("plugins/cpu.so", "plugins");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    assert_refused_with(FLHOST("bench", "--compare", scratch_file("old.json", rows[i].text), SMALL, "gelu"),
                        rows[i].said);
  assert_refused_with(FLHOST("bench", "--compare", "nowhere.json", "gelu"), "cannot read nowhere.json: No such file");
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, end_scenario);
  tcase_add_test(tests, weights_are_prepared_where_that_is_asked_for);
  tcase_add_test(tests, weights_that_cannot_be_prepared_are_a_failure);
  tcase_add_test(tests, each_implementation_stands_beside_the_reference_and_memcpy);
  tcase_add_test(tests, figures_are_what_the_counts_and_the_time_make);
  tcase_add_test(tests, the_report_says_where_and_when);
  tcase_add_test(tests, peers_get_as_many_threads_as_kernels_do);
  tcase_add_test(tests, one_implementation_is_still_held_against_the_reference_unless_that_is_left_out);
  tcase_add_test(tests, the_entry_says_which_calls_and_size_picks_the_first_or_last);
  tcase_add_test(tests, the_element_type_is_bfloat16_or_what_is_asked_for_or_taken);
  tcase_add_test(tests, a_call_that_would_take_too_long_is_left_out_with_the_reason);
  tcase_add_test(tests, a_device_is_timed_in_its_own_memory);
  tcase_add_test(tests, an_unavailable_implementation_has_its_reason);
  tcase_add_test(tests, an_implementation_that_fails_is_named_and_the_exit_status_1);
  tcase_add_test(tests, a_call_that_an_implementation_does_not_take_is_no_failure);
  tcase_add_test(tests, a_call_for_which_there_is_no_memory_is_left_out_with_the_reason);
  tcase_add_test(tests, nothing_to_time_is_exit_status_3);
  tcase_add_test(tests, a_loop_that_moves_as_many_bytes_stands_beside);
  tcase_add_test(tests, torch_takes_its_turns_by_its_own_clock);
  tcase_add_test(tests, torch_is_told_what_the_call_has);
  tcase_add_test(tests, torch_can_tell_calls_apart);
  tcase_add_test(tests, torch_stands_still_while_others_are_timed);
  tcase_add_test(tests, a_call_that_torch_does_not_make_has_its_reason);
  tcase_add_test(tests, what_torch_prints_is_not_read_as_an_answer);
  tcase_add_loop_test(tests, torch_that_goes_takes_nobody_with_it, 0, 7);
  tcase_add_test(tests, without_torch_nothing_is_timed_and_one_line_says_why);
  tcase_add_test(tests, tensors_are_rotated_through_as_much_memory_as_is_asked_for);
  tcase_add_test(tests, an_earlier_run_stands_beside_this_one);
  tcase_add_test(tests, what_only_one_of_two_runs_has_is_said);
  tcase_add_test(tests, another_device_s_figures_are_not_compared);
  tcase_add_test(tests, rows_that_are_alike_are_compared_in_order);
  tcase_add_test(tests, what_is_no_report_is_refused_before_anything_is_timed);
  tcase_add_test(tests, a_wrong_word_is_refused_with_the_nearest_right_one);
}

int main(void) {
  return run_suite("bench", add_tests, 60);
}
