/*
 * flhost bench: how fast implementations are, on calls of the sizes that models have. All of one call take turns, with
 * the reference and a memcpy of as many bytes among them, so that a busy machine slows all alike.
 */
#include "cli/bench/bench.h"

#include "cli/bench/peer.h"
#include "cli/communicators.h"
#include "cli/trials/subjects.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Seconds that a call may take before it hangs: the reference is slow, and nobody asked it before. */
enum { TIMEOUT = 600 };

static int time_all(fl_host *host, const bench_request *asked, const fl_snapshot *snapshot, int n, char **ops,
                    timings *rows) {
  uint32_t all = 0, done = 0;
  int status = EXIT_OK;
  for (uint32_t i = 0; i < fl_snapshot_op_count(snapshot); i++)
    all += cli_is_selected(fl_snapshot_op_name(snapshot, i), n, ops);
  for (uint32_t i = 0; i < fl_snapshot_op_count(snapshot) && !status; i++) {
    const char *name = fl_snapshot_op_name(snapshot, i);
    if (!cli_is_selected(name, n, ops) || !fl_snapshot_impl_count(snapshot, i))
      continue;
    cli_show_progress(done++, all, name);
    status = bench_op(host, asked, snapshot, i, rows);
  }
  cli_show_progress(done, all, NULL);
  return status;
}

static int exit_status_of(const timings *rows) {
  bool timed = false;
  for (size_t i = 0; i < rows->n; i++) {
    if (rows->items[i].failed)
      return EXIT_MISMATCH;
    timed |= rows->items[i].rounds > 0 && !rows->items[i].is_beside;
  }
  return timed ? EXIT_OK : EXIT_NO_IMPL;
}

static int print(const bench_request *asked, const timings *rows, const earlier_run *earlier) {
  return asked->json ? timings_print_json(rows, asked, earlier) : timings_print_table(rows, asked, earlier);
}

/* `earlier`: the run to compare with, or NULL. */
static int bench(fl_host *host, const bench_request *asked, earlier_run *earlier, int n, char **ops) {
  timings rows = {0};
  for (int i = 0; i < n; i++)
    if (!fl_find_op(host, ops[i]))
      return cli_fail(FL_ENOENT);
  fl_snapshot *snapshot = fl_registry_snapshot(host);
  if (!snapshot)
    return cli_no_memory();
  int status = cli_check_impl(snapshot, asked->impl, n, ops);
  if (!status)
    status = time_all(host, asked, snapshot, n, ops, &rows);
  if (!status && !rows.n)
    cli_error("nothing to time: no implementation of these operators takes what was asked for");
  if (!status && earlier && !earlier_match(earlier, &rows, asked, n, ops))
    status = cli_no_memory();
  if (!status)
    status = print(asked, &rows, earlier);
  if (!status)
    status = exit_status_of(&rows);
  timings_free(&rows);
  fl_snapshot_release(snapshot);
  return status;
}

static bool parse_seconds(const char *text, double *seconds) {
  char *end;
  *seconds = strtod(text, &end);
  if (end != text && !*end && *seconds > 0 && *seconds <= 3600)
    return true;
  cli_error("--seconds: '%s' is not a number above 0 and up to 3600", text);
  return false;
}

static bool parse_size(const char *word, bench_request *asked) {
  static const char *const words[] = {"small", "large", NULL};
  asked->small = !strcmp(word, words[0]);
  asked->large = !strcmp(word, words[1]);
  if (!asked->small && !asked->large)
    cli_unknown("size", "", word, words, "sizes: small (the first call of each operator), large (the last)");
  return asked->small || asked->large;
}

int command_bench(int argc, char **argv) {
  bench_request asked = {.seconds = 0.2, .device = {kDLCPU, 0}, .limits.seconds = TIMEOUT};
  const char *dtype = NULL, *size = NULL, *seconds = NULL, *timeout = NULL, *device = NULL, *old = NULL, *peers = NULL,
             *rotated = NULL, *ranks = NULL;
  int32_t threads = 0;
  earlier_run earlier = {0};
  const cli_option options[] = {
      {"impl", "ID", "only implementations of that identifier, beside the reference", NULL, &asked.impl},
      {"no-reference", NULL, "leave the reference out, which takes long with large calls", &asked.no_reference, NULL},
      {"prepared", NULL, "call implementations with their weights prepared (fl_prepare), where they do that",
       &asked.prepared, NULL},
      {"dtype", "NAME", "calls of that element type (bfloat16, or what the operator takes)", NULL, &dtype},
      {"size", "WORD", "small: only the first call of each operator (one token); large: only the last", NULL, &size},
      {"dims", "TEXT", "sizes in place of the operator's own: \"n: 1 128; d: 8192\"", NULL, &asked.sizes},
      {"seconds", "S", "time for each implementation of each call, about (0.2)", NULL, &seconds},
      {"peer", "LIST", "beside them copy, torch, torch.compile, python: a plain loop, PyTorch, calls from Python", NULL,
       &peers},
      {"rotate", "GB", "copies of the tensors, of so many gigabytes together, take turns", NULL, &rotated},
      {"compare", "FILE", "put what an earlier run with --json measured beside this one", NULL, &old},
      CLI_DEVICE_INDEX(&device),
      {"ranks", "N", "start so many ranks, for the word communicator; with --in-process threads", NULL, &ranks},
      {"timeout", "S", "a call that takes longer hangs (600); 0: none does", NULL, &timeout},
      {"in-process", NULL, "call in this process, for a debugger: a crash ends the command", &asked.limits.in_process,
       NULL},
      CLI_JSON(&asked.json),
      {NULL, NULL, NULL, NULL, NULL}};
  const cli_syntax syntax = {
      "[OP…]", 0, -1,
      "Times each available implementation (of all operators, or of those named) on calls of the sizes that "
      "models of about 8 billion parameters have: one token, 128, 4096. Implementations, the operator's "
      "reference and a memcpy of as many bytes take turns; times are medians. Bytes and operations are those of "
      "the best algorithm, as 'flhost ops OP' shows. X REFERENCE, X MEMCPY, X OLD: how many times as fast as "
      "these; above 1 is faster. --peer takes a list separated by commas; PyTorch is that of python3, or of the "
      "program that the environment variable PYTHON names.\n"
      "The word communicator in place of operators: collectives of the ranks that were started with this command, by "
      "size, as in 'flhost launch -n 2 -- flhost bench communicator', or of those that --ranks starts, with "
      "--in-process as threads: of 4 bytes to "
      "64 MiB, or of --dims 'bytes: 8 "
      "1024'; float32 unless --dtype says another type. BYTES are those of the larger buffer, GB/S is BYTES over the "
      "time, and BUS GB/S, as NCCL-tests defines it for n ranks, that times 2(n-1)/n of all_reduce, (n-1)/n of "
      "all_gather, reduce_scatter and all_to_all, 1 of broadcast, reduce and send_recv (each to the next). ping_pong "
      "is "
      "latency as osu_latency defines it: half of the time there and back. US is the median over samples of the "
      "slowest "
      "rank's time, beside the least and the most.\n"
      "Exit status 0: all well. 1: an implementation, or PyTorch, failed. 2: bad usage or settings. 3: nothing to "
      "time.",
      options};
  int status, first = cli_parse(&syntax, argc, argv, &status);
  if (first < 0)
    return status;
  if ((dtype && !cli_dtype(dtype, &asked.dtype)) || (size && !parse_size(size, &asked)) ||
      (seconds && !parse_seconds(seconds, &asked.seconds)) ||
      (timeout && !cli_amount("timeout", timeout, 1e6, &asked.limits.seconds)) ||
      (peers && !bench_peers_parse(peers, &asked)) || (rotated && !cli_amount("rotate", rotated, 1e6, &asked.rotated)))
    return EXIT_USAGE;
  asked.rotated *= 1e9;
  if (asked.sizes && !asked.sizes[strspn(asked.sizes, " ;")]) {
    cli_error("--dims: '%s' has no sizes, expected some as in 'n: 1 128; d: 8192'", asked.sizes);
    return EXIT_USAGE;
  }
  if (asked.sizes && first == argc) {
    cli_error("--dims needs the operator that has these dimensions");
    return EXIT_USAGE;
  }
  if (ranks && !asked.limits.in_process)
    return cli_start_ranks(ranks, device, first, argc, argv);
  if (ranks && !(cli_ranks_fit(argc - first, argv + first) && cli_read_ranks(ranks, &threads)))
    return EXIT_USAGE;
  if (old && !earlier_read(&earlier, old))
    return EXIT_USAGE;
  fl_host *host = cli_open_host(0, &status);
  if (!host) {
    earlier_free(&earlier);
    return status;
  }
  status = !device                                   ? EXIT_OK
           : cli_device(host, device, &asked.device) ? cli_check_device_apart(host, asked.device, &asked.limits)
                                                     : EXIT_USAGE;
  asked.threads = (int)fl_thread_count(host);
  if (!status && bench_needs_torch(&asked)) {
    asked.torch = torch_peer_start(asked.device, asked.threads, asked.limits.seconds);
    status = asked.torch ? EXIT_OK : EXIT_USAGE;
  }
  if (!status && cli_is_communicator(argc - first, argv + first))
    status = cli_bench_communicator(host, &asked, threads);
  else if (!status)
    status = bench(host, &asked, old ? &earlier : NULL, argc - first, argv + first);
  torch_peer_end(asked.torch);
  fl_host_destroy(host);
  earlier_free(&earlier);
  return status;
}
