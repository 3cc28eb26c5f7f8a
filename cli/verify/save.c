/* Keeping a failing call: see save.h. */
#include "cli/verify/save.h"

#include "cli/cli.h"
#include "cli/verify/plan.h"
#include "cli/verify/test.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Dimensions that are tried; children that are started for it at most; seconds for it, for one call, and for repeating
 * one. */
enum { DIMENSIONS = 8, TRIALS = 60, SECONDS = 10, CALL_SECONDS = 5, REPEAT_SECONDS = 2 };

/* From the smallest: the first with which it fails is kept. */
static const int64_t ladder[] = {1, 2, 3, 4, 5, 7, 8, 9, 11, 16, 17, 19, 32, 33, 35, 64, 67, 128, 256, 512, 1024, 2048};
enum { N_LADDER = sizeof ladder / sizeof ladder[0] };

int verify_check_save(const char *directory) {
  if ((mkdir(directory, 0777) && errno != EEXIST) || access(directory, W_OK | X_OK)) {
    cli_error("--save: %s: %s", directory, strerror(errno));
    return EXIT_USAGE;
  }
  return EXIT_OK;
}

/* ----------------------------------------------------------------------------------------------------- does it fail */

typedef struct search {
  const verify_impl *impl, *reference;
  trial_limits limits;
  fl_op *op;
  failed_call failed; /* how */
  int trials;
  time_t end;
  bool no_memory;
} search;

/* What the child does, and says. */
typedef struct attempted {
  const verify_impl *impl;
  const test_call *call;
  failed_call how;
  bool failed;
} attempted;

static void try_call(void *context) {
  attempted *a = context;
  verify_row row = {0};
  verify_again(a->impl, a->call, REPEAT_SECONDS, &row, &a->how);
  a->failed = row.failures > 0;
  free(row.problem);
  free(row.reason);
  free(row.worst);
}

/* Does the call fail? The plan has it then; it is to be freed. */
static bool fails(search *s, const call_source *source, verify_plan *plan) {
  *plan = (verify_plan){.op = s->op, .dtype = source->dtype, .name = ""};
  if (s->trials++ > TRIALS || time(NULL) > s->end)
    return false;
  s->no_memory |= !verify_plan_one(plan, s->reference, &s->limits, source);
  attempted *a = plan->n && !s->no_memory ? trial_share(sizeof *a) : NULL;
  if (!a)
    return false;
  *a = (attempted){.impl = s->impl, .call = &plan->calls[0], .how = s->failed};
  trial_outcome outcome = trial_run(&s->limits, try_call, a);
  bool failed = a->failed || (outcome.end && outcome.end != TRIAL_NOT_STARTED);
  if (failed && s->failed.calls)
    s->failed.calls = a->how.calls;
  trial_unshare(a, sizeof *a);
  return failed;
}

/* ---------------------------------------------------------------------------------------------------------- smaller */

/* The sizes that are chosen so far, with those of one dimension put in. */
static bool join_sizes(char *text, size_t size, char chosen[DIMENSIONS][64], uint32_t n) {
  size_t length = 0;
  *text = 0;
  for (uint32_t i = 0; i < n && length < size; i++)
    if (*chosen[i])
      length += (size_t)snprintf(text + length, size - length, "%s%s", length ? "; " : "", chosen[i]);
  return length < size;
}

static void format_size(char text[64], const fl_dimension *dimension, int64_t size) {
  if (!strcmp(dimension->name, "..."))
    snprintf(text, 64, "...: [%" PRId64 "]", size);
  else
    snprintf(text, 64, "%.40s: %" PRId64, dimension->name, size);
}

/* Smaller sizes of one dimension, from the smallest on. */
static void shrink(search *s, const fl_dimension *dimension, char chosen[DIMENSIONS][64], uint32_t index,
                   call_source *source, verify_plan *best) {
  char before[64];
  memcpy(before, chosen[index], sizeof before);
  for (size_t i = 0; i < N_LADDER && !s->no_memory; i++) {
    call_source smaller = *source;
    verify_plan plan;
    format_size(chosen[index], dimension, ladder[i] * dimension->step);
    bool fits = join_sizes(smaller.sizes, sizeof smaller.sizes, chosen, DIMENSIONS);
    bool found = fits && fails(s, &smaller, &plan) && plan.calls[0].elements < best->calls[0].elements;
    if (found) {
      verify_plan_free(best);
      *best = plan;
      *source = smaller;
      return;
    }
    if (fits)
      verify_plan_free(&plan);
  }
  memcpy(chosen[index], before, sizeof before);
}

static void find_smallest(search *s, call_source *source, verify_plan *best) {
  char chosen[DIMENSIONS][64] = {{0}};
  fl_dimension dimension = {.size = sizeof dimension};
  if (source->timed)
    return;
  for (uint32_t d = 0; d < DIMENSIONS && !fl_free_dimension(s->op, d, &dimension); d++) {
    size_t length = strlen(dimension.name);
    if (!strncmp(source->sizes, dimension.name, length) && source->sizes[length] == ':')
      snprintf(chosen[d], sizeof chosen[d], "%.63s", source->sizes);
  }
  for (uint32_t d = 0; d < DIMENSIONS && !fl_free_dimension(s->op, d, &dimension) && !s->no_memory; d++)
    shrink(s, &dimension, chosen, d, source, best);
}

/* --------------------------------------------------------------------------------------------------------- the file */

static const fl_edge edges[] = {
    [EDGE_NONE] = FL_EDGE_NONE, [EDGE_BEHIND] = FL_EDGE_END, [EDGE_BEFORE] = FL_EDGE_BEGINNING};

/* What the reference gave, as values of the op. */
static bool save(const search *s, const test_call *call, const char *path, const char *note) {
  attempt made;
  fl_value *expected = calloc(call->n_values + 1, sizeof *expected);
  DLTensor *tensors = calloc(call->n_values + 1, sizeof *tensors);
  bool saved = false;
  char source[160];
  if (!expected || !tensors || !verify_create_attempt(&made, s->reference->at, call, s->failed.edge))
    goto out;
  for (uint32_t i = 0; i < call->n_values && !call->kept->status; i++) {
    const kept_value *kept = &call->kept->values[i];
    expected[i] = kept->value;
    if (!kept->written)
      continue;
    tensors[i] = made.tensors[made.source[i]].tensor;
    tensors[i].data = kept->data;
    tensors[i].strides = NULL;
    tensors[i].byte_offset = 0;
    expected[i] = fl_tensor(&tensors[i]);
  }
  snprintf(source, sizeof source, "flhost %s %s", fl_version(), s->reference->info->impl_id);
  const fl_saved_call about = {.size = sizeof about,
                               .expected = expected,
                               .source = source,
                               .note = note,
                               .edge = edges[s->failed.edge],
                               .calls = s->failed.calls};
  const fl_call made_call = {.size = sizeof made_call, .count = call->n_values, .values = made.values};
  saved = !fl_save_call(path, s->op, &made_call, &about);
  if (!saved)
    cli_error("--save: %s", fl_error_message());
  attempt_free(&made);
out:
  free(expected);
  free(tensors);
  return saved;
}

/* Does it fail again, in the way in which it did, or when it is called again and again? */
static bool fails_again(search *s, const call_source *source, verify_plan *plan) {
  bool failed = fails(s, source, plan);
  if (failed || s->failed.threads || s->failed.edge || s->failed.calls || s->no_memory)
    return failed;
  verify_plan_free(plan);
  s->failed.calls = 1;
  return fails(s, source, plan);
}

/* What a file cannot repeat. */
static const char *alone(const search *s, bool failed) {
  return failed              ? ""
         : s->failed.threads ? " (a race: it takes two threads that call at once, with different data, and luck)"
                             : " (made again by itself in a new process, this call did not fail)";
}

bool verify_save_smallest(const verify_impl *impl, const verify_impl *reference, const verify_request *asked,
                          const call_source *source, const failed_call *failed, fl_op *op, verify_row *row) {
  search s = {.impl = impl,
              .reference = reference,
              .limits = asked->limits,
              .op = op,
              .failed = *failed,
              .end = time(NULL) + SECONDS};
  call_source smallest = *source;
  verify_plan plan;
  char *path = NULL, *note = NULL;
  if (s.limits.seconds > CALL_SECONDS || s.limits.seconds <= 0)
    s.limits.seconds = CALL_SECONDS;
  bool again = fails_again(&s, source, &plan);
  if (again && row->end != TRIAL_HUNG && row->end != TRIAL_OUT_OF_MEMORY && !s.limits.in_process)
    find_smallest(&s, &smallest, &plan);
  if (!again)
    s.failed.calls = 0;
  if (plan.n && !s.no_memory) {
    s.no_memory = asprintf(&path, "%s/%s-%s-%s.safetensors", asked->save, row->op, row->impl_id,
                           *row->dtype ? row->dtype : "none") < 0 ||
                  asprintf(&note, "%s: %s%s", row->impl_id, row->problem, alone(&s, again)) < 0;
    if (!s.no_memory && save(&s, &plan.calls[0], path, note)) {
      row->saved = path;
      path = NULL;
    }
  }
  free(path);
  free(note);
  verify_plan_free(&plan);
  return !s.no_memory;
}
