/* flhost run: calls operators on safetensors files, compares with the results in them, and says what ran and why. */
#include "cli/cli.h"
#include "cli/run/print.h"
#include "cli/run/ranks.h"
#include "cli/trials/device.h"
#include "cli/trials/trial.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { REPEAT_DEFAULT = 5, REPEAT_MAX = 1000000, TIMEOUT = 300 };

/* A file to run, and where its results go. */
typedef struct run_job {
  char *path, *out_path; /* out_path: NULL without --out */
  dev_t device;          /* of the file at `path`, as is the inode; 0 if it cannot be looked at */
  ino_t inode;
} run_job;

typedef struct run_list {
  run_job *items;
  size_t n, capacity;
  const char *out; /* --out, or NULL */
} run_list;

/* ------------------------------------------------------------------------------------------------------ the files */

static void jobs_free(run_list *jobs) {
  for (size_t i = 0; i < jobs->n; i++) {
    free(jobs->items[i].path);
    free(jobs->items[i].out_path);
  }
  free(jobs->items);
}

/* Two files of one name would overwrite each other's results. */
static int check_out_path(const run_list *jobs, const run_job *added) {
  for (size_t i = 0; added->out_path && i < jobs->n; i++)
    if (!strcmp(jobs->items[i].out_path, added->out_path)) {
      cli_error("--out: the results of '%s' and '%s' would both be '%s'", jobs->items[i].path, added->path,
                added->out_path);
      return EXIT_USAGE;
    }
  return EXIT_OK;
}

/* Recorded results must not be lost to those of this run, whatever name leads to them. */
static int check_overwriting(const run_list *jobs) {
  struct stat out;
  for (size_t i = 0; i < jobs->n; i++) {
    if (!jobs->items[i].out_path || stat(jobs->items[i].out_path, &out))
      continue;
    for (size_t j = 0; j < jobs->n; j++)
      if (jobs->items[j].inode == out.st_ino && jobs->items[j].device == out.st_dev) {
        cli_error("--out: the results of '%s' would overwrite the file '%s', expected another directory",
                  jobs->items[i].path, jobs->items[j].path);
        return EXIT_USAGE;
      }
  }
  return EXIT_OK;
}

/* `name`: its path below the operand, which is also that below --out. */
static int add_job(run_list *jobs, const char *path, const char *name) {
  run_job added = {.path = strdup(path)};
  struct stat file;
  if (!stat(path, &file)) {
    added.device = file.st_dev;
    added.inode = file.st_ino;
  }
  if (jobs->n == jobs->capacity) {
    size_t capacity = jobs->capacity ? jobs->capacity * 2 : 64;
    run_job *grown = realloc(jobs->items, capacity * sizeof *grown);
    if (!grown) {
      free(added.path);
      return cli_no_memory();
    }
    jobs->items = grown;
    jobs->capacity = capacity;
  }
  if (jobs->out && asprintf(&added.out_path, "%s/%s", jobs->out, name) < 0)
    added.out_path = NULL;
  int status = !added.path || (jobs->out && !added.out_path) ? cli_no_memory() : check_out_path(jobs, &added);
  if (status) {
    free(added.path);
    free(added.out_path);
    return status;
  }
  jobs->items[jobs->n++] = added;
  return EXIT_OK;
}

static bool is_safetensors(const char *name) {
  static const char suffix[] = ".safetensors";
  size_t length = strlen(name);
  return length > strlen(suffix) && !strcmp(name + length - strlen(suffix), suffix);
}

static int keep_entry(const struct dirent *entry) {
  return entry->d_name[0] != '.';
}

static int compare_entries(const struct dirent **a, const struct dirent **b) {
  return strcmp((*a)->d_name, (*b)->d_name);
}

static int add_directory(run_list *jobs, const char *path, const char *name);

static int add_entry(run_list *jobs, const char *directory, const char *directory_name, const char *entry) {
  struct stat status;
  char *path = NULL, *name = NULL;
  int result = EXIT_OK;
  size_t length = strlen(directory);
  if (asprintf(&path, "%s%s%s", directory, length && directory[length - 1] == '/' ? "" : "/", entry) < 0)
    path = NULL;
  if (asprintf(&name, "%s%s%s", directory_name, *directory_name ? "/" : "", entry) < 0)
    name = NULL;
  if (!path || !name)
    result = cli_no_memory();
  else if (lstat(path, &status))
    result = EXIT_OK;               /* gone meanwhile */
  else if (S_ISDIR(status.st_mode)) /* links to directories are not followed: they may lead round in circles */
    result = add_directory(jobs, path, name);
  else if (is_safetensors(entry))
    result = add_job(jobs, path, name);
  free(path);
  free(name);
  return result;
}

/* All *.safetensors files below, in bytewise order. */
static int add_directory(run_list *jobs, const char *path, const char *name) {
  struct dirent **entries;
  int status = EXIT_OK, n = scandir(path, &entries, keep_entry, compare_entries);
  if (n < 0) {
    cli_error("%s: %s", path, strerror(errno));
    return EXIT_USAGE;
  }
  for (int i = 0; i < n; i++) {
    if (!status)
      status = add_entry(jobs, path, name, entries[i]->d_name);
    free(entries[i]);
  }
  free(entries);
  return status;
}

static int add_operand(run_list *jobs, const char *path) {
  struct stat status;
  size_t before = jobs->n;
  if (stat(path, &status)) {
    cli_error("%s: %s", path, strerror(errno));
    return EXIT_USAGE;
  }
  if (!S_ISDIR(status.st_mode)) {
    const char *slash = strrchr(path, '/');
    return add_job(jobs, path, slash ? slash + 1 : path);
  }
  int result = add_directory(jobs, path, "");
  if (!result && jobs->n == before) {
    cli_error("%s: no .safetensors file in it", path);
    return EXIT_USAGE;
  }
  return result;
}

/* mkdir -p of what lies above `path`. */
static int make_parents(const char *path) {
  char *copy = strdup(path);
  if (!copy)
    return cli_no_memory();
  for (char *slash = strchr(copy + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    if (mkdir(copy, 0777) && errno != EEXIST) {
      cli_error("--out: %s: %s", copy, strerror(errno));
      free(copy);
      return EXIT_USAGE;
    }
    *slash = '/';
  }
  free(copy);
  return EXIT_OK;
}

/* ----------------------------------------------------------------------------------------------------- the command */

/* A file that cannot be run outweighs a missing implementation, which outweighs a wrong result. */
static int exit_status_of(const run_report *reports, size_t n) {
  static const int exits[] = {[RUN_OK] = EXIT_OK,
                              [RUN_WRITTEN] = EXIT_OK,
                              [RUN_FAILED] = EXIT_MISMATCH,
                              [RUN_NO_IMPL] = EXIT_NO_IMPL,
                              [RUN_ERROR] = EXIT_USAGE};
  run_status worst = RUN_OK;
  for (size_t i = 0; i < n; i++)
    if (reports[i].status > worst)
      worst = reports[i].status;
  return exits[worst];
}

/* A report as a child leaves it; "" stands for NULL. */
typedef struct shared_report {
  run_report report; /* its strings lie below */
  bool done;
  char op[256], impl_id[256], why[512], source[512], problem[2048];
} shared_report;

/* What a child does: the jobs from `next` on. */
typedef struct running {
  fl_host *host;
  DLDevice device;
  const run_list *jobs;
  int repeat;
  int32_t ranks;
  run_forms forms;
  size_t next;
  struct run_shared {
    bool printing; /* the files are done, and what there is to show is being shown */
    int status;
    shared_report reports[];
  } * shared;
} running;

static char *keep_text(char *room, size_t size, const char *text) {
  if (text)
    snprintf(room, size, "%s", text);
  return text ? room : NULL;
}

static void keep_report(shared_report *kept, const run_report *report) {
  kept->report = *report;
  kept->report.op = keep_text(kept->op, sizeof kept->op, report->op);
  kept->report.impl_id = keep_text(kept->impl_id, sizeof kept->impl_id, report->impl_id);
  kept->report.why = keep_text(kept->why, sizeof kept->why, report->why);
  kept->report.source = keep_text(kept->source, sizeof kept->source, report->source);
  kept->report.problem = keep_text(kept->problem, sizeof kept->problem, report->problem);
  kept->done = true;
}

/* What became of the files, and the exit status. */
static int show_reports(const running *r) {
  size_t n = r->jobs->n;
  run_report *reports = calloc(n + 1, sizeof *reports);
  if (!reports)
    return cli_no_memory();
  for (size_t i = 0; i < n; i++)
    reports[i] = r->shared->reports[i].report;
  int status = run_print(r->host, r->device, reports, n, r->repeat, r->forms);
  if (!status)
    status = exit_status_of(reports, n);
  free(reports);
  return status;
}

/* What an op gets after these calls only the process knows that made them. */
static bool shows_in_child(const running *r) {
  return r->forms.explain && !r->forms.json;
}

static void run_jobs_here(void *context) {
  running *r = context;
  for (size_t i = r->next; i < r->jobs->n; i++) {
    const run_job *job = &r->jobs->items[i];
    trial_doing(job->path, NULL);
    run_report report = run_file(r->host, r->device, job->path, job->out_path, r->repeat, r->ranks);
    if (report.problem)
      cli_error("%s: %s", job->path, report.problem);
    keep_report(&r->shared->reports[i], &report);
    run_report_free(&report);
  }
  if (!shows_in_child(r))
    return;
  r->shared->printing = true;
  trial_show();
  r->shared->status = cli_check_output(show_reports(r));
}

/* A file whose call did not come back: the next one is run in a new process. */
static void take_end(running *r, const trial_outcome *outcome) {
  shared_report *kept = &r->shared->reports[r->next];
  run_report report = {.path = r->jobs->items[r->next].path, .status = RUN_ERROR, .time_us = -1};
  report.problem = (char *)outcome->words;
  cli_error("%s: %s", report.path, outcome->words);
  keep_report(kept, &report);
  r->next++;
}

static int run_jobs(fl_host *host, DLDevice device, const run_list *jobs, int repeat, int32_t ranks, run_forms forms,
                    const trial_limits *limits) {
  size_t size = sizeof(struct run_shared) + jobs->n * sizeof(shared_report);
  running r = {.host = host, .device = device, .jobs = jobs, .repeat = repeat, .ranks = ranks, .forms = forms};
  int status = EXIT_OK;
  for (size_t i = 0; i < jobs->n && !status; i++)
    if (jobs->items[i].out_path)
      status = make_parents(jobs->items[i].out_path);
  if (status)
    return status;
  r.shared = trial_share(size);
  if (!r.shared)
    return cli_no_memory();
  while (r.next < jobs->n) {
    trial_outcome outcome = trial_run(limits, run_jobs_here, &r);
    while (r.next < jobs->n && r.shared->reports[r.next].done)
      r.next++;
    if (outcome.end && r.shared->printing && outcome.signal == SIGPIPE)
      raise(SIGPIPE); /* nobody reads any more: as if it had been this process */
    if (outcome.end && r.next < jobs->n)
      take_end(&r, &outcome);
    else
      break;
  }
  bool shown = shows_in_child(&r) && r.shared->printing;
  status = shown ? r.shared->status : show_reports(&r);
  trial_unshare(r.shared, size);
  return status;
}

/* Leaves *number as it is where the option is not given. */
static int parse_number(const char *option, const char *text, int most, int *number) {
  char *end;
  if (!text)
    return EXIT_OK;
  errno = 0;
  long value = strtol(text, &end, 10);
  if (errno || end == text || *end || value < 1 || value > most) {
    cli_error("--%s: '%s' is not a number from 1 to %d", option, text, most);
    return EXIT_USAGE;
  }
  *number = (int)value;
  return EXIT_OK;
}

int command_run(int argc, char **argv) {
  const char *repeat_text = NULL, *ranks_text = NULL, *timeout_text = NULL, *device_text = "cpu";
  trial_limits limits = {.seconds = TIMEOUT};
  DLDevice device;
  run_forms forms = {0};
  run_list jobs = {0};
  const cli_option options[] = {
      CLI_DEVICE_INDEX(&device_text),
      {"out", "DIR", "write the results into DIR, under the names of the files", NULL, &jobs.out},
      {"repeat", "N", "time the fastest of N calls after one to warm up (5)", NULL, &repeat_text},
      {"ranks", "N", "share calls among N ranks, threads of this process: the results are joined", NULL, &ranks_text},
      {"summary", NULL, "one line for each operator instead of each file", &forms.summary, NULL},
      {"timeout", "S", "a file that takes longer hangs (300); 0: none does", NULL, &timeout_text},
      {"in-process", NULL, "call in this process, for a debugger: a crash ends the command", &limits.in_process, NULL},
      {"explain", NULL, "what each operator gets after these calls, what failed and what is left out", &forms.explain,
       NULL},
      CLI_JSON(&forms.json),
      {NULL, NULL, NULL, NULL, NULL}};
  const cli_syntax syntax = {
      "FILE|DIR…", 1, -1,
      "Calls an operator for each safetensors file (of a directory: for all below it) and compares the results "
      "with those in the file, under the operator's tolerance; bit for bit where the file says 'bitexact' and "
      "the reference implementation ran. The metadata names the operator ('op') and its attributes ('attrs', "
      "JSON); arguments are tensors under their names, expected results are 'out.NAME', state after the call is "
      "'after.NAME'. A file of a call that failed has its tensors laid out as they were, and what the call writes "
      "beside "
      "its results is found. With --device they are copied to that device, and the results back; a call's time is then "
      "that until the device is done. With --ranks an operator that ranks can share gets a shard of its "
      "arguments on each of them, as many as divide it evenly (WHY says how many), and the joined results are "
      "compared; "
      "other operators are called as ever. They are called in another process: what crashes, exits or hangs is said, "
      "and the files behind it run.\n"
      "Exit status 0: all well. 1: a result is not as expected. 2: a file, a setting or a call was bad. 3: there "
      "is no implementation for a call.",
      options};
  int status, repeat = REPEAT_DEFAULT, ranks = 1, first = cli_parse(&syntax, argc, argv, &status);
  fl_host *host = NULL;
  if (first < 0)
    return status;
  if ((status = parse_number("repeat", repeat_text, REPEAT_MAX, &repeat)) ||
      (status = parse_number("ranks", ranks_text, RUN_RANKS_MOST, &ranks)))
    return status;
  if (timeout_text && !cli_amount("timeout", timeout_text, 1e6, &limits.seconds))
    return EXIT_USAGE;
  status = EXIT_OK;
  for (int i = first; i < argc && !status; i++)
    status = add_operand(&jobs, argv[i]);
  if (!status)
    status = check_overwriting(&jobs);
  if (!status)
    host = cli_open_host(FL_HOST_STATISTICS, &status);
  if (host)
    status = !cli_device(host, device_text, &device) ? EXIT_USAGE
             : device.device_type != kDLCPU          ? cli_check_device_apart(host, device, &limits)
                                                     : EXIT_OK;
  if (host && !status && ranks > 1 && device.device_type != kDLCPU) {
    cli_error("--ranks: ranks are threads of this process on the processor, not with --device %s", device_text);
    status = EXIT_USAGE;
  }
  if (host && !status)
    status = run_jobs(host, device, &jobs, repeat, ranks, forms, &limits);
  fl_host_destroy(host);
  jobs_free(&jobs);
  return status;
}
