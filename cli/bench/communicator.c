/*
 * flhost bench communicator: time and bandwidth of collectives by size, over the ranks that somebody started with this
 * command, or over threads of it. What is counted is as in NCCL-tests: `size` is that of the larger buffer, and the bus
 * bandwidth is what the wire between two ranks would carry if the best algorithm were used, so that it can be compared
 * over numbers of ranks. A message from one rank to another is timed as osu_latency does it: half of the way there and
 * back. Beside them memcpy of as many bytes by one thread.
 */
#include "cli/bench/bench.h"
#include "cli/bench/measure.h"
#include "cli/communicators.h"
#include "cli/table.h"
#include "cli/trials/clock.h"
#include "cli/trials/machine.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  LEAST_BYTES = 4,
  MOST_BYTES = 64 << 20,
  STEP = 4,
  LIMIT = 1 << 30, /* of what may be asked for */
  SIZES_MOST = 64,
  ROUNDS_MOST = 25,
  REPEATS_MOST = 100000
};

/* What is timed with. */
typedef struct bench {
  const bench_request *asked;
  fl_host *host;
  fl_group *group;
  const fl_element_type *type;
  DLDevice device;
  int32_t rank, ranks;
  size_t sizes[SIZES_MOST];  /* bytes of the larger buffer, */
  double copies[SIZES_MOST]; /* and bytes a second of memcpy, of each size */
  int n_sizes;
  char *send, *recv; /* as many bytes as the greatest size has, on the device */
  json_t *rows;
  cli_table table;
} bench;

/* ---------------------------------------------------------------------------------------------------- what is timed */

static double bus_of_all_reduce(double n) {
  return 2 * (n - 1) / n;
}

static double bus_of_parts(double n) {
  return (n - 1) / n;
}

static double bus_of_one(double n) {
  (void)n;
  return 1;
}

/* Once, of `count` elements in each part. */
typedef fl_status (*make_fn)(bench *b, int32_t kind, int64_t count);

static fl_status make_collective(bench *b, int32_t kind, int64_t count) {
  fl_collective c = fl_collective_of((fl_collective_kind)kind, b->send, b->recv, count, b->type->dtype, NULL);
  if (kind == FL_REDUCE && b->rank)
    c.recv = NULL;
  if (kind == FL_BROADCAST && b->rank)
    c.send = NULL;
  return fl_collective_run(b->group, &c);
}

/* Each to the next, at the same time. */
static fl_status pass_on(bench *b, int32_t kind, int64_t count) {
  fl_collective items[] = {fl_collective_of(FL_RECV, NULL, b->recv, count, b->type->dtype, NULL),
                           fl_collective_of(FL_SEND, b->send, NULL, count, b->type->dtype, NULL)};
  (void)kind;
  items[0].root = (b->rank + b->ranks - 1) % b->ranks;
  items[1].root = (b->rank + 1) % b->ranks;
  return fl_collective_run_batch(b->group, items, 2, sizeof *items);
}

/* From rank 0 to rank 1 and back; the others have nothing to do. */
static fl_status there_and_back(bench *b, int32_t kind, int64_t count) {
  fl_status status = FL_OK;
  int32_t other = 1 - b->rank;
  (void)kind;
  for (int turn = 0; turn < 2 && !status && b->rank < 2; turn++)
    status = (turn == 0) == (b->rank == 0) ? fl_send(b->group, b->send, count, b->type->dtype, other, NULL)
                                           : fl_recv(b->group, b->recv, count, b->type->dtype, other, NULL);
  return status;
}

static const struct timed {
  const char *name;
  int32_t kind;
  bool whole;              /* the larger buffer has a part of `count` for each rank */
  int ways;                /* over the wire, of which one counts */
  double (*bus)(double n); /* what of the size goes over the wire, with n ranks; NULL: NCCL-tests does not define it */
  make_fn make;
  int32_t least_ranks;
} timed[] = {
    {"all_reduce", FL_ALL_REDUCE, false, 1, bus_of_all_reduce, make_collective, 1},
    {"all_gather", FL_ALL_GATHER, true, 1, bus_of_parts, make_collective, 1},
    {"reduce_scatter", FL_REDUCE_SCATTER, true, 1, bus_of_parts, make_collective, 1},
    {"all_to_all", FL_ALL_TO_ALL, true, 1, bus_of_parts, make_collective, 1},
    {"broadcast", FL_BROADCAST, false, 1, bus_of_one, make_collective, 1},
    {"reduce", FL_REDUCE, false, 1, bus_of_one, make_collective, 1},
    {"send_recv", FL_SEND, false, 1, bus_of_one, pass_on, 2},
    {"ping_pong", FL_SEND, false, 2, NULL, there_and_back, 2},
};
enum { N_TIMED = sizeof timed / sizeof *timed };

/* ------------------------------------------------------------------------------------------------------------ sizes */

static bool add_size(bench *b, size_t size) {
  if (b->n_sizes == SIZES_MOST)
    cli_error("--dims: more than %d sizes", SIZES_MOST);
  else
    b->sizes[b->n_sizes++] = size;
  return b->n_sizes < SIZES_MOST || b->sizes[SIZES_MOST - 1] == size;
}

/* "bytes: 8 1024 65536" */
static bool parse_sizes(bench *b, const char *text) {
  static const char name[] = "bytes:";
  const char *at = text + strspn(text, " ");
  bool good = !strncmp(at, name, sizeof name - 1);
  at += good ? sizeof name - 1 : 0;
  for (at += strspn(at, " "); good && *at; at += strspn(at, " ")) {
    char *end;
    errno = 0;
    unsigned long long size = strtoull(at, &end, 10);
    good = *at >= '0' && *at <= '9' && !errno && size > 0 && size <= LIMIT && (!*end || *end == ' ');
    if (good && !add_size(b, (size_t)size))
      return false;
    at = end;
  }
  if (!good || !b->n_sizes)
    cli_error("--dims: '%s' is not like 'bytes: 8 1024 1048576', of numbers from 1 to %d", text, LIMIT);
  return good && b->n_sizes;
}

static bool choose_sizes(bench *b) {
  if (b->asked->sizes && !parse_sizes(b, b->asked->sizes))
    return false;
  for (size_t size = LEAST_BYTES; !b->asked->sizes && size <= MOST_BYTES; size *= STEP)
    b->sizes[b->n_sizes++] = size;
  if (b->asked->large)
    b->sizes[0] = b->sizes[b->n_sizes - 1];
  if (b->asked->large || b->asked->small)
    b->n_sizes = 1;
  return true;
}

static size_t greatest_size(const bench *b) {
  size_t greatest = 0;
  for (int i = 0; i < b->n_sizes; i++)
    greatest = b->sizes[i] > greatest ? b->sizes[i] : greatest;
  return greatest;
}

/* ----------------------------------------------------------------------------------------------------------- timing */

/* The greatest of the ranks' numbers: a collective has ended when it has for all. */
static fl_status greatest(bench *b, double *number) {
  const DLDataType float64 = {kDLFloat, 64, 1};
  bool here = b->device.device_type == kDLCPU;
  void *place = here ? (void *)number : b->recv;
  fl_status status =
      here ? FL_OK : fl_device_copy(b->host, b->device, place, number, sizeof *number, FL_COPY_TO_DEVICE, NULL);
  if (!status)
    status = fl_all_reduce(b->group, place, place, 1, float64, FL_REDUCE_MAX, NULL);
  if (!status && !here)
    status = fl_device_copy(b->host, b->device, number, place, sizeof *number, FL_COPY_TO_HOST, NULL);
  return status;
}

/* Seconds of `n` in a row, of the slowest rank. */
static fl_status take_time(bench *b, const struct timed *what, int64_t count, int64_t n, double *seconds) {
  fl_status status = fl_barrier(b->group, NULL);
  double start = seconds_now();
  for (int64_t i = 0; i < n && !status; i++)
    status = what->make(b, what->kind, count);
  if (!status)
    status = fl_device_synchronize(b->host, b->device, NULL, true);
  *seconds = seconds_now() - start;
  return status ? status : greatest(b, seconds);
}

/* Seconds of one, over samples that all ranks take. */
typedef struct spread {
  double median, least, most;
  int samples;
} spread;

static fl_status time_one(bench *b, const struct timed *what, int64_t count, spread *taken) {
  double samples[ROUNDS_MOST], seconds = 0;
  fl_status status = take_time(b, what, count, 1, &seconds); /* pages are touched */
  if (!status)
    status = take_time(b, what, count, 3, &seconds);
  /* The same on all ranks, since `seconds` is. */
  double fit = b->asked->seconds / (seconds / 3 + 1e-9);
  taken->samples = fit < BENCH_FEWEST_ROUNDS ? BENCH_FEWEST_ROUNDS : fit > ROUNDS_MOST ? ROUNDS_MOST : (int)fit;
  double each = fit / taken->samples;
  int64_t n = each < 1 ? 1 : each > REPEATS_MOST ? REPEATS_MOST : (int64_t)each;
  for (int i = 0; i < taken->samples && !status; i++) {
    status = take_time(b, what, count, n, &seconds);
    samples[i] = seconds / (double)n / what->ways;
  }
  if (status)
    return status;
  bench_spread sorted = bench_spread_of(samples, taken->samples);
  taken->median = sorted.median;
  taken->least = sorted.minimum;
  taken->most = samples[taken->samples - 1];
  return FL_OK;
}

/* Bytes a second of memcpy. */
static double copy_bandwidth(size_t size) {
  char *from = malloc(size), *to = malloc(size);
  double best = 0;
  if (from && to) {
    memset(from, 1, size);
    memset(to, 2, size);
    for (int i = 0; i < 5; i++) {
      int64_t n = (int64_t)((64 << 20) / size) + 1;
      double start = seconds_now();
      for (int64_t j = 0; j < n; j++) {
        memcpy(to, from, size);
        __asm__ volatile("" ::"r"(to) : "memory");
      }
      double rate = (double)size * (double)n / (seconds_now() - start);
      best = rate > best ? rate : best;
    }
  }
  free(from);
  free(to);
  return best;
}

/* -------------------------------------------------------------------------------------------------------- reporting */

static void add_row(bench *b, const struct timed *what, int64_t count, const spread *taken, double copy) {
  size_t size = (size_t)count * b->type->dtype.bits / 8 * (what->whole ? (size_t)b->ranks : 1);
  double rate = (double)size / taken->median, bus = what->bus ? rate * what->bus(b->ranks) : 0;
  cli_table_add(&b->table, what->name);
  cli_table_format(&b->table, "%zu", size);
  cli_table_format(&b->table, "%.2f", taken->median * 1e6);
  cli_table_format(&b->table, "%.2f", taken->least * 1e6);
  cli_table_format(&b->table, "%.2f", taken->most * 1e6);
  cli_table_format(&b->table, "%.3f", rate / 1e9);
  if (what->bus)
    cli_table_format(&b->table, "%.3f", bus / 1e9);
  else
    cli_table_add(&b->table, "");
  cli_table_format(&b->table, "%.3f", copy / 1e9);
  cli_table_format(&b->table, "%.3f", rate / copy);
  b->rows = cli_json_append(
      b->rows, json_pack("{s:s, s:I, s:I, s:f, s:f, s:f, s:i, s:f, s:o, s:f}", "collective", what->name, "bytes",
                         (json_int_t)size, "count", (json_int_t)count, "seconds", taken->median, "least_seconds",
                         taken->least, "most_seconds", taken->most, "samples", taken->samples, "bytes_per_s", rate,
                         "bus_bytes_per_s", what->bus ? json_real(bus) : json_null(), "memcpy_bytes_per_s", copy));
}

/* Sizes in which not every rank has an element are left out. */
static fl_status time_all(bench *b) {
  fl_status status = FL_OK;
  for (int i = 0; i < b->n_sizes && !b->rank; i++)
    b->copies[i] = copy_bandwidth(b->sizes[i]);
  for (size_t t = 0; t < N_TIMED; t++)
    for (int i = 0; i < b->n_sizes && !status && b->ranks >= timed[t].least_ranks; i++) {
      size_t parts = timed[t].whole ? (size_t)b->ranks : 1;
      int64_t count = (int64_t)(b->sizes[i] / (b->type->dtype.bits / 8) / parts);
      spread taken;
      if (!count)
        continue;
      status = time_one(b, &timed[t], count, &taken);
      if (!status && !b->rank)
        add_row(b, &timed[t], count, &taken, b->copies[i]);
    }
  return status;
}

/* Seconds that ranks wait for each other, as the setting says it: without end mpi uses MPI's own collectives. */
static double limit_of_time(fl_host *host) {
  fl_settings *settings = NULL;
  double seconds = 0;
  if (fl_get_settings(host, &settings))
    return seconds;
  for (uint32_t i = 0; i < settings->n; i++)
    if (!strcmp(fl_setting_at(settings, i)->variable, "VLLM_FL_COMM_TIMEOUT_S"))
      seconds = strtod(fl_setting_at(settings, i)->value, NULL);
  fl_settings_free(settings);
  return seconds;
}

static int print(bench *b) {
  const char *device = cli_device_name((int32_t)b->device.device_type), *name = fl_group_communicator(b->group);
  if (!b->asked->json) {
    printf("communicator '%s', %d ranks, device %s, %s\n\n", name, b->ranks, device, b->type->name);
    return cli_table_print(&b->table);
  }
  cli_table_free(&b->table);
  return cli_print_json(json_pack("{s:o, s:o, s:i, s:s, s:s, s:f, s:f, s:o}", "machine", machine_json(), "communicator",
                                  cli_json_string(name), "ranks", (int)b->ranks, "device", device, "dtype",
                                  b->type->name, "timeout_s", limit_of_time(b->host), "for_seconds", b->asked->seconds,
                                  "rows", json_incref(b->rows)));
}

/* The group is there. */
static int time_and_print(bench *b) {
  static const char *const headers[] = {"COLLECTIVE", ">BYTES",    ">US",          ">LEAST US", ">MOST US",
                                        ">GB/S",      ">BUS GB/S", ">MEMCPY GB/S", ">X MEMCPY", NULL};
  size_t size = greatest_size(b);
  b->device = fl_group_device(b->group);
  b->rank = fl_group_rank(b->group);
  b->ranks = fl_group_ranks(b->group);
  b->rows = json_array();
  cli_table_begin(&b->table, headers, 0);
  fl_status status = fl_device_allocate(b->host, b->device, size, (void **)&b->send);
  if (!status)
    status = fl_device_allocate(b->host, b->device, size, (void **)&b->recv);
  if (!status && b->device.device_type == kDLCPU) {
    memset(b->send, 0, size);
    memset(b->recv, 0, size);
  }
  if (!status)
    status = time_all(b);
  int exit_status = status ? cli_fail(status) : b->rank ? EXIT_OK : print(b);
  if (status || b->rank)
    cli_table_free(&b->table);
  json_decref(b->rows);
  fl_device_free(b->host, b->device, b->send);
  fl_device_free(b->host, b->device, b->recv);
  return exit_status;
}

/* A rank that is a thread. */
typedef struct member {
  bench b;
  const fl_group_id *id;
  pthread_t thread;
  int exit_status;
} member;

static void *be_member(void *of) {
  member *m = of;
  bool is_cpu = m->b.asked->device.device_type == kDLCPU;
  const fl_group_options options = {.size = sizeof options, .device = is_cpu ? 0 : m->b.rank};
  fl_status status = fl_group_create(m->b.host, m->id, m->b.rank, m->b.ranks, &options, &m->b.group);
  m->exit_status = status ? cli_fail(status) : time_and_print(&m->b);
  fl_group_destroy(m->b.group);
  return NULL;
}

static int bench_threads(const bench *of, int32_t ranks) {
  fl_group_id id;
  int32_t started = 0;
  int exit_status = EXIT_OK;
  fl_status status = fl_group_make_id(of->host, (int32_t)of->asked->device.device_type, &id);
  if (status)
    return cli_fail(status);
  member *all = calloc((size_t)ranks, sizeof *all);
  if (!all)
    return cli_no_memory();
  for (; started < ranks; started++) {
    all[started] = (member){.b = *of, .id = &id};
    all[started].b.rank = started;
    all[started].b.ranks = ranks;
    if (pthread_create(&all[started].thread, NULL, be_member, &all[started]))
      break;
  }
  if (started < ranks) {
    cli_error("--ranks: %d of %d threads could be started", started, ranks);
    exit_status = EXIT_MISMATCH;
  }
  for (int32_t i = 0; i < started; i++) {
    pthread_join(all[i].thread, NULL);
    exit_status = all[i].exit_status ? all[i].exit_status : exit_status;
  }
  free(all);
  return exit_status;
}

int cli_bench_communicator(fl_host *host, const bench_request *asked, int32_t threads) {
  bench b = {.host = host, .asked = asked, .type = fl_element_type_of_bit(asked->dtype ? asked->dtype : FL_FLOAT32)};
  if (!choose_sizes(&b))
    return EXIT_USAGE;
  if (threads)
    return bench_threads(&b, threads);
  fl_status status = fl_group_create_launched(host, (int32_t)asked->device.device_type, NULL, &b.group);
  if (status)
    return cli_fail(status);
  int exit_status = time_and_print(&b);
  fl_group_destroy(b.group);
  return exit_status;
}
