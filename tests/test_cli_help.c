/*
 * What the command says of itself, in four places that are written by hand or by table: the list of commands, the help
 * of each, the manual page and bash's completion. They must tell one story, so each is held against the help.
 */
#include "tests/scenario.h"

static const char *const commands[] = {"run",      "verify",  "bench",   "explain", "resolve", "manifest",
                                       "ops",      "plugins", "probe",   "lock",    "launch",  "config",
                                       "platform", "doctor",  "version", "help"};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

START_TEST(help_lists_every_command) {
  outcome run = FLHOST("help");
  assert_quiet(run);
  for (size_t i = 0; i < N_COMMANDS; i++)
    assert_contains(run.out, commands[i]);
  size_t listed = 0;
  for (const char *line = run.out; (line = strstr(line, "\n  ")); line++)
    listed++;
  ck_assert_uint_eq(listed, N_COMMANDS);
  ck_assert_str_eq(FLHOST("--help").out, run.out);
  ck_assert_str_eq(FLHOST("-h").out, run.out);
}
END_TEST

START_TEST(every_command_has_help_in_three_ways) {
  const char *command = commands[_i];
  outcome run = FLHOST("help", command);
  assert_quiet(run);
  assert_contains(run.out, "usage: flhost ");
  assert_contains(run.out, command);
  ck_assert_str_eq(FLHOST(command, "--help").out, run.out);
  ck_assert_str_eq(FLHOST(command, "-h").out, run.out);
}
END_TEST

START_TEST(help_fits_80_columns) {
  outcome run = _i < N_COMMANDS ? FLHOST("help", commands[_i]) : FLHOST("help");
  for (const char *line = run.out, *end; (end = strchr(line, '\n')); line = end + 1) {
    size_t columns = 0;
    for (const char *c = line; c < end; c++)
      columns += (*c & 0xc0) != 0x80;
    ck_assert_msg(columns <= 80, "%zu columns: %.*s", columns, (int)(end - line), line);
  }
}
END_TEST

/* ---------------------------------------------------------------------------------------------------------- options */

/* Options as "--name" or, with their arguments, "--name ARGUMENT", sorted and each on a line of its own. */
typedef struct option_list {
  char items[32][48];
  size_t n;
} option_list;

static void add_option(option_list *list, const char *text, size_t length) {
  ck_assert_uint_lt(list->n, sizeof list->items / sizeof *list->items);
  snprintf(list->items[list->n++], sizeof *list->items, "%.*s", (int)length, text);
}

static int compare_options(const void *a, const void *b) {
  return strcmp(a, b);
}

static const char *text_of_options(option_list *list) {
  static char text[2][2048];
  static int turn;
  char *to = text[turn++ % 2];
  *to = 0;
  qsort(list->items, list->n, sizeof *list->items, compare_options);
  for (size_t i = 0; i < list->n; i++)
    sprintf(to + strlen(to), "%s\n", list->items[i]);
  return to;
}

/* Those of a help text: "  --device TYPE  for tensors…", but for the one that prints it. */
static option_list options_of_help(const char *command, bool with_arguments) {
  option_list list = {.n = 0};
  const char *line = FLHOST("help", command).out;
  while ((line = strstr(line, "\n  --"))) {
    line += 3;
    const char *end = strstr(line, "  ");
    size_t length = with_arguments ? (size_t)(end - line) : strcspn(line, " ,");
    if (strncmp(line, "--help", 6) != 0)
      add_option(&list, line, length);
  }
  return list;
}

/* ------------------------------------------------------------------------------------------------------ manual page */

static const char *manual_page(void) {
  static char page[1 << 16];
  FILE *file = fopen("docs/man/flhost.1", "r");
  ck_assert_ptr_nonnull(file);
  size_t length = fread(page, 1, sizeof page, file);
  ck_assert_uint_lt(length, sizeof page);
  page[length] = 0;
  fclose(file);
  return page;
}

/* Has the line this word? */
static bool has_word(const char *line, const char *word) {
  size_t end = strcspn(line, "\n"), length = strlen(word);
  for (const char *at = line; (at = strstr(at, word)) && at < line + end; at++)
    if (at[-1] == ' ' && strchr(" \n", at[length]))
      return true;
  return false;
}

/* Those of the command's line in the synopsis: ".Op Fl -device Ar TYPE Ns Op : Ns Ar INDEX". */
static option_list options_of_synopsis(const char *command) {
  static const char index[] = " Ns Op : Ns Ar INDEX";
  option_list list = {.n = 0};
  const char *line = strstr(manual_page(), ".Sh SYNOPSIS\n"), *end = strstr(line, ".Sh DESCRIPTION\n");
  while ((line = strstr(line, "\n.Cm ")) && line < end && !has_word(line + 1, command))
    line++;
  ck_assert_msg(line && line < end, "'%s' is not in the synopsis", command);
  for (line = strchr(line + 1, '\n') + 1; strncmp(line, ".Nm", 3) && strncmp(line, ".Sh", 3);
       line = strchr(line, '\n') + 1) {
    char name[32], argument[64] = "", text[128];
    if (sscanf(line, ".Op Fl -%31s Ar %63[^\n]", name, argument) < 1)
      continue;
    char *with_index = strstr(argument, index);
    if (with_index)
      strcpy(with_index, "[:INDEX]");
    int length = snprintf(text, sizeof text, *argument ? "--%s %s" : "--%s", name, argument);
    add_option(&list, text, (size_t)length);
  }
  return list;
}

START_TEST(synopsis_of_the_manual_page_has_the_options_of_the_help) {
  option_list help = options_of_help(commands[_i], true), synopsis = options_of_synopsis(commands[_i]);
  ck_assert_str_eq(text_of_options(&synopsis), text_of_options(&help));
}
END_TEST

START_TEST(manual_page_describes_every_command_and_option_and_no_other) {
  const char *page = manual_page(), *described = strstr(page, ".Sh OPTIONS\n"), *end = strstr(page, ".Sh JSON\n");
  char word[64];
  for (size_t i = 0; i < N_COMMANDS; i++) {
    snprintf(word, sizeof word, ".It Cm %s", commands[i]);
    assert_contains(page, word);
    option_list help = options_of_help(commands[i], false);
    for (size_t j = 0; j < help.n; j++) {
      snprintf(word, sizeof word, ".It Fl -%.32s", help.items[j] + 2);
      assert_contains(described, word);
    }
  }
  while ((described = strstr(described, ".It Fl -")) && described < end) {
    bool known = !strncmp(described, ".It Fl -help", 12);
    described += strlen(".It Fl -");
    for (size_t i = 0; i < N_COMMANDS && !known; i++) {
      option_list help = options_of_help(commands[i], false);
      for (size_t j = 0; j < help.n; j++)
        known |= !strncmp(described, help.items[j] + 2, strcspn(described, " \n")) &&
                 strlen(help.items[j] + 2) == strcspn(described, " \n");
    }
    ck_assert_msg(known, "no command has '--%.*s'", (int)strcspn(described, " \n"), described);
  }
}
END_TEST

/* FLHOST_ASCEND_NODE is for tests alone. */
START_TEST(manual_page_names_the_variables_that_say_where_libraries_are) {
  char name[64], page[1 << 16];
  int named = 0;
  snprintf(page, sizeof page, "%s", manual_page());
  FILE *pipe =
      popen("grep -rhoE '\"(FLHOST_[A-Z_]+|ROCM_PATH|ASCEND_HOME_PATH)\"' plugins core --include=*.c | sort -u |"
            " tr -d '\"' | grep -v FLHOST_ASCEND_NODE",
            "r");
  ck_assert_ptr_nonnull(pipe);
  for (; fscanf(pipe, "%63s", name) == 1; named++)
    assert_contains(page, name);
  pclose(pipe);
  ck_assert_int_gt(named, 5);
}
END_TEST

/* ------------------------------------------------------------------------------------------------------- completion */

/* What bash would offer for the last of these words ("explain --dev"), separated by spaces. */
static const char *completed(const char *words) {
  static char offered[4096];
  char command[2048];
  snprintf(command, sizeof command,
           "VLLM_FL_PLUGIN_PATH='%s' bash -c 'source cli/completions/flhost.bash; compopt() { :; };"
           " complete_() { COMP_WORDS=(%s/flhost \"$@\"); COMP_CWORD=$#;"
           " _flhost flhost \"${@: -1}\" \"${COMP_WORDS[COMP_CWORD - 1]}\"; echo \"${COMPREPLY[@]}\"; };"
           " complete_ %s' 2>&1",
           scratch("plugins"), build_dir(), words);
  FILE *pipe = popen(command, "r");
  ck_assert_ptr_nonnull(pipe);
  size_t length = fread(offered, 1, sizeof offered - 1, pipe);
  offered[length] = 0;
  ck_assert_int_eq(pclose(pipe), 0);
  return offered;
}

START_TEST(bash_completes_the_options_of_the_help) {
  option_list help = options_of_help(commands[_i], false), offered = {.n = 0};
  char words[64], *rest = NULL;
  snprintf(words, sizeof words, "%s --", commands[_i]);
  char *text = strdup(completed(words));
  for (char *word = strtok_r(text, " \n", &rest); word; word = strtok_r(NULL, " \n", &rest))
    if (strcmp(word, "--help") != 0)
      add_option(&offered, word, strlen(word));
  free(text);
  ck_assert_str_eq(text_of_options(&offered), text_of_options(&help));
}
END_TEST

START_TEST(bash_completes_commands_ops_and_arguments_of_options) {
  static const char *const cases[][2] = {
      {"expl", "explain\n"},
      {"ops --im", "--impls\n"},
      {"resolve acme", "acme_scale\n"},
      {"explain --device cu", "cuda\n"},
      {"explain --device = cu", "cuda\n"}, /* bash splits words at '=' */
      {"explain --device =", "cpu cuda rocm ext_dev\n"},
      {"verify --dtype bf", "bfloat16\n"},
      {"bench --size s", "small\n"},
      {"ops --pages docs/m", "docs/man\n"},
      {"run --out docs/m", "docs/man\n"},
      {"verify --impl vendor.bolt_", "vendor.bolt_card\n"},
      {"help plat", "platform\n"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    ck_assert_msg(!strcmp(completed(cases[i][0]), cases[i][1]), "'%s' becomes: %s", cases[i][0],
                  completed(cases[i][0]));
}
END_TEST

/* ------------------------------------------------------------------------------------------------------------- make */

START_TEST(make_help_lists_every_target_that_says_what_it_does) {
  char makefiles[1 << 16], help[1 << 14];
  FILE *files = popen("cat Makefile python/*.mk python/*/*.mk bench/*/*.mk", "r");
  FILE *pipe = popen("unset MAKEFLAGS MFLAGS MAKELEVEL; make -s help", "r");
  ck_assert(files && pipe);
  makefiles[fread(makefiles, 1, sizeof makefiles - 1, files)] = 0;
  help[fread(help, 1, sizeof help - 1, pipe)] = 0;
  ck_assert_int_eq(pclose(files), 0);
  ck_assert_int_eq(pclose(pipe), 0);
  int described = 0;
  for (char *words = makefiles; (words = strstr(words, " ## ")); described++) {
    words += strlen(" ## ");
    char *end = strchr(words, '\n');
    *end = 0;
    assert_contains(help, words);
    words = end + 1;
  }
  ck_assert_int_gt(described, 15);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, begin_scenario, end_scenario);
  tcase_add_test(tests, help_lists_every_command);
  tcase_add_loop_test(tests, every_command_has_help_in_three_ways, 0, N_COMMANDS);
  tcase_add_loop_test(tests, help_fits_80_columns, 0, N_COMMANDS + 1);
  tcase_add_loop_test(tests, synopsis_of_the_manual_page_has_the_options_of_the_help, 0, N_COMMANDS);
  tcase_add_test(tests, manual_page_describes_every_command_and_option_and_no_other);
  tcase_add_test(tests, manual_page_names_the_variables_that_say_where_libraries_are);
  tcase_add_loop_test(tests, bash_completes_the_options_of_the_help, 0, N_COMMANDS);
  tcase_add_test(tests, bash_completes_commands_ops_and_arguments_of_options);
  tcase_add_test(tests, make_help_lists_every_target_that_says_what_it_does);
}

int main(void) {
  return run_suite("cli_help", add_tests, 30);
}
