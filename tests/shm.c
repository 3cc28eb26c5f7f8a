/* Runs bodies as ranks. Nothing here asserts in another thread or process than the test's own. */
#include "tests/shm.h"

#include "tests/suite.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static const fl_communicator *brought;

static fl_status take_component(fl_registry *registry, const fl_component *component) {
  (void)registry;
  if (strcmp(component->type, "communicator") || component->functions_type != FL_FUNCTIONS_COMMUNICATOR)
    return FL_EINVAL;
  brought = component->functions;
  return FL_OK;
}

const fl_communicator *shm_functions(void) {
  fl_registry registry = {.size = sizeof registry,
                          .abi_major = FL_ABI_MAJOR,
                          .abi_minor = FL_ABI_MINOR,
                          .register_component = take_component};
  char path[512];
  if (brought)
    return brought;
  snprintf(path, sizeof path, "%s/plugins/shm.so", build_dir());
  void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  ck_assert_msg(plugin != NULL, "%s", dlerror());
  fl_register_fn function;
  *(void **)&function = dlsym(plugin, "register_builtins");
  ck_assert_int_eq(function(&registry), FL_OK);
  ck_assert_ptr_nonnull(brought);
  return brought;
}

void shm_found(member *m, const char *file, int line, const char *format, ...) {
  char what[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  if (!m->failure[0])
    snprintf(m->failure, sizeof m->failure, "%s:%d: rank %d: %s", file, line, m->me, what);
}

/* The members, and behind them what they share. */
typedef struct company {
  member members[SHM_RANKS];
  _Atomic int shared[16];
  pthread_t threads[SHM_RANKS];
  pid_t processes[SHM_RANKS];
  bool started[SHM_RANKS];
} company;

member *shm_members(int n) {
  company *all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  const fl_communicator *f = shm_functions();
  unsigned char id[FL_COMMUNICATOR_ID_MAX];
  char message[512] = "";
  ck_assert_ptr_ne(all, MAP_FAILED);
  ck_assert_int_le(f->id_size, sizeof id);
  ck_assert_msg(!f->make_id(NULL, id, message, sizeof message), "%s", message);
  for (int i = 0; i < n; i++) {
    all->members[i] = (member){.f = f, .me = i, .n = n, .timeout = 60, .shared = all->shared};
    memcpy(all->members[i].id, id, f->id_size);
  }
  return all->members;
}

void shm_members_free(member *members) {
  munmap(members, sizeof(company));
}

void shm_member_join(member *m) {
  const fl_join join = {.size = sizeof join,
                        .rank = m->me,
                        .ranks = m->n,
                        .id = m->id,
                        .name = "tp",
                        .timeout = m->timeout,
                        .message = m->message,
                        .message_size = sizeof m->message};
  m->joined = m->f->join(NULL, &join, &m->rank);
}

static void *run_member(void *argument) {
  member *m = argument;
  shm_member_join(m);
  if (m->joined && m->body)
    shm_found(m, __FILE__, __LINE__, "does not join: %s", m->message);
  if (!m->joined && m->body)
    m->body(m);
  if (!m->joined)
    m->f->leave(NULL, m->rank);
  return NULL;
}

void shm_start(member *members, int i, shm_kind_of_ranks ranks, void (*body)(member *m)) {
  company *all = (company *)members;
  members[i].body = body;
  all->started[i] = true;
  if (ranks == SHM_THREADS) {
    ck_assert_int_eq(pthread_create(&all->threads[i], NULL, run_member, &members[i]), 0);
    return;
  }
  pid_t child = fork();
  ck_assert_int_ge(child, 0);
  if (!child) {
    run_member(&members[i]);
    _exit(0);
  }
  all->processes[i] = child;
}

void shm_finish(member *members, shm_kind_of_ranks ranks) {
  company *all = (company *)members;
  for (int i = 0; i < SHM_RANKS; i++) {
    int status = 0;
    if (!all->started[i])
      continue;
    if (ranks == SHM_THREADS)
      pthread_join(all->threads[i], NULL);
    else
      ck_assert_int_eq(waitpid(all->processes[i], &status, 0), all->processes[i]);
    if (!members[i].quits)
      ck_assert_msg(status == 0, "rank %d ended with status %#x", i, (unsigned)status);
  }
  for (int i = 0; i < SHM_RANKS; i++)
    ck_assert_msg(!members[i].failure[0], "%s", members[i].failure);
}

void shm_run(int n, shm_kind_of_ranks ranks, void (*body)(member *m)) {
  member *members = shm_members(n);
  for (int i = 0; i < n; i++)
    shm_start(members, i, ranks, body);
  shm_finish(members, ranks);
  shm_members_free(members);
}
