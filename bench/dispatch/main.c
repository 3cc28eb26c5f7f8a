/*
 * dispatch [--quick] [--json FILE]: what dispatching costs, each figure as a ratio to or difference from something
 * measured beside it in the same run. Prints tables and writes a report (FLHOST_BUILD/bench/dispatch.json). --quick
 * only goes through everything; its figures mean nothing. The method is in bench/README.md.
 */
#include "bench/dispatch/dispatch.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const bench_effort thorough = {4001, 1.0, 20e3, 200e3, 10}, quick = {5, 0.05, 1e3, 5e3, 10};

/* In the order in which they are made; the child processes of the last start from a small one. */
static const struct {
  const char *name;
  fl_status (*measure)(bench *b);
} groups[] = {{"calls", bench_calls},
              {"linked with the archive", bench_archive},
              {"argument checks", bench_checks},
              {"call path", bench_path},
              {"resolving", bench_resolving},
              {"start", bench_start},
              {"many ops", bench_many},
              {"peers", bench_peers}};

static fl_status measure(bench *b) {
  fl_status status = FL_OK;
  for (size_t i = 0; i < sizeof groups / sizeof groups[0] && !status; i++) {
    status = groups[i].measure(b);
    if (status)
      fprintf(stderr, "dispatch: %s: %s: %s\n", groups[i].name, fl_status_name(status), fl_error_message());
  }
  return status;
}

/* For the program that measures another kind of linking: six numbers. */
static int measure_handle(const bench_effort *effort) {
  bench_pair pair;
  bench_pin();
  fl_status status = bench_handle(effort, &pair);
  if (status)
    fprintf(stderr, "dispatch: %s: %s\n", fl_status_name(status), fl_error_message());
  else
    printf("%.4f %.4f %.4f %.4f %.4f %.4f\n", pair.subject.median, pair.subject.minimum, pair.baseline.median,
           pair.baseline.minimum, pair.difference.median, pair.difference.minimum);
  return status ? 1 : 0;
}

int main(int argc, char **argv) {
  bench b = {.effort = thorough};
  char default_file[PATH_MAX];
  const char *file = default_file;
  b.build = getenv("FLHOST_BUILD") ? getenv("FLHOST_BUILD") : "build";
  snprintf(default_file, sizeof default_file, "%s/bench/dispatch.json", b.build);
  if (argc > 1 && !strcmp(argv[1], "--child"))
    return bench_start_child(argc - 2, argv + 2);
  if (argc > 1 && !strcmp(argv[1], "--handle"))
    return measure_handle(argc > 2 && !strcmp(argv[2], "--quick") ? &quick : &thorough);
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "--quick")) {
      b.quick = true;
      b.effort = quick;
    } else if (!strcmp(argv[i], "--json") && i + 1 < argc) {
      file = argv[++i];
    } else {
      fprintf(stderr, "usage: dispatch [--quick] [--json FILE]\n");
      return 2;
    }
  }
  b.n_processors = bench_pin();
  if (!bench_make_home(&b))
    return 1;
  fl_status status = measure(&b);
  bench_remove_home(&b);
  if (status)
    return 1;
  json_t *report = bench_report(&b);
  bench_print(report);
  bool written = !json_dump_file(report, file, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
  json_decref(report);
  if (!written)
    fprintf(stderr, "dispatch: cannot write %s\n", file);
  return written ? 0 : 1;
}
