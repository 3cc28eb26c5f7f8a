/*
 * A plugin with FL_PLUGIN_OPS. What it lists (OPS) and what it registers (REGISTERS, string literals) are apart, so
 * that they can differ; an op whose name begins with "lazy_" is defined by it, any other is the host's.
 */
#include <flhost/plugin.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

FL_PLUGIN(NAME, "1", "Test", "MIT", "");

#ifdef HUGE_LIST
__attribute__((section(".note.flhost"), used, aligned(4))) static const struct {
  uint32_t name_size, descriptor_size, type;
  char owner[8];
  char ops[HUGE_LIST];
} list = {8, HUGE_LIST, 2, "flhost", {[0 ... HUGE_LIST - 2] = 'a'}};
#elif defined OPS
FL_PLUGIN_OPS(OPS);
#endif

/* SAYS: the vendor that the file names; it registers for VENDOR. */
#ifdef SAYS
FL_PLUGIN_VENDOR(SAYS);
#endif
#ifdef SAYS_TOO
FL_PLUGIN_TEXT_NOTE(vendor_note, 5, SAYS_TOO);
#endif
#ifndef VENDOR
#define VENDOR NAME
#endif
#ifndef KIND
#define KIND FL_KIND_VENDOR
#endif

/* SIGNS: of the platform PLATFORM; it brings the platform BRINGS, of that name if not said otherwise. */
#ifdef SIGNS
FL_PLUGIN_PLATFORM(PLATFORM, SIGNS);
#endif
#ifdef PLATFORM_NOTE
FL_PLUGIN_TEXT_NOTE(platform_note, 3, PLATFORM_NOTE);
#endif
#if defined PLATFORM && !defined BRINGS
#define BRINGS PLATFORM
#endif

#ifndef PRIORITY
#define PRIORITY 0
#endif

static fl_status run(void *self, fl_call *call) {
  (void)self;
  call->values[call->count - 1] = fl_string(NAME);
  return FL_OK;
}

#ifdef BRINGS
static bool is_active(void *self, const char **reason) {
  (void)self;
  *reason = "its device is asleep";
  return getenv("LAZY_PLATFORM") != NULL;
}

static fl_status add_platform(fl_registry *registry) {
  static const fl_platform platform = {.size = sizeof platform, .device_type = kDLExtDev, .is_active = is_active};
  const fl_component component = {.size = sizeof component, .type = "platform", .name = BRINGS, .functions = &platform};
  return registry->register_component(registry, &component);
}
#else
static fl_status add_platform(fl_registry *registry) {
  (void)registry;
  return FL_OK;
}
#endif

#ifdef ENDS_THREAD_AT_START
__attribute__((constructor)) static void start(void) {
  pthread_exit(NULL);
}
#endif

#ifdef SLOW_START
__attribute__((constructor)) static void start(void) {
  usleep(SLOW_START);
}
#endif

static fl_status add(fl_registry *registry, const char *name) {
  char schema[64] = "";
  fl_impl impl = {.size = sizeof impl,
                  .op_name = name,
                  .impl_id = "vendor." NAME,
                  .kind = KIND,
                  .vendor = VENDOR,
                  .priority = PRIORITY,
                  .devices = FL_DEVICE(kDLCPU),
                  .fn = run};
  fl_op_def op = {.size = sizeof op, .schema = strcat(strcat(schema, name), "() -> str out")};
  fl_status status = strncmp(name, "lazy_", 5) ? FL_OK : registry->register_op(registry, &op);
  return status ? status : registry->register_impl(registry, &impl);
}

fl_status register_builtins(fl_registry *registry) {
  static const char *const names[] = {REGISTERS};
  fl_status status = add_platform(registry);
  registry->log(registry, FL_LOG_INFO, "registers");
#ifdef FORKS /* as one that asks a driver in another process */
  pid_t child = fork();
  if (!child)
    exit(0);
  waitpid(child, NULL, 0);
#endif
#ifdef EXITS
  exit(0);
#endif
#ifdef ENDS_THREAD
  pthread_exit(NULL);
#endif
#ifdef POOR /* the first time */
  static int times;
  if (!times++)
    return FL_ENOMEM;
#endif
#ifdef SLOW
  usleep(SLOW);
#endif
#ifdef LAYER
  fl_component layer = {.size = sizeof layer, .type = "layer", .name = LAYER, .functions = "relu2"};
  status = registry->register_component(registry, &layer);
#endif
  for (size_t i = 0; i < sizeof names / sizeof *names && !status; i++)
    status = add(registry, names[i]);
#ifdef FAILS
  registry->error(registry, "no licence");
  status = FL_EINTERNAL;
#endif
  return status;
}
