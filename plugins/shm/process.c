/* /proc says all of it, and keeps no descriptor open as a pidfd would. */
#include "plugins/shm/process.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Up to size - 1 bytes of a file, with a NUL; false when there is no such file. */
static bool read_text(const char *path, char *text, size_t size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return false;
  ssize_t n = read(fd, text, size - 1);
  close(fd);
  text[n > 0 ? n : 0] = 0;
  return n > 0;
}

/* Fields of /proc/PID/stat, as proc(5) numbers them. */
enum { FIELD_STATE = 3, FIELD_THREADS = 20, FIELD_START = 22 };

/* The start of a process, and whether it runs; -1 when there is none of that number. */
static int64_t look(int32_t pid, bool *runs) {
  char path[40], text[1024];
  *runs = false;
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  if (!read_text(path, text, sizeof text))
    return -1;
  /* Its name is in parentheses, and may have some itself. */
  char *rest = strrchr(text, ')'), *word, state = 'X';
  long threads = 0;
  if (!rest || rest[1] != ' ')
    return -1;
  rest += 2;
  for (int field = FIELD_STATE; (word = strsep(&rest, " ")); field++) {
    if (field == FIELD_STATE)
      state = *word;
    else if (field == FIELD_THREADS)
      threads = strtol(word, NULL, 10);
    else if (field == FIELD_START) {
      /* A first thread that has ended is a zombie, too, while others of its process go on. */
      *runs = (state != 'Z' && state != 'X') || threads > 1;
      return strtoll(word, NULL, 10);
    }
  }
  return -1;
}

shm_process shm_process_self(void) {
  shm_process self = {.pid = getpid()};
  bool runs;
  self.start = look(self.pid, &runs);
  return self;
}

bool shm_process_runs(const shm_process *process) {
  bool runs;
  return look(process->pid, &runs) == process->start && runs;
}

void shm_machine_self(shm_machine *machine) {
  struct stat namespace;
  memset(machine, 0, sizeof *machine);
  read_text("/proc/sys/kernel/random/boot_id", machine->boot, sizeof machine->boot);
  machine->boot[strcspn(machine->boot, "\n")] = 0;
  if (!stat("/proc/self/ns/pid", &namespace))
    machine->processes = namespace.st_ino;
}
