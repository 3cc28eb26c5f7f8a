/*
 * Prints the FL_PLUGIN_OPS of the plugin that it is linked with, as a C file: the ops of everything that
 * register_builtins hands over. So a backend's own tables are the only place where its ops are named.
 */
#include <flhost/plugin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct list {
  fl_registry registry; /* first */
  char names[1024][FL_NAME_MAX + 1];
  size_t n;
} list;

/* `name` ends at its end, or where a schema's arguments begin. */
static fl_status add(fl_registry *registry, const char *name) {
  list *ops = (list *)registry;
  size_t length = strcspn(name, "("), i = 0;
  while (i < ops->n && (strncmp(ops->names[i], name, length) || ops->names[i][length]))
    i++;
  if (i < ops->n)
    return FL_OK;
  if (length > FL_NAME_MAX || ops->n == sizeof ops->names / sizeof ops->names[0])
    return FL_EINVAL;
  memcpy(ops->names[ops->n++], name, length);
  return FL_OK;
}

static fl_status add_op(fl_registry *registry, const fl_op_def *op) {
  return add(registry, op->schema);
}

static fl_status add_impl(fl_registry *registry, const fl_impl *impl) {
  return add(registry, impl->op_name);
}

static fl_status pass_component(fl_registry *registry, const fl_component *component) {
  (void)registry, (void)component;
  return FL_OK;
}

static void report(fl_registry *registry, const char *message) {
  (void)registry;
  fprintf(stderr, "%s\n", message);
}

static void report_line(fl_registry *registry, int level, const char *message) {
  (void)level;
  report(registry, message);
}

int main(void) {
  list *ops = calloc(1, sizeof *ops);
  if (!ops)
    return EXIT_FAILURE;
  ops->registry = (fl_registry){.size = sizeof ops->registry,
                                .abi_major = FL_ABI_MAJOR,
                                .abi_minor = FL_ABI_MINOR,
                                .register_op = add_op,
                                .register_impl = add_impl,
                                .register_component = pass_component,
                                .error = report,
                                .log = report_line};
  fl_status status = register_builtins(&ops->registry);
  printf("#include <flhost/plugin.h>\n\nFL_PLUGIN_OPS(\"");
  for (size_t i = 0; i < ops->n; i++)
    printf("%s%s", i ? ",\"\n              \"" : "", ops->names[i]);
  printf("\");\n");
  free(ops);
  if (status)
    fprintf(stderr, "register_builtins returned %d\n", (int)status);
  return status || fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
}
