/* Names on the command line and in the output: device types, element types, kinds, and the word that was meant. */
#include "cli/cli.h"

#include <ctype.h>
#include <flhost/testing.h>
#include <flhost/vllm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const char *cli_nearest(const char *word, const char *const *words) {
  const char *nearest = fl_nearest_word(word, words, SIZE_MAX), *begun = NULL;
  size_t length = strlen(word), n_begun = 0;
  for (; length && *words; words++)
    if (!strncmp(word, *words, length)) {
      begun = *words;
      n_begun++;
    }
  return n_begun == 1 ? begun : nearest;
}

cli_suggestion cli_suggest(const char *prefix, const char *nearest) {
  cli_suggestion suggestion = {""};
  if (nearest)
    snprintf(suggestion.text, sizeof suggestion.text, "; did you mean '%s%s'?", prefix, nearest);
  return suggestion;
}

int cli_unknown(const char *what, const char *prefix, const char *word, const char *const *words, const char *advice) {
  cli_error("unknown %s '%s%s'%s\n%s", what, prefix, word, cli_suggest(prefix, cli_nearest(word, words)).text, advice);
  return EXIT_USAGE;
}

bool cli_device_type(fl_host *host, const char *word, int32_t *device_type) {
  fl_status status = fl_find_device_type(host, word, device_type);
  if (status)
    cli_error("%s", fl_error_message());
  return !status;
}

const char *cli_device_name(int32_t device_type) {
  const char *known = fl_device_type_name(device_type);
  return known ? known : "unknown";
}

const char *cli_device_words(int32_t device_type, char words[CLI_DEVICE_WORDS]) {
  const char *known = fl_device_type_name(device_type);
  words[0] = 0;
  if (device_type != kDLCPU && known)
    snprintf(words, CLI_DEVICE_WORDS, "--device %s ", known);
  return words;
}

/* Adds a name to a list separated by commas, which has room for it. */
static void append(char *list, const char *word) {
  if (*list)
    strcat(list, ",");
  strcat(list, word);
}

char *cli_device_names(uint64_t devices) {
  char *list = calloc(1, 1024);
  if (!list || devices == FL_DEVICE_ANY)
    return list ? strcpy(list, "any") : NULL;
  for (int32_t type = 0; type < 64; type++) {
    const char *known = cli_device_name(type);
    char number[16];
    snprintf(number, sizeof number, "type %d", type);
    if (devices & FL_DEVICE(type))
      append(list, strcmp(known, "unknown") ? known : number);
  }
  return list;
}

char *cli_dtype_names(uint32_t set) {
  const fl_element_type *type;
  char *list = calloc(1, 256);
  for (uint32_t i = 0; list && (type = fl_element_type_at(i)); i++)
    if (set & type->bit)
      append(list, type->name);
  return list;
}

bool cli_dtype(const char *word, uint32_t *dtype) {
  enum { MOST = 32 };
  const fl_element_type *type = fl_element_type_named(word);
  const char *words[MOST + 1] = {NULL};
  char advice[512] = "element types: ";
  if (type && type->bit) {
    *dtype = type->bit;
    return true;
  }
  for (uint32_t i = 0; i < MOST && (type = fl_element_type_at(i)) && type->bit; i++) {
    size_t length = strlen(advice);
    words[i] = type->name;
    snprintf(advice + length, sizeof advice - length, "%s%s", i ? ", " : "", type->name);
  }
  cli_unknown("element type", "", word, words, advice);
  return false;
}

const char *cli_dtype_name(DLDataType dtype) {
  const fl_element_type *type = fl_element_type_of(dtype);
  return type ? type->name : "unknown";
}

DLDataType cli_dtype_of_bit(uint32_t dtype) {
  const fl_element_type *type = fl_element_type_of_bit(dtype);
  return type ? type->dtype : (DLDataType){0};
}

fl_tolerance cli_tolerance(const fl_op *op, DLDataType dtype) {
  fl_tolerance tolerance = {0};
  fl_op_tolerance(op, dtype, &tolerance.atol, &tolerance.rtol);
  return tolerance;
}

const char *cli_dtype_bit_name(uint32_t dtype) {
  const fl_element_type *type = fl_element_type_of_bit(dtype);
  return type ? type->name : "unknown";
}

const char *cli_kind_name(fl_kind kind) {
  return kind == FL_KIND_DEFAULT ? "flagos" : kind == FL_KIND_VENDOR ? "vendor" : "reference";
}

const char *cli_op_bytes(const fl_op *op) {
  return *fl_op_bytes(op) ? fl_op_bytes(op) : "default";
}
