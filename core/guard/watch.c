/* Watched calls: see watch.h. */
#include "core/guard/watch.h"

#include "core/guard/evidence.h"
#include "core/guard/reference.h"
#include "core/support.h"

#include <flhost/testing.h>
#include <stdlib.h>
#include <string.h>

/* fl_tally.said */
enum { SAID_UNWATCHED = 1, SAID_UNCHECKED = 2, SAID_NOT_FINITE = 4 };

fl_status fl_watch_create(fl_host *host) {
  const fl_setting_value *values = host->config->values;
  bool guarded = values[FL_SETTING_GUARD].flag;
  uint32_t canary = (uint32_t)values[FL_SETTING_CANARY].number;
  if (!guarded && !canary)
    return FL_OK;
  fl_watch *watch = calloc(1, sizeof *watch);
  const char *evidence = values[FL_SETTING_EVIDENCE].word;
  host->watch = watch;
  if (!watch)
    return fl_error_no_memory();
  watch->guarded = guarded;
  watch->canary = canary;
  watch->evidence = fl_strdup(evidence);
  return watch->evidence || !evidence ? FL_OK : fl_error_no_memory();
}

void fl_watch_free(fl_host *host) {
  if (host->watch)
    free(host->watch->evidence);
  free(host->watch);
}

static bool wants_check(const fl_host *host, const fl_impl_record *record) {
  const fl_tally *tally = atomic_load_explicit(&record->tally, memory_order_acquire);
  uint32_t checked = tally ? atomic_load_explicit(&tally->checked, memory_order_relaxed) : 0;
  return record->kind != FL_KIND_REFERENCE && checked < host->watch->canary;
}

bool fl_watch_wants(const fl_host *host, const fl_impl_record *record) {
  bool watchable = host->watch && !(record->flags & FL_IMPL_OPAQUE); /* what it was given is nobody's to see */
  return watchable && (host->watch->guarded || wants_check(host, record));
}

/* ------------------------------------------------------------------------------------------------------------ words */

/* Once an implementation; as often as it comes where there is no memory to remember it. */
static bool is_new(fl_impl_record *record, uint32_t what) {
  fl_tally *tally = fl_impl_record_tally(record);
  return !tally || !(atomic_fetch_or_explicit(&tally->said, what, memory_order_relaxed) & what);
}

static void say(const fl_watched *w, uint32_t what, int level, const char *which, const char *words) {
  if (is_new(w->record, what))
    fl_log_line(&w->op->host->log, level, "Implementation '%s' of op '%s' %s: %s", w->record->impl_id, w->op->name,
                which, words);
}

static fl_status fail(const fl_call *call, const char *mode, const fl_text *text) {
  snprintf(call->message, call->message_size, "%s: %s", mode, fl_text_get(text));
  return FL_EINTERNAL;
}

/* ----------------------------------------------------------------------------------------------------- guarded mode */

static fl_status run_on(const fl_watched *w, fl_copies *copies) {
  fl_copies_lend(copies);
  copies->call.message[0] = 0;
  fl_status status = w->run(w->user, &copies->call);
  fl_status fetched = fl_copies_fetch(copies);
  if (fetched && !status)
    snprintf(copies->given->message, copies->given->message_size, "%s", fl_error_message());
  return status ? status : fetched;
}

/* Elements that hold the pattern may hold it rightly: those that hold another one after a second run were written. */
static fl_status find_unwritten(const fl_watched *w, fl_copies *copies, fl_text *text) {
  if (!fl_copies_maybe_unwritten(copies))
    return FL_OK;
  fl_status status = fl_copies_renew(copies, FL_PATTERN_AGAIN);
  if (!status)
    status = run_on(w, copies);
  if (!status && (fl_copies_spoilt(copies, text) || fl_copies_unwritten(copies, text)))
    status = fail(copies->given, "guarded mode", text);
  return status;
}

static fl_status look(const fl_watched *w, fl_copies *copies, fl_status status) {
  fl_text text = {0};
  if (fl_copies_spoilt(copies, &text))
    status = fail(copies->given, "guarded mode", &text);
  else if (!status)
    status = find_unwritten(w, copies, &text);
  fl_text_free(&text);
  if (!status && !(w->op->schema->flags & FL_OP_NOT_FINITE) && fl_copies_not_finite(copies, &text))
    say(w, SAID_NOT_FINITE, FL_LOG_WARNING, "was given finite numbers only", fl_text_get(&text));
  fl_text_free(&text);
  return status;
}

/* ------------------------------------------------------------------------------------------------------ canary mode */

/* Is this call one of the first? One that cannot be counted is. */
static bool take_turn(const fl_watched *w) {
  if (!wants_check(w->op->host, w->record))
    return false;
  fl_tally *tally = fl_impl_record_tally(w->record);
  uint32_t turn = w->op->host->watch->canary;
  return !tally || atomic_fetch_add_explicit(&tally->checked, 1, memory_order_relaxed) < turn;
}

/* The words of a failure, and where the call was saved. */
static void add_evidence(const fl_watched *w, const fl_reference_call *reference, fl_text *text) {
  fl_value initial[FL_SCHEMA_MAX_VALUES];
  char why[1024] = "", source[FL_NAME_MAX + 64];
  const fl_call call = {.size = sizeof call, .count = reference->call.count, .values = initial};
  memcpy(initial, reference->initial, sizeof initial);
  snprintf(source, sizeof source, "flhost %s %.*s", fl_version(), FL_NAME_MAX, reference->record->impl_id);
  fl_saved_call about = {.size = sizeof about,
                         .expected = reference->values,
                         .source = source,
                         .note = fl_text_get(text),
                         .layout = reference->layout};
  char *path = fl_evidence_save(w->op, w->record, &call, &about, why, sizeof why);
  if (path)
    fl_text_add(text, "; flhost run %s", path);
  else
    fl_text_add(text, "; the call is not saved: %s", why);
  free(path);
}

static fl_status compare(fl_watched *w, fl_copies *copies, fl_reference_call *reference) {
  fl_text text = {0};
  fl_status status = FL_OK;
  if (!fl_reference_agrees(reference, copies, &text)) {
    add_evidence(w, reference, &text);
    fl_reference_replace(reference, copies);
    w->wrong = reference->record;
    status = fail(copies->given, "canary mode", &text);
  }
  fl_text_free(&text);
  return status;
}

/* What could not be done for want of memory is nobody's property. */
static void say_unchecked(const fl_watched *w, fl_status status, const char *why) {
  say(w, SAID_UNCHECKED, status == FL_ENOMEM ? FL_LOG_WARNING : FL_LOG_INFO, "is not checked by canary mode", why);
  fl_error_clear();
}

/* Also when the reference does not return. */
static void end_reference(fl_reference_call **reference) {
  if (*reference)
    fl_reference_free(*reference);
  free(*reference);
}

static fl_status check(fl_watched *w, fl_copies *copies) {
  __attribute__((cleanup(end_reference))) fl_reference_call *reference = calloc(1, sizeof *reference);
  fl_status status = reference ? FL_OK : fl_error_no_memory();
  if (reference)
    reference->record = fl_reference_find(w->op);
  if (reference && !reference->record)
    status = fl_error(FL_ENOENT, "the op has no reference on the host");
  if (!status)
    status = fl_reference_run(reference, copies);
  if (!status)
    return compare(w, copies, reference);
  say_unchecked(w, status, fl_error_message());
  return FL_OK;
}

/* ----------------------------------------------------------------------------------------------------------- a call */

static fl_status run_on_copies(fl_watched *w, fl_copies *copies, bool checked) {
  fl_status status = run_on(w, copies);
  if (copies->guarded)
    status = look(w, copies, status);
  if (!status && checked)
    status = check(w, copies);
  if (!status || w->wrong) {
    fl_status given = fl_copies_give(copies);
    if (given)
      w->wrong = NULL;
    status = given ? given : status;
  } else {
    w->untouched = true;
  }
  return status;
}

/* Also when an implementation does not return. */
static void end_copies(fl_copies **copies) {
  if (*copies)
    fl_copies_free(*copies);
  free(*copies);
}

fl_status fl_watch_run(fl_watched *w, fl_call *call) {
  fl_watch *watch = w->op->host->watch;
  bool checked = take_turn(w);
  if (!checked && !watch->guarded)
    return w->run(w->user, call);
  __attribute__((cleanup(end_copies))) fl_copies *copies = calloc(1, sizeof *copies);
  fl_status status = copies ? FL_OK : fl_error_no_memory();
  if (copies) {
    copies->op = w->op;
    copies->record = w->record;
    copies->guarded = watch->guarded;
    copies->at_end = atomic_fetch_add_explicit(&watch->turn, 1, memory_order_relaxed) % 2 == 0;
    status = fl_copies_make(copies, call);
  }
  if (!status)
    return run_on_copies(w, copies, checked);
  say(w, SAID_UNWATCHED, FL_LOG_WARNING, "is not watched", fl_error_message());
  fl_error_clear();
  return w->run(w->user, call);
}
