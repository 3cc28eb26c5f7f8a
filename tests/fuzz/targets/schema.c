/* An op that somebody brings: schema, rules, cases, sizes to bench and what ranks do with it, a line each; then calls
 * by them. */
#include <flhost/flhost.h>
#include <flhost/testing.h>

#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

enum { NUMBERS = 4 };

static void quiet(void *user, int level, const char *line) {
  (void)user, (void)level, (void)line;
}

static fl_host *new_host(void) {
  static const char *const none[] = {NULL};
  fl_host_options options = {
      .size = sizeof options, .flags = FL_HOST_NO_PLUGINS, .environment = none, .platform = "cpu", .log = quiet};
  fl_host *host = NULL;
  if (fl_host_create(&options, &host))
    fuzz_broken("no host: %s", fl_error_message());
  return host;
}

/* The name before the first bracket of a schema that is in order. */
static fl_op *find_op(fl_host *host, const char *schema) {
  size_t blank = strspn(schema, " \t"), length = strcspn(schema + blank, "( \t");
  char *name = strndup(schema + blank, length);
  fl_op *op = fl_find_op(host, name);
  if (!op)
    fuzz_broken("the op %s was registered and is not there: %s", name, fl_error_message());
  free(name);
  return op;
}

static void generate(const fl_op *op) {
  uint32_t n = fl_op_argument_count(op);
  fl_input *inputs = calloc(n + 1, sizeof *inputs);
  if (!inputs)
    fuzz_broken("out of memory");
  for (uint64_t number = 0; number < NUMBERS; number++) {
    fl_generate_inputs(op, 0, 1, number, inputs, n, sizeof *inputs);
    fl_generate_bench_inputs(op, 0, NULL, (uint32_t)number, inputs, n, sizeof *inputs, NULL);
  }
  free(inputs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const char *lines[6];
  fuzz_split(data, size, lines, 5);
  fl_op_def def = {.size = sizeof def,
                   .schema = lines[0],
                   .rules = lines[1],
                   .cases = lines[2],
                   .bench = lines[3],
                   .ranks = lines[4]};
  fl_host *host = new_host(), *other = new_host();
  if (!fl_register_op(host, &def)) {
    const fl_op *op = find_op(host, def.schema);
    generate(op);
    /* The canonical text is another spelling of the same op. */
    fl_op_def canonical = {.size = sizeof def, .schema = fl_op_schema(op), .rules = lines[1], .ranks = lines[4]};
    if (fl_register_op(other, &canonical))
      fuzz_broken("%s is canonical, but: %s", canonical.schema, fl_error_message());
    if (strcmp(fl_op_schema(find_op(other, canonical.schema)), canonical.schema) != 0)
      fuzz_broken("%s has another canonical text", canonical.schema);
  } else if (!*fl_error_message()) {
    fuzz_broken("refused without words: %s", def.schema);
  }
  fl_host_destroy(other);
  fl_host_destroy(host);
  return 0;
}
