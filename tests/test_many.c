/* Very many rows, plugins, directories: twice as many take about twice as long. What is counted is comparisons of text,
 * which the linker hands to the functions below: time says little on a machine with others on it. */
#include "core/registry.h"
#include "tests/fixture.h"
#include "tests/scratch.h"

int __real_strcmp(const char *a, const char *b);
int __real_strncmp(const char *a, const char *b, size_t n);
int __real_memcmp(const void *a, const void *b, size_t n);
int __wrap_strcmp(const char *a, const char *b);
int __wrap_strncmp(const char *a, const char *b, size_t n);
int __wrap_memcmp(const void *a, const void *b, size_t n);

static long compared;

int __wrap_strcmp(const char *a, const char *b) {
  compared++;
  return __real_strcmp(a, b);
}

int __wrap_strncmp(const char *a, const char *b, size_t n) {
  compared++;
  return __real_strncmp(a, b, n);
}

int __wrap_memcmp(const void *a, const void *b, size_t n) {
  compared++;
  return __real_memcmp(a, b, n);
}

static fl_status run(void *self, fl_call *call) {
  (void)self, (void)call;
  return FL_OK;
}

static void register_rows(fl_host *host, const char *plugin, int n) {
  fl_stage *stage = fl_stage_begin(host, plugin, "", 0);
  fl_registry *registry = fl_stage_table(stage);
  for (int i = 0; i < n; i++) {
    char id[64];
    snprintf(id, sizeof id, "vendor.%s.%d", plugin, i);
    const fl_impl impl = {.size = sizeof impl,
                          .op_name = "silu_and_mul",
                          .impl_id = id,
                          .kind = FL_KIND_VENDOR,
                          .vendor = plugin,
                          .devices = FL_DEVICE(kDLCPU),
                          .fn = run};
    ck_each(!registry->register_impl(registry, &impl), "row %d: %s", i, fl_error_message());
  }
  ck_ok(fl_stage_commit(stage, NULL));
}

/* Of a second plugin that registers as many rows of one op as the first, and a third that takes them away. */
static long rows_of_a_second_plugin(int n) {
  fl_host *host = test_host((const char *const[]){"VLLM_FL_LOG_LEVEL=ERROR", NULL}, 0);
  register_rows(host, "acme", n);
  compared = 0;
  register_rows(host, "other", n);
  ck_ok(fl_withdraw_plugin(host, "acme"));
  register_rows(host, "acme", n);
  long all = compared;
  fl_host_destroy(host);
  return all;
}

static void say_nothing(void *user, int level, const char *line) {
  (void)user, (void)level, (void)line;
}

/* Every other entry is a mistake, which is kept; the rest are not there. */
static long entries_of_a_path(int n) {
  char *path = malloc((size_t)n * 48), *at = path;
  fl_host *host;
  for (int i = 0; i < n; i++)
    at += sprintf(at, "%s%snonexistent/%d", i ? ":" : "", i % 2 ? "" : "/", i);
  const fl_host_options options = {
      .size = sizeof options, .plugin_path = path, .platform = "cpu", .config_dir = "/nonexistent", .log = say_nothing};
  compared = 0;
  ck_ok(fl_host_create(&options, &host));
  ck_ok(fl_discover_plugins(host, NULL));
  long all = compared;
  fl_host_destroy(host);
  free(path);
  return all;
}

/* Copies of one plugin, all of one name, in files of their own. */
static long plugins_of_one_name(int n) {
  char name[64];
  fl_host *host;
  scratch_make();
  ck_assert_int_eq(mkdir(in_scratch("plugins"), 0755), 0);
  for (int i = 0; i < n; i++) {
    snprintf(name, sizeof name, "plugins/copy_%d.so", i);
    copy_to_scratch(built("tests/plugins/listed/lazy_a.so"), name);
  }
  const fl_host_options options = {.size = sizeof options,
                                   .plugin_path = in_scratch("plugins"),
                                   .platform = "cpu",
                                   .config_dir = "/nonexistent",
                                   .log = say_nothing};
  compared = 0;
  ck_ok(fl_host_create(&options, &host));
  long all = compared;
  fl_host_destroy(host);
  scratch_remove();
  return all;
}

static const struct {
  const char *what;
  long (*compare)(int n);
  int n;
} cases[] = {
    {"rows of a second plugin", rows_of_a_second_plugin, 50000},
    {"entries of VLLM_FL_PLUGIN_PATH", entries_of_a_path, 5000},
    {"plugins of one name", plugins_of_one_name, 400},
};

/* n log n: a little more than twice. */
START_TEST(twice_as_many_take_about_twice_as_long) {
  int n = rounds(cases[_i].n);
  long few = cases[_i].compare(n), many = cases[_i].compare(2 * n);
  ck_assert_msg(few > n && many < 2.5 * (double)few, "%s: %d: %ld comparisons, %d: %ld", cases[_i].what, n, few, 2 * n,
                many);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_loop_test(tests, twice_as_many_take_about_twice_as_long, 0, sizeof cases / sizeof *cases);
}

int main(void) {
  return run_suite("many", add_tests, 60);
}
