/* See subjects.h. */
#include "cli/trials/subjects.h"

#include "cli/cli.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BAR = 30 };

bool cli_is_selected(const char *name, int n, char **ops) {
  for (int i = 0; i < n; i++)
    if (!strcmp(name, ops[i]))
      return true;
  return !n;
}

int cli_check_impl(const fl_snapshot *snapshot, const char *impl, int n, char **ops) {
  const char **words = NULL;
  size_t n_words = 0;
  int status = EXIT_OK;
  for (uint32_t i = 0; impl && i < fl_snapshot_op_count(snapshot); i++)
    for (uint32_t j = 0;
         cli_is_selected(fl_snapshot_op_name(snapshot, i), n, ops) && j < fl_snapshot_impl_count(snapshot, i); j++) {
      const char **grown = realloc(words, (n_words + 2) * sizeof *grown);
      if (!grown) {
        free(words);
        return cli_no_memory();
      }
      words = grown;
      words[n_words++] = fl_snapshot_impl(snapshot, i, j)->impl_id;
      words[n_words] = NULL;
      if (!strcmp(words[n_words - 1], impl)) {
        free(words);
        return EXIT_OK;
      }
    }
  static const char *const none[] = {NULL};
  if (impl)
    status =
        cli_unknown("implementation", "", impl, words ? words : none, "'flhost ops --impls' lists the implementations");
  free(words);
  return status;
}

bool cli_create_policy(fl_host *host, const char *op, const char *impl_id, fl_policy **policy) {
  char *token;
  if (asprintf(&token, "impl:%s", impl_id) < 0)
    return false;
  const char *const tokens[] = {token};
  const fl_op_order order = {.op = op, .tokens = tokens, .n_tokens = 1};
  fl_policy *in_force = fl_get_policy(host);
  const fl_policy_fields *given = fl_policy_get_fields(in_force);
  const fl_policy_fields fields = {
      .size = sizeof fields,
      .strict = true,
      .per_op = &order,
      .n_per_op = 1,
      .per_op_size = sizeof order,
      .deny_vendors = given->deny_vendors,
      .n_deny_vendors = given->n_deny_vendors,
      .allow_vendors = given->allow_vendors,
      .n_allow_vendors = given->n_allow_vendors,
  };
  fl_status status = fl_policy_create(&fields, policy);
  fl_policy_release(in_force);
  free(token);
  return !status;
}

char *cli_unavailable_reason(const fl_impl_info *info) {
  char *reason;
  int length = asprintf(&reason, "%s: %s", info->asked ? "not available" : "not asked whether it is available",
                        info->reason ? info->reason : "it does not say why");
  return length < 0 ? NULL : reason;
}

char *cli_skip_reason(const char *message) {
  static const char mark[] = "not supported: ";
  const char *found = message ? strstr(message, mark) : NULL;
  char *reason = strdup(found ? found + strlen(mark) : message ? message : "");
  for (char *c = reason; c && *c; c++)
    if (*c == '\n')
      *c = ' ';
  return reason;
}

bool cli_has_tensors(const fl_op *op) {
  for (uint32_t i = 0; i < fl_op_argument_count(op); i++)
    if (fl_op_argument(op, i)->type == FL_TENSOR)
      return true;
  return false;
}

void cli_show_progress(uint32_t done, uint32_t all, const char *op) {
  const char *term = getenv("TERM");
  if (!isatty(STDERR_FILENO) || !term || !strcmp(term, "dumb"))
    return;
  fputs("\r\033[K", stderr);
  if (op) {
    int filled = (int)(done * BAR / all);
    fputs("[", stderr);
    for (int i = 0; i < BAR; i++)
      putc(i < filled ? '#' : ' ', stderr);
    fprintf(stderr, "] %" PRIu32 " of %" PRIu32 " ", done, all);
    cli_put_text(stderr, op);
  }
  fflush(stderr);
}
