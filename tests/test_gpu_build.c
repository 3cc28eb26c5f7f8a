/*
 * When `make` compiles the GPU plugins' kernels anew. A script stands in for the vendors' compilers: what it "compiles"
 * is its own command line, which then lies in the objects that embed the kernels. Everything is built in a scratch
 * directory, which stands for build/kernels and the variants of the build.
 */
#include "tests/scratch.h"

#include <stdarg.h>
#include <stdbool.h>
#include <sys/wait.h>

/* What the makefiles ask of a compiler, answered; each further call is a line in `calls`. */
static const char compiler_script[] = "#!/bin/sh\n"
                                      "here=${0%/*}\n"
                                      "case $* in\n"
                                      "--version) echo \"stand-in, release $(cat \"$here/version\"), V1\"; exit ;;\n"
                                      "*--print-supported-cpus*) echo gfx90a gfx942; exit ;;\n"
                                      "-print-prog-name=*) echo true; exit ;;\n"
                                      "esac\n"
                                      "echo \"$@\" >>\"$here/calls\"\n"
                                      "arguments=$*\n"
                                      "while [ \"$1\" != -o ]; do shift; done\n"
                                      "echo \"$arguments\" >\"$2\"\n";

static const struct vendor {
  const char *name, *driver;       /* of the plugin, and of its object that says what was compiled */
  const char *compiler, *archs;    /* make's variables */
  const char *both, *one;          /* values of the latter */
  const char *of_both, *said_both; /* what only the former leaves in the embedded kernels, and in the driver's object */
} vendors[] = {
    {"cuda", "cuda_driver", "NVCC", "CUDA_ARCHS", "80 90", "90", "sm_80", NULL}, /* says it in numbers */
    {"rocm", "hip_driver", "ROCM_CLANG", "ROCM_ARCHS", "gfx90a gfx942", "gfx942", "gfx90a", "gfx90a,gfx942,"},
};
enum { VENDORS = sizeof vendors / sizeof vendors[0] };

static void write_compiler(const char *name) {
  ck_assert_int_eq(chmod(write_text(name, compiler_script), 0755), 0);
}

static void set_up(void) {
  scratch_make();
  write_compiler("compiler");
  write_text("version", "13.0");
  write_text("calls", "");
}

/* Builds the objects of one module of kernels and of the driver with `settings`; how often it called the compiler. */
__attribute__((format(printf, 3, 4))) static int compilations(const struct vendor *v, const char *variant,
                                                              const char *format, ...) {
  char command[8 * PATH_MAX], settings[2 * PATH_MAX];
  size_t length;
  va_list arguments;
  int n = 0;
  va_start(arguments, format);
  vsnprintf(settings, sizeof settings, format, arguments);
  va_end(arguments);
  write_text("calls", "");
  snprintf(command, sizeof command,
           "unset MAKEFLAGS MFLAGS MAKELEVEL %s %s; make -s GPU_IMAGES=%s/kernels BUILD=%s/%s %s"
           " %s/%s/obj/plugins/%s/activation.image.o %s/%s/obj/plugins/%s/%s.o",
           v->compiler, v->archs, scratch, scratch, variant, settings, scratch, variant, v->name, scratch, variant,
           v->name, v->driver);
  int status = system(command);
  ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s\ngave status %d", command, status);
  char *calls = (char *)read_file(in_scratch("calls"), &length);
  for (size_t i = 0; i < length; i++)
    n += calls[i] == '\n';
  free(calls);
  return n;
}

/* The vendor's compiler and architectures, as compilations() wants them. */
#define WITH(v, archs_) "%s=%s/%s %s='%s'", (v)->compiler, scratch, "compiler", (v)->archs, archs_

static bool object_has(const struct vendor *v, const char *variant, const char *object, const char *text) {
  char name[128];
  size_t length;
  snprintf(name, sizeof name, "%s/obj/plugins/%s/%s.o", variant, v->name, object);
  unsigned char *bytes = read_file(in_scratch(name), &length);
  bool has = memmem(bytes, length, text, strlen(text)) != NULL;
  free(bytes);
  return has;
}

/* Whether the kernels that are embedded are for both architectures, and whether the plugin says so. */
static void assert_built_for_both(const struct vendor *v, const char *variant, bool both) {
  ck_assert_int_eq(object_has(v, variant, "activation.image", v->of_both), both);
  if (v->said_both)
    ck_assert_int_eq(object_has(v, variant, v->driver, v->said_both), both);
}

START_TEST(kernels_are_compiled_anew_when_the_architectures_change_and_not_otherwise) {
  const struct vendor *v = &vendors[_i];
  ck_assert_int_eq(compilations(v, "build", WITH(v, v->both)), 1);
  assert_built_for_both(v, "build", true);
  ck_assert_int_eq(compilations(v, "build", WITH(v, v->both)), 0);
  ck_assert_int_eq(compilations(v, "build", WITH(v, v->one)), 1);
  assert_built_for_both(v, "build", false);
  ck_assert_int_eq(compilations(v, "build", WITH(v, v->one)), 0);
  ck_assert_int_eq(compilations(v, "build", WITH(v, v->both)), 1);
  assert_built_for_both(v, "build", true);
}
END_TEST

START_TEST(kernels_are_compiled_anew_by_another_compiler) {
  const struct vendor *v = &vendors[_i];
  write_compiler("other");
  ck_assert_int_eq(compilations(v, "build", WITH(v, v->both)), 1);
  ck_assert_int_eq(compilations(v, "build", "%s=%s/other %s='%s'", v->compiler, scratch, v->archs, v->both), 1);
  ck_assert_int_eq(compilations(v, "build", "%s=%s/other %s='%s'", v->compiler, scratch, v->archs, v->both), 0);
}
END_TEST

START_TEST(kernels_are_compiled_anew_by_another_release_of_cudas_compiler) {
  const struct vendor *v = &vendors[0];
  ck_assert_int_eq(compilations(v, "build", WITH(v, v->both)), 1);
  write_text("version", "13.1");
  ck_assert_int_eq(compilations(v, "build", WITH(v, v->both)), 1);
}
END_TEST

START_TEST(variants_of_the_build_share_the_compiled_kernels) {
  const struct vendor *v = &vendors[_i];
  ck_assert_int_eq(compilations(v, "build", WITH(v, v->both)), 1);
  ck_assert_int_eq(compilations(v, "asan", WITH(v, v->both)), 0);
  assert_built_for_both(v, "asan", true);
  ck_assert_int_eq(compilations(v, "build", WITH(v, v->both)), 0);
  ck_assert_int_eq(compilations(v, "asan", WITH(v, v->one)), 1);
  ck_assert_int_eq(compilations(v, "build", WITH(v, v->one)), 0);
  assert_built_for_both(v, "asan", false);
  assert_built_for_both(v, "build", false);
}
END_TEST

/* `sudo make install` does not find what `make` found; GPU_…_COMPILER is empty then. */
START_TEST(a_compiler_that_is_not_in_the_path_unmakes_nothing_and_one_that_is_named_does) {
  const struct vendor *v = &vendors[_i];
  ck_assert_int_eq(compilations(v, "build", WITH(v, v->both)), 1);
  ck_assert_int_eq(compilations(v, "build", "GPU_%s_COMPILER=", v->name), 0);
  assert_built_for_both(v, "build", true);
  ck_assert_int_eq(compilations(v, "build", "%s=%s/none", v->compiler, scratch), 0);
  assert_built_for_both(v, "build", false);
  ck_assert_int_eq(compilations(v, "build", WITH(v, v->both)), 0); /* the kernels themselves are there still */
  assert_built_for_both(v, "build", true);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, scratch_remove);
  tcase_add_loop_test(tests, kernels_are_compiled_anew_when_the_architectures_change_and_not_otherwise, 0, VENDORS);
  tcase_add_loop_test(tests, kernels_are_compiled_anew_by_another_compiler, 0, VENDORS);
  tcase_add_test(tests, kernels_are_compiled_anew_by_another_release_of_cudas_compiler);
  tcase_add_loop_test(tests, variants_of_the_build_share_the_compiled_kernels, 0, VENDORS);
  tcase_add_loop_test(tests, a_compiler_that_is_not_in_the_path_unmakes_nothing_and_one_that_is_named_does, 0, VENDORS);
}

int main(void) {
  return run_suite("gpu_build", add_tests, 60);
}
