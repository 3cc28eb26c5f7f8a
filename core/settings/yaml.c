/* YAML through libyaml: see yaml.h. */
#include "core/settings/yaml.h"
#include "core/support.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

struct fl_yaml {
  char *path, *text;
  size_t length;
  yaml_parser_t parser; /* behind the first document */
  yaml_document_t document;
  bool parsing, loaded; /* are `parser` and `document` there? */
};

/* ------------------------------------------------------------------------------------------------ kinds of scalars */

static bool is_word(const char *text, const char *const *words) {
  for (; *words; words++)
    if (!strcmp(text, *words))
      return true;
  return false;
}

static const char *const null_words[] = {"", "~", "null", "Null", "NULL", NULL};
static const char *const true_words[] = {"yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON", NULL};
static const char *const false_words[] = {"no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF", NULL};

static const char *skip_sign(const char *text) {
  return text + (*text == '-' || *text == '+');
}

static bool is_int(const char *text) {
  const char *digits = "0123456789_", *number = skip_sign(text);
  if (number[0] == '0' && number[1] == 'x')
    digits = "0123456789abcdefABCDEF_", number += 2;
  else if (number[0] == '0' && number[1] == 'b')
    digits = "01_", number += 2;
  else if (number[0] == '0' && number[1])
    digits = "01234567_";
  else if (*number == '_')
    return false;
  return *number && !number[strspn(number, digits)];
}

static bool is_float(const char *text) {
  static const char *const special[] = {".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN", NULL};
  const char *number = skip_sign(text);
  if (is_word(number, special))
    return true;
  size_t whole = strspn(number, "0123456789_");
  if (number[whole] != '.' || *number == '_')
    return false;
  number += whole + 1;
  size_t fraction = strspn(number, "0123456789_");
  if (!whole && !fraction)
    return false;
  number += fraction;
  if (!*number)
    return true;
  if ((*number != 'e' && *number != 'E') || (number[1] != '-' && number[1] != '+'))
    return false;
  number += 2;
  return *number && !number[strspn(number, "0123456789")];
}

static fl_yaml_kind plain_kind(const char *text) {
  if (is_word(text, null_words))
    return FL_YAML_NULL;
  if (is_word(text, true_words) || is_word(text, false_words))
    return FL_YAML_BOOL;
  if (is_int(text))
    return FL_YAML_INT;
  return is_float(text) ? FL_YAML_FLOAT : FL_YAML_STRING;
}

static const struct {
  const char *tag;
  fl_yaml_kind kind;
} tags[] = {{YAML_NULL_TAG, FL_YAML_NULL},   {YAML_BOOL_TAG, FL_YAML_BOOL},  {YAML_INT_TAG, FL_YAML_INT},
            {YAML_FLOAT_TAG, FL_YAML_FLOAT}, {YAML_STR_TAG, FL_YAML_STRING}, {YAML_SEQ_TAG, FL_YAML_LIST},
            {YAML_MAP_TAG, FL_YAML_MAP}};

const char *fl_yaml_text(const fl_yaml_node *node) {
  return (const char *)node->data.scalar.value;
}

fl_yaml_kind fl_yaml_kind_of(const fl_yaml_node *node) {
  if (node->type == YAML_SEQUENCE_NODE)
    return FL_YAML_LIST;
  if (node->type == YAML_MAPPING_NODE)
    return FL_YAML_MAP;
  for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
    if (tags[i].kind != FL_YAML_STRING && !strcmp((const char *)node->tag, tags[i].tag))
      return tags[i].kind;
  /* libyaml gives every scalar without a tag the one of a string. */
  return node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE ? plain_kind(fl_yaml_text(node)) : FL_YAML_STRING;
}

const char *fl_yaml_kind_name(fl_yaml_kind kind) {
  static const char *const names[] = {
      [FL_YAML_NULL] = "nothing",   [FL_YAML_BOOL] = "a boolean",  [FL_YAML_INT] = "a number",
      [FL_YAML_FLOAT] = "a number", [FL_YAML_STRING] = "a string", [FL_YAML_LIST] = "a list",
      [FL_YAML_MAP] = "a mapping"};
  return names[kind];
}

/* A number is zero when no digit of it counts; the letters of .inf and .nan do. */
static bool number_truth(const char *text) {
  const char *number = skip_sign(text);
  if (number[0] == '0' && (number[1] == 'x' || number[1] == 'b'))
    return number[2 + strspn(number + 2, "0_")] != 0;
  number += strspn(number, "0_.");
  return *number && *number != 'e' && *number != 'E';
}

bool fl_yaml_truth(const fl_yaml_node *node) {
  switch (fl_yaml_kind_of(node)) {
  case FL_YAML_NULL:
    return false;
  case FL_YAML_BOOL:
    return is_word(fl_yaml_text(node), true_words);
  case FL_YAML_INT:
  case FL_YAML_FLOAT:
    return number_truth(fl_yaml_text(node));
  case FL_YAML_STRING:
    return *fl_yaml_text(node);
  default:
    return fl_yaml_count(node) != 0;
  }
}

const char *fl_yaml_string(const fl_yaml_node *node) {
  switch (fl_yaml_kind_of(node)) {
  case FL_YAML_NULL:
    return "None";
  case FL_YAML_BOOL:
    return fl_yaml_truth(node) ? "True" : "False";
  default:
    return fl_yaml_text(node);
  }
}

/* -------------------------------------------------------------------------------------------------------- nodes */

const fl_yaml_node *fl_yaml_root(fl_yaml *yaml) {
  return yaml_document_get_root_node(&yaml->document);
}

static fl_place place_of_mark(const char *path, yaml_mark_t mark) {
  return (fl_place){path, (unsigned)mark.line + 1, (unsigned)mark.column + 1};
}

fl_place fl_yaml_place(const fl_yaml *yaml, const fl_yaml_node *node) {
  return place_of_mark(yaml->path, node->start_mark);
}

uint32_t fl_yaml_count(const fl_yaml_node *node) {
  if (node->type == YAML_SEQUENCE_NODE)
    return (uint32_t)(node->data.sequence.items.top - node->data.sequence.items.start);
  if (node->type == YAML_MAPPING_NODE)
    return (uint32_t)(node->data.mapping.pairs.top - node->data.mapping.pairs.start);
  return 0;
}

const fl_yaml_node *fl_yaml_item(fl_yaml *yaml, const fl_yaml_node *list, uint32_t index) {
  return yaml_document_get_node(&yaml->document, list->data.sequence.items.start[index]);
}

const fl_yaml_node *fl_yaml_key(fl_yaml *yaml, const fl_yaml_node *map, uint32_t index) {
  return yaml_document_get_node(&yaml->document, map->data.mapping.pairs.start[index].key);
}

const fl_yaml_node *fl_yaml_value(fl_yaml *yaml, const fl_yaml_node *map, uint32_t index) {
  return yaml_document_get_node(&yaml->document, map->data.mapping.pairs.start[index].value);
}

/* ------------------------------------------------------------------------------------------------------- loading */

static fl_status refuse(fl_place place, const char *what, const char *name) {
  return fl_error(FL_ECONFIG, "%s:%u:%u: %s%s%s%s", place.source, place.line, place.column, what, name ? " '" : "",
                  name ? name : "", name ? "'" : "");
}

/* Where it is, and where what it is part of begins if that is elsewhere. */
static fl_status syntax_error(const fl_yaml *yaml) {
  const yaml_parser_t *parser = &yaml->parser;
  const char *path = yaml->path;
  const char *problem = parser->problem ? parser->problem : "not YAML", *context = parser->context;
  if (parser->error == YAML_MEMORY_ERROR)
    return fl_error_no_memory();
  if (parser->error == YAML_READER_ERROR)
    return fl_error(FL_ECONFIG, "%s: %s (byte %zu)", path, problem, parser->problem_offset);
  fl_place place = place_of_mark(path, parser->problem_mark), begin = place_of_mark(path, parser->context_mark);
  const char *hint = parser->problem_mark.index < yaml->length && yaml->text[parser->problem_mark.index] == '\t'
                         ? " (a tab; YAML is indented with spaces)"
                         : "";
  if (context && (begin.line != place.line || begin.column != place.column))
    return fl_error(FL_ECONFIG, "%s:%u:%u: %s; %s:%u:%u: %s%s", path, begin.line, begin.column, context, path,
                    place.line, place.column, problem, hint);
  return fl_error(FL_ECONFIG, "%s:%u:%u: %s%s%s%s", path, place.line, place.column, context ? context : "",
                  context ? " " : "", problem, hint);
}

static bool known_tag(const char *tag) {
  for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
    if (!strcmp(tag, tags[i].tag))
      return true;
  return false;
}

static fl_status check_node(const fl_yaml *yaml, const yaml_node_t *node) {
  fl_place place = fl_yaml_place(yaml, node);
  if (!known_tag((const char *)node->tag))
    return refuse(place, "could not determine a constructor for the tag", (const char *)node->tag);
  if (node->type == YAML_SCALAR_NODE && memchr(node->data.scalar.value, 0, node->data.scalar.length))
    return refuse(place, "a NUL character is not allowed", NULL);
  return FL_OK;
}

static fl_status check_key(fl_yaml *yaml, const yaml_node_t *key) {
  if (key->type != YAML_SCALAR_NODE)
    return refuse(fl_yaml_place(yaml, key), "a key must be a name, found", fl_yaml_kind_name(fl_yaml_kind_of(key)));
  if (key->data.scalar.style == YAML_PLAIN_SCALAR_STYLE && !strcmp(fl_yaml_text(key), "<<"))
    return refuse(fl_yaml_place(yaml, key), "merge keys are not supported: write out what is merged, found", "<<");
  return FL_OK;
}

/* The whole document, also what no setting uses. */
static fl_status check_nodes(fl_yaml *yaml) {
  fl_status status = FL_OK;
  for (yaml_node_t *node = yaml->document.nodes.start; !status && node < yaml->document.nodes.top; node++) {
    status = check_node(yaml, node);
    for (uint32_t i = 0; !status && node->type == YAML_MAPPING_NODE && i < fl_yaml_count(node); i++)
      status = check_key(yaml, fl_yaml_key(yaml, node, i));
  }
  return status;
}

static fl_status check_single(fl_yaml *yaml) {
  const char *path = yaml->path;
  fl_place first = place_of_mark(path, yaml->document.start_mark);
  yaml_document_t second;
  if (!yaml_parser_load(&yaml->parser, &second))
    return syntax_error(yaml);
  yaml_node_t *root = yaml_document_get_root_node(&second);
  fl_place place = place_of_mark(path, second.start_mark);
  fl_status status = root ? fl_error(FL_ECONFIG, "%s:%u:%u: expected a single document; %s:%u:%u: found another one",
                                     path, first.line, first.column, path, place.line, place.column)
                          : FL_OK;
  yaml_document_delete(&second);
  return status;
}

fl_status fl_yaml_check(fl_yaml *yaml) {
  fl_status status = check_nodes(yaml);
  return status || !fl_yaml_root(yaml) ? status : check_single(yaml);
}

/* What libyaml does in time that grows with the square of its number; no settings come near. */
enum { DEPTH_MAX = 64, ANCHORS_MAX = 1000, ALIASES_MAX = 1000 };

static const char *anchor_of(const yaml_event_t *event) {
  const yaml_char_t *anchor = event->type == YAML_SCALAR_EVENT           ? event->data.scalar.anchor
                              : event->type == YAML_SEQUENCE_START_EVENT ? event->data.sequence_start.anchor
                              : event->type == YAML_MAPPING_START_EVENT  ? event->data.mapping_start.anchor
                                                                         : NULL;
  return (const char *)anchor;
}

/* Reads the first document and keeps nothing. A mistake ends it: who reads to keep says what it is. */
static fl_status check_limits(fl_yaml *yaml, yaml_parser_t *parser) {
  uint32_t depth = 0, anchors = 0, aliases = 0;
  bool more = true;
  fl_status status = FL_OK;
  while (more && !status) {
    yaml_event_t event;
    if (!yaml_parser_parse(parser, &event))
      return parser->error == YAML_MEMORY_ERROR ? fl_error_no_memory() : FL_OK;
    depth += event.type == YAML_SEQUENCE_START_EVENT || event.type == YAML_MAPPING_START_EVENT;
    depth -= event.type == YAML_SEQUENCE_END_EVENT || event.type == YAML_MAPPING_END_EVENT;
    anchors += anchor_of(&event) != NULL;
    aliases += event.type == YAML_ALIAS_EVENT;
    more = event.type != YAML_DOCUMENT_END_EVENT && event.type != YAML_STREAM_END_EVENT;
    const char *what = depth > DEPTH_MAX       ? "lists and mappings in one another"
                       : anchors > ANCHORS_MAX ? "anchors ('&')"
                       : aliases > ALIASES_MAX ? "aliases ('*')"
                                               : NULL;
    fl_place place = place_of_mark(yaml->path, event.start_mark);
    if (what)
      status = fl_error(FL_ECONFIG, "%s:%u:%u: too many %s, expected %d at most", place.source, place.line,
                        place.column, what, depth > DEPTH_MAX ? DEPTH_MAX : ANCHORS_MAX);
    yaml_event_delete(&event);
  }
  return status;
}

/* May it be beyond a limit at all? Each takes a character, so that few files are read twice. */
static bool may_be_beyond(const fl_yaml *yaml) {
  const char *end = yaml->text + yaml->length;
  uint32_t n = 0;
  for (const char *mark = "[{-?&*"; *mark && n <= DEPTH_MAX; mark++)
    for (const char *at = yaml->text; n <= DEPTH_MAX && (at = memchr(at, *mark, (size_t)(end - at))); at++)
      n++;
  return n > DEPTH_MAX;
}

static fl_status read_for_limits(fl_yaml *yaml) {
  yaml_parser_t parser;
  if (!yaml_parser_initialize(&parser))
    return fl_error_no_memory();
  yaml_parser_set_input_string(&parser, (const unsigned char *)yaml->text, yaml->length);
  fl_status status = check_limits(yaml, &parser);
  yaml_parser_delete(&parser);
  return status;
}

static fl_status parse(fl_yaml *yaml) {
  fl_status status = may_be_beyond(yaml) ? read_for_limits(yaml) : FL_OK;
  if (status)
    return status;
  yaml->parsing = yaml_parser_initialize(&yaml->parser);
  if (!yaml->parsing)
    return fl_error_no_memory();
  yaml_parser_set_input_string(&yaml->parser, (const unsigned char *)yaml->text, yaml->length);
  yaml->loaded = yaml_parser_load(&yaml->parser, &yaml->document);
  return yaml->loaded ? FL_OK : syntax_error(yaml);
}

fl_status fl_yaml_parse(const char *path, fl_yaml **yaml) {
  fl_yaml *made = calloc(1, sizeof *made);
  fl_status status = made && (made->path = fl_strdup(path)) ? FL_OK : fl_error_no_memory();
  if (!status) {
    status = fl_read_file(path, &made->text, &made->length);
    if (status && status != FL_ENOMEM)
      status = fl_error(status, "%s: %s", path, fl_error_message());
  }
  if (!status)
    status = parse(made);
  if (status)
    fl_yaml_free(made);
  else
    *yaml = made;
  return status;
}

fl_status fl_yaml_load(const char *path, fl_yaml **yaml) {
  fl_yaml *made;
  fl_status status = fl_yaml_parse(path, &made);
  if (status)
    return status;
  status = fl_yaml_check(made);
  if (status)
    fl_yaml_free(made);
  else
    *yaml = made;
  return status;
}

void fl_yaml_free(fl_yaml *yaml) {
  if (!yaml)
    return;
  if (yaml->loaded)
    yaml_document_delete(&yaml->document);
  if (yaml->parsing)
    yaml_parser_delete(&yaml->parser);
  free(yaml->text);
  free(yaml->path);
  free(yaml);
}
