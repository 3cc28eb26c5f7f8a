/* Streams, events, memory and graphs of a GPU plugin's platform, as its tests use them: on the stand-in drivers, and
 * where the test does not need those, on the machine's devices. */
#ifndef FLHOST_TESTS_GPU_WORK_H
#define FLHOST_TESTS_GPU_WORK_H

#include "tests/gpu.h"

#include <unistd.h>

static gpu_plugin plugin;

/* The plugins as they are installed, where there is a device. */
static const struct {
  const char *plugin, *nodes[2];
} devices[] = {{"plugins/cuda.so", {"/dev/nvidiactl", "/dev/dxg"}}, {"plugins/rocm.so", {"/dev/kfd", "/dev/kfd"}}};

enum { N_DEVICES = sizeof devices / sizeof devices[0] };

static inline bool has_device(int i) {
  return !access(devices[i].nodes[0], F_OK) || !access(devices[i].nodes[1], F_OK);
}

/* On a stand-in that behaves as `settings` say, or on a device. false: there is none. */
static inline bool set_up(int place, const char *settings) {
  if (place < GPU_SETUPS) {
    gpu_plugin_on_stand_in(&plugin, &gpu_setups[place], NULL);
    stand_in_set(settings);
    return true;
  }
  const char *reason = "the driver reports no device", *name = devices[place - GPU_SETUPS].plugin;
  gpu_plugin_open(&plugin, name);
  if (plugin.platform.is_active(plugin.self, &reason) && plugin.platform.device_count(plugin.self) > 0)
    return true;
  printf("skip: a test on a device: %s: %s\n", name, reason);
  return false;
}

static inline bool is_stand_in(int place) {
  return place < GPU_SETUPS;
}

/* A function of the platform. */
#define ask(function, ...) plugin.platform.function(plugin.self, __VA_ARGS__)

static inline const char *error_words(void) {
  return plugin.platform.error(plugin.self);
}

#define works(call)                                                                                                    \
  do {                                                                                                                 \
    fl_status got_ = (call);                                                                                           \
    ck_assert_msg(!got_, "status %d: %s", got_, error_words());                                                        \
  } while (0)

#define fails(call, expected, text)                                                                                    \
  do {                                                                                                                 \
    fl_status got_ = (call);                                                                                           \
    ck_assert_msg(got_ == (expected), "status %d, expected %d: %s", got_, (expected), got_ ? error_words() : "");      \
    ck_contains(error_words(), text);                                                                                  \
  } while (0)

/* ------------------------------------------------------------------------------------------------- memory of a test */

enum { N = 1000, BYTES = N * sizeof(int) };

static inline int *host_memory(void) {
  void *memory = NULL;
  works(ask(allocate_host, 0, BYTES, &memory));
  ck_assert_uint_eq((uintptr_t)memory % 64, 0);
  return memory;
}

static inline void *device_memory(void) {
  void *memory = NULL;
  works(ask(allocate, 0, BYTES, &memory));
  return memory;
}

static inline void *stream_of(int32_t device) {
  void *stream = NULL;
  works(ask(create_stream, device, 0, &stream));
  ck_assert_ptr_nonnull(stream);
  return stream;
}

static inline void *event_of(bool timed) {
  void *event = NULL;
  works(ask(create_event, 0, timed, &event));
  ck_assert_ptr_nonnull(event);
  return event;
}

static inline void fill_with(int *numbers, int first) {
  for (int i = 0; i < N; i++)
    numbers[i] = first + i;
}

static inline bool are_from(const int *numbers, int first) {
  for (int i = 0; i < N; i++)
    if (numbers[i] != first + i)
      return false;
  return true;
}

/* Two arrays of the host's and one of the device's, and two streams. */
static struct {
  int *from, *to;
  void *middle, *streams[2];
} s;

static inline void make_scene(void) {
  s.from = host_memory();
  s.to = host_memory();
  s.middle = device_memory();
  for (int i = 0; i < 2; i++)
    s.streams[i] = stream_of(0);
  fill_with(s.from, 1);
  fill_with(s.to, -N);
}

static inline void free_scene(void) {
  for (int i = 0; i < 2; i++)
    works(ask(destroy_stream, 0, s.streams[i]));
  works(ask(release, 0, s.middle));
  works(ask(release_host, 0, s.from));
  works(ask(release_host, 0, s.to));
}

static inline void send(void *stream) {
  works(ask(copy_async, 0, s.middle, s.from, BYTES, FL_COPY_TO_DEVICE, stream));
}

static inline void fetch(void *stream) {
  works(ask(copy_async, 0, s.to, s.middle, BYTES, FL_COPY_TO_HOST, stream));
}

static inline void await(void *stream) {
  works(ask(synchronize, 0, stream, false));
}

static inline bool is_done(void *event) {
  bool done = false;
  works(ask(is_event_done, 0, event, &done));
  return done;
}

/* On stand-ins, and on the devices that are there. */
static inline void add_everywhere(TCase *tests, const TTest *test) {
  tcase_add_loop_test(tests, test, 0, GPU_SETUPS);
  for (int i = 0; i < N_DEVICES; i++)
    if (has_device(i))
      tcase_add_loop_test(tests, test, GPU_SETUPS + i, GPU_SETUPS + i + 1);
}

#define EVERYWHERE(name)   add_everywhere(tests, name)
#define ON_STAND_INS(name) tcase_add_loop_test(tests, name, 0, GPU_SETUPS)

#endif
