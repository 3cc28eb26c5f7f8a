/* Names on the command line and in the output: device types, element types, kinds, and the word that was meant. */
#include "cli/cli.h"

#include <ctype.h>
#include <flhost/testing.h>
#include <flhost/vllm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct name {
  const char *name;
  int32_t number;
} name;

static const name dtypes[] = {
    {"float32", FL_FLOAT32},
    {"float16", FL_FLOAT16},
    {"bfloat16", FL_BFLOAT16},
    {"float8_e4m3fn", FL_FLOAT8_E4M3FN},
    {"float64", FL_FLOAT64},
    {"int32", FL_INT32},
    {"int64", FL_INT64},
    {"uint8", FL_UINT8},
    {"int8", FL_INT8},
    {"bool", FL_BOOLEAN},
    {NULL, 0},
};

/* Names of element types beside those: vLLM's, and the short ones that everybody uses. */
static const name dtype_aliases[] = {
    {"float", FL_FLOAT32}, {"half", FL_FLOAT16},  {"double", FL_FLOAT64}, {"fp32", FL_FLOAT32},
    {"fp16", FL_FLOAT16},  {"bf16", FL_BFLOAT16}, {"fp64", FL_FLOAT64},   {NULL, 0},
};

/* By DLPack's numbers, in the order of the names above. */
static const DLDataType dtype_codes[] = {
    {kDLFloat, 32, 1}, {kDLFloat, 16, 1},     {kDLBfloat, 16, 1}, {FL_DTYPE_FLOAT8_E4M3FN, 8, 1},
    {kDLFloat, 64, 1}, {kDLInt, 32, 1},       {kDLInt, 64, 1},    {kDLUInt, 8, 1},
    {kDLInt, 8, 1},    {FL_DTYPE_BOOL, 8, 1},
};

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

int cli_unknown(const char *what, const char *prefix, const char *word, const char *const *words, const char *advice) {
  const char *nearest = cli_nearest(word, words);
  if (nearest)
    cli_error("unknown %s '%s%s'; did you mean '%s%s'?\n%s", what, prefix, word, prefix, nearest, advice);
  else
    cli_error("unknown %s '%s%s'\n%s", what, prefix, word, advice);
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
  char *list = calloc(1, 256);
  if (!list)
    return NULL;
  for (const name *dtype = dtypes; dtype->name; dtype++)
    if (set & (uint32_t)dtype->number)
      append(list, dtype->name);
  return list;
}

static bool find_dtype(const name *rows, const char *word, uint32_t *dtype) {
  while (rows->name && strcmp(rows->name, word) != 0)
    rows++;
  if (rows->name)
    *dtype = (uint32_t)rows->number;
  return rows->name;
}

bool cli_dtype(const char *word, uint32_t *dtype) {
  const char *words[sizeof dtypes / sizeof *dtypes] = {NULL};
  if (find_dtype(dtypes, word, dtype) || find_dtype(dtype_aliases, word, dtype))
    return true;
  for (size_t i = 0; dtypes[i].name; i++)
    words[i] = dtypes[i].name;
  cli_unknown("element type", "", word, words,
              "element types: float32, float16, bfloat16, float8_e4m3fn, float64, int32, int64, uint8, int8, bool");
  return false;
}

const char *cli_dtype_name(DLDataType dtype) {
  for (size_t i = 0; i < sizeof dtype_codes / sizeof *dtype_codes; i++)
    if (!memcmp(&dtype_codes[i], &dtype, sizeof dtype))
      return dtypes[i].name;
  return "unknown";
}

DLDataType cli_dtype_of_bit(uint32_t dtype) {
  for (size_t i = 0; i < sizeof dtype_codes / sizeof *dtype_codes; i++)
    if ((uint32_t)dtypes[i].number == dtype)
      return dtype_codes[i];
  return (DLDataType){0};
}

const char *cli_dtype_bit_name(uint32_t dtype) {
  for (const name *row = dtypes; row->name; row++)
    if ((uint32_t)row->number == dtype)
      return row->name;
  return "unknown";
}

const char *cli_kind_name(fl_kind kind) {
  return kind == FL_KIND_DEFAULT ? "flagos" : kind == FL_KIND_VENDOR ? "vendor" : "reference";
}

const char *cli_op_bytes(const fl_op *op) {
  return *fl_op_bytes(op) ? fl_op_bytes(op) : "default";
}
