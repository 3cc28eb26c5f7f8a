/*
 * Four implementations of the vendor NAME, each of which writes a byte into the file $TEST_ASKED when it is asked
 * whether it is available, and then does ANSWER: crashes, hangs or says yes. Two are of relu2, for tensors on the
 * processor and on CUDA devices from sm_80 on; two of ops of the plugin's own, of which one has a reference.
 */
#include <fcntl.h>
#include <flhost/plugin.h>
#include <stdlib.h>
#include <unistd.h>

FL_PLUGIN(NAME, "1", "Test", "MIT", "");

enum { CRASHES, HANGS, COUNTS };

static bool is_available(void *self, const char **reason) {
  const char *path = getenv("TEST_ASKED");
  int file = open(path ? path : "", O_WRONLY | O_APPEND | O_CREAT, 0600);
  (void)self, (void)reason;
  if (file < 0 || write(file, "?", 1) != 1 || close(file) || ANSWER == CRASHES)
    abort();
  while (ANSWER == HANGS)
    pause();
  return true;
}

static fl_status run(void *self, fl_call *call) {
  call->values[call->count - 1] = fl_string(self);
  return FL_OK;
}

static fl_status fail(void *self, fl_call *call) {
  (void)self;
  return fl_fail(call, FL_EINTERNAL, "not meant to be called");
}

#define ROW(op_, id_)    .size = sizeof(fl_impl), .op_name = (op_), .impl_id = (id_), .self = (id_)
#define VENDOR(op_, id_) ROW(op_, id_), .kind = FL_KIND_VENDOR, .vendor = NAME, .is_available = is_available

fl_status register_builtins(fl_registry *registry) {
  static const fl_op_def ops[] = {{.size = sizeof(fl_op_def), .schema = "asked_both() -> str out"},
                                  {.size = sizeof(fl_op_def), .schema = "asked_only() -> str out"}};
  static const fl_impl impls[] = {
      {ROW("asked_both", "reference.asked"), .kind = FL_KIND_REFERENCE, .devices = FL_DEVICE_ANY, .fn = run},
      {VENDOR("asked_both", "vendor." NAME), .devices = FL_DEVICE_ANY, .fn = run},
      {VENDOR("asked_only", "vendor." NAME), .devices = FL_DEVICE_ANY, .fn = run},
      {VENDOR("relu2", "vendor." NAME), .devices = FL_DEVICE(kDLCPU), .fn = fail},
      {VENDOR("relu2", "vendor." NAME "_card"), .devices = FL_DEVICE(kDLCUDA), .min_arch = "sm_80", .fn = fail},
  };
  fl_status status = FL_OK;
  for (size_t i = 0; !status && i < sizeof ops / sizeof *ops; i++)
    status = registry->register_op(registry, &ops[i]);
  for (size_t i = 0; !status && i < sizeof impls / sizeof *impls; i++)
    status = registry->register_impl(registry, &impls[i]);
  return status;
}
