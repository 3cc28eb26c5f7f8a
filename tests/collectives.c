/* Ranks in tests: see collectives.h. */
#include "tests/collectives.h"

#include "cli/trials/collectives.h"

#include <sys/wait.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------------------------------ ranks */

typedef struct worker {
  pthread_t thread;
  fl_host *host;
  const fl_group_id *id;
  int32_t rank, ranks;
  rank_body body;
} worker;

static void be_rank(fl_host *host, const fl_group_id *id, int32_t rank, int32_t ranks, rank_body body) {
  const fl_group_options options = {.size = sizeof options, .name = "tp", .timeout = 60};
  fl_group *group;
  ck_ok(fl_group_create(host, id, rank, ranks, &options, &group));
  body(host, group);
  fl_group_destroy(group);
}

static void *run(void *of) {
  const worker *w = of;
  be_rank(w->host, w->id, w->rank, w->ranks, w->body);
  return NULL;
}

void ranks_as_threads(fl_host *host, int32_t ranks, rank_body body) {
  fl_group_id id;
  worker *workers = calloc((size_t)ranks, sizeof *workers);
  ck_ok(fl_group_make_id(host, kDLCPU, &id));
  for (int32_t i = 0; i < ranks; i++) {
    workers[i] = (worker){.host = host, .id = &id, .rank = i, .ranks = ranks, .body = body};
    ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, run, &workers[i]), 0);
  }
  for (int32_t i = 0; i < ranks; i++)
    pthread_join(workers[i].thread, NULL);
  free(workers);
}

void ranks_as_processes(fl_host *(*make)(void), int32_t ranks, rank_body body) {
  fl_host *host = make();
  fl_group_id id;
  ck_ok(fl_group_make_id(host, kDLCPU, &id));
  for (int32_t i = 0; i < ranks; i++) {
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (!child) {
      fl_host *own = make();
      be_rank(own, &id, i, ranks, body);
      fl_host_destroy(own);
      _exit(0);
    }
  }
  for (int32_t i = 0; i < ranks; i++) {
    int status = -1;
    ck_assert_int_gt(wait(&status), 0);
    ck_assert_int_eq(status, 0);
  }
  fl_host_destroy(host);
}

void check_collectives(fl_host *host, fl_group *group, int sizes) {
  for (uint32_t i = 0, n = collective_cases(sizes); i < n; i++) {
    char mismatch[COLLECTIVE_MISMATCH], words[COLLECTIVE_MISMATCH];
    const collective_case wanted = collective_case_at(i, fl_group_ranks(group));
    ck_ok(collective_try(host, group, &wanted, mismatch));
    ck_assert_msg(!*mismatch, "%s: %s", collective_words(&wanted, words, sizeof words), mismatch);
  }
  ck_ok(fl_barrier(group, NULL));
  ck_ok(fl_group_state(group));
}
