/* Ranks with a device each: see device_ranks.h. */
#include "tests/device_ranks.h"

#include "tests/scratch.h"
#include "tests/tasks.h"

#include <dlfcn.h>
#include <time.h>
#include <unistd.h>

fl_host *ranks_host;
double ranks_timeout;

/* -------------------------------------------------------------------------------------------------------- library */

static void *library;

void library_open(const char *path) {
  library = dlopen(built(path), RTLD_NOW | RTLD_LOCAL);
  ck_assert_msg(library != NULL, "%s", library ? "" : dlerror());
}

void library_find(const char *name, void *function) {
  void *address = dlsym(library, name);
  ck_assert_msg(address != NULL, "the stand-in has no %s", name);
  memcpy(function, &address, sizeof address);
}

void library_set(const char *name, int value) {
  bool (*change)(const char *, int);
  library_find("flhost_stand_in_nccl_set", &change);
  ck_assert(change(name, value));
}

int library_calls(int kind) {
  int (*number_of)(int);
  library_find("flhost_stand_in_nccl_calls", &number_of);
  return number_of(kind);
}

int library_comms(void) {
  int (*living)(void);
  library_find("flhost_stand_in_nccl_comms", &living);
  return living();
}

/* ---------------------------------------------------------------------------------------------------------- ranks */

/* Starting threads does not count among the time that they have for joining. */
static pthread_barrier_t started;

static void *be_rank(void *of) {
  worker *w = of;
  const fl_group_options options = {
      .size = sizeof options, .name = "tp", .device = w->device, .timeout = ranks_timeout, .any_manifest = 1};
  fl_group *group;
  pthread_barrier_wait(&started);
  w->joined = fl_group_create(ranks_host, w->id, w->rank, w->ranks, &options, &group);
  snprintf(w->words, sizeof w->words, "%s", w->joined ? fl_error_message() : "");
  if (w->joined)
    return NULL;
  w->body(ranks_host, group);
  fl_group_destroy(group);
  return NULL;
}

void run_device_ranks(worker *workers, const char *communicator, int32_t device_type, int32_t ranks, int32_t first,
                      int32_t step, rank_body body) {
  static fl_group_id id;
  ck_ok(fl_group_make_id(ranks_host, device_type, &id));
  ck_assert_str_eq(id.communicator, communicator);
  ck_assert_int_eq(pthread_barrier_init(&started, NULL, (unsigned)ranks), 0);
  for (int32_t i = 0; i < ranks; i++) {
    workers[i] = (worker){.id = &id, .rank = i, .ranks = ranks, .device = first + i * step, .body = body};
    ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, be_rank, &workers[i]), 0);
  }
  for (int32_t i = 0; i < ranks; i++)
    pthread_join(workers[i].thread, NULL);
  pthread_barrier_destroy(&started);
}

void as_device_ranks(const char *communicator, int32_t device_type, int32_t ranks, rank_body body) {
  worker workers[MOST_RANKS];
  run_device_ranks(workers, communicator, device_type, ranks, 1, 1, body);
  for (int32_t i = 0; i < ranks; i++)
    ck_assert_msg(!workers[i].joined, "rank %d: %s", i, workers[i].words);
}

/* ------------------------------------------------------------------------------------------------------- too late */

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static fl_status join(const fl_group_id *id, int32_t rank, int32_t ranks, double limit, fl_group **group) {
  const fl_group_options options = {
      .size = sizeof options, .name = "tp", .device = 1 + rank, .timeout = limit, .any_manifest = 1};
  return fl_group_create(ranks_host, id, rank, ranks, &options, group);
}

void join_without_others(const char *title, int32_t device_type, int32_t ranks, double limit, bool left) {
  enum { SOON_S = 20 };
  char words[512];
  fl_group_id id;
  fl_group *group = NULL;
  ck_ok(fl_group_make_id(ranks_host, device_type, &id));
  double begun = now();
  ck_assert_int_eq(join(&id, 0, ranks, limit, &group), FL_EDEVICE);
  ck_assert(now() - begun >= limit && now() - begun < SOON_S);
  snprintf(words, sizeof words,
           "joining of group 'tp', rank 0 of %d, by communicator '%s': rank 0 waited %g seconds, and not all of the %d "
           "ranks have come; %s does not say which is missing%s",
           (int)ranks, id.communicator, limit, (int)ranks, title,
           left ? ", cannot be told to stop, and is left waiting in a thread" : "");
  ck_assert_str_eq(fl_error_message(), words);
  check_threads("flhost ranks", 0);
  check_threads("flhost joining", left);
  if (!left || ranks != 2)
    return;
  ck_ok(join(&id, 1, 2, SOON_S, &group));
  check_threads("flhost joining", 0);
  fl_group_destroy(group);
  ck_assert_int_eq(library_comms(), 0);
}

/* -------------------------------------------------------------------------------------------------------- numbers */

float *numbers(fl_group *group, size_t n, float value) {
  float *made, *image = malloc(n * sizeof *image);
  DLDevice device = fl_group_device(group);
  for (size_t i = 0; i < n; i++)
    image[i] = value;
  ck_ok(fl_device_allocate(ranks_host, device, n * sizeof *image, (void **)&made));
  ck_ok(fl_device_copy(ranks_host, device, made, image, n * sizeof *image, FL_COPY_TO_DEVICE, NULL));
  free(image);
  return made;
}

float number(fl_group *group, const float *memory, size_t i) {
  float read;
  ck_ok(fl_device_copy(ranks_host, fl_group_device(group), &read, memory + i, sizeof read, FL_COPY_TO_HOST, NULL));
  return read;
}

void give_back(fl_group *group, float *memory) {
  ck_ok(fl_device_free(ranks_host, fl_group_device(group), memory));
}

/* ----------------------------------------------------------------------------------------------------------- list */

const fl_communicator_info *find_communicator(const fl_communicators *list, const char *name) {
  for (uint32_t i = 0; i < list->n; i++)
    if (!strcmp(fl_communicator_at(list, i)->name, name))
      return fl_communicator_at(list, i);
  ck_abort_msg("there is no communicator '%s'", name);
  return NULL;
}

const char *communicator_reason(const char *name) {
  static char words[2048];
  fl_communicators *list;
  ck_ok(fl_get_communicators(ranks_host, &list));
  const fl_communicator_info *info = find_communicator(list, name);
  snprintf(words, sizeof words, "%s", info->reason);
  ck_assert_int_eq(info->available, !*words);
  fl_communicators_free(list);
  return words;
}
