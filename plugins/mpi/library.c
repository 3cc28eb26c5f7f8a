/*
 * Open MPI's library. The plugin is compiled against its mpi.h, and looks up by dlsym what it calls: so it loads where
 * there is none, and brings none into a process whose ranks come together by another communicator. A second shared
 * object, linked with the library, would do that as well, but be one more file to find, to trust and to ship.
 */
#include "plugins/mpi/library.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#if !defined(OPEN_MPI) || OMPI_MAJOR_VERSION < 3 || OMPI_MAJOR_VERSION > 5
#error "expected the mpi.h of Open MPI 3 to 5, whose library is libmpi.so.40"
#endif

/* Open MPI 3, 4 and 5 keep one ABI. */
#define SONAME      "libmpi.so.40"
#define NOT_THERE   SONAME " is not installed (Debian: libopenmpi3)"
#define OTHER_MPI   "the process uses another MPI than Open MPI, whose library is " SONAME
#define NO_LAUNCHER "the process was not started by mpirun or srun, and the engine did not initialise MPI: it is alone"
#define NO_PMI      "srun started the process, but told it nothing of MPI: srun --mpi=pmix does (srun --mpi=list)"

/* Another file, for a library that lies elsewhere. */
static const char *library_name(void) {
  const char *named = secure_getenv("FLHOST_MPI");
  return named && *named ? named : SONAME;
}

/* --------------------------------------------------------------------------------------------------------- finding */

static bool is_in_cache(const char *name) {
  struct stat file;
  int fd = open("/etc/ld.so.cache", O_RDONLY | O_CLOEXEC);
  void *cache = MAP_FAILED;
  bool found = false;
  if (fd >= 0 && !fstat(fd, &file) && file.st_size > 0)
    cache = mmap(NULL, (size_t)file.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (cache != MAP_FAILED) {
    found = memmem(cache, (size_t)file.st_size, name, strlen(name) + 1) != NULL;
    munmap(cache, (size_t)file.st_size);
  }
  if (fd >= 0)
    close(fd);
  return found;
}

/* LD_LIBRARY_PATH, and the directories that are always searched. */
static bool is_in_path(const char *name) {
  Dl_serinfo size, *info = NULL;
  char path[4096];
  bool found = false;
  void *program = dlopen(NULL, RTLD_LAZY);
  if (program && !dlinfo(program, RTLD_DI_SERINFOSIZE, &size) && (info = malloc(size.dls_size)) &&
      !dlinfo(program, RTLD_DI_SERINFOSIZE, info) && !dlinfo(program, RTLD_DI_SERINFO, info))
    for (unsigned i = 0; i < info->dls_cnt && !found; i++)
      found = (size_t)snprintf(path, sizeof path, "%s/%s", info->dls_serpath[i].dls_name, name) < sizeof path &&
              !access(path, R_OK);
  free(info);
  if (program)
    dlclose(program);
  return found;
}

/* As dlopen would find it, without what it would do to the process. */
static bool is_installed(const char *name) {
  return strchr(name, '/') ? !access(name, R_OK) : is_in_cache(name) || is_in_path(name);
}

/* What tells a process of its rank, before MPI does: Open MPI's own, and the two interfaces of other launchers. */
static const char *const launchers[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_FD", "PMI2_FD"};

static bool was_launched(void) {
  for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
    if (getenv(launchers[i]))
      return true;
  return false;
}

static bool is_used(void *library) {
  int (*initialized)(int *), (*finalized)(int *), begun = 0, ended = 0;
  void *a = dlsym(library, "MPI_Initialized"), *b = dlsym(library, "MPI_Finalized");
  memcpy(&initialized, &a, sizeof a);
  memcpy(&finalized, &b, sizeof b);
  return a && b && !initialized(&begun) && begun && !finalized(&ended) && !ended;
}

bool mpi_is_available(void *self, const char **reason) {
  const char *name = library_name();
  void *loaded = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
  (void)self;
  if (!loaded && dlsym(RTLD_DEFAULT, "MPI_Init"))
    return fl_reason(reason, OTHER_MPI);
  bool used = loaded && is_used(loaded);
  if (loaded)
    dlclose(loaded);
  if (!loaded && !is_installed(name))
    return strcmp(name, SONAME) != 0 ? fl_reason(reason, "FLHOST_MPI: %s is not there", name)
                                     : fl_reason(reason, NOT_THERE);
  return used || was_launched() || fl_reason(reason, getenv("SLURM_STEP_ID") ? NO_PMI : NO_LAUNCHER);
}

/* -------------------------------------------------------------------------------------------------------- starting */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static mpi_library library; /* filled under the lock, and not changed once it is */
static bool is_open, is_started;
static atomic_bool unfinished;
static pid_t owner;  /* the process that uses MPI; a child of fork has its memory alone */
static bool is_ours; /* this plugin initialised MPI */

/* What is missing; NULL: nothing. */
static const char *look_up(void *handle) {
  const char *missing = NULL;
  void *found;
#define FIND(symbol, place)                                                                                            \
  found = dlsym(handle, symbol);                                                                                       \
  memcpy(&library.place, &found, sizeof found);                                                                        \
  missing = found ? missing : symbol;
#define FUNCTION(name)             FIND("MPI_" #name, name)
#define OBJECT(type, name, symbol) FIND(symbol, name)
  MPI_FUNCTIONS(FUNCTION)
  MPI_OBJECTS(OBJECT)
#undef OBJECT
#undef FUNCTION
#undef FIND
  return missing;
}

/* Its own plugins want it to be global. It stays for the life of the process. */
static fl_status open_library(char *message, size_t message_size) {
  void *handle = dlopen(library_name(), RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
  if (!handle) {
    const char *words = dlerror();
    return fl_say(message, message_size, FL_EDEVICE, "%s cannot be opened: %s", library_name(), words ? words : "?");
  }
  const char *missing = look_up(handle);
  if (missing)
    return fl_say(message, message_size, FL_EDEVICE, "%s has no %s, which Open MPI has", library_name(), missing);
  is_open = true;
  return FL_OK;
}

static void finish(void) {
  int finalized = 1;
  if (is_ours && owner == getpid() && !unfinished && !library.Finalized(&finalized) && !finalized)
    library.Finalize();
}

static fl_status initialise(char *message, size_t message_size) {
  int initialized = 0;
  library.Initialized(&initialized);
  if (initialized) {
    library.Query_thread(&library.level);
  } else {
    if (library.Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &library.level))
      return fl_say(message, message_size, FL_EDEVICE, "MPI_Init_thread failed");
    is_ours = true;
    atexit(finish);
  }
  owner = getpid();
  is_started = true;
  return FL_OK;
}

static fl_status check_world(int32_t ranks, int world, char *message, size_t message_size) {
  if (ranks <= world)
    return FL_OK;
  return fl_say(message, message_size, FL_EINVAL,
                "MPI's world has %d rank%s, the group %d: start the ranks by mpirun -n %d", world,
                world == 1 ? "" : "s", (int)ranks, (int)ranks);
}

/* The lock is held. */
static fl_status start(int32_t ranks, char *message, size_t message_size) {
  const char *said = getenv("OMPI_COMM_WORLD_SIZE");
  int world = said ? (int)strtol(said, NULL, 10) : 0, finalized = 0;
  fl_status status = is_open ? FL_OK : open_library(message, message_size);
  if (!status && !library.Finalized(&finalized) && finalized)
    status = fl_say(message, message_size, FL_ESTATE, "the process has finalised MPI, which cannot begin anew");
  if (!status && is_started && owner != getpid())
    status = fl_say(message, message_size, FL_ESTATE,
                    "process %d, from which this one was forked, uses MPI, which a child cannot", (int)owner);
  /* What is wrong already is said before MPI is initialised for nothing. */
  if (!status && world > 0)
    status = check_world(ranks, world, message, message_size);
  if (!status && !is_started)
    status = initialise(message, message_size);
  if (!status && !library.Comm_size(library.world, &world))
    status = check_world(ranks, world, message, message_size);
  return status;
}

fl_status mpi_start(int32_t ranks, const mpi_library **mpi, char *message, size_t message_size) {
  pthread_mutex_lock(&lock);
  fl_status status = start(ranks, message, message_size);
  pthread_mutex_unlock(&lock);
  *mpi = &library;
  return status ? status : mpi_check_use(&library, message, message_size);
}

void mpi_leave_unfinished(void) {
  unfinished = true;
}

fl_status mpi_check_use(const mpi_library *mpi, char *message, size_t message_size) {
  int finalized = 0, is_main = 0;
  if (!mpi->Finalized(&finalized) && finalized)
    return fl_say(message, message_size, FL_ESTATE, "the engine has finalised MPI");
  if (mpi->level == MPI_THREAD_MULTIPLE || (!mpi->Is_thread_main(&is_main) && is_main))
    return FL_OK;
  return fl_say(message, message_size, FL_ESTATE,
                "the engine initialised MPI for one thread, and this is another one: MPI_Init_thread with "
                "MPI_THREAD_MULTIPLE lets all of them");
}
