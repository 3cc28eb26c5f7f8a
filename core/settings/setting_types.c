/*
 * How each type of setting is read and printed: see setting_types.h. An invalid part is reported and then left out, as
 * the peer's dispatcher leaves it out (that is what VLLM_FL_CHECK=warn promises).
 */
#include "core/settings/setting_types.h"

#include "core/settings/policy.h"

#include <ctype.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* One word of the list, in any case. */
static bool is_one_of(const char *word, const char *const *words) {
  for (; *words; words++)
    if (!strcasecmp(word, *words))
      return true;
  return false;
}

/* Reports what cannot be a value, or part of one. In a file the place says the line, and the key what it was for. */
static bool invalid(fl_problems *problems, const fl_setting_row *row, fl_place place, const char *format, ...)
    FL_PRINTF(4, 5);
static bool invalid(fl_problems *problems, const fl_setting_row *row, fl_place place, const char *format, ...) {
  char words[2048];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(words, sizeof words, format, arguments);
  va_end(arguments);
  (row->flags & FL_SETTING_FATAL ? fl_problem_fatal : fl_problem)(problems, place, "%s%s%s", place.line ? row->key : "",
                                                                  place.line ? ": " : "", words);
  return false;
}

/* A node that is of the wrong kind. */
static bool wrong_kind(fl_problems *problems, const fl_setting_row *row, fl_place place, const fl_yaml_node *node,
                       const char *expected) {
  return invalid(problems, row, place, "found %s, expected %s", fl_yaml_kind_name(fl_yaml_kind_of(node)), expected);
}

/* ------------------------------------------------------------------------------------------------------ booleans */

static const char *const true_words[] = {"1", "true", NULL}, *const false_words[] = {"0", "false", NULL};
static const char *const more_true_words[] = {"yes", "on", NULL}, *const more_false_words[] = {"no", "off", NULL};

static const char *nearest_boolean(const char *word) {
  static const char *const words[] = {"true", "false"};
  if (is_one_of(word, more_true_words))
    return "1";
  return is_one_of(word, more_false_words) ? "0" : fl_nearest_word(word, words, 2);
}

/* C5: 1, true, 0 and false; in a file YAML's booleans, and further words in quotes. What is no boolean is false to the
 * peer in a variable, and in a file what Python takes it for. */
static bool read_bool(fl_problems *problems, const fl_setting_row *row, const fl_setting_source *source,
                      fl_setting_value *value) {
  const char *text = source->text;
  bool in_file = source->node;
  bool as_peer = !in_file && problems->check != FL_CHECK_ERROR && row->flags & FL_SETTING_PEER_DIGITS;
  value->flag = in_file && fl_yaml_truth(source->node);
  if (!text)
    wrong_kind(problems, row, source->place, source->node, "true or false");
  else if (as_peer) {
    value->flag = !strcmp(text, "1");
    if (!value->flag && strcmp(text, "0"))
      fl_problems_warn(problems, "Invalid %s value '%s', expected '0' or '1'. Defaulting to '0' (fallback mode).",
                       source->place.source, text);
  } else if (is_one_of(text, true_words) || (in_file && is_one_of(text, more_true_words)))
    value->flag = true;
  else if (is_one_of(text, false_words) || (in_file && is_one_of(text, more_false_words)))
    value->flag = false;
  else
    invalid(problems, row, source->place, "'%s' is not a boolean, expected %s%s", text,
            in_file ? "true or false" : "1, true, 0 or false", fl_suggest(nearest_boolean(text)).text);
  return true;
}

static void bool_to_json(const fl_setting_row *row, const fl_setting_value *value, fl_text *json) {
  (void)row;
  fl_text_add(json, value->flag ? "true" : "false");
}

const fl_setting_type fl_type_bool = {"bool", read_bool, bool_to_json};

/* --------------------------------------------------------------------------------------------------------- words */

static const char *nearest_word(const char *word, const char *const *words) {
  char room[FL_TOKEN_ROOM];
  const char *nearest = fl_nearest_or_beginning(word, words);
  if (nearest || fl_token_valid(word))
    return nearest;
  nearest = fl_token_nearest(word, room); /* tokens know what kinds were called in former times */
  while (nearest && *words && strcasecmp(nearest, *words))
    words++;
  return nearest ? *words : NULL;
}

static bool not_a_word(fl_problems *problems, const fl_setting_row *row, const fl_setting_source *source) {
  fl_text allowed = {0};
  for (const char *const *known = row->words; *known; known++)
    fl_text_add(&allowed, "%s%s", known == row->words ? "" : ", ", *known);
  invalid(problems, row, source->place, "'%s' is not one of %s%s", source->text, fl_text_get(&allowed),
          fl_suggest(nearest_word(source->text, row->words)).text);
  fl_text_free(&allowed);
  return false;
}

static bool read_word(fl_problems *problems, const fl_setting_row *row, const fl_setting_source *source,
                      fl_setting_value *value) {
  const char *const *known = row->words;
  if (!source->text)
    return wrong_kind(problems, row, source->place, source->node, "a word");
  while (known && *known && strcasecmp(source->text, *known))
    known++;
  if (known && !*known)
    return not_a_word(problems, row, source);
  value->word = fl_strdup(known ? *known : source->text);
  problems->no_memory |= !value->word;
  return value->word;
}

static void word_to_json(const fl_setting_row *row, const fl_setting_value *value, fl_text *json) {
  (void)row;
  fl_text_add_json(json, value->word);
}

const fl_setting_type fl_type_word = {"word", read_word, word_to_json};

/* ------------------------------------------------------------------------------------------------------- seconds */

/* In the C locale, whatever the engine's: a point is a point. */
static bool parse_seconds(const char *text, double *seconds) {
  locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  char *end = NULL;
  if (!plain)
    return false;
  *seconds = strtod_l(text, &end, plain);
  freelocale(plain);
  return end != text && !*end && !fl_scan_is_octal(text) && isfinite(*seconds) && *seconds >= 0;
}

static bool read_seconds(fl_problems *problems, const fl_setting_row *row, const fl_setting_source *source,
                         fl_setting_value *value) {
  if (!source->text || (source->node && fl_yaml_kind_of(source->node) == FL_YAML_BOOL))
    return wrong_kind(problems, row, source->place, source->node, "seconds, 0 or more");
  return parse_seconds(source->text, &value->seconds) ||
         invalid(problems, row, source->place, "'%s' is not a time, expected seconds, 0 or more", source->text);
}

static void seconds_to_json(const fl_setting_row *row, const fl_setting_value *value, fl_text *json) {
  char number[40];
  (void)row;
  snprintf(number, sizeof number, "%.15g", value->seconds);
  /* The engine's locale may write the point in another way. */
  for (char *c = number; *c; c++)
    if (!isdigit((unsigned char)*c) && !strchr("+-e", *c))
      *c = '.';
  fl_text_add(json, "%s", number);
}

const fl_setting_type fl_type_seconds = {"seconds", read_seconds, seconds_to_json};

/* -------------------------------------------------------------------------------------------------------- number */

/* Decimal digits and nothing else. */
static bool parse_number(const char *text, uint32_t *number) {
  uint64_t value = 0;
  size_t length = strlen(text);
  for (size_t i = 0; i < length && value <= UINT32_MAX; i++) {
    if (!isdigit((unsigned char)text[i]))
      return false;
    value = value * 10 + (uint64_t)(text[i] - '0');
  }
  *number = (uint32_t)value;
  return length && value <= UINT32_MAX;
}

static bool read_number(fl_problems *problems, const fl_setting_row *row, const fl_setting_source *source,
                        fl_setting_value *value) {
  if (!source->text)
    return wrong_kind(problems, row, source->place, source->node, "a number, 0 or more");
  return parse_number(source->text, &value->number) ||
         invalid(problems, row, source->place, "'%s' is not a number from 0 to %u", source->text, UINT32_MAX);
}

static void number_to_json(const fl_setting_row *row, const fl_setting_value *value, fl_text *json) {
  (void)row;
  fl_text_add(json, "%u", value->number);
}

const fl_setting_type fl_type_number = {"number", read_number, number_to_json};

/* --------------------------------------------------------------------------------------------------------- lists */

/* The token that `vendor: cuda` in a list was meant to be, which is a mapping to YAML; NULL: no such. */
static const char *meant_by_mapping(fl_yaml *yaml, const fl_yaml_node *item, char room[FL_TOKEN_ROOM]) {
  if (fl_yaml_kind_of(item) != FL_YAML_MAP || fl_yaml_count(item) != 1)
    return NULL;
  const fl_yaml_node *value = fl_yaml_value(yaml, item, 0);
  if (fl_yaml_kind_of(value) == FL_YAML_LIST || fl_yaml_kind_of(value) == FL_YAML_MAP)
    return NULL;
  int length = snprintf(room, FL_TOKEN_ROOM, "%s:%s", fl_yaml_text(fl_yaml_key(yaml, item, 0)), fl_yaml_text(value));
  return length < FL_TOKEN_ROOM && fl_token_valid(room) ? room : NULL;
}

/*
 * An item of a YAML list as the peer reads it: str(x).strip(), and left out when Python takes it for false. A name that
 * YAML takes for something else (`no`, `null`) is reported, since nobody means that.
 */
static void add_item(fl_problems *problems, const fl_setting_row *row, fl_yaml *yaml, const fl_yaml_node *item,
                     fl_strings *names) {
  fl_yaml_kind kind = fl_yaml_kind_of(item);
  fl_place place = fl_yaml_place(yaml, item);
  if (kind == FL_YAML_LIST || kind == FL_YAML_MAP) {
    char room[FL_TOKEN_ROOM];
    const char *meant = row->type == &fl_type_orders ? meant_by_mapping(yaml, item, room) : NULL;
    invalid(problems, row, place, "found %s, expected a name%s", fl_yaml_kind_name(kind), fl_suggest(meant).text);
    return;
  }
  bool truth = fl_yaml_truth(item);
  const char *name = fl_yaml_string(item);
  size_t length = fl_trim(&name, strlen(name));
  if (kind == FL_YAML_STRING && !length)
    invalid(problems, row, place, "found an empty name, expected a name");
  else if (kind == FL_YAML_NULL || kind == FL_YAML_BOOL || !truth)
    invalid(problems, row, place,
            "found '%s', which YAML reads as %s, expected a name (a name that looks so needs quotes)",
            fl_yaml_text(item), fl_yaml_kind_name(kind));
  if (truth && !fl_strings_add_bytes(names, name, length))
    problems->no_memory = true;
}

/* No vendor, op or layer has such a name. What separates names elsewhere is an error, since the list would mean
 * nothing; white space is warned of: the peer, and so flhost, takes it for part of a name. */
static void check_name(fl_problems *problems, const fl_setting_row *row, fl_place place, const char *name,
                       bool is_item) {
  char *where = NULL;
  if (!(row->flags & FL_SETTING_PLAIN_NAMES))
    return;
  if (strpbrk(name, ",;|") && is_item)
    invalid(problems, row, place, "'%s' is not a name; in a list each is an item", name);
  else if (strpbrk(name, ",;|"))
    invalid(problems, row, place, "'%s' is not a name; names are separated by '%c'", name, row->separator);
  else if (strpbrk(name, " \t\r\n\v\f") && (where = fl_place_origin(problems, place)))
    fl_problems_warn(problems, "%s: the name '%s' holds white space; names are separated by '%c'", where, name,
                     row->separator);
  fl_origin_free(where);
}

static bool read_list(fl_problems *problems, const fl_setting_row *row, const fl_setting_source *source,
                      fl_strings *names) {
  const fl_yaml_node *node = source->node;
  fl_yaml_kind kind = node ? fl_yaml_kind_of(node) : FL_YAML_STRING;
  if (kind == FL_YAML_STRING)
    problems->no_memory |= !fl_split(names, source->text, row->separator);
  else if (kind != FL_YAML_LIST)
    return wrong_kind(problems, row, source->place, node, "a list of names, or a string of names separated by commas");
  for (uint32_t i = 0; kind == FL_YAML_STRING && i < names->n; i++)
    check_name(problems, row, source->place, names->items[i], false);
  for (uint32_t i = 0; node && i < fl_yaml_count(node); i++) {
    const fl_yaml_node *item = fl_yaml_item(source->yaml, node, i);
    uint32_t before = names->n;
    add_item(problems, row, source->yaml, item, names);
    if (names->n > before)
      check_name(problems, row, fl_yaml_place(source->yaml, item), names->items[before], true);
  }
  return !problems->no_memory;
}

/* A name that stands there twice counts once. */
static bool drop_repeated(fl_problems *problems, fl_strings *names) {
  bool done = fl_strings_unique(names);
  problems->no_memory |= !done;
  return done;
}

static bool read_names(fl_problems *problems, const fl_setting_row *row, const fl_setting_source *source,
                       fl_setting_value *value) {
  return read_list(problems, row, source, &value->names) && drop_repeated(problems, &value->names);
}

static void add_json_list(fl_text *json, const fl_strings *names) {
  fl_text_add(json, "[");
  for (uint32_t i = 0; i < names->n; i++) {
    fl_text_add(json, i ? ", " : "");
    fl_text_add_json(json, names->items[i]);
  }
  fl_text_add(json, "]");
}

static void names_to_json(const fl_setting_row *row, const fl_setting_value *value, fl_text *json) {
  if ((!value->set && row->flags & FL_SETTING_NONE_IS_NULL) ||
      (!value->names.n && row->flags & FL_SETTING_EMPTY_IS_ALL))
    fl_text_add(json, "null");
  else
    add_json_list(json, &value->names);
}

const fl_setting_type fl_type_names = {"list", read_names, names_to_json};

/* ---------------------------------------------------------------------------------------------------- custom ops */

static bool is_mode(const char *item) {
  return !strcmp(item, "all") || !strcmp(item, "none");
}

static bool is_directive(const char *item) {
  return (*item == '+' || *item == '-') && item[1];
}

/* Of pointers into a list: one op after the other, each in the order of the list. */
static int compare_directives(const void *a, const void *b) {
  char *const *left = *(char *const *const *)a, *const *right = *(char *const *const *)b;
  int order = strcmp(*left + 1, *right + 1);
  return order ? order : left < right ? -1 : 1;
}

/* Reports directives that contradict the first of their op, and puts "" in their places. */
static void drop_contradictions(fl_problems *problems, fl_place place, fl_strings *names) {
  uint32_t n = 0, first = 0;
  char ***sorted = calloc((size_t)names->n + 1, sizeof *sorted);
  problems->no_memory |= !sorted;
  for (uint32_t i = 0; sorted && i < names->n; i++)
    if (is_directive(names->items[i]))
      sorted[n++] = &names->items[i];
  if (n)
    qsort(sorted, n, sizeof *sorted, compare_directives);
  for (uint32_t i = 1; i < n; i++)
    if (strcmp(*sorted[first] + 1, *sorted[i] + 1) != 0)
      first = i;
    else if (**sorted[first] != **sorted[i]) {
      fl_problem(problems, place,
                 "custom_ops cannot both enable and disable the same operation(s): %s. Remove either the '+' or '-' "
                 "directive",
                 *sorted[i] + 1);
      **sorted[i] = 0;
    }
  free(sorted);
}

/* vLLM's rules for the list, with its words. The part that breaks one is left out: of two modes, or of two directives
 * for one op, the later. */
static void check_custom_ops(fl_problems *problems, fl_place place, fl_strings *names) {
  static const char *const modes[] = {"all", "none"};
  bool mode_seen = false;
  uint32_t kept = 0;
  drop_contradictions(problems, place, names);
  for (uint32_t i = 0; i < names->n; i++) {
    char *item = names->items[i];
    bool is_first = is_mode(item) && !mode_seen;
    mode_seen |= is_mode(item);
    if (is_first || is_directive(item)) {
      names->items[kept++] = item;
      continue;
    }
    if (is_mode(item))
      fl_problem(problems, place, "custom_ops can contain only one base mode: 'all' or 'none'");
    else if (*item)
      fl_problem(problems, place,
                 "Invalid syntax '%s' for custom op, must be 'all', 'none', '+op' or '-op' (where 'op' is the "
                 "registered op name)%s",
                 item, fl_suggest(fl_nearest_word(item, modes, 2)).text);
    free(item);
  }
  names->n = kept;
}

static bool read_custom_ops(fl_problems *problems, const fl_setting_row *row, const fl_setting_source *source,
                            fl_setting_value *value) {
  if (!read_list(problems, row, source, &value->names))
    return false;
  check_custom_ops(problems, source->place, &value->names);
  return drop_repeated(problems, &value->names);
}

const fl_setting_type fl_type_custom_ops = {"list", read_custom_ops, names_to_json};

/* -------------------------------------------------------------------------------------------------------- orders */

/* What to write in place of a token that is none: the nearest, unless several stand there as if in another list. */
static fl_suggestion suggest_token(const char *token) {
  char room[FL_TOKEN_ROOM];
  if (strchr(token, '='))
    return (fl_suggestion){"; orders are separated by ';'"};
  if (strchr(token, ','))
    return (fl_suggestion){"; tokens are separated by '|'"};
  if (strchr(token, '|'))
    return (fl_suggestion){"; in a list each is an item"};
  return fl_suggest(fl_token_nearest(token, room));
}

/* Those from `first` on, which stand at `place`. */
static void check_tokens(fl_problems *problems, fl_place place, const char *op, size_t length, const fl_strings *tokens,
                         uint32_t first) {
  for (uint32_t i = first; i < tokens->n; i++)
    if (!fl_token_valid(tokens->items[i]))
      fl_problem(problems, place, "op '%.*s': '%s' is not a token, expected " FL_TOKEN_FORMS "%s", (int)length, op,
                 tokens->items[i], suggest_token(tokens->items[i]).text);
}

/* There are no more kinds and vendors. An alias of a file's may repeat a long order a thousand times. */
enum { TOKENS_MAX = 64 };

static bool is_too_long(fl_problems *problems, fl_place place, const char *op, size_t length, size_t n) {
  if (n > TOKENS_MAX)
    fl_problem(problems, place, "op '%.*s': an order of %zu tokens, expected %d at most", (int)length, op, n,
               TOKENS_MAX);
  return n > TOKENS_MAX;
}

/* Tokens in one string. */
static void split_tokens(fl_problems *problems, fl_place place, const char *op, size_t length, const char *text,
                         fl_strings *tokens) {
  size_t n = 1;
  for (const char *at = text; at && (at = strchr(at, '|')); at++)
    n++;
  if (is_too_long(problems, place, op, length, n))
    return;
  problems->no_memory |= !text || !fl_split(tokens, text, '|');
  check_tokens(problems, place, op, length, tokens, 0);
}

/* One entry op=a|b of a variable; `length` bytes without white space around. */
static void add_entry(fl_problems *problems, const char *source, const char *entry, size_t length, fl_orders *orders) {
  fl_place place = {.source = source};
  fl_strings tokens = {0};
  const char *op = entry, *equals = memchr(entry, '=', length);
  size_t op_length = equals ? fl_trim(&op, (size_t)(equals - entry)) : 0;
  char *list = equals ? strndup(equals + 1, length - (size_t)(equals + 1 - entry)) : NULL;
  if (op_length)
    split_tokens(problems, place, op, op_length, list, &tokens);
  if (op_length)
    fl_orders_add(problems, orders, op, op_length, &tokens, place);
  else
    fl_problem(problems, place, "'%.*s' is not an order, expected op=token|token", (int)length, entry);
  fl_strings_free(&tokens);
  free(list);
}

static void add_entries(fl_problems *problems, const char *source, const char *text, fl_orders *orders) {
  if (!strcmp(text, ",")) /* C4: an empty list, here too */
    text = NULL;
  while (text) {
    const char *end = strchr(text, ';'), *entry = text;
    size_t length = fl_trim(&entry, end ? (size_t)(end - text) : strlen(text));
    if (length)
      add_entry(problems, source, entry, length, orders);
    text = end ? end + 1 : NULL;
  }
}

static void add_pair(fl_problems *problems, const fl_setting_row *row, fl_yaml *yaml, const fl_yaml_node *key,
                     const fl_yaml_node *node, fl_orders *orders) {
  fl_yaml_kind kind = fl_yaml_kind_of(node);
  fl_place place = fl_yaml_place(yaml, node);
  fl_strings tokens = {0};
  const char *op = fl_yaml_string(key);
  size_t length = fl_trim(&op, strlen(op));
  if (!length)
    invalid(problems, row, fl_yaml_place(yaml, key), "found an empty name, expected an op");
  uint32_t n =
      kind == FL_YAML_LIST && !is_too_long(problems, place, op, length, fl_yaml_count(node)) ? fl_yaml_count(node) : 0;
  for (uint32_t i = 0; i < n; i++) {
    const fl_yaml_node *item = fl_yaml_item(yaml, node, i);
    uint32_t before = tokens.n;
    add_item(problems, row, yaml, item, &tokens);
    check_tokens(problems, fl_yaml_place(yaml, item), op, length, &tokens, before);
  }
  if (kind == FL_YAML_STRING)
    split_tokens(problems, place, op, length, fl_yaml_text(node), &tokens);
  else if (kind != FL_YAML_LIST && kind != FL_YAML_NULL) /* a key without a value is one that is not set */
    fl_problem(problems, place, "op '%.*s': found %s, expected a list of tokens, or 'token|token'", (int)length, op,
               fl_yaml_kind_name(kind));
  fl_orders_add(problems, orders, op, length, kind == FL_YAML_LIST || kind == FL_YAML_STRING ? &tokens : NULL,
                fl_yaml_place(yaml, key));
  fl_strings_free(&tokens);
}

static bool read_orders(fl_problems *problems, const fl_setting_row *row, const fl_setting_source *source,
                        fl_setting_value *value) {
  const fl_yaml_node *node = source->node;
  if (node && fl_yaml_kind_of(node) != FL_YAML_MAP)
    return wrong_kind(problems, row, source->place, node, "a mapping of op to tokens");
  if (!node)
    add_entries(problems, source->place.source, source->text, &value->orders);
  for (uint32_t i = 0; node && i < fl_yaml_count(node); i++)
    add_pair(problems, row, source->yaml, fl_yaml_key(source->yaml, node, i), fl_yaml_value(source->yaml, node, i),
             &value->orders);
  fl_orders_finish(problems, &value->orders, node ? source->place.source : NULL);
  return true;
}

static void orders_to_json(const fl_setting_row *row, const fl_setting_value *value, fl_text *json) {
  (void)row;
  fl_text_add(json, "{");
  for (uint32_t i = 0; i < value->orders.n; i++) {
    fl_text_add(json, i ? ", " : "");
    fl_text_add_json(json, value->orders.items[i].op);
    fl_text_add(json, ": ");
    add_json_list(json, &value->orders.items[i].tokens);
  }
  fl_text_add(json, "}");
}

const fl_setting_type fl_type_orders = {"orders", read_orders, orders_to_json};

void fl_setting_value_free(fl_setting_value *value) {
  free(value->word);
  fl_origin_free(value->origin);
  fl_strings_free(&value->names);
  fl_orders_free(&value->orders);
  *value = (fl_setting_value){0};
}
