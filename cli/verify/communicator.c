/*
 * flhost verify communicator: every collective of a group against what it must give. The ranks are those that somebody
 * started with this command (flhost launch, mpirun…): each makes the same cases in the same order and checks what it
 * gets; then the same with two groups at the same time, and rank 0 tells what all have seen.
 */
#include "cli/communicators.h"
#include "cli/table.h"
#include "cli/trials/collectives.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A tally for each kind of collective, and one for what two groups do at once. */
enum { CONCURRENT = FL_COLLECTIVES, TALLIES };

/* What a rank has seen of one collective. */
typedef struct tally {
  int32_t cases, failures;
  char first[2 * COLLECTIVE_MISMATCH]; /* failure: the case, and what was wrong */
} tally;

static void note(tally *t, const collective_case *c, const char *mismatch) {
  char words[COLLECTIVE_MISMATCH];
  t->cases++;
  if (*mismatch && !t->failures++)
    snprintf(t->first, sizeof t->first, "%s: %s", collective_words(c, words, sizeof words), mismatch);
}

static fl_status try_all(fl_host *host, fl_group *group, bool quick, tally tallies[TALLIES]) {
  enum { QUICK_SIZES = 3 };
  fl_status status = FL_OK;
  for (uint32_t i = 0, n = collective_cases(quick ? QUICK_SIZES : COLLECTIVE_SIZES); i < n && !status; i++) {
    char mismatch[COLLECTIVE_MISMATCH];
    collective_case c = collective_case_at(i, fl_group_ranks(group));
    status = collective_try(host, group, &c, mismatch);
    if (!status)
      note(&tallies[c.kind], &c, mismatch);
  }
  if (!status)
    status = fl_barrier(group, NULL);
  if (!status)
    tallies[FL_BARRIER].cases++;
  return status;
}

/* ------------------------------------------------------------------------------------------------- groups at once */

/* One of two groups that are in use at the same time. */
typedef struct use {
  fl_host *host;
  fl_group *group;
  uint32_t cases;
  tally tally;
  fl_status status;
  char error[512]; /* the message of that status: it is the thread's */
} use;

static void make_case(use *u, uint32_t i) {
  char mismatch[COLLECTIVE_MISMATCH];
  collective_case c = collective_case_at(i, fl_group_ranks(u->group));
  u->status = collective_try(u->host, u->group, &c, mismatch);
  if (!u->status)
    note(&u->tally, &c, mismatch);
  else
    snprintf(u->error, sizeof u->error, "%s", fl_error_message());
}

static void *make_cases(void *of) {
  use *u = of;
  for (uint32_t i = 0; i < u->cases && !u->status; i++)
    make_case(u, i);
  return NULL;
}

/* Each group in a thread of its own. Work of two threads on one device could wait for each other in the order in which
 * the device takes it, which vendors forbid: there the groups take turns, and the streams have both. */
static fl_status use_both(use uses[2], bool by_threads) {
  pthread_t thread;
  if (by_threads && pthread_create(&thread, NULL, make_cases, &uses[1]))
    return FL_ENOMEM;
  if (by_threads) {
    make_cases(&uses[0]);
    pthread_join(thread, NULL);
  }
  for (uint32_t i = 0; i < uses[0].cases && !by_threads && !uses[0].status && !uses[1].status; i++) {
    make_case(&uses[0], i);
    make_case(&uses[1], i);
  }
  return uses[0].status ? uses[0].status : uses[1].status;
}

/* All ranks, and beside them those with even and those with odd numbers, in falling order. Exit status; what went wrong
 * was said. */
static int try_two_groups(fl_host *host, fl_group *group, bool quick, tally *sum) {
  enum { QUICK_SIZES = 2, SIZES = 4 };
  const int32_t rank = fl_group_rank(group);
  uint32_t cases = collective_cases(quick ? QUICK_SIZES : SIZES);
  use uses[2] = {{.host = host, .cases = cases}, {.host = host, .cases = cases}};
  fl_status status = fl_group_split(group, 0, rank, NULL, &uses[0].group);
  if (!status)
    status = fl_group_split(group, rank % 2, -rank, NULL, &uses[1].group);
  int exit_status = status ? cli_fail(status) : EXIT_OK;
  if (!status && (status = use_both(uses, fl_group_device(group).device_type == kDLCPU))) {
    const use *failed = uses[0].status ? &uses[0] : &uses[1];
    cli_error("two groups at once: %s", failed->status ? failed->error : "no thread for the second");
    exit_status = cli_exit_status(status);
  }
  *sum = uses[uses[0].tally.failures ? 0 : 1].tally;
  sum->cases = uses[0].tally.cases + uses[1].tally.cases;
  sum->failures = uses[0].tally.failures + uses[1].tally.failures;
  fl_group_destroy(uses[1].group);
  fl_group_destroy(uses[0].group);
  return exit_status;
}

/* --------------------------------------------------------------------------------------------------------- telling */

/* Every rank's tallies, in the order of ranks. Through the host's memory where the group's is elsewhere. */
static fl_status gather(fl_host *host, fl_group *group, const tally *mine, size_t size, tally *all) {
  const DLDataType bytes = {kDLUInt, 8, 1};
  DLDevice device = fl_group_device(group);
  size_t total = size * (size_t)fl_group_ranks(group);
  char *memory = NULL;
  if (device.device_type == kDLCPU)
    return fl_all_gather(group, mine, all, (int64_t)size, bytes, NULL);
  fl_status status = fl_device_allocate(host, device, size + total, (void **)&memory);
  if (!status)
    status = fl_device_copy(host, device, memory, mine, size, FL_COPY_TO_DEVICE, NULL);
  if (!status)
    status = fl_all_gather(group, memory, memory + size, (int64_t)size, bytes, NULL);
  if (!status)
    status = fl_device_copy(host, device, all, memory + size, total, FL_COPY_TO_HOST, NULL);
  fl_device_free(host, device, memory);
  return status;
}

/* Into the first rank's: how many failures there were, and the first of the lowest rank that has one. */
static int32_t add_up(tally *all, int32_t ranks) {
  int32_t failures = 0;
  for (int32_t kind = 0; kind < TALLIES; kind++) {
    tally *sum = &all[kind];
    for (int32_t r = 1; r < ranks; r++) {
      const tally *t = &all[r * TALLIES + kind];
      if (!sum->failures && t->failures)
        memcpy(sum->first, t->first, sizeof sum->first);
      sum->failures += t->failures;
    }
    failures += sum->failures;
  }
  return failures;
}

static const char *name_of(int32_t kind) {
  return kind == FL_SEND      ? "batches"
         : kind == FL_RECV    ? "send, recv"
         : kind == CONCURRENT ? "two groups at once"
                              : fl_collective_name(kind);
}

static int print_table(const fl_group *group, const tally *tallies) {
  static const char *const headers[] = {"COLLECTIVE", ">CASES", "RESULT", NULL};
  cli_table table;
  printf("communicator '%s', %d ranks, device %s\n\n", fl_group_communicator(group), fl_group_ranks(group),
         cli_device_name((int32_t)fl_group_device(group).device_type));
  cli_table_begin(&table, headers, 0);
  for (int32_t kind = 0; kind < TALLIES; kind++) {
    cli_table_add(&table, name_of(kind));
    cli_table_format(&table, "%d", tallies[kind].cases);
    if (tallies[kind].failures)
      cli_table_format(&table, "%d wrong; %s", tallies[kind].failures, tallies[kind].first);
    else
      cli_table_add(&table, "ok");
  }
  return cli_table_print(&table);
}

static int print_json(const fl_group *group, const tally *tallies) {
  json_t *list = json_array();
  for (int32_t kind = 0; kind < TALLIES; kind++)
    list = cli_json_append(list, json_pack("{s:s, s:i, s:i, s:o}", "collective", name_of(kind), "cases",
                                           (int)tallies[kind].cases, "failures", (int)tallies[kind].failures, "first",
                                           cli_json_string(tallies[kind].failures ? tallies[kind].first : NULL)));
  return cli_print_json(json_pack("{s:o, s:i, s:s, s:o}", "communicator", cli_json_string(fl_group_communicator(group)),
                                  "ranks", (int)fl_group_ranks(group), "device",
                                  cli_device_name((int32_t)fl_group_device(group).device_type), "collectives", list));
}

/* Exit status; the tallies are of this rank, and room for those of all. */
static int verify(fl_host *host, fl_group *group, bool quick, bool json, tally *mine, tally *all) {
  int32_t ranks = fl_group_ranks(group);
  fl_status status = try_all(host, group, quick, mine);
  int failed = status ? cli_fail(status) : try_two_groups(host, group, quick, &mine[CONCURRENT]);
  if (failed)
    return failed;
  status = gather(host, group, mine, TALLIES * sizeof *mine, all);
  if (status)
    return cli_fail(status);
  int exit_status = add_up(all, ranks) ? EXIT_MISMATCH : EXIT_OK;
  int printed = fl_group_rank(group) ? EXIT_OK : json ? print_json(group, all) : print_table(group, all);
  return printed ? printed : exit_status;
}

int cli_verify_communicator(fl_host *host, int32_t device_type, bool quick, bool json) {
  fl_group *group;
  fl_status status = fl_group_create_launched(host, device_type, NULL, &group);
  if (status)
    return cli_fail(status);
  tally *mine = calloc(TALLIES, sizeof *mine);
  tally *all = calloc((size_t)fl_group_ranks(group) * TALLIES, sizeof *all);
  int exit_status = mine && all ? verify(host, group, quick, json, mine, all) : cli_no_memory();
  free(mine);
  free(all);
  fl_group_destroy(group);
  return exit_status;
}
