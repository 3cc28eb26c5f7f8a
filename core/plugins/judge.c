/*
 * Judging plugins before they are mapped: see judge.h. Relies on `flhost probe`, found beside this library. Where that
 * cannot be run, plugins are loaded as they are, and it is said.
 */
#include "core/plugins/judge.h"

#include "core/plugins/discovery.h"
#include "core/support.h"

#include <inttypes.h>
#include <sha2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

/* `flhost probe` ends a plugin that takes too long; it is itself ended only when it does not. */
enum { MARGIN = 2, LINE = 512 };

/* ----------------------------------------------------------------------------------------------------- conditions */

/* Variables that decide which code a plugin gets: the dynamic linker's, and drivers that stand in for others. */
static const char *const variables[] = {"LD_", "GLIBC_TUNABLES=", "FLHOST_"};

static void digest_text(SHA2_CTX *digest, const char *text) {
  SHA256Update(digest, (const uint8_t *)text, strlen(text) + 1);
}

static void digest_file(SHA2_CTX *digest, const char *path) {
  struct stat status;
  fl_verdict_key key = {0};
  if (!stat(path, &status))
    fl_verdict_key_set(&key, &status);
  SHA256Update(digest, (const uint8_t *)&key.device, sizeof key - offsetof(fl_verdict_key, device));
}

static void digest_environment(SHA2_CTX *digest) {
  for (char **entry = environ; entry && *entry; entry++)
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
      if (!strncmp(*entry, variables[i], strlen(variables[i])))
        digest_text(digest, *entry);
}

/* Under limits as tight as nobody has thought of a plugin may do what it does nowhere else. */
static void digest_limits(SHA2_CTX *digest) {
  static const int limits[] = {RLIMIT_NOFILE, RLIMIT_AS, RLIMIT_DATA, RLIMIT_STACK, RLIMIT_NPROC, RLIMIT_MEMLOCK};
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
    struct rlimit limit = {0};
    getrlimit((__rlimit_resource_t)limits[i], &limit);
    SHA256Update(digest, (const uint8_t *)&limit.rlim_cur, sizeof limit.rlim_cur);
  }
}

/* What all plugins share: the host, the command, the library path, which libraries the system has, the kernel, limits.
 */
static void set_conditions(fl_judge *judge) {
  SHA2_CTX digest;
  struct utsname system;
  char text[FL_SHA256_SIZE];
  SHA256Init(&digest);
  digest_text(&digest, fl_version());
  digest_text(&digest, judge->command);
  digest_file(&digest, judge->command);
  digest_file(&digest, "/etc/ld.so.cache");
  digest_environment(&digest);
  digest_limits(&digest);
  digest_text(&digest, uname(&system) ? "" : system.release);
  judge->conditions = fl_strdup(SHA256End(&digest, text));
}

/* Of a plugin that says what its devices' driver is: its version, and variables that hide devices. */
static void digest_driver(SHA2_CTX *digest, const fl_note_info *info) {
  fl_platform_note note = fl_note_platform(info);
  fl_platform_kind kind;
  fl_arena owned = {0};
  char *text;
  size_t length;
  if (fl_platform_kind_read(&note, &owned, &kind))
    goto out;
  for (const char *const *path = kind.versions; *path; path++)
    if (!fl_read_file(*path, &text, &length)) {
      digest_text(digest, text);
      free(text);
    }
  for (const char *const *name = kind.masks; *name; name++) {
    const char *value = secure_getenv(*name);
    digest_text(digest, value ? value : "");
  }
out:
  fl_arena_free(&owned);
}

/* malloc'ed: the path and the symbol, which a path with a colon in it is in need of. */
static char *module_of(const fl_suspect *suspect) {
  return fl_format("%s:%s", suspect->file, suspect->symbol ? suspect->symbol : "register_builtins");
}

/* `key->file` is malloc'ed, NULL without memory. */
static void make_key(const fl_judge *judge, const fl_suspect *suspect, fl_verdict_key *key) {
  SHA2_CTX digest;
  *key = (fl_verdict_key){.file = module_of(suspect)};
  fl_verdict_key_set(key, &suspect->status);
  memcpy(key->conditions, judge->conditions, FL_SHA256_SIZE);
  if (!suspect->info || !suspect->info->hardware)
    return;
  SHA256Init(&digest);
  digest_text(&digest, judge->conditions);
  digest_driver(&digest, suspect->info);
  SHA256End(&digest, key->conditions);
}

/* ---------------------------------------------------------------------------------------------------------- trying */

/* Of what was refused not all of its code has run: what it does once its library is there, say, is not known. */
typedef enum ending { DID_NO_HARM, DID_HARM, WAS_REFUSED } ending;

/* Files that one process tries, and what it said of them. */
typedef struct trial {
  fl_judge *judge;
  fl_log *log;
  const fl_suspect *suspects;
  uint32_t n;
  fl_verdict_key *keys;
  bool *done; /* of each */
  /* Of the process that runs. */
  uint32_t first, current; /* index of its first file; what it is at, n: none */
  bool greeted;            /* it speaks our language */
  bool gave_up;            /* it can try none, for a reason of its own */
  char phase[64], line[LINE], why[LINE];
  size_t length;
} trial;

static void conclude(trial *t, uint32_t i, ending how, const char *words) {
  struct stat now;
  if (i >= t->n || t->done[i])
    return;
  fl_verdict_key key = t->keys[i];
  t->done[i] = true;
  t->current = t->n;
  if (stat(t->suspects[i].file, &now)) /* it went away, and is not loaded either */
    return;
  fl_verdict_key_set(&key, &now);
  if (memcmp(&key.device, &t->keys[i].device, sizeof key - offsetof(fl_verdict_key, device)) != 0)
    words = how == DID_HARM ? words : "was replaced", how = DID_HARM;
  fl_judgement *made = fl_verdicts_add(&t->judge->verdicts, t->suspects[i].file, &t->keys[i], how == DID_HARM, words);
  if (made && how == WAS_REFUSED)
    made->is_unsaved = false;
}

/* The process that tries says that it cannot. */
static void give_up(trial *t, const char *why) {
  t->gave_up = true;
  t->current = t->n;
  snprintf(t->why, sizeof t->why, "%s", why);
}

/* Words from outside are for people to read. */
static void take_line(trial *t, const char *said) {
  char line[LINE];
  unsigned i;
  int at = 0;
  fl_show(line, sizeof line, said, false);
  if (sscanf(line, "flhost-probe %u", &i) == 1)
    t->greeted = i == FL_PROBE_PROTOCOL;
  else if (!t->greeted)
    return;
  else if (sscanf(line, "try %u", &i) == 1 && i < t->n - t->first)
    t->current = t->first + i;
  else if (!strncmp(line, "untried ", 8))
    give_up(t, line + 8);
  else if (!strncmp(line, "in ", 3))
    fl_show(t->phase, sizeof t->phase, line + 3, false);
  else if (!strncmp(line, "changed ", 8) && t->current < t->n)
    fl_log_line(t->log, FL_LOG_INFO, "plugin %s, tried in another process, changed %s", t->suspects[t->current].name,
                line + 8);
  else if (sscanf(line, "ok %u", &i) == 1 && i < t->n - t->first)
    conclude(t, t->first + i, DID_NO_HARM, "");
  else if (sscanf(line, "refused %u", &i) == 1 && i < t->n - t->first)
    conclude(t, t->first + i, WAS_REFUSED, "");
  else if (sscanf(line, "failed %u %n", &i, &at) == 1 && at && i < t->n - t->first)
    conclude(t, t->first + i, DID_HARM, line[at] ? line + at : "did harm");
}

static void receive(void *user, const void *data, size_t length) {
  trial *t = user;
  const char *bytes = data;
  for (size_t i = 0; i < length; i++) {
    if (bytes[i] != '\n') {
      if (t->length + 1 < sizeof t->line)
        t->line[t->length++] = bytes[i] ? bytes[i] : '?';
      continue;
    }
    t->line[t->length] = 0;
    t->length = 0;
    take_line(t, t->line);
  }
}

/* Said once: from then on nobody expects it. */
static void say_untried(const trial *t, fl_host *host, const char *why) {
  if (host->told_untried)
    return;
  host->told_untried = true;
  fl_log_line(
      t->log, FL_LOG_WARNING,
      "plugins are loaded without being tried in another process first: %s; VLLM_FL_PROBE=off says that this is "
      "intended",
      why);
}

/* Of the first line that the command printed. */
static void say_unusable(const trial *t, fl_host *host, const fl_child_result *ended, const char *output) {
  char *words = fl_format("'%s probe' cannot be used: it %s%s%.*s", t->judge->command, ended->words,
                          *output ? ", and said: " : "", (int)strcspn(output, "\n"), output);
  char shown[LINE];
  fl_show(shown, sizeof shown, words ? words : "out of memory", false);
  say_untried(t, host, shown);
  free(words);
}

uint32_t fl_probe_step_ms(void) {
  const char *text = secure_getenv("FLHOST_PROBE_TIMEOUT_MS");
  long ms = text ? strtol(text, NULL, 10) : 0;
  return ms > 0 && ms < 3600000 ? (uint32_t)ms : FL_PROBE_STEP_MS;
}

/* Runs one process for all files from `first` on. false: it is of no use. */
static bool run_process(trial *t, fl_host *host) {
  const char *argv[FL_JUDGE_BATCH + 5] = {t->judge->command, "probe", "--channel", "--"};
  char output[256];
  fl_child_result ended = {.size = sizeof ended};
  for (uint32_t i = t->first; i < t->n; i++)
    argv[4 + i - t->first] = t->keys[i].file;
  const fl_child_options options = {.size = sizeof options,
                                    .argv = argv,
                                    .receive = receive,
                                    .user = t,
                                    .silence_ms = fl_probe_step_ms() * MARGIN + 1000,
                                    .output = output,
                                    .output_size = sizeof output};
  t->current = t->n;
  t->greeted = t->gave_up = false;
  t->length = 0;
  snprintf(t->phase, sizeof t->phase, "its initialisers");
  if (fl_child_run(&options, &ended)) {
    say_untried(t, host, fl_error_message());
    return false;
  }
  if (!t->greeted) {
    say_unusable(t, host, &ended, output);
    return false;
  }
  if (t->gave_up) {
    say_untried(t, host, t->why);
    return false;
  }
  if (t->current < t->n) { /* it took the process with it that watched */
    char words[FL_JUDGE_WORDS];
    snprintf(words, sizeof words, "ended the process that tried it (which %s) in %s", ended.words, t->phase);
    conclude(t, t->current, DID_HARM, words);
  }
  return true;
}

/* Each process gets at least one file further. */
static void try_all(trial *t, fl_host *host) {
  while (t->first < t->n) {
    uint32_t before = t->first;
    if (!run_process(t, host))
      return;
    while (t->first < t->n && t->done[t->first])
      t->first++;
    if (t->first == before)
      return;
  }
}

/* ---------------------------------------------------------------------------------------------------------- judging */

static bool is_known(fl_judge *judge, const fl_suspect *suspect, const fl_verdict_key *key, bool anew) {
  const fl_judgement *verdict = fl_verdicts_find(&judge->verdicts, suspect->file, key);
  return verdict && (!anew || verdict->is_new);
}

/* The suspect and those that follow it, all of which are unknown. */
static void try_suspects(fl_judge *judge, fl_host *host, const fl_suspect *suspect, bool anew) {
  fl_suspect suspects[FL_JUDGE_BATCH], ahead[FL_JUDGE_BATCH];
  fl_verdict_key keys[FL_JUDGE_BATCH];
  bool done[FL_JUDGE_BATCH] = {false};
  trial t = {.judge = judge, .log = &host->log, .suspects = suspects, .n = 1, .keys = keys, .done = done};
  suspects[0] = *suspect;
  make_key(judge, suspect, &keys[0]);
  bool memory = keys[0].file != NULL;
  uint32_t n = judge->look_ahead ? judge->look_ahead(judge->user, ahead, FL_JUDGE_BATCH - 1) : 0;
  for (uint32_t i = 0; i < n && memory; i++) {
    make_key(judge, &ahead[i], &keys[t.n]);
    memory = keys[t.n].file != NULL;
    if (memory && strcmp(keys[t.n].file, keys[0].file) != 0 && !is_known(judge, &ahead[i], &keys[t.n], anew))
      suspects[t.n++] = ahead[i];
    else
      free((char *)(uintptr_t)keys[t.n].file);
  }
  if (memory)
    try_all(&t, host);
  for (uint32_t i = 0; i < t.n; i++)
    free((char *)(uintptr_t)keys[i].file);
  fl_verdicts_save(&judge->verdicts, &host->log);
}

/* Is there a reason to look at all? A plugin that is being tried may load others. */
static bool is_asked(const fl_host *host, fl_probe_mode *mode) {
  *mode = fl_config_probe(&host->sources);
  return *mode != FL_PROBE_OFF && !secure_getenv("FLHOST_JUDGING");
}

static bool begin(fl_judge *judge, fl_host *host) {
  if (!judge->command)
    judge->command = fl_default_command();
  if (judge->command && !judge->conditions)
    set_conditions(judge);
  if (judge->conditions)
    fl_verdicts_open(&judge->verdicts, &host->sources, &host->log);
  return judge->conditions != NULL;
}

bool fl_judge_allows(fl_judge *judge, fl_host *host, const fl_suspect *suspect, char why[FL_JUDGE_WORDS]) {
  fl_probe_mode mode;
  fl_verdict_key key;
  fl_kept_error kept;
  bool allowed = true;
  if (!is_asked(host, &mode) || !begin(judge, host))
    return true;
  make_key(judge, suspect, &key);
  if (!key.file)
    return true;
  fl_error_keep(&kept);
  bool anew = mode == FL_PROBE_ALWAYS;
  if (!is_known(judge, suspect, &key, anew))
    try_suspects(judge, host, suspect, anew);
  const fl_judgement *verdict = fl_verdicts_find(&judge->verdicts, suspect->file, &key);
  if (verdict && verdict->failed) {
    allowed = false;
    snprintf(why, FL_JUDGE_WORDS,
             "%s when tried in another process, and is not loaded; it is tried again when it, the library path or the "
             "driver is another, after a day, or by 'flhost plugins --rescan'",
             verdict->words);
  }
  fl_error_restore(&kept);
  free((char *)(uintptr_t)key.file);
  return allowed;
}

void fl_judge_end(fl_judge *judge, fl_log *log) {
  fl_verdicts_save(&judge->verdicts, log);
  fl_verdicts_close(&judge->verdicts);
  free(judge->command);
  free(judge->conditions);
}
