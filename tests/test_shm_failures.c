/*
 * The communicator shm when ranks do not do their part: they end, leave, are late, are aborted, call something else, or
 * were never there. The others get an error in words, soon, and nothing stays behind.
 */
#include "tests/shm.h"
#include "tests/suite.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static fl_status add_up(member *m) {
  float mine[2000] = {1}, all[2000];
  const fl_collective c = {.size = sizeof c, .send = mine, .recv = all, .count = 2000, .dtype = {kDLFloat, 32, 1}};
  return m->f->all_reduce(NULL, m->rank, &c);
}

static fl_status receive(member *m, int from) {
  char memory[10];
  const fl_collective c = {
      .size = sizeof c, .kind = FL_RECV, .recv = memory, .count = 10, .dtype = {kDLUInt, 8, 1}, .root = from};
  return m->f->recv(NULL, m->rank, &c);
}

static fl_status meet(member *m) {
  const fl_collective c = {.size = sizeof c, .kind = FL_BARRIER};
  return m->f->barrier(NULL, m->rank, &c);
}

/* Calls until something is wrong. */
static fl_status until_it_fails(member *m, fl_status (*call)(member *m)) {
  fl_status status = FL_OK;
  for (int i = 0; i < 1000000 && !status; i++)
    status = call(m);
  return status;
}

#define want_words(words) want(strstr(m->message, words) != NULL, "\"%s\" does not say \"%s\"", m->message, words)

/* --------------------------------------------------------------------------------------------- ranks that are gone */

static void go_on_until_killed(member *m) {
  char words[64];
  m->shared[m->me] = getpid();
  if (m->me == 2) {
    for (int i = 0; i < 50; i++)
      want_ok(add_up(m));
    kill(getpid(), SIGKILL);
  }
  fl_status status = until_it_fails(m, add_up);
  want(status == FL_EDEVICE, "status %d: %s", (int)status, m->message);
  want_words("all_reduce of group 'tp': ");
  snprintf(words, sizeof words, "rank 2 (process %d) ended", (int)m->shared[2]);
  want_words(words);
  /* And it stays so, without waiting. */
  want(meet(m) == FL_EDEVICE, "a barrier goes on");
  want_words("barrier of group 'tp': ");
  want_words(words);
  want(m->f->state(NULL, m->rank) == FL_EDEVICE, "its state is good");
}

static void one_is_killed(void (*body)(member *m)) {
  member *members = shm_members(3);
  members[2].quits = 1;
  for (int i = 0; i < 3; i++)
    shm_start(members, i, SHM_PROCESSES, body);
  shm_finish(members, SHM_PROCESSES);
  shm_members_free(members);
}

START_TEST(a_rank_that_is_killed_is_named) {
  one_is_killed(go_on_until_killed);
}
END_TEST

static void receive_from_killed(member *m) {
  want_ok(meet(m));
  if (m->me == 2)
    kill(getpid(), SIGKILL);
  fl_status status = receive(m, 2);
  want(status == FL_EDEVICE, "status %d", (int)status);
  want_words("recv of group 'tp': ");
  want_words("rank 2 (process ");
}

START_TEST(who_receives_from_a_killed_rank_is_told) {
  one_is_killed(receive_from_killed);
}
END_TEST

static void one_leaves(member *m) {
  want_ok(meet(m));
  if (m->me == 1)
    return;
  want(until_it_fails(m, add_up) == FL_EDEVICE, "status");
  want_words("rank 1 left the group");
}

START_TEST(a_rank_that_leaves_is_named) {
  shm_run(3, _i ? SHM_PROCESSES : SHM_THREADS, one_leaves);
}
END_TEST

/* What it did before it left is done. */
static void leave_after_sending(member *m) {
  char memory[10] = "123456789";
  const fl_collective out = {
      .size = sizeof out, .kind = FL_SEND, .send = memory, .count = 10, .dtype = {kDLUInt, 8, 1}};
  if (m->me == 1)
    want_ok(m->f->send(NULL, m->rank, &out));
  if (m->me == 0) {
    usleep(20000);
    want_ok(receive(m, 1));
  }
}

START_TEST(what_a_rank_sent_before_it_left_arrives) {
  shm_run(2, _i ? SHM_PROCESSES : SHM_THREADS, leave_after_sending);
}
END_TEST

static void one_does_not_come(member *m) {
  want_ok(meet(m));
  if (m->me < 2) {
    want(add_up(m) == FL_EDEVICE, "status");
    want_words("rank 2 did not come within 0.3 s");
    m->shared[0]++;
  }
  for (int i = 0; i < 60000 && m->shared[0] < 2; i++) /* one that is wrong does not come */
    usleep(1000);
  if (m->me == 2) {
    want(add_up(m) == FL_EDEVICE, "it goes on");
    want_words("all_reduce of group 'tp': broken by rank ");
  }
}

START_TEST(a_rank_that_does_not_come_in_time_is_named) {
  member *members = shm_members(3);
  for (int i = 0; i < 3; i++) {
    members[i].timeout = i < 2 ? 0.3 : 60;
    shm_start(members, i, _i ? SHM_PROCESSES : SHM_THREADS, one_does_not_come);
  }
  shm_finish(members, _i ? SHM_PROCESSES : SHM_THREADS);
  shm_members_free(members);
}
END_TEST

static void *abort_soon(void *argument) {
  member *m = argument;
  usleep(50000);
  m->f->abort(NULL, m->rank);
  return NULL;
}

static void one_is_aborted(member *m) {
  pthread_t thread;
  bool aborts = m->me == 1;
  want_ok(meet(m));
  want(!aborts || !pthread_create(&thread, NULL, abort_soon, m), "no thread");
  fl_status status = m->me ? until_it_fails(m, add_up) : receive(m, 1);
  if (aborts)
    pthread_join(thread, NULL);
  want(status == FL_EDEVICE, "status %d", (int)status);
  want_words("rank 1 was aborted");
}

START_TEST(a_rank_is_aborted_from_another_thread) {
  shm_run(3, _i ? SHM_PROCESSES : SHM_THREADS, one_is_aborted);
}
END_TEST

/* Buffers that are gone as soon as the call has returned. */
static void end_in_the_middle(member *m) {
  enum { COUNT = 1 << 18 };
  const size_t bytes = COUNT * sizeof(float);
  fl_status status = FL_OK;
  pthread_t thread;
  want(m->me != 1 || !pthread_create(&thread, NULL, abort_soon, m), "no thread");
  while (!status) {
    void *mine = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    want(mine != MAP_FAILED, "no memory");
    const fl_collective c = {
        .size = sizeof c, .send = mine, .recv = (char *)mine + bytes, .count = COUNT, .dtype = {kDLFloat, 32, 1}};
    status = m->f->all_reduce(NULL, m->rank, &c);
    munmap(mine, 2 * bytes);
  }
  if (m->me == 1)
    pthread_join(thread, NULL);
  want_words("rank 1 was aborted");
}

START_TEST(nobody_uses_the_buffers_of_a_call_that_has_ended) {
  for (int i = 0; i < rounds(10); i++)
    shm_run(3, SHM_THREADS, end_in_the_middle);
}
END_TEST

/* ------------------------------------------------------------------------------------------ ranks that do not agree */

static void another_count(member *m) {
  float mine[9] = {1}, all[9];
  const fl_collective c = {
      .size = sizeof c, .send = mine, .recv = all, .count = m->me == 1 ? 9 : 8, .dtype = {kDLFloat, 32, 1}};
  want(m->f->all_reduce(NULL, m->rank, &c) == FL_EINVAL, "status");
  want_words("ranks do not call the same");
  want_words("count 8");
  want_words("count 9");
}

static void another_length(member *m) {
  char memory[20] = {0};
  const fl_collective out = {
      .size = sizeof out, .kind = FL_SEND, .send = memory, .count = 20, .dtype = {kDLUInt, 8, 1}};
  if (m->me == 1)
    want_ok(m->f->send(NULL, m->rank, &out));
  if (m->me == 0) {
    want(receive(m, 1) == FL_EINVAL, "status");
    want_words("rank 1 sends 20 bytes to rank 0, which expects 10");
  }
}

START_TEST(ranks_that_call_something_else_are_told) {
  shm_run(3, _i ? SHM_PROCESSES : SHM_THREADS, another_count);
  shm_run(2, _i ? SHM_PROCESSES : SHM_THREADS, another_length);
}
END_TEST

static void with_itself(member *m) {
  static char memory[200000];
  const fl_collective c = {
      .size = sizeof c, .kind = FL_SEND, .send = memory, .count = sizeof memory, .dtype = {kDLUInt, 8, 1}};
  want(m->f->send(NULL, m->rank, &c) == FL_EINVAL, "status");
  want_words("itself");
  want(m->f->batch(NULL, m->rank, &c, 1, sizeof c) == FL_EINVAL, "status");
  want_words("itself");
}

START_TEST(a_message_to_oneself_has_both_ends_in_a_batch) {
  shm_run(1, SHM_THREADS, with_itself);
}
END_TEST

static void wrong_calls(member *m) {
  float mine[4] = {1}, all[8];
  fl_collective c = {.size = sizeof c, .send = mine, .recv = all, .count = 4, .dtype = {kDLFloat, 32, 1}};
  c.reduction = FL_REDUCTIONS;
  want(m->f->all_reduce(NULL, m->rank, &c) == FL_ENOTSUP, "an unknown reduction");
  c.reduction = FL_REDUCE_AVG;
  c.dtype = (DLDataType){FL_DTYPE_BOOL, 8, 1};
  want(m->f->all_reduce(NULL, m->rank, &c) == FL_ENOTSUP, "the mean of truth values");
  c.dtype = (DLDataType){FL_DTYPE_FLOAT8_E5M2, 8, 1};
  want(m->f->all_reduce(NULL, m->rank, &c) == FL_ENOTSUP, "an unknown type");
  c.kind = FL_BROADCAST;
  c.root = m->n;
  want(m->f->broadcast(NULL, m->rank, &c) == FL_EINVAL, "an unknown root");
  want_words("there is no rank 2, they are 0 to 1");
  c.root = 0;
  c.count = -1;
  want(m->f->broadcast(NULL, m->rank, &c) == FL_EINVAL, "fewer than no elements");
  c.kind = FL_ALL_GATHER_V;
  c.count = 0;
  want(m->f->all_gather_v(NULL, m->rank, &c) == FL_EINVAL, "no counts");
  /* Nothing was sent: it is as good as before. */
  want_ok(add_up(m));
}

START_TEST(what_cannot_be_called_is_refused_before_anything_is_sent) {
  shm_run(2, SHM_PROCESSES, wrong_calls);
}
END_TEST

static void use_in_child(member *m) {
  want_ok(meet(m));
  if (m->me == 0) {
    pid_t child = fork();
    int status = -1;
    if (!child) {
      fl_status said = add_up(m);
      bool good = said == FL_ESTATE && strstr(m->message, "forked");
      m->f->leave(NULL, m->rank);
      _exit(good ? 0 : 1);
    }
    waitpid(child, &status, 0);
    want(!status, "in a child, status %#x", (unsigned)status);
  }
  want_ok(add_up(m));
}

START_TEST(a_forked_child_has_no_part_in_it) {
  shm_run(2, SHM_PROCESSES, use_in_child);
}
END_TEST

/* --------------------------------------------------------------------------------------------------------- joining */

static void *join_in_thread(void *m) {
  shm_member_join(m);
  return NULL;
}

START_TEST(who_is_missing_at_joining_is_named) {
  member *members = shm_members(3);
  pthread_t thread;
  members[0].timeout = members[2].timeout = 0.3;
  ck_assert(!pthread_create(&thread, NULL, join_in_thread, &members[2]));
  shm_member_join(&members[0]);
  pthread_join(thread, NULL);
  ck_assert_int_eq(members[0].joined, FL_EDEVICE);
  ck_assert_int_eq(members[2].joined, FL_EDEVICE);
  for (int i = 0; i < 3; i += 2)
    ck_assert_msg(strstr(members[i].message, "joining of group 'tp': ") && strstr(members[i].message, "rank") &&
                      strstr(members[i].message, " 1"),
                  "%s", members[i].message);
  /* Who comes then is told. */
  shm_member_join(&members[1]);
  ck_assert_int_eq(members[1].joined, FL_EDEVICE);
  shm_members_free(members);
}
END_TEST

START_TEST(numbers_of_ranks_that_differ_are_both_named) {
  member *members = shm_members(3);
  pthread_t thread;
  members[1].n = 2;
  members[0].timeout = 1;
  ck_assert(!pthread_create(&thread, NULL, join_in_thread, &members[0]));
  usleep(100000);
  shm_member_join(&members[1]);
  pthread_join(thread, NULL);
  ck_assert_int_eq(members[1].joined == FL_EINVAL || members[0].joined == FL_EINVAL, 1);
  const char *message = members[members[1].joined == FL_EINVAL].message;
  ck_assert_msg(strstr(message, "3") && strstr(message, "2"), "%s", message);
  shm_members_free(members);
}
END_TEST

START_TEST(the_same_rank_twice_is_refused) {
  member *members = shm_members(3);
  pthread_t thread;
  members[1].me = 0;
  members[0].timeout = members[1].timeout = 1;
  ck_assert(!pthread_create(&thread, NULL, join_in_thread, &members[0]));
  shm_member_join(&members[1]);
  pthread_join(thread, NULL);
  int refused = members[1].joined == FL_EINVAL;
  ck_assert_int_eq(members[refused].joined, FL_EINVAL);
  ck_assert_msg(strstr(members[refused].message, "there is a rank 0 already") != NULL, "%s", members[refused].message);
  shm_members_free(members);
}
END_TEST

static void expect_refused(member *m, const char *words) {
  m->timeout = 1;
  shm_member_join(m);
  ck_assert_int_ne(m->joined, FL_OK);
  ck_assert_msg(strstr(m->message, words) != NULL, "%s", m->message);
}

START_TEST(a_wrong_id_is_refused_in_words) {
  member *members = shm_members(2);
  const fl_communicator *f = shm_functions();
  unsigned char id[FL_COMMUNICATOR_ID_MAX];
  memcpy(id, members[0].id, sizeof id);
  memset(members[0].id, 0x5a, f->id_size);
  expect_refused(&members[0], "no id that shm has made");
  for (uint32_t i = 0; i < f->id_size; i++) {
    memcpy(members[0].id, id, sizeof id);
    members[0].id[i] ^= 1;
    members[0].timeout = 0.01;
    shm_member_join(&members[0]);
    ck_assert_int_ne(members[0].joined, FL_OK);
  }
  members[0].me = 2;
  expect_refused(&members[0], "rank 2 of 2");
  shm_members_free(members);
}
END_TEST

START_TEST(the_id_of_a_process_that_has_ended_is_refused) {
  member *members = shm_members(2);
  const fl_communicator *f = shm_functions();
  char message[512];
  int status;
  pid_t child = fork();
  if (!child)
    _exit(f->make_id(NULL, members[0].id, message, sizeof message));
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_int_eq(status, 0);
  expect_refused(&members[0], "which made the id, has ended");
  shm_members_free(members);
}
END_TEST

/* -------------------------------------------------------------------------------------------------- nothing remains */

static int entries(const char *path) {
  int n = 0;
  DIR *directory = opendir(path);
  while (directory && readdir(directory))
    n++;
  if (directory)
    closedir(directory);
  return n;
}

static bool is_mapped(const char *what) {
  char line[512];
  bool found = false;
  FILE *maps = fopen("/proc/self/maps", "r");
  while (maps && fgets(line, sizeof line, maps))
    found |= strstr(line, what) != NULL;
  if (maps)
    fclose(maps);
  return found;
}

static void once(member *m) {
  want_ok(add_up(m));
  want(is_mapped("memfd:flhost"), "the memory has another name");
}

START_TEST(no_descriptor_mapping_or_file_remains) {
  shm_run(3, SHM_THREADS, once); /* what a process has from the first time on */
  int descriptors = entries("/proc/self/fd"), files = entries("/dev/shm");
  for (int i = 0; i < 5; i++) {
    shm_run(3, SHM_THREADS, once);
    ck_assert_int_eq(entries("/proc/self/fd"), descriptors);
    ck_assert(!is_mapped("memfd:flhost"));
    ck_assert_int_eq(entries("/dev/shm"), files);
  }
}
END_TEST

/* The process that makes an id and joins nothing keeps it until it makes the next. */
START_TEST(an_id_is_kept_no_longer_than_until_all_have_joined) {
  shm_run(2, SHM_PROCESSES, once);
  int descriptors = entries("/proc/self/fd");
  for (int i = 0; i < 3; i++)
    shm_run(2, SHM_PROCESSES, once);
  ck_assert_int_eq(entries("/proc/self/fd"), descriptors);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_test(tests, a_rank_that_is_killed_is_named);
  tcase_add_test(tests, who_receives_from_a_killed_rank_is_told);
  tcase_add_loop_test(tests, a_rank_that_leaves_is_named, 0, 2);
  tcase_add_loop_test(tests, what_a_rank_sent_before_it_left_arrives, 0, 2);
  tcase_add_loop_test(tests, a_rank_that_does_not_come_in_time_is_named, 0, 2);
  tcase_add_loop_test(tests, a_rank_is_aborted_from_another_thread, 0, 2);
  tcase_add_test(tests, nobody_uses_the_buffers_of_a_call_that_has_ended);
  tcase_add_loop_test(tests, ranks_that_call_something_else_are_told, 0, 2);
  tcase_add_test(tests, a_message_to_oneself_has_both_ends_in_a_batch);
  tcase_add_test(tests, what_cannot_be_called_is_refused_before_anything_is_sent);
  tcase_add_test(tests, a_forked_child_has_no_part_in_it);
  tcase_add_test(tests, who_is_missing_at_joining_is_named);
  tcase_add_test(tests, numbers_of_ranks_that_differ_are_both_named);
  tcase_add_test(tests, the_same_rank_twice_is_refused);
  tcase_add_test(tests, a_wrong_id_is_refused_in_words);
  tcase_add_test(tests, the_id_of_a_process_that_has_ended_is_refused);
  tcase_add_test(tests, no_descriptor_mapping_or_file_remains);
  tcase_add_test(tests, an_id_is_kept_no_longer_than_until_all_have_joined);
}

int main(void) {
  return run_suite("shm_failures", add_tests, 60);
}
