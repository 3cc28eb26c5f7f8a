/* Elementary functions and conversions of the CPU plugin's kernels, compiled as the plugin is for another architecture
 * than this (`make check-aarch64`): all values of 16 bits, and some floats. The summary is Check's, for tests/run. */
#include "tests/vector_math/promises.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

enum { POINTS = 100000 };

static int n_tests, n_failures;

static void end_test(bool good, const char *name, const char *words) {
  n_tests++;
  n_failures += !good;
  printf("%s %-28s %s\n", good ? "good" : "BAD ", name, words);
}

static void test_functions(const vector_function *of) {
  const vector_worst *worst = vector_worst_errors(of, POINTS);
  for (int f = 0; f < VECTOR_FUNCTIONS; f++) {
    char words[128];
    snprintf(words, sizeof words, "%.2f ulp at %.9g, at most %g", worst[f].ulps, (double)worst[f].at, worst[f].allowed);
    end_test(worst[f].ulps <= worst[f].allowed, worst[f].name, words);
  }
}

int main(int argc, char **argv) {
  const char *build = getenv("FLHOST_BUILD");
  char path[512];
  snprintf(path, sizeof path, "%s/tests/vector_math/baseline.so", argc > 1 ? argv[1] : build ? build : "build");
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  end_test(library, path, library ? "" : dlerror());
  if (library) {
    const char *wrong = vector_wrong_rounding(dlsym(library, "vector_roundings"), false);
    end_test(!wrong, "floats to 16 bits", wrong ? wrong : "");
    wrong = vector_wrong_widening(dlsym(library, "vector_widenings"));
    end_test(!wrong, "16 bits to floats", wrong ? wrong : "");
    test_functions(dlsym(library, "vector_functions"));
  }
  printf("%d%%: Checks: %d, Failures: %d, Errors: 0\n", (n_tests - n_failures) * 100 / n_tests, n_tests, n_failures);
  return n_failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
