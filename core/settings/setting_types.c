/*
 * How each type of setting is read from a variable and from YAML, and printed as JSON. An invalid part is reported and
 * then left out, as the peer's dispatcher leaves it out (that is what VLLM_FL_CHECK=warn promises).
 */
#include "core/settings/policy.h"
#include "core/settings/settings.h"

#include <ctype.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { HINT_SIZE = 96 };

static bool keep(fl_problems *problems, char **to, char *copy) {
  if (!copy)
    problems->no_memory = true;
  *to = copy;
  return copy;
}

/* One word of the list, in any case. */
static bool is_one_of(const char *word, const char *const *words) {
  for (; *words; words++)
    if (!strcasecmp(word, *words))
      return true;
  return false;
}

/* Reports a value of YAML that is of the wrong kind. */
static bool wrong_kind(fl_problems *problems, fl_yaml *yaml, const fl_yaml_node *node, const char *what,
                       const char *expected) {
  fl_problem(problems, fl_yaml_place(yaml, node), "%s: found %s, expected %s", what,
             fl_yaml_kind_name(fl_yaml_kind_of(node)), expected);
  return false;
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

/* C5. What is no boolean is false to the peer, whatever the file says. */
static bool bool_from_text(fl_problems *problems, const fl_setting_row *row, const char *source, const char *text,
                           fl_setting_value *value) {
  char hint[HINT_SIZE];
  bool as_peer = problems->check != FL_CHECK_ERROR && row->flags & FL_SETTING_PEER_DIGITS;
  if (as_peer ? !strcmp(text, "1") : is_one_of(text, true_words))
    value->flag = true;
  else if (as_peer && strcmp(text, "0"))
    fl_problems_warn(problems, "Invalid %s value '%s', expected '0' or '1'. Defaulting to '0' (fallback mode).", source,
                     text);
  else if (!as_peer && !is_one_of(text, false_words))
    fl_problem(problems, (fl_place){.source = source}, "'%s' is not a boolean, expected 1, true, 0 or false%s", text,
               fl_did_you_mean(hint, sizeof hint, nearest_boolean(text)));
  return true;
}

/* YAML's booleans, 1 and 0, and these words in quotes; of anything else the peer takes Python's truth. */
static bool bool_from_yaml(fl_problems *problems, const fl_setting_row *row, fl_yaml *yaml, const fl_yaml_node *node,
                           fl_setting_value *value) {
  fl_yaml_kind kind = fl_yaml_kind_of(node);
  char hint[HINT_SIZE];
  value->flag = fl_yaml_truth(node);
  if (kind == FL_YAML_BOOL)
    return true;
  if (kind == FL_YAML_LIST || kind == FL_YAML_MAP) {
    wrong_kind(problems, yaml, node, row->key, "true or false");
    return true;
  }
  const char *word = fl_yaml_text(node);
  size_t length = fl_trim(&word, strlen(word));
  char *text = strndup(word, length);
  if (!text)
    problems->no_memory = true;
  else if (is_one_of(text, false_words) || is_one_of(text, more_false_words))
    value->flag = false;
  else if (!is_one_of(text, true_words) && !is_one_of(text, more_true_words))
    fl_problem(problems, fl_yaml_place(yaml, node), "%s: '%s' is not a boolean, expected true or false%s", row->key,
               text, fl_did_you_mean(hint, sizeof hint, nearest_boolean(text)));
  free(text);
  return true;
}

static void bool_to_json(const fl_setting_row *row, const fl_setting_value *value, fl_text *json) {
  (void)row;
  fl_text_add(json, value->flag ? "true" : "false");
}

const fl_setting_type fl_type_bool = {bool_from_text, bool_from_yaml, bool_to_json};

/* --------------------------------------------------------------------------------------------------------- words */

static const char *nearest_word(const char *word, const char *const *words) {
  const char *nearest = fl_nearest_word(word, words, SIZE_MAX);
  if (!nearest)
    nearest = fl_nearest_beginning(word, words, SIZE_MAX);
  /* The tokens know what kinds were called in former times. */
  if (!nearest && !fl_token_valid(word, &nearest) && nearest && !is_one_of(nearest, words))
    nearest = NULL;
  return nearest;
}

static void report_word(fl_problems *problems, const fl_setting_row *row, fl_place place, const char *word) {
  fl_text allowed = {0};
  char hint[HINT_SIZE];
  for (const char *const *known = row->words; *known; known++)
    fl_text_add(&allowed, "%s%s", known == row->words ? "" : ", ", *known);
  /* In a file the place says the line; the key says what the word was for. */
  (row->flags & FL_SETTING_FATAL ? fl_problem_fatal : fl_problem)(
      problems, place, "%s%s'%s' is not one of %s%s", place.line ? row->key : "", place.line ? ": " : "", word,
      fl_text_get(&allowed), fl_did_you_mean(hint, sizeof hint, nearest_word(word, row->words)));
  fl_text_free(&allowed);
}

static bool read_word(fl_problems *problems, const fl_setting_row *row, fl_place place, const char *word,
                      fl_setting_value *value) {
  if (!row->words)
    return keep(problems, &value->word, fl_strdup(word));
  for (const char *const *known = row->words; *known; known++)
    if (!strcasecmp(word, *known))
      return keep(problems, &value->word, fl_strdup(*known));
  report_word(problems, row, place, word);
  return false;
}

static bool word_from_text(fl_problems *problems, const fl_setting_row *row, const char *source, const char *text,
                           fl_setting_value *value) {
  return read_word(problems, row, (fl_place){.source = source}, text, value);
}

static bool word_from_yaml(fl_problems *problems, const fl_setting_row *row, fl_yaml *yaml, const fl_yaml_node *node,
                           fl_setting_value *value) {
  fl_yaml_kind kind = fl_yaml_kind_of(node);
  if (kind == FL_YAML_LIST || kind == FL_YAML_MAP)
    return wrong_kind(problems, yaml, node, row->key, "a word");
  const char *word = fl_yaml_text(node);
  size_t length = fl_trim(&word, strlen(word));
  char *text = strndup(word, length);
  bool valid = text && read_word(problems, row, fl_yaml_place(yaml, node), text, value);
  if (!text)
    problems->no_memory = true;
  free(text);
  return valid;
}

static void word_to_json(const fl_setting_row *row, const fl_setting_value *value, fl_text *json) {
  (void)row;
  fl_text_add_json(json, value->word);
}

const fl_setting_type fl_type_word = {word_from_text, word_from_yaml, word_to_json};

/* --------------------------------------------------------------------------------------------------------- lists */

/*
 * An item of a YAML list as the peer reads it: str(x).strip(), and left out when Python takes it for false. A name that
 * YAML takes for something else (`no`, `null`) is reported, since nobody means that.
 */
static void add_item(fl_problems *problems, const char *what, fl_yaml *yaml, const fl_yaml_node *item,
                     fl_strings *names) {
  fl_yaml_kind kind = fl_yaml_kind_of(item);
  if (kind == FL_YAML_LIST || kind == FL_YAML_MAP) {
    wrong_kind(problems, yaml, item, what, "a name");
    return;
  }
  bool truth = fl_yaml_truth(item);
  const char *name = fl_yaml_string(item);
  size_t length = fl_trim(&name, strlen(name));
  if (kind == FL_YAML_STRING && !length)
    fl_problem(problems, fl_yaml_place(yaml, item), "%s: found an empty name, expected a name", what);
  else if (kind == FL_YAML_NULL || kind == FL_YAML_BOOL || !truth)
    fl_problem(problems, fl_yaml_place(yaml, item),
               "%s: found '%s', which YAML reads as %s, expected a name (a name that looks so needs quotes)", what,
               fl_yaml_text(item), fl_yaml_kind_name(kind));
  if (truth && !fl_strings_add_bytes(names, name, length))
    problems->no_memory = true;
}

static bool split(fl_problems *problems, const char *text, char separator, fl_strings *names) {
  bool ok = fl_split(names, text, separator);
  if (!ok)
    problems->no_memory = true;
  return ok;
}

/* No vendor, op or layer has such a name, so that it is a slip; the peer, and so flhost, takes it for one. */
static void warn_of_spaces(fl_problems *problems, const fl_setting_row *row, fl_place place, const fl_strings *names) {
  for (uint32_t i = 0; row->flags & FL_SETTING_PLAIN_NAMES && i < names->n; i++)
    if (strpbrk(names->items[i], " \t\r\n\v\f")) {
      char *where = fl_place_origin(problems, place);
      fl_problems_warn(problems, "%s: the name '%s' holds white space; names are separated by '%c'",
                       where ? where : row->variable, names->items[i], row->separator);
      free(where);
    }
}

static bool names_from_text(fl_problems *problems, const fl_setting_row *row, const char *source, const char *text,
                            fl_setting_value *value) {
  bool ok = split(problems, text, row->separator, &value->names);
  warn_of_spaces(problems, row, (fl_place){.source = source}, &value->names);
  return ok;
}

static bool names_from_yaml(fl_problems *problems, const fl_setting_row *row, fl_yaml *yaml, const fl_yaml_node *node,
                            fl_setting_value *value) {
  fl_yaml_kind kind = fl_yaml_kind_of(node);
  bool ok = true;
  if (kind == FL_YAML_STRING)
    ok = split(problems, fl_yaml_text(node), row->separator, &value->names);
  else if (kind != FL_YAML_LIST)
    return wrong_kind(problems, yaml, node, row->key, "a list of names, or a string of names separated by commas");
  for (uint32_t i = 0; i < fl_yaml_count(node); i++)
    add_item(problems, row->key, yaml, fl_yaml_item(yaml, node, i), &value->names);
  warn_of_spaces(problems, row, fl_yaml_place(yaml, node), &value->names);
  return ok;
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

const fl_setting_type fl_type_names = {names_from_text, names_from_yaml, names_to_json};

/* ---------------------------------------------------------------------------------------------------- custom ops */

static void drop_item(fl_strings *names, uint32_t index) {
  free(names->items[index]);
  memmove(names->items + index, names->items + index + 1, (names->n - index - 1) * sizeof *names->items);
  names->n--;
}

static bool is_mode(const char *item) {
  return !strcmp(item, "all") || !strcmp(item, "none");
}

/* Is an earlier item the same op with the other sign? */
static bool contradicts(const fl_strings *names, uint32_t index) {
  const char *item = names->items[index];
  for (uint32_t i = 0; i < index; i++)
    if (!is_mode(item) && !is_mode(names->items[i]) && *names->items[i] != *item &&
        !strcmp(names->items[i] + 1, item + 1))
      return true;
  return false;
}

/* vLLM's rules for the list, with its words. The part that breaks one is left out: of two modes, or of two directives
 * for one op, the later. */
static void check_custom_ops(fl_problems *problems, fl_place place, fl_strings *names) {
  static const char *const modes[] = {"all", "none"};
  bool mode_seen = false;
  char hint[HINT_SIZE];
  for (uint32_t i = 0; i < names->n;) {
    const char *item = names->items[i];
    if (!is_mode(item) && ((*item != '+' && *item != '-') || !item[1]))
      fl_problem(problems, place,
                 "Invalid syntax '%s' for custom op, must be 'all', 'none', '+op' or '-op' (where 'op' is the "
                 "registered op name)%s",
                 item, fl_did_you_mean(hint, sizeof hint, fl_nearest_word(item, modes, 2)));
    else if (is_mode(item) && mode_seen)
      fl_problem(problems, place, "custom_ops can contain only one base mode: 'all' or 'none'");
    else if (contradicts(names, i))
      fl_problem(problems, place,
                 "custom_ops cannot both enable and disable the same operation(s): %s. Remove either the '+' or '-' "
                 "directive",
                 item + 1);
    else {
      mode_seen |= is_mode(item);
      i++;
      continue;
    }
    drop_item(names, i);
  }
}

static bool custom_ops_from_text(fl_problems *problems, const fl_setting_row *row, const char *source, const char *text,
                                 fl_setting_value *value) {
  if (!split(problems, text, row->separator, &value->names))
    return false;
  check_custom_ops(problems, (fl_place){.source = source}, &value->names);
  return true;
}

static bool custom_ops_from_yaml(fl_problems *problems, const fl_setting_row *row, fl_yaml *yaml,
                                 const fl_yaml_node *node, fl_setting_value *value) {
  if (!names_from_yaml(problems, row, yaml, node, value))
    return false;
  check_custom_ops(problems, fl_yaml_place(yaml, node), &value->names);
  return true;
}

const fl_setting_type fl_type_custom_ops = {custom_ops_from_text, custom_ops_from_yaml, names_to_json};

/* -------------------------------------------------------------------------------------------------------- orders */

/* What to write in place of a token that is none: the nearest, unless several stand there as if in another list. */
static const char *token_hint(char *hint, size_t size, const char *token, const char *nearest) {
  if (strpbrk(token, ",|"))
    snprintf(hint, size, "%s", strchr(token, ',') ? "; tokens are separated by '|'" : "; in a list each is an item");
  else
    fl_did_you_mean(hint, size, nearest);
  return hint;
}

/* Those from `first` on, which stand at `place`. */
static void check_tokens(fl_problems *problems, fl_place place, const char *op, size_t length, const fl_strings *tokens,
                         uint32_t first) {
  const char *nearest;
  char hint[HINT_SIZE];
  for (uint32_t i = first; i < tokens->n; i++)
    if (!fl_token_valid(tokens->items[i], &nearest))
      fl_problem(problems, place, "op '%.*s': '%s' is not a token, expected " FL_TOKEN_FORMS "%s", (int)length, op,
                 tokens->items[i], token_hint(hint, sizeof hint, tokens->items[i], nearest));
}

/* One entry op=a|b of a variable; `length` bytes without white space around. */
static void add_entry(fl_problems *problems, const char *source, const char *entry, size_t length, fl_orders *orders) {
  fl_place place = {.source = source};
  fl_strings tokens = {0};
  const char *op = entry, *equals = memchr(entry, '=', length);
  size_t op_length = equals ? fl_trim(&op, (size_t)(equals - entry)) : 0;
  char *list = equals ? strndup(equals + 1, length - (size_t)(equals + 1 - entry)) : NULL;
  if (equals && (!list || !fl_split(&tokens, list, '|')))
    problems->no_memory = true;
  if (!op_length || !tokens.n)
    fl_problem(problems, place, "'%.*s' is not an order, expected op=token|token", (int)length, entry);
  else {
    check_tokens(problems, place, op, op_length, &tokens, 0);
    fl_orders_add(problems, orders, op, op_length, &tokens, place);
  }
  fl_strings_free(&tokens);
  free(list);
}

static bool orders_from_text(fl_problems *problems, const fl_setting_row *row, const char *source, const char *text,
                             fl_setting_value *value) {
  (void)row;
  if (!strcmp(text, ",")) /* C4: an empty list, here too */
    text = NULL;
  while (text) {
    const char *end = strchr(text, ';'), *entry = text;
    size_t length = fl_trim(&entry, end ? (size_t)(end - text) : strlen(text));
    if (length)
      add_entry(problems, source, entry, length, &value->orders);
    text = end ? end + 1 : NULL;
  }
  fl_orders_finish(problems, &value->orders, NULL);
  return true;
}

static void add_pair(fl_problems *problems, fl_yaml *yaml, const fl_yaml_node *key, const fl_yaml_node *node,
                     fl_orders *orders) {
  fl_yaml_kind kind = fl_yaml_kind_of(node);
  fl_strings tokens = {0};
  const char *op = fl_yaml_string(key);
  size_t length = fl_trim(&op, strlen(op));
  bool usable = true;
  if (kind == FL_YAML_LIST) {
    for (uint32_t i = 0; i < fl_yaml_count(node); i++) {
      const fl_yaml_node *item = fl_yaml_item(yaml, node, i);
      uint32_t before = tokens.n;
      add_item(problems, "op_backends", yaml, item, &tokens);
      check_tokens(problems, fl_yaml_place(yaml, item), op, length, &tokens, before);
    }
  } else if (kind == FL_YAML_STRING) {
    split(problems, fl_yaml_text(node), '|', &tokens);
    check_tokens(problems, fl_yaml_place(yaml, node), op, length, &tokens, 0);
  } else {
    usable = false;
    if (kind != FL_YAML_NULL) /* a key without a value is one that is not set */
      fl_problem(problems, fl_yaml_place(yaml, node),
                 "op '%.*s': found %s, expected a list of tokens, or 'token|token'", (int)length, op,
                 fl_yaml_kind_name(kind));
  }
  fl_orders_add(problems, orders, op, length, usable ? &tokens : NULL, fl_yaml_place(yaml, key));
  fl_strings_free(&tokens);
}

static bool orders_from_yaml(fl_problems *problems, const fl_setting_row *row, fl_yaml *yaml, const fl_yaml_node *node,
                             fl_setting_value *value) {
  if (fl_yaml_kind_of(node) != FL_YAML_MAP)
    return wrong_kind(problems, yaml, node, row->key, "a mapping of op to tokens");
  for (uint32_t i = 0; i < fl_yaml_count(node); i++)
    add_pair(problems, yaml, fl_yaml_key(yaml, node, i), fl_yaml_value(yaml, node, i), &value->orders);
  fl_orders_finish(problems, &value->orders, fl_yaml_place(yaml, node).source);
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

const fl_setting_type fl_type_orders = {orders_from_text, orders_from_yaml, orders_to_json};

void fl_orders_add(fl_problems *problems, fl_orders *orders, const char *op, size_t length, fl_strings *tokens,
                   fl_place place) {
  if (orders->n == orders->capacity) {
    uint32_t capacity = orders->capacity ? orders->capacity * 2 : 16;
    fl_order *grown = realloc(orders->items, capacity * sizeof *grown);
    if (!grown) {
      problems->no_memory = true;
      return;
    }
    orders->items = grown;
    orders->capacity = capacity;
  }
  fl_order order = {.line = place.line, .column = place.column, .rank = orders->n, .absent = !tokens};
  if (!keep(problems, &order.op, strndup(op, length)))
    return;
  order.origin = fl_place_origin(problems, place);
  if (tokens) {
    order.tokens = *tokens;
    *tokens = (fl_strings){0};
  }
  orders->items[orders->n++] = order;
}

static int compare_orders(const void *a, const void *b) {
  const fl_order *left = a, *right = b;
  int order = strcmp(left->op, right->op);
  return order ? order : left->rank < right->rank ? -1 : 1;
}

static void free_order(fl_order *order) {
  free(order->op);
  free(order->origin);
  fl_strings_free(&order->tokens);
}

static void drop_absent(fl_orders *orders) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < orders->n; i++)
    if (orders->items[i].absent)
      free_order(&orders->items[i]);
    else
      orders->items[kept++] = orders->items[i];
  orders->n = kept;
}

void fl_orders_finish(fl_problems *problems, fl_orders *orders, const char *file) {
  uint32_t kept = 0;
  if (orders->n)
    qsort(orders->items, orders->n, sizeof *orders->items, compare_orders);
  for (uint32_t i = 0; i < orders->n; i++) {
    fl_order *order = &orders->items[i], *before = kept ? &orders->items[kept - 1] : NULL;
    if (before && !strcmp(before->op, order->op)) {
      if (file)
        fl_problem(problems, (fl_place){file, order->line, order->column},
                   "op '%s' stands here and in line %u, expected once", order->op, before->line);
      free_order(before);
      kept--;
    }
    orders->items[kept++] = *order;
  }
  orders->n = kept;
  drop_absent(orders);
}

static int compare_op(const void *op, const void *order) {
  return strcmp(op, ((const fl_order *)order)->op);
}

const fl_order *fl_orders_find(const fl_orders *orders, const char *op) {
  return orders->n ? bsearch(op, orders->items, orders->n, sizeof *orders->items, compare_op) : NULL;
}

void fl_orders_free(fl_orders *orders) {
  for (uint32_t i = 0; i < orders->n; i++)
    free_order(&orders->items[i]);
  free(orders->items);
  *orders = (fl_orders){0};
}

/* ------------------------------------------------------------------------------------------------------- seconds */

/* In the C locale, whatever the engine's: a point is a point. */
static bool parse_seconds(const char *text, double *seconds) {
  locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  char *end = NULL;
  if (!plain)
    return false;
  *seconds = strtod_l(text, &end, plain);
  freelocale(plain);
  return end != text && !*end && isfinite(*seconds) && *seconds >= 0;
}

static bool read_seconds(fl_problems *problems, fl_place place, const char *what, const char *text,
                         fl_setting_value *value) {
  bool valid = parse_seconds(text, &value->seconds);
  if (!valid)
    fl_problem(problems, place, "%s%s'%s' is not a time, expected seconds, 0 or more", what, *what ? ": " : "", text);
  return valid;
}

static bool seconds_from_text(fl_problems *problems, const fl_setting_row *row, const char *source, const char *text,
                              fl_setting_value *value) {
  (void)row;
  return read_seconds(problems, (fl_place){.source = source}, "", text, value);
}

static bool seconds_from_yaml(fl_problems *problems, const fl_setting_row *row, fl_yaml *yaml, const fl_yaml_node *node,
                              fl_setting_value *value) {
  fl_yaml_kind kind = fl_yaml_kind_of(node);
  if (kind == FL_YAML_LIST || kind == FL_YAML_MAP || kind == FL_YAML_BOOL)
    return wrong_kind(problems, yaml, node, row->key, "seconds, 0 or more");
  return read_seconds(problems, fl_yaml_place(yaml, node), row->key, fl_yaml_text(node), value);
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

const fl_setting_type fl_type_seconds = {seconds_from_text, seconds_from_yaml, seconds_to_json};
