/* The command's own conventions. Each subcommand is one file with one function, listed in the table in main.c. */
#ifndef FLHOST_CLI_H
#define FLHOST_CLI_H

#include <flhost/flhost.h>
#include <jansson.h>

enum { EXIT_OK = 0, EXIT_MISMATCH = 1, EXIT_USAGE = 2, EXIT_NO_IMPL = 3 };

/* Each takes its own words, argv[0] being the subcommand's name, and returns the exit status. Results go to standard
 * output, messages ("flhost: …") to standard error. */
int command_bench(int argc, char **argv);
int command_config(int argc, char **argv);
int command_doctor(int argc, char **argv);
int command_explain(int argc, char **argv);
int command_help(int argc, char **argv);
int command_launch(int argc, char **argv);
int command_lock(int argc, char **argv);
int command_manifest(int argc, char **argv);
int command_ops(int argc, char **argv);
int command_platform(int argc, char **argv);
int command_plugins(int argc, char **argv);
int command_probe(int argc, char **argv);
int command_resolve(int argc, char **argv);
int command_run(int argc, char **argv);
int command_verify(int argc, char **argv);
int command_version(int argc, char **argv);

typedef struct cli_command {
  const char *name;
  int (*function)(int argc, char **argv);
  const char *summary;
} cli_command;

extern const cli_command cli_commands[]; /* ended by name NULL */

/* Runs the command that argv[0] names, or says that there is none. Exit status. */
int cli_run_command(int argc, char **argv);

/* ------------------------------------------------------------------------------------------------- the command line */

typedef struct cli_option {
  const char *name;     /* without the dashes */
  const char *argument; /* what the help calls its argument; NULL: a switch */
  const char *help;
  bool *flag;         /* a switch: set to true when given */
  const char **value; /* else: set to the argument when given */
} cli_option;

/* What a subcommand takes. --help comes by itself. */
typedef struct cli_syntax {
  const char *operands;      /* "[OP]", "" if it takes none */
  int least, most;           /* how many operands; most -1: any number */
  const char *description;   /* a newline begins a paragraph */
  const cli_option *options; /* ended by name NULL */
} cli_syntax;

#define CLI_DEVICE(value_)                                                                                             \
  { "device", "TYPE", "for tensors on cpu (default), or a platform's: cuda", NULL, (value_) }
#define CLI_JSON(flag_)                                                                                                \
  { "json", NULL, "print JSON, for programs", (flag_), NULL }

/* Parses the words. Index of the first operand (argv is reordered), or -1 when there is nothing left to do (--help was
 * answered, or a message was printed): *exit_status is then the command's. */
int cli_parse(const cli_syntax *syntax, int argc, char **argv, int *exit_status);

/* The argument of an option that is a number from 0 to `most`; false, with a message. */
bool cli_amount(const char *option, const char *text, double most, double *amount);

/* -------------------------------------------------------------------------------------------------------- messages */

/* Prints "flhost: …" to standard error, each line of the text with that prefix. */
void cli_error(const char *format, ...) FL_PRINTF(1, 2);

/* Where messages go in place of standard error; by lines. */
void cli_set_messages(FILE *file);

/* Bytes of the character at `text` if a terminal, or XML, may have it as it is (fl_is_printable), else 0. */
size_t cli_character(const char *text);

/* Writes text; what is not printable, and what is no UTF-8, as \x1b: names and reasons may come from a file nobody
 * vetted. */
void cli_put_text(FILE *file, const char *text);

/* Columns that the first `length` bytes take on a terminal so: one a character, four for a byte that is shown so. */
uint32_t cli_width(const char *text, size_t length);

/* Is the file a terminal that may be written to in colour and bold (NO_COLOR, TERM=dumb)? */
bool cli_is_styled(FILE *file);

/* Prints a JSON value with a newline, what is not printable as \u202e, and releases it; NULL stands for "out of memory"
 * and is said so. Exit status. */
int cli_print_json(json_t *value);

/* A JSON string from any bytes (those that are not UTF-8 become U+FFFD); NULL gives null. */
json_t *cli_json_string(const char *text);

/* A JSON list of the words of a list separated by commas. */
json_t *cli_json_words(const char *words);

/* Appends a value, which it takes over. The list; NULL, with both released, when either is NULL or memory ran out. */
json_t *cli_json_append(json_t *list, json_t *value);

/* Could all be written to standard output? Else says so, and gives back that exit status in place of `status`. */
int cli_check_output(int status);

/* Says that memory ran out; gives back the exit status for it. */
int cli_no_memory(void);

/* ------------------------------------------------------------------------------------------------------------ hosts */

/* A host from the environment, quiet below WARNING unless VLLM_FL_LOG_LEVEL is set. On failure prints why and returns
 * NULL; *exit_status is then the command's. */
fl_host *cli_open_host(uint32_t flags, int *exit_status);

/* Exit status that an fl_status stands for: FL_ENOIMPL → 3, others → 2. */
int cli_exit_status(fl_status status);

/* Prints this thread's fl_error_message(); cli_exit_status(status). */
int cli_fail(fl_status status);

/* ------------------------------------------------------------------------------------------------------------ names */

/* The one of `words` (ended by NULL) that `word` is probably meant to be: a slip of the keyboard, or the beginning of
 * just one of them; else NULL. */
const char *cli_nearest(const char *word, const char *const *words);

/* "; did you mean '--json'?", with the prefix before the word; "" for NULL. By value, so that it needs no buffer. */
typedef struct cli_suggestion {
  char text[FL_NAME_MAX + 40];
} cli_suggestion;
cli_suggestion cli_suggest(const char *prefix, const char *nearest);

/* Prints "unknown command 'opps'; did you mean 'ops'?" and the advice; both words get the prefix ("--" or ""). Gives
 * back EXIT_USAGE. */
int cli_unknown(const char *what, const char *prefix, const char *word, const char *const *words, const char *advice);

/* Device type by a word that means one (fl_find_device_type); false, with a message, for another. */
bool cli_device_type(fl_host *host, const char *word, int32_t *device_type);
const char *cli_device_name(int32_t device_type); /* "unknown" for one without a name */

/* What an advised command needs to speak of the same device: "--device cuda ", "" for the processor. Gives `words`. */
enum { CLI_DEVICE_WORDS = 64 };
const char *cli_device_words(int32_t device_type, char words[CLI_DEVICE_WORDS]);

/* Lists, separated by commas, of a set of FL_DEVICE(type) or of FL_FLOAT32…; malloc'ed. */
char *cli_device_names(uint64_t devices);
char *cli_dtype_names(uint32_t dtypes);

/* Element type by its name ("float32"…), one of FL_FLOAT32…; false, with a message, for another word. */
bool cli_dtype(const char *name, uint32_t *dtype);
/* Its name, "unknown" for one without. */
const char *cli_dtype_name(DLDataType dtype);
const char *cli_dtype_bit_name(uint32_t dtype);

/* DLPack's numbers for one of FL_FLOAT32…; zeros for another number. */
DLDataType cli_dtype_of_bit(uint32_t dtype);

/* fl_op_tolerance as a struct. */
fl_tolerance cli_tolerance(const fl_op *op, DLDataType dtype);

const char *cli_kind_name(fl_kind kind);

/* What an op says of the bytes that a call moves: "default" where it says nothing of its own. */
const char *cli_op_bytes(const fl_op *op);

/* Where no implementation of an op is selected: the first that is for the device, whose reason tells most; NULL: none
 * is for it. `op` is the op's index in the snapshot. */
const fl_explained *cli_most_telling(const fl_explanation *explanation, const fl_snapshot *snapshot, uint32_t op,
                                     int32_t device_type);

/* --------------------------------------------------------------------------------------------------- explanations */

/* Prints in a few lines what an op gets: the implementations in the order in which they are tried, the order that it
 * comes from, and those that are not tried, with the reason. Exit status: EXIT_NO_IMPL where none is left. */
int cli_explain_briefly(fl_host *host, const char *op, int32_t device_type);

/* ----------------------------------------------------------------------------------------------------------- pages */

/* Writes a Markdown page of each category of operators into a directory, which must be there. The exit status. */
int cli_write_pages(fl_host *host, const fl_snapshot *snapshot, const char *directory);

#endif
