/* The words after a subcommand: options and operands by a table, and the help that comes from it. */
#include "cli/cli.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OPTIONS = 16, HELP = 'h' };

static int option_count(const cli_syntax *syntax) {
  int n = 0;
  while (n < MAX_OPTIONS - 1 && syntax->options[n].name)
    n++;
  return n;
}

static int option_width(const cli_option *option) {
  return (int)(strlen(option->name) + (option->argument ? strlen(option->argument) + 1 : 0));
}

/* Fills lines of 80 columns. What follows the first begins in column `indent`; the first stands there already. */
static void print_filled(const char *text, int indent) {
  enum { COLUMNS = 80 };
  int column = indent;
  while (*text) {
    int bytes = (int)strcspn(text, " \n"), width = 0;
    for (int i = 0; i < bytes; i++)
      width += (text[i] & 0xc0) != 0x80; /* of characters, not bytes */
    if (column > indent && column + 1 + width > COLUMNS) {
      printf("\n%*s", indent, "");
      column = indent;
    }
    column += printf("%s%.*s", column > indent ? " " : "", bytes, text) - bytes + width;
    text += bytes;
    if (*text == '\n') {
      printf("\n%*s", indent, "");
      column = indent;
    }
    text += *text != 0;
  }
  putchar('\n');
}

static void print_help(const cli_syntax *syntax, const char *command) {
  int n = option_count(syntax), width = (int)strlen("help, -h");
  for (int i = 0; i < n; i++)
    if (option_width(&syntax->options[i]) > width)
      width = option_width(&syntax->options[i]);
  printf("usage: flhost %s [options]%s%s\n\n", command, *syntax->operands ? " " : "", syntax->operands);
  print_filled(syntax->description, 0);
  printf("\noptions:\n");
  for (int i = 0; i < n; i++) {
    const cli_option *option = &syntax->options[i];
    printf("  --%s%s%s%*s  ", option->name, option->argument ? " " : "", option->argument ? option->argument : "",
           width - option_width(option), "");
    print_filled(option->help, width + (int)strlen("  --  "));
  }
  printf("  --%-*s  print this help\n", width, "help, -h");
}

static int usage_error(const char *command) {
  cli_error("'flhost %s --help' says what it takes", command);
  return EXIT_USAGE;
}

/* Says what is wrong with the option that getopt_long stopped at. */
static void report_option(const cli_syntax *syntax, const char *command, char **argv, bool lacks_argument) {
  const char *word = argv[optind - 1], *words[MAX_OPTIONS + 1] = {NULL};
  char name[64];
  int n = option_count(syntax), length = (int)strcspn(word, "=");
  if (lacks_argument) {
    cli_error("option '%s' of 'flhost %s' needs an argument", word, command);
    return;
  }
  if (strncmp(word, "--", 2) != 0) {
    cli_error("unknown option '-%c' of 'flhost %s'", optopt, command);
    return;
  }
  if (optopt) { /* a known one, as --json=yes */
    cli_error("option '%.*s' of 'flhost %s' takes no argument, found '%s'", length, word, command, word + length + 1);
    return;
  }
  for (int i = 0; i < n; i++)
    words[i] = syntax->options[i].name;
  words[n] = "help";
  snprintf(name, sizeof name, "%.*s", length - 2, word + 2);
  cli_unknown("option", "--", name, words, "");
}

int cli_parse(const cli_syntax *syntax, int argc, char **argv, int *exit_status) {
  struct option words[MAX_OPTIONS + 1] = {{0}};
  const char *command = *argv[0] == '-' ? argv[0] + 2 : argv[0]; /* --version is `version` */
  int n = option_count(syntax), found;
  for (int i = 0; i < n; i++)
    words[i] = (struct option){syntax->options[i].name, syntax->options[i].argument ? required_argument : no_argument,
                               NULL, HELP + 1 + i};
  words[n] = (struct option){"help", no_argument, NULL, HELP};
  opterr = 0;
  optind = 0; /* glibc: start anew */
  while ((found = getopt_long(argc, argv, ":h", words, NULL)) != -1) {
    if (found == HELP) {
      print_help(syntax, command);
      *exit_status = EXIT_OK;
      return -1;
    }
    if (found == '?' || found == ':') {
      report_option(syntax, command, argv, found == ':');
      *exit_status = usage_error(command);
      return -1;
    }
    const cli_option *option = &syntax->options[found - HELP - 1];
    if (option->argument)
      *option->value = optarg;
    else
      *option->flag = true;
  }
  if (argc - optind < syntax->least)
    cli_error("'flhost %s' needs %s", command, syntax->operands);
  else if (syntax->most >= 0 && argc - optind > syntax->most)
    cli_error("unexpected word '%s' after 'flhost %s'", argv[optind + syntax->most], command);
  else
    return optind;
  *exit_status = usage_error(command);
  return -1;
}

bool cli_amount(const char *option, const char *text, double most, double *amount) {
  char *end;
  double value = strtod(text, &end);
  if (end != text && !*end && value >= 0 && value <= most) {
    *amount = value;
    return true;
  }
  cli_error("--%s: '%s' is not a number from 0 to %g", option, text, most);
  return false;
}
