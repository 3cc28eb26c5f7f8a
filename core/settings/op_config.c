/*
 * VLLM_FL_OP_CONFIG: see op_config.h. Jansson says whether the text is JSON at all and decodes its strings; since it
 * keeps no places, a scan over the text that it accepted finds line and column of each op.
 */
#include "core/settings/op_config.h"
#include "core/support.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A position in text that is known to be JSON. */
typedef struct position {
  const char *at, *line_start;
  unsigned line;
} position;

static void skip_space(position *cursor) {
  for (; *cursor->at && strchr(" \t\r\n", *cursor->at); cursor->at++)
    if (*cursor->at == '\n') {
      cursor->line++;
      cursor->line_start = cursor->at + 1;
    }
}

static fl_place place_of(const position *cursor, const char *path) {
  return (fl_place){path, cursor->line, (unsigned)(cursor->at - cursor->line_start) + 1};
}

/* The decoded string that begins here, and past it; NULL when there is another kind of value, or no memory. */
static json_t *take_string(position *cursor) {
  const char *start = cursor->at, *end = start + 1;
  if (*start != '"')
    return NULL;
  for (; *end != '"'; end++)
    end += *end == '\\';
  cursor->at = end + 1;
  return json_loadb(start, (size_t)(cursor->at - start), JSON_DECODE_ANY, NULL);
}

static bool add_order(fl_problems *problems, fl_place place, const char *op, fl_place value_place, const char *value,
                      fl_orders *orders) {
  static const char *const kinds[] = {"flagos", "vendor", "reference"};
  const char *word = value, *kind = NULL;
  size_t length = fl_trim(&word, strlen(value));
  fl_strings tokens = {0};
  for (size_t i = 0; i < 3; i++)
    if (strlen(kinds[i]) == length && !strncasecmp(word, kinds[i], length))
      kind = kinds[i];
  if (!kind) {
    fl_problem_fatal(problems, value_place,
                     "Unsupported backend '%s' for op '%s'. Must be one of: flagos, reference, vendor%s", value, op,
                     fl_suggest(fl_nearest_word(value, kinds, 3)).text);
    return true;
  }
  bool added = fl_strings_add(&tokens, kind);
  if (added) {
    const char *name = op;
    length = fl_trim(&name, strlen(op));
    fl_orders_add(problems, orders, name, length, &tokens, place);
  }
  fl_strings_free(&tokens);
  return added;
}

/* One member; false ends the reading. */
static bool read_member(fl_problems *problems, position *cursor, const char *path, fl_orders *orders) {
  fl_place place = place_of(cursor, path), value_place;
  json_t *op = take_string(cursor), *value = NULL;
  bool more = false;
  skip_space(cursor);
  cursor->at++; /* the colon */
  skip_space(cursor);
  value_place = place_of(cursor, path);
  if (*cursor->at != '"') {
    fl_problem_fatal(problems, value_place,
                     "VLLM_FL_OP_CONFIG must map strings to strings. op '%s' has a value that is none",
                     op ? json_string_value(op) : "");
    goto out;
  }
  value = take_string(cursor);
  if (!op || !value ||
      !add_order(problems, place, json_string_value(op), value_place, json_string_value(value), orders)) {
    problems->no_memory = true;
    goto out;
  }
  more = true;
out:
  json_decref(op);
  json_decref(value);
  return more;
}

static void read_members(fl_problems *problems, const char *text, const char *path, fl_orders *orders) {
  position cursor = {text, text, 1};
  do {
    skip_space(&cursor);
    cursor.at++; /* the brace, or the comma behind a member */
    skip_space(&cursor);
    if (*cursor.at == '}' || !read_member(problems, &cursor, path, orders))
      return;
    skip_space(&cursor);
  } while (*cursor.at == ',');
}

void fl_opconfig_load(fl_problems *problems, const char *path, fl_orders *orders) {
  static const fl_place nowhere = {.source = "VLLM_FL_OP_CONFIG"};
  json_error_t error;
  json_t *json = NULL;
  char *text = NULL;
  size_t length = 0;
  fl_status status = fl_read_file(path, &text, &length);
  if (status == FL_ENOMEM)
    problems->no_memory = true;
  else if (status == FL_ENOENT)
    fl_problem_fatal(problems, (fl_place){0}, "VLLM_FL_OP_CONFIG file not found: %s", path);
  else if (status)
    fl_problem_fatal(problems, nowhere, "'%s': %s", path, fl_error_message());
  if (status)
    return;
  json = json_loadb(text, length, JSON_DECODE_ANY, &error);
  if (!json)
    fl_problem_fatal(problems, (fl_place){path, (unsigned)error.line, error.column > 0 ? (unsigned)error.column : 1},
                     "Invalid VLLM_FL_OP_CONFIG JSON file. %s", error.text);
  else if (!json_is_object(json))
    fl_problem_fatal(problems, (fl_place){path, 1, 1},
                     "VLLM_FL_OP_CONFIG must be a JSON object. Expected {\"rms_norm\": \"vendor\"}");
  else {
    read_members(problems, text, path, orders);
    fl_orders_finish(problems, orders, path);
  }
  json_decref(json);
  free(text);
}
