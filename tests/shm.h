/* Ranks of the communicator shm, as threads or as processes, for its tests: the plugin's file, opened as it is. */
#ifndef FLHOST_TESTS_SHM_H
#define FLHOST_TESTS_SHM_H

#include <flhost/communicator.h>
#include <stdatomic.h>

enum { SHM_RANKS = 8 };

typedef enum shm_kind_of_ranks { SHM_THREADS = 0, SHM_PROCESSES = 1 } shm_kind_of_ranks;

/* One rank; in memory that its process shares with the test's. */
typedef struct member {
  const fl_communicator *f;
  fl_rank *rank;
  int me, n;
  double timeout;
  fl_status joined;  /* what join said */
  char message[512]; /* of the communicator */
  char failure[512]; /* what the test found wrong, empty if nothing */
  void (*body)(struct member *m);
  unsigned char id[FL_COMMUNICATOR_ID_MAX];
  _Atomic int *shared; /* some numbers for the test's own use, the same for all ranks */
  int quits;           /* is not to leave: its process ends */
} member;

/* Says what the test found wrong, unless something was before. */
FL_PRINTF(4, 5) void shm_found(member *m, const char *file, int line, const char *format, ...);

/* Ends a rank's body when something is not as it should be. */
#define want(condition, ...)                                                                                           \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      shm_found(m, __FILE__, __LINE__, __VA_ARGS__);                                                                   \
      return;                                                                                                          \
    }                                                                                                                  \
  } while (0)
#define want_ok(status)                                                                                                \
  do {                                                                                                                 \
    fl_status status_ = (status);                                                                                      \
    want(!status_, "status %d: %s", (int)status_, m->message);                                                         \
  } while (0)

/* The functions of the plugin in the build. */
const fl_communicator *shm_functions(void);

/* n members of one communicator, whose id was made; free with shm_members_free. */
member *shm_members(int n);
void shm_members_free(member *members);

/* Starts member i: joins, runs `body`, leaves. All that were started are waited for by shm_finish, which asserts that
 * none found anything wrong. */
void shm_start(member *members, int i, shm_kind_of_ranks ranks, void (*body)(member *m));
void shm_finish(member *members, shm_kind_of_ranks ranks);

/* All of it, with n ranks. */
void shm_run(int n, shm_kind_of_ranks ranks, void (*body)(member *m));

/* Joins; m->joined says how that went. */
void shm_member_join(member *m);

#endif
