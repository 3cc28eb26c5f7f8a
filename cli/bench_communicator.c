/*
 * flhost bench communicator: time and bandwidth of collectives by size, over the ranks that somebody started with this
 * command. What is counted is as in NCCL-tests: `size` is that of the larger buffer, and the bus bandwidth is what the
 * wire between two ranks would carry if the best algorithm were used, so that it can be compared over numbers of ranks.
 * Beside them memcpy of as many bytes by one thread.
 */
#include "cli/bench_measure.h"
#include "cli/communicators.h"
#include "cli/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST = 4, MOST_BYTES = 16 << 20, STEP = 8 };

static double now(void) {
  return bench_now() * 1e-9;
}

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

/* What is timed. */
static const struct timed {
  int32_t kind;
  bool whole;              /* the larger buffer has a part of `count` for each rank */
  double (*bus)(double n); /* what of the size goes over the wire, with n ranks */
} timed[] = {
    {FL_ALL_REDUCE, false, bus_of_all_reduce}, {FL_ALL_GATHER, true, bus_of_parts},
    {FL_REDUCE_SCATTER, true, bus_of_parts},   {FL_BROADCAST, false, bus_of_one},
    {FL_ALL_TO_ALL, true, bus_of_parts},       {FL_SEND, false, bus_of_one},
};
enum { N_TIMED = sizeof timed / sizeof *timed };

/* What is timed with. */
typedef struct bench {
  fl_host *host;
  fl_group *group;
  DLDevice device;
  int32_t rank, ranks;
  char *send, *recv; /* MOST_BYTES each, on the device */
  double seconds;
  json_t *rows;
  cli_table table;
} bench;

/* From rank 0 to rank 1 and back: half of it is one way. */
static fl_status there_and_back(bench *b, int64_t count, DLDataType dtype) {
  fl_status status = FL_OK;
  int32_t other = 1 - b->rank;
  for (int turn = 0; turn < 2 && !status && b->rank < 2 && b->ranks > 1; turn++)
    status = (turn == 0) == (b->rank == 0) ? fl_send(b->group, b->send, count, dtype, other, NULL)
                                           : fl_recv(b->group, b->recv, count, dtype, other, NULL);
  return status;
}

static fl_status make(bench *b, const struct timed *what, int64_t count) {
  const DLDataType float32 = {kDLFloat, 32, 1};
  if (what->kind == FL_SEND)
    return there_and_back(b, count, float32);
  fl_collective c = fl_collective_of((fl_collective_kind)what->kind, b->send, b->recv, count, float32, NULL);
  return fl_collective_run(b->group, &c);
}

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
  double start = now();
  for (int64_t i = 0; i < n && !status; i++)
    status = make(b, what, count);
  if (!status)
    status = fl_device_synchronize(b->host, b->device, NULL, true);
  *seconds = now() - start;
  return status ? status : greatest(b, seconds);
}

/* Seconds of one: the best of three times as many as fit into a third of what is given. */
static fl_status time_one(bench *b, const struct timed *what, int64_t count, double *best) {
  double seconds = 0;
  fl_status status = take_time(b, what, count, 3, &seconds);
  double fit = b->seconds / 3 / (seconds / 3 + 1e-9);
  int64_t n = fit < 1 ? 1 : fit > 100000 ? 100000 : (int64_t)fit;
  *best = 0;
  for (int i = 0; i < 3 && !status; i++) {
    status = take_time(b, what, count, n, &seconds);
    if (!*best || seconds / (double)n < *best)
      *best = seconds / (double)n;
  }
  if (what->kind == FL_SEND)
    *best /= 2;
  return status;
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
      double start = now();
      for (int64_t j = 0; j < n; j++) {
        memcpy(to, from, size);
        __asm__ volatile("" ::"r"(to) : "memory");
      }
      double rate = (double)size * (double)n / (now() - start);
      best = rate > best ? rate : best;
    }
  }
  free(from);
  free(to);
  return best;
}

static const char *name_of(int32_t kind) {
  return kind == FL_SEND ? "send, recv" : fl_collective_name(kind);
}

static void add_row(bench *b, const struct timed *what, size_t size, double seconds, double copy) {
  double rate = (double)size / seconds, bus = rate * what->bus(b->ranks);
  cli_table_add(&b->table, name_of(what->kind));
  cli_table_format(&b->table, "%zu", size);
  cli_table_format(&b->table, "%.2f", seconds * 1e6);
  cli_table_format(&b->table, "%.2f", rate / 1e9);
  cli_table_format(&b->table, "%.2f", bus / 1e9);
  cli_table_format(&b->table, "%.2f", copy / 1e9);
  cli_table_format(&b->table, "%.2f", rate / copy);
  b->rows = cli_json_append(b->rows, json_pack("{s:s, s:I, s:f, s:f, s:f, s:f}", "collective", name_of(what->kind),
                                               "bytes", (json_int_t)size, "seconds", seconds, "bytes_per_s", rate,
                                               "bus_bytes_per_s", bus, "memcpy_bytes_per_s", copy));
}

static fl_status time_all(bench *b) {
  fl_status status = FL_OK;
  for (size_t i = 0; i < N_TIMED; i++)
    for (size_t size = LEAST << 10; size <= MOST_BYTES && !status; size *= STEP) {
      size_t parts = timed[i].whole ? (size_t)b->ranks : 1;
      int64_t count = (int64_t)(size / sizeof(float) / parts);
      double seconds;
      status = time_one(b, &timed[i], count, &seconds);
      if (!status && !b->rank)
        add_row(b, &timed[i], (size_t)count * parts * sizeof(float), seconds, copy_bandwidth(size));
    }
  return status;
}

static int print(bench *b, bool json) {
  if (json) {
    cli_table_free(&b->table);
    return cli_print_json(json_pack("{s:o, s:i, s:s, s:o}", "communicator",
                                    cli_json_string(fl_group_communicator(b->group)), "ranks", (int)b->ranks, "device",
                                    cli_device_name((int32_t)b->device.device_type), "rows", json_incref(b->rows)));
  }
  printf("communicator '%s', %d ranks, device %s, float32\n\n", fl_group_communicator(b->group), b->ranks,
         cli_device_name((int32_t)b->device.device_type));
  return cli_table_print(&b->table);
}

int cli_bench_communicator(fl_host *host, int32_t device_type, double seconds, bool json) {
  static const char *const headers[] = {"COLLECTIVE", ">BYTES",       ">US",       ">GB/S",
                                        ">BUS GB/S",  ">MEMCPY GB/S", ">X MEMCPY", NULL};
  bench b = {.host = host, .seconds = seconds, .rows = json_array()};
  fl_status status = fl_group_create_launched(host, device_type, NULL, &b.group);
  if (status) {
    json_decref(b.rows);
    return cli_fail(status);
  }
  b.device = fl_group_device(b.group);
  b.rank = fl_group_rank(b.group);
  b.ranks = fl_group_ranks(b.group);
  cli_table_begin(&b.table, headers, 0);
  status = fl_device_allocate(host, b.device, MOST_BYTES, (void **)&b.send);
  if (!status)
    status = fl_device_allocate(host, b.device, MOST_BYTES, (void **)&b.recv);
  if (!status && b.device.device_type == kDLCPU) {
    memset(b.send, 0, MOST_BYTES);
    memset(b.recv, 0, MOST_BYTES);
  }
  if (!status)
    status = time_all(&b);
  int exit_status = status ? cli_fail(status) : b.rank ? EXIT_OK : print(&b, json);
  if (status || b.rank)
    cli_table_free(&b.table);
  json_decref(b.rows);
  fl_device_free(host, b.device, b.send);
  fl_device_free(host, b.device, b.recv);
  fl_group_destroy(b.group);
  return exit_status;
}
