/* What tests of the Ascend plugin's streams and graphs share: a fixture, and what they do things with. */
#ifndef FLHOST_TESTS_NPU_WORK_H
#define FLHOST_TESTS_NPU_WORK_H

#include "tests/npu.h"
#include "tests/scratch.h"

enum { SIZE = 64 };

#define OK(status) ck_assert_msg((status) == FL_OK, "%s", npu->error(NULL))
#define FAILS(status, expected, part)                                                                                  \
  do {                                                                                                                 \
    ck_assert_int_eq((status), (expected));                                                                            \
    ck_contains(npu->error(NULL), (part));                                                                             \
  } while (0)

static inline void set_up(void) {
  scratch_make();
}

/* Nothing is left but what a test has set. */
static inline void tear_down(void) {
  static const char *const names[] = {"queued", "streams", "events", "graphs", "host blocks"};
  for (size_t i = 0; npu_control.count && i < sizeof names / sizeof names[0]; i++)
    ck_assert_msg(npu_control.count(names[i]) == 0, "%lld %s are left; the log:\n%s",
                  (long long)npu_control.count(names[i]), names[i], npu_control.log());
  if (npu_control.count)
    npu_check_clean();
  scratch_remove();
}

/* Two streams, pinned memory and the device's, of one device. */
typedef struct bench {
  int32_t device;
  void *streams[2];
  char *host[2];
  void *memory[2];
} bench;

/* What was wrong, or NULL. Nothing asserts beside the test's own thread. */
#define STEP(status)                                                                                                   \
  do {                                                                                                                 \
    if ((status) != FL_OK)                                                                                             \
      return strdup(npu->error(NULL));                                                                                 \
  } while (0)

static inline char *make_all(bench *b) {
  for (int i = 0; i < 2; i++) {
    void *host = NULL;
    STEP(npu->create_stream(NULL, b->device, i, &b->streams[i]));
    STEP(npu->allocate_host(NULL, b->device, SIZE, &host));
    STEP(npu->allocate(NULL, b->device, SIZE, &b->memory[i]));
    b->host[i] = host;
    memset(host, 'a' + i, SIZE);
  }
  return NULL;
}

static inline char *free_all(bench *b) {
  for (int i = 0; i < 2; i++) {
    STEP(npu->destroy_stream(NULL, b->device, b->streams[i]));
    STEP(npu->release_host(NULL, b->device, b->host[i]));
    STEP(npu->release(NULL, b->device, b->memory[i]));
  }
  return NULL;
}

static inline bench open_bench(void) {
  npu_open();
  bench made = {.device = 0};
  char *wrong = make_all(&made);
  ck_assert_msg(!wrong, "%s", wrong);
  npu_control.clear();
  return made;
}

static inline void free_bench(bench *made) {
  char *wrong = free_all(made);
  ck_assert_msg(!wrong, "%s", wrong);
}

static inline void *make_event(const bench *b, bool timed) {
  void *event = NULL;
  OK(npu->create_event(NULL, b->device, timed, &event));
  ck_assert_ptr_nonnull(event);
  return event;
}

static inline fl_status copy(const bench *b, void *to, const void *from, int32_t direction, int stream) {
  return npu->copy_async(NULL, b->device, to, from, SIZE, direction, b->streams[stream]);
}

static inline void wait_for(const bench *b, int stream) {
  OK(npu->synchronize(NULL, b->device, b->streams[stream], false));
}

static inline bool is_done(void *event) {
  bool done = false;
  OK(npu->is_event_done(NULL, 0, event, &done));
  return done;
}

typedef struct gated {
  npu_tensor *x, *out;
  fl_value values[2];
} gated;

static inline gated make_gated(void) {
  gated made = {.x = npu_make((DLDataType){kDLFloat, 32, 1}, 2, (int64_t[]){2, 8}, 0),
                .out = npu_make((DLDataType){kDLFloat, 32, 1}, 2, (int64_t[]){2, 4}, 0)};
  made.values[0] = fl_tensor(&made.x->tensor);
  made.values[1] = fl_tensor(&made.out->tensor);
  return made;
}

static inline void set_gated(const gated *made, float value) {
  float data[16];
  for (int i = 0; i < 16; i++)
    data[i] = value;
  npu_write(made->x, data);
}

static inline void check_gated(const gated *made, float expected) {
  float data[8];
  npu_read(made->out, data);
  for (int i = 0; i < 8; i++)
    ck_assert_float_eq_tol(data[i], expected, 1e-5f);
}

static inline void free_gated(gated *made) {
  npu_free(made->x);
  npu_free(made->out);
}

static inline fl_status call_gated(gated *made, void *stream) {
  const fl_impl *impl = npu_find("silu_and_mul");
  fl_call call = {.size = sizeof call,
                  .count = 2,
                  .values = made->values,
                  .stream = stream,
                  .message = npu_message,
                  .message_size = sizeof npu_message};
  return impl->fn(impl->self, &call);
}

#endif
