/*
 * flhost verify: tests every implementation that is available against the op's reference, on calls that are generated
 * from the op's schema entry. A client of the public API: a particular implementation is called under a policy that
 * names no other.
 */
#include "cli/verify/verify.h"

#include "cli/communicators.h"
#include "cli/trials/device.h"
#include "cli/trials/subjects.h"
#include "cli/verify/save.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Limits, unless others are asked for: seconds for what is repeated, seconds that a call may
 * take, bytes that an implementation may take. */
enum { SEEDS_MOST = 1000000, TIMEOUT = 60, MEMORY_GB = 8 };
static const double repeated_seconds = 0.1;

static int test_all(fl_host *host, const verify_request *asked, const fl_snapshot *snapshot, int n, char **ops,
                    verify_rows *rows) {
  uint32_t all = 0, done = 0;
  bool no_memory = false;
  for (uint32_t i = 0; i < fl_snapshot_op_count(snapshot); i++)
    all += cli_is_selected(fl_snapshot_op_name(snapshot, i), n, ops);
  for (uint32_t i = 0; i < fl_snapshot_op_count(snapshot) && !no_memory; i++) {
    const char *name = fl_snapshot_op_name(snapshot, i);
    if (!cli_is_selected(name, n, ops))
      continue;
    cli_show_progress(done++, all, name);
    no_memory = !verify_op(host, asked, snapshot, i, rows);
  }
  cli_show_progress(done, all, NULL);
  return no_memory ? cli_no_memory() : EXIT_OK;
}

static int exit_status_of(const verify_rows *rows) {
  bool tested = false;
  for (size_t i = 0; i < rows->n; i++) {
    if (verify_row_status(&rows->items[i]) == VERIFY_FAILED)
      return EXIT_MISMATCH;
    tested |= verify_row_status(&rows->items[i]) == VERIFY_OK;
  }
  return tested ? EXIT_OK : EXIT_NO_IMPL;
}

static int verify(fl_host *host, const verify_request *asked, int n, char **ops) {
  verify_rows rows = {0};
  fl_snapshot *snapshot = NULL;
  int status = EXIT_OK;
  for (int i = 0; i < n; i++)
    if (!fl_find_op(host, ops[i]))
      return cli_fail(FL_ENOENT);
  snapshot = fl_registry_snapshot(host);
  if (!snapshot)
    return cli_no_memory();
  status = cli_check_impl(snapshot, asked->impl, n, ops);
  if (!status && asked->save)
    status = verify_check_save(asked->save);
  if (!status && asked->junit)
    status = verify_check_junit(asked->junit);
  if (!status)
    status = test_all(host, asked, snapshot, n, ops, &rows);
  if (!status && !rows.n)
    cli_error("nothing to verify: no implementation of these operators takes what was asked for");
  if (!status)
    status = asked->json ? verify_print_json(&rows, asked->seed) : verify_print_table(&rows);
  if (!status && asked->junit)
    status = verify_write_junit(&rows, asked->junit);
  if (!status)
    status = exit_status_of(&rows);
  verify_rows_free(&rows);
  fl_snapshot_release(snapshot);
  return status;
}

static int parse_count(const char *option, const char *text, uint64_t least, uint64_t most, uint64_t *count) {
  char *end;
  errno = 0;
  unsigned long long value = strtoull(text, &end, 10);
  if (errno || end == text || *end || *text == '-' || value < least || value > most) {
    cli_error("--%s: '%s' is not a number from %" PRIu64 " to %" PRIu64, option, text, least, most);
    return EXIT_USAGE;
  }
  *count = value;
  return EXIT_OK;
}

/* The words behind the options that are numbers. */
typedef struct numbers {
  const char *seed, *seeds, *seconds, *timeout, *memory;
} numbers;

static int parse_numbers(const numbers *given, verify_request *asked) {
  double gigabytes = MEMORY_GB;
  int status = EXIT_OK;
  asked->seed = asked->seeds = 1;
  asked->seconds = repeated_seconds;
  asked->limits.seconds = TIMEOUT;
  if (given->seed)
    status = parse_count("seed", given->seed, 0, INT64_MAX, &asked->seed);
  if (!status && given->seeds)
    status = parse_count("seeds", given->seeds, 1, SEEDS_MOST, &asked->seeds);
  if (!status && given->seconds)
    status = cli_amount("seconds", given->seconds, 3600, &asked->seconds) ? EXIT_OK : EXIT_USAGE;
  if (!status && given->timeout)
    status = cli_amount("timeout", given->timeout, 1e6, &asked->limits.seconds) ? EXIT_OK : EXIT_USAGE;
  if (!status && given->memory)
    status = cli_amount("memory", given->memory, 1e6, &gigabytes) ? EXIT_OK : EXIT_USAGE;
  asked->limits.memory = (uint64_t)(gigabytes * 1e9);
  return status;
}

int command_verify(int argc, char **argv) {
  verify_request asked = {0};
  numbers given = {0};
  const char *device = NULL, *dtype = NULL, *ranks = NULL;
  const cli_option options[] = {
      CLI_DEVICE_INDEX(&device),
      {"impl", "ID", "only implementations of that identifier", NULL, &asked.impl},
      {"dtype", "NAME", "only calls of that element type (float32, bfloat16…)", NULL, &dtype},
      {"seed", "N", "other calls with other data (1); the same ones for the same N", NULL, &given.seed},
      {"seeds", "N", "as many seeds, from --seed on (1)", NULL, &given.seeds},
      {"quick", NULL, "each call once or twice, of the sizes in the operator's cases, and nothing else", &asked.quick,
       NULL},
      {"seconds", "S", "for what is repeated, of each implementation and element type (0.1)", NULL, &given.seconds},
      {"timeout", "S", "a call that takes longer hangs (60); 0: none does", NULL, &given.timeout},
      {"memory", "GB", "an implementation that takes more is ended (8); 0: none is", NULL, &given.memory},
      {"save", "DIR", "save the first failing call of each, made as small as it fails, as a file for 'flhost run'",
       NULL, &asked.save},
      {"in-process", NULL, "call in this process, for a debugger: a crash ends the command", &asked.limits.in_process,
       NULL},
      {"ranks", "N", "start so many ranks, for the word communicator", NULL, &ranks},
      {"junit", "FILE", "also write a report in JUnit's form", NULL, &asked.junit},
      CLI_JSON(&asked.json),
      {NULL, NULL, NULL, NULL, NULL}};
  const cli_syntax syntax = {
      "[OP…]", 0, -1,
      "Tests each available implementation (of all operators, or of those named) against the operator's "
      "reference implementation, on calls that are generated from the operator's schema: sizes from nothing to "
      "thousands of tokens, strided tensors, results in place and not, optional arguments there and not, zeros, "
      "infinities, NaN and the like; sizes beyond the operator's cases, in each dimension, and those of models. "
      "Results must agree within the operator's tolerance. It also looks whether the implementation keeps its "
      "contract: writes its results and nothing else, reads nothing beyond its tensors, leaves arguments and the "
      "process as they were, gives the same bits again, the thousandth time too, and, if it is declared "
      "deterministic, from several threads at once; right ones beside a thread with other data; and takes what its "
      "supports_args says it takes. Each implementation is called in a process of its own: one that crashes, hangs, "
      "exits or takes all memory has that for its verdict, and the others have theirs. One for another device than "
      "the processor is tested on the first of these, or on that of --device, which leaves out what is not for it; "
      "the reference computes on the processor.\n"
      "The word communicator in place of operators: every collective of the ranks that were started with this command, "
      "as in 'flhost launch -n 4 -- flhost verify communicator', or of those that --ranks starts.\n"
      "Exit status 0: all well. 1: a difference, a broken contract, or no answer. 2: bad usage or settings. 3: "
      "nothing to verify.",
      options};
  int status, first = cli_parse(&syntax, argc, argv, &status);
  if (first < 0)
    return status;
  if (dtype && !cli_dtype(dtype, &asked.dtype))
    return EXIT_USAGE;
  if ((status = parse_numbers(&given, &asked)))
    return status;
  if (ranks)
    return cli_start_ranks(ranks, device, first, argc, argv);
  asked.has_device = device != NULL;
  fl_host *host = cli_open_host(0, &status);
  if (!host)
    return status;
  status = !device                                   ? EXIT_OK
           : cli_device(host, device, &asked.device) ? cli_check_device_apart(host, asked.device, &asked.limits)
                                                     : EXIT_USAGE;
  if (!status && cli_is_communicator(argc - first, argv + first))
    status =
        cli_verify_communicator(host, device ? (int32_t)asked.device.device_type : kDLCPU, asked.quick, asked.json);
  else if (!status)
    status = verify(host, &asked, argc - first, argv + first);
  fl_host_destroy(host);
  return status;
}
