/*
 * The process that times PyTorch: see peer.h. Requests and answers are lines of JSON through a socket, each with
 * a number: what somebody asked who is gone is passed over. What has gone wrong once lies in memory that all children
 * share, and nothing is asked any more.
 */
#include "cli/bench/peer.h"
#include "cli/cli.h"
#include "cli/trials/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Of what it prints this much is kept, and that much of the end shown; an answer is shorter than LINE; how often a sign
 * of life is given. */
enum { CHANNEL = 3, PRINTED = 1 << 20, LAST = 256, LINE = 1 << 16, TICK_MS = 20 };

/* What parent and children know of it. */
typedef struct peer_state {
  uint64_t number, call;        /* of the last request, and of the call that is timed */
  char fault[TORCH_PEER_WORDS]; /* "": it answers */
} peer_state;

struct torch_peer {
  pid_t pid;
  int channel, printed;
  double seconds; /* that an answer may take; 0: any time */
  const char *python;
  char version[64];
  peer_state *state;
};

/* -------------------------------------------------------------------------------------------------------- its words */

/* The last line that it printed, or the end of it; "" if none. */
static void last_words(const torch_peer *peer, char words[LAST]) {
  off_t end = lseek(peer->printed, 0, SEEK_CUR), begin = end > LAST - 1 ? end - LAST + 1 : 0;
  ssize_t length = end > 0 ? pread(peer->printed, words, (size_t)(end - begin), begin) : 0;
  while (length > 0 && (unsigned char)words[length - 1] <= ' ')
    length--;
  words[length > 0 ? length : 0] = 0;
  const char *line = strrchr(words, '\n');
  if (line)
    memmove(words, line + 1, strlen(line));
}

static FL_PRINTF(2, 3) void give_up(torch_peer *peer, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(peer->state->fault, sizeof peer->state->fault, format, arguments);
  va_end(arguments);
  kill(-peer->pid, SIGKILL);
}

static void say_ended(torch_peer *peer) {
  char words[LAST];
  last_words(peer, words);
  give_up(peer, "%s ended%s%s", peer->python, *words ? ": " : " without a word", words);
}

/* ---------------------------------------------------------------------------------------------------------- asking */

static bool send_line(torch_peer *peer, const char *text) {
  for (size_t length = strlen(text); length;) {
    ssize_t sent = send(peer->channel, text, length, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR)
      continue;
    if (sent < 0)
      return false;
    text += sent;
    length -= (size_t)sent;
  }
  return true;
}

/* One line, without its end; false: there is none to come, and `fault` says why. */
static bool receive_line(torch_peer *peer, char line[LINE]) {
  double end = seconds_now() + peer->seconds;
  size_t length = 0;
  for (;;) {
    struct pollfd channel = {.fd = peer->channel, .events = POLLIN};
    int ready = poll(&channel, 1, TICK_MS);
    trial_beat();
    if (ready > 0) {
      ssize_t got = recv(peer->channel, line + length, 1, 0);
      if (got == 1 && line[length] == '\n') {
        line[length] = 0;
        return true;
      }
      if (got <= 0 && errno != EINTR) {
        say_ended(peer);
        return false;
      }
      length += got == 1;
    }
    if (length == LINE - 1) {
      give_up(peer, "%s answered with more than %d bytes, expected a line of JSON", peer->python, LINE);
      return false;
    }
    if (peer->seconds > 0 && seconds_now() > end) {
      give_up(peer, "%s gave no answer within %g s", peer->python, peer->seconds);
      return false;
    }
  }
}

/* The answer to the last request; NULL: there is none to come. */
static json_t *receive(torch_peer *peer) {
  char line[LINE];
  while (receive_line(peer, line)) {
    json_t *said = json_loads(line, 0, NULL);
    const json_t *number = json_object_get(said, "id");
    if (!json_is_integer(number)) {
      json_decref(said);
      give_up(peer, "%s answered '%.60s', expected a line of JSON with an id", peer->python, line);
      return NULL;
    }
    if ((uint64_t)json_integer_value(number) == peer->state->number)
      return said;
    json_decref(said);
  }
  return NULL;
}

/* Between its turns the process stands still: threads of a pool that spin for the next loop, as those of OpenMP do for
 * milliseconds, would take processors from what is timed then. */
static void let_run(const torch_peer *peer, bool runs) {
  kill(-peer->pid, runs ? SIGCONT : SIGSTOP);
}

/* Takes the request over. FL_OK with the answer, which the caller releases; what else there is in `words`. */
static fl_status ask(torch_peer *peer, json_t *request, json_t **answer, char words[TORCH_PEER_WORDS]) {
  *answer = NULL;
  if (!*peer->state->fault) {
    bool sent = request && !json_object_set_new(request, "id", json_integer((json_int_t)++peer->state->number));
    char *text = sent ? json_dumps(request, JSON_COMPACT) : NULL;
    let_run(peer, true);
    sent = text && send_line(peer, text) && send_line(peer, "\n");
    free(text);
    *answer = sent ? receive(peer) : NULL;
    let_run(peer, false);
    if (!sent)
      say_ended(peer);
  }
  json_decref(request);
  const char *fault = json_string_value(json_object_get(*answer, "fault")),
             *reason = json_string_value(json_object_get(*answer, "reason"));
  if (fault)
    give_up(peer, "%s: %s", peer->python, fault);
  fl_status status = *peer->state->fault ? FL_EINTERNAL : reason ? FL_ENOTSUP : FL_OK;
  if (status) {
    snprintf(words, TORCH_PEER_WORDS, "%s", reason ? reason : peer->state->fault);
    json_decref(*answer);
    *answer = NULL;
  }
  return status;
}

/* ------------------------------------------------------------------------------------------------------ the process */

/* Where the script lies, beside the command as it is built or installed; false, with a message: it does not. */
static bool find_script(char path[PATH_MAX]) {
  static const char *const places[] = {"/../share/flhost/peers/torch_peer.py", "/peers/torch_peer.py"};
  char own[PATH_MAX];
  ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
  own[length > 0 ? length : 0] = 0;
  char *slash = strrchr(own, '/');
  if (slash)
    *slash = 0;
  for (size_t i = 0; i < sizeof places / sizeof *places; i++)
    if (snprintf(path, PATH_MAX, "%s%s", own, places[i]) < PATH_MAX && !access(path, R_OK))
      return true;
  cli_error("--peer: no share/flhost/peers/torch_peer.py beside %s, where 'make install' puts it", own);
  return false;
}

/* Two ends of a channel, and a file of limited size for what it prints. */
static bool open_streams(torch_peer *peer, int *other) {
  int ends[2] = {-1, -1};
  peer->printed = memfd_create("torch", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  bool done = peer->printed >= 0 && !ftruncate(peer->printed, PRINTED) &&
              !fcntl(peer->printed, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK) &&
              !socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends);
  peer->channel = ends[0];
  *other = ends[1];
  if (!done)
    cli_error("--peer: %s", strerror(errno));
  return done;
}

/* In a process group of its own, so that what it starts ends with it. */
static int spawn(torch_peer *peer, const char *script, int other) {
  const char *const words[] = {peer->python, "-u", script, NULL};
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  int error = posix_spawn_file_actions_init(&files);
  if (error)
    return error;
  error = posix_spawnattr_init(&attributes);
  if (!error) {
    error |= posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    error |= posix_spawn_file_actions_adddup2(&files, peer->printed, STDOUT_FILENO);
    error |= posix_spawn_file_actions_adddup2(&files, peer->printed, STDERR_FILENO);
    error |= posix_spawn_file_actions_adddup2(&files, other, CHANNEL);
    error |= posix_spawnattr_setpgroup(&attributes, 0);
    error |= posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    if (!error)
      error = posix_spawnp(&peer->pid, peer->python, &files, &attributes, (char *const *)words, environ);
    posix_spawnattr_destroy(&attributes);
  }
  posix_spawn_file_actions_destroy(&files);
  return error;
}

static bool start(torch_peer *peer) {
  char script[PATH_MAX];
  int other = -1;
  if (!find_script(script) || !open_streams(peer, &other))
    return false;
  int error = spawn(peer, script, other);
  close(other);
  if (error)
    cli_error("--peer: cannot run %s: %s; the environment variable PYTHON names another", peer->python,
              strerror(error));
  return !error;
}

static bool begin(torch_peer *peer, DLDevice device, int threads) {
  char name[64], words[TORCH_PEER_WORDS];
  json_t *answer;
  fl_status status = ask(peer,
                         json_pack("{s:s, s:s, s:i}", "do", "begin", "device",
                                   cli_device_text(device, name, sizeof name), "threads", threads),
                         &answer, words);
  const char *version = json_string_value(json_object_get(answer, "version"));
  if (status)
    cli_error("--peer: %s; the environment variable PYTHON names another Python", words);
  else
    snprintf(peer->version, sizeof peer->version, "%s", version ? version : "");
  json_decref(answer);
  return !status;
}

torch_peer *torch_peer_start(DLDevice device, int threads, double seconds) {
  const char *python = getenv("PYTHON");
  torch_peer *peer = malloc(sizeof *peer);
  if (!peer) {
    cli_no_memory();
    return NULL;
  }
  *peer = (torch_peer){.channel = -1,
                       .printed = -1,
                       .seconds = seconds,
                       .python = python && *python ? python : "python3",
                       .state = trial_share(sizeof *peer->state)};
  if (!peer->state)
    cli_no_memory();
  if (peer->state && start(peer) && begin(peer, device, threads))
    return peer;
  torch_peer_end(peer);
  return NULL;
}

void torch_peer_end(torch_peer *peer) {
  if (!peer)
    return;
  if (peer->pid > 0) {
    kill(-peer->pid, SIGKILL);
    while (waitpid(peer->pid, NULL, 0) < 0 && errno == EINTR) {
    }
  }
  if (peer->channel >= 0)
    close(peer->channel);
  if (peer->printed >= 0)
    close(peer->printed);
  trial_unshare(peer->state, sizeof *peer->state);
  free(peer);
}

const char *torch_peer_version(const torch_peer *peer) {
  return peer->version;
}

/* ------------------------------------------------------------------------------------------------------------ calls */

/* What its elements are: {"shape", "dtype"}, and a range where they have one. */
static json_t *tensor_json(const fl_input *input) {
  json_t *shape = json_array();
  for (int d = 0; d < input->spec.ndim; d++)
    shape = cli_json_append(shape, json_integer((json_int_t)input->spec.shape[d]));
  json_t *made = json_pack("{s:o, s:s}", "shape", shape, "dtype", cli_dtype_name(input->spec.dtype));
  bool ranged = input->contents != FL_CONTENTS_NORMAL && input->contents != FL_CONTENTS_MODERATE;
  const char *order = input->contents == FL_CONTENTS_DISTINCT    ? "distinct"
                      : input->contents == FL_CONTENTS_ASCENDING ? "ascending"
                                                                 : "";
  if (made && ranged &&
      (json_object_set_new(made, "low", json_real(input->low)) ||
       json_object_set_new(made, "high", json_real(input->high)) ||
       json_object_set_new(made, "order", json_string(order)))) {
    json_decref(made);
    return NULL;
  }
  return made;
}

static json_t *value_json(const fl_value *value) {
  json_t *list;
  switch (value->type) {
  case FL_INT:
    return json_integer((json_int_t)value->v.i);
  case FL_FLOAT:
    return isfinite(value->v.f) ? json_real(value->v.f) : json_null();
  case FL_BOOL:
    return json_boolean(value->v.b);
  case FL_STRING:
    return cli_json_string(value->v.s);
  case FL_INT_LIST:
    list = json_array();
    for (uint32_t i = 0; i < value->length; i++)
      list = cli_json_append(list, json_integer((json_int_t)value->v.ints[i]));
    return list;
  default:
    return json_null();
  }
}

static json_t *arguments_json(const timed_call *call) {
  json_t *arguments = json_object();
  for (uint32_t i = 0; i < call->n_arguments && arguments; i++) {
    const fl_argument *argument = fl_op_argument(call->op, i);
    const fl_input *input = &call->inputs[i];
    json_t *value = argument->type != FL_TENSOR ? value_json(&input->value)
                    : input->spec.present       ? tensor_json(input)
                                                : json_null();
    if (json_object_set_new(arguments, argument->name, value)) {
      json_decref(arguments);
      arguments = NULL;
    }
  }
  return arguments;
}

void torch_peer_next_call(torch_peer *peer) {
  peer->state->call++;
}

fl_status torch_peer_ready(torch_peer *peer, const char *name, const timed_call *call, char words[TORCH_PEER_WORDS]) {
  json_t *answer, *request = json_pack("{s:s, s:s, s:I, s:s, s:o, s:i}", "do", "ready", "peer", name, "call",
                                       (json_int_t)peer->state->call, "op", fl_op_name(call->op), "arguments",
                                       arguments_json(call), "copies", (int)call->copies);
  fl_status status = ask(peer, request, &answer, words);
  json_decref(answer);
  return status;
}

fl_status torch_peer_time(torch_peer *peer, const char *name, long n, double *ns, char words[TORCH_PEER_WORDS]) {
  json_t *answer, *request = json_pack("{s:s, s:s, s:I}", "do", "time", "peer", name, "n", (json_int_t)n);
  fl_status status = ask(peer, request, &answer, words);
  const json_t *took = json_object_get(answer, "ns");
  *ns = json_is_number(took) ? json_number_value(took) : NAN;
  if (!status && !(*ns > 0)) {
    give_up(peer, "%s answered without a time above 0", peer->python);
    snprintf(words, TORCH_PEER_WORDS, "%s", peer->state->fault);
    status = FL_EINTERNAL;
  }
  json_decref(answer);
  return status;
}
