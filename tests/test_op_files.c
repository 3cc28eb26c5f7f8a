/*
 * What an op takes in a backend: a file of its own, and no edit of another. Each test puts the file of a made-up op
 * into a copy of the sources, beside copies of the objects so that little is compiled, builds that plugin as `make`
 * does, and compares what it registers with what the plugin of this build does.
 */
#include "tests/scratch.h"

#include <dlfcn.h>
#include <flhost/plugin.h>
#include <stdbool.h>
#include <sys/wait.h>

enum { MOST_ROWS = 256 };

typedef struct collection {
  fl_registry registry; /* first */
  fl_impl rows[MOST_ROWS];
  int n;
} collection;

static fl_status collect(fl_registry *registry, const fl_impl *impl) {
  collection *all = (collection *)registry;
  ck_assert_int_lt(all->n, MOST_ROWS);
  all->rows[all->n++] = *impl;
  return FL_OK;
}

static fl_status pass(fl_registry *registry, const fl_component *component) {
  (void)registry, (void)component;
  return FL_OK;
}

/* The library stays open: rows point into it. */
static collection *load(const char *path) {
  collection *all = calloc(1, sizeof *all);
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  fl_register_fn entry = NULL;
  ck_assert_msg(library != NULL, "%s", library ? "" : dlerror());
  *(void **)&entry = dlsym(library, "register_builtins");
  ck_assert_ptr_nonnull(*(void **)&entry);
  all->registry = (fl_registry){.size = sizeof all->registry,
                                .abi_major = FL_ABI_MAJOR,
                                .abi_minor = FL_ABI_MINOR,
                                .register_impl = collect,
                                .register_component = pass};
  ck_assert_int_eq(entry(&all->registry), FL_OK);
  return all;
}

#define KERNEL                                                                                                         \
  "static fl_status made_up(void *self, fl_call *call) {\n"                                                            \
  "  (void)self, (void)call;\n"                                                                                        \
  "  return FL_ESTATE;\n"                                                                                              \
  "}\n"

static const struct backend {
  const char *name, *impl_id;
  struct {
    const char *path, *text;
  } files[2]; /* the first of C; the second may be missing */
} backends[] = {
    {"cpu",
     "reference.c",
     {{"plugins/cpu/reference/made_up.c", "#include \"plugins/cpu/cpu.h\"\n" KERNEL "static const fl_impl ops[] = {\n"
                                          "    {.op_name = \"made_up\", CPU_REFERENCE, .fn = made_up},\n"
                                          "};\n"
                                          "OP_LIST(ops);\n"}}},
    {"cuda",
     "vendor.cuda",
     {{"plugins/gpu/ops/made_up.c", "#include \"plugins/gpu/launch.h\"\n"
                                    "GPU_MODULE(made_up);\n" KERNEL "static const gpu_op ops[] = {\n"
                                    "    {.name = \"made_up\", .run = made_up, .module = &gpu_module_made_up},\n"
                                    "};\n"
                                    "OP_LIST(ops);\n"},
      {"plugins/gpu/kernels/made_up.cu", "/* for the vendor's compiler */\n"}}},
    {"ascend",
     "vendor.ascend",
     {{"plugins/ascend/made_up.c", "#include \"plugins/ascend/ops.h\"\n"
                                   "static void run_made_up(ascend_call *c) {\n"
                                   "  ascend_fail(c, FL_ESTATE, \"made up\");\n"
                                   "}\n"
                                   "static ascend_op ops[] = {\n"
                                   "    {.name = \"made_up\", .chips = ASCEND_ALL, .run = run_made_up},\n"
                                   "};\n"
                                   "OP_LIST(ops);\n"}}},
};

/* A tree like this one, whose plugins are copies, and what was built of them; without the kernels, which no compiler is
 * asked for. */
static void copy_tree(void) {
  char command[8 * PATH_MAX];
  snprintf(command, sizeof command,
           "set -e; mkdir -p %s/tree %s/build/obj; for each in *; do case $each in build | plugins) ;;"
           " *) ln -s \"$PWD/$each\" %s/tree ;; esac; done; cp -a plugins %s/tree;"
           " find %s -maxdepth 1 -type f -exec cp -a {} %s/build \\;; cp -a %s/obj/plugins %s/build/obj;"
           " rm -f %s/build/obj/plugins/cuda/*.image.o",
           scratch, scratch, scratch, scratch, build_dir(), scratch, build_dir(), scratch, scratch);
  ck_assert_int_eq(system(command), 0);
}

static void set_up(void) {
  scratch_make();
  copy_tree();
}

/* The path of the plugin, made of the copy. */
static const char *build_plugin(const char *name) {
  static char path[2 * PATH_MAX];
  char command[8 * PATH_MAX];
  snprintf(path, sizeof path, "%s/build/plugins/%s.so", scratch, name);
  snprintf(command, sizeof command,
           "unset MAKEFLAGS MFLAGS MAKELEVEL; make -s -j2 -C %s/tree BUILD=%s/build GPU_cuda_COMPILER= %s", scratch,
           scratch, path);
  int status = system(command);
  ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s\ngave status %d", command, status);
  return path;
}

/* FL_PLUGIN_OPS, which says without the plugin being opened what it has, lies in it as text. */
static bool lists_op(const char *path, const char *op) {
  size_t length;
  char text[64];
  unsigned char *bytes = read_file(path, &length);
  int size = snprintf(text, sizeof text, ",%s", op);
  bool listed = memmem(bytes, length, text, (size_t)size) != NULL;
  free(bytes);
  return listed;
}

static bool is_same_row(const fl_impl *a, const fl_impl *b) {
  return !strcmp(a->op_name, b->op_name) && !strcmp(a->impl_id, b->impl_id);
}

START_TEST(a_kernel_file_is_all_that_an_op_takes) {
  const struct backend *b = &backends[_i];
  char plugin[64], in_tree[128];
  for (int i = 0; i < 2 && b->files[i].path; i++) {
    snprintf(in_tree, sizeof in_tree, "tree/%s", b->files[i].path);
    write_text(in_tree, b->files[i].text);
  }
  const char *path = build_plugin(b->name);
  snprintf(plugin, sizeof plugin, "plugins/%s.so", b->name);
  collection *before = load(built(plugin)), *after = load(path);
  ck_assert_int_eq(after->n, before->n + 1);
  ck_assert(lists_op(path, "made_up"));

  /* The others are what they were, and in the same order. */
  const fl_impl *made = NULL;
  for (int i = 0, j = 0; i < after->n; i++)
    if (!strcmp(after->rows[i].op_name, "made_up"))
      made = &after->rows[i];
    else
      ck_assert(is_same_row(&after->rows[i], &before->rows[j++]));
  ck_assert_ptr_nonnull(made);
  ck_assert_str_eq(made->impl_id, b->impl_id);
  ck_assert_uint_eq(made->devices, before->rows[0].devices);
  ck_assert_ptr_nonnull(*(void **)&made->fn);
  free(before);
  free(after);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, scratch_remove);
  tcase_add_loop_test(tests, a_kernel_file_is_all_that_an_op_takes, 0, sizeof backends / sizeof backends[0]);
}

int main(void) {
  return run_suite("op_files", add_tests, 120);
}
