/*
 * Build-time program: writes what follows from the entries of the built-in ops to standard output.
 *   generate-ops header   include/flhost/ops.h, a typed call for each op; clang-format is told to leave it alone
 *   generate-ops stubs    python/flhost/ops.pyi, the same for Python
 */
#include "core/cases/cases.h"
#include "core/ops/ops.h"
#include "core/schema/rules.h"
#include "core/support/error.h"
#include "core/support/text.h"

#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 120 };

/* How a value of each type looks in C. `%s` is its name. */
typedef struct c_type {
  const char *argument, *optional_argument, *result; /* declarations */
  const char *value, *optional_value;                /* the fl_value of an argument */
  const char *member;                                /* of fl_value.v, where a result is found */
} c_type;

static const c_type c_types[] = {
    [FL_TENSOR] = {"DLTensor *%s", "DLTensor *%s", "DLTensor *%s", "fl_required_tensor(%s)", "fl_tensor(%s)", NULL},
    [FL_INT] = {"int64_t %s", "const int64_t *%s", "int64_t *%s", "fl_int(%s)", "%s ? fl_int(*%s) : fl_none()", "i"},
    [FL_FLOAT] = {"double %s", "const double *%s", "double *%s", "fl_float(%s)", "%s ? fl_float(*%s) : fl_none()", "f"},
    [FL_BOOL] = {"bool %s", "const bool *%s", "bool *%s", "fl_bool(%s)", "%s ? fl_bool(*%s) : fl_none()", "b"},
    [FL_STRING] = {"const char *%s", "const char *%s", "const char **%s", "fl_string(%s)", "fl_string(%s)", "s"},
    [FL_INT_LIST] = {"const int64_t *%s", "const int64_t *%s", "const int64_t **%s", "fl_ints(%s, n_%s)",
                     "%s ? fl_ints(%s, n_%s) : fl_none()", "ints"},
};

/* Appends `format` with each %s replaced by `name`. */
static void add_named(fl_text *text, const char *format, const char *name) {
  for (const char *mark; (mark = strstr(format, "%s")); format = mark + 2) {
    fl_text_add_bytes(text, format, (size_t)(mark - format));
    fl_text_add(text, "%s", name);
  }
  fl_text_add(text, "%s", format);
}

/* Appends words, broken into lines of at most COLUMNS. The first line goes on at `column`, the others begin with
 * `indent`. */
static void add_wrapped(fl_text *text, size_t column, const char *indent, const char *words, char separator) {
  bool first = true;
  while (*words) {
    const char *end = strchr(words, separator);
    size_t length = end ? (size_t)(end - words) : strlen(words);
    if (!first && column + 1 + length > COLUMNS) {
      fl_text_add(text, "\n%s", indent);
      column = strlen(indent);
    } else if (!first) {
      fl_text_add(text, " ");
      column++;
    }
    fl_text_add_bytes(text, words, length);
    column += length;
    words += length + (end != NULL);
    first = false;
  }
}

/* A line of a comment, wrapped with `inner` before the lines that follow. */
static void add_comment(fl_text *text, const char *outer, const char *inner, const char *words, char separator) {
  fl_text_add(text, " * %s", outer);
  char indent[32];
  snprintf(indent, sizeof indent, " * %s", inner);
  add_wrapped(text, 3 + strlen(outer), indent, words, separator);
  fl_text_add(text, "\n");
}

/* What the rules say of each tensor, and the results that are as another tensor. */
static bool list_rules(const fl_schema *schema, fl_strings *lines) {
  if (!fl_split(lines, schema->rules, ';'))
    return false;
  for (uint32_t i = 0; i < schema->n_results; i++) {
    uint8_t like = schema->compiled->result_like[i];
    fl_text line = {0};
    if (like == FL_RULES_NONE)
      continue;
    fl_text_add(&line, "%s: as %s", schema->values[schema->n_arguments + i].name, schema->values[like].name);
    bool added = !line.failed && fl_strings_add(lines, line.text);
    fl_text_free(&line);
    if (!added)
      return false;
  }
  return true;
}

/* ------------------------------------------------------------------------------------------------------- the header */

/* The sentence on each result that may be an argument. */
static void add_in_place(fl_text *text, const fl_schema *schema) {
  for (uint32_t i = schema->n_arguments; i < schema->n_arguments + schema->n_results; i++) {
    fl_text words = {0};
    int32_t alias = schema->values[i].alias;
    if (alias < 0)
      continue;
    const char *name = schema->values[i].name, *argument = schema->values[alias].name;
    fl_text_add(&words, "%s may be the very tensor %s (in place); else %s stays as it is.%s", name, argument, argument,
                schema->values[i].optional ? " NULL exactly where that is NULL." : "");
    add_comment(text, "", "", fl_text_get(&words), ' ');
    fl_text_free(&words);
  }
}

static void add_optional(fl_text *text, const fl_schema *schema) {
  fl_text words = {0};
  for (uint32_t i = 0; i < schema->n_arguments; i++)
    if (schema->values[i].optional)
      fl_text_add(&words, "%s%s", words.length ? ", " : "", schema->values[i].name);
  if (words.length) {
    fl_text_add(&words, ": NULL for none.");
    add_comment(text, "", "", fl_text_get(&words), ' ');
  }
  fl_text_free(&words);
}

/* The schema, wrapped between arguments. */
static void add_schema(fl_text *text, const char *schema) {
  fl_text parts = {0};
  for (const char *c = schema; *c; c++)
    fl_text_add_bytes(&parts, *c == ' ' && (c[-1] == ',' || c[1] == '-') ? "\v" : c, 1);
  add_comment(text, "    ", "        ", fl_text_get(&parts), '\v');
  fl_text_free(&parts);
}

static bool add_op_comment(fl_text *text, const fl_schema *schema) {
  fl_strings rules = {0};
  if (!list_rules(schema, &rules)) {
    fl_strings_free(&rules);
    return false;
  }
  fl_text_add(text, "/*\n");
  add_comment(text, "", "", schema->doc, ' ');
  add_schema(text, schema->text);
  for (uint32_t i = 0; i < rules.n; i++)
    add_comment(text, i ? "       " : "where  ", "       ", rules.items[i], ' ');
  add_in_place(text, schema);
  add_optional(text, schema);
  if (*schema->formula)
    add_comment(text, "Formula: ", "", schema->formula, ' ');
  if (*schema->ranks)
    add_comment(text, "Over ranks (fl_scope_group): ", "", schema->ranks, ' ');
  fl_text_add(text, " */\n");
  fl_strings_free(&rules);
  return true;
}

/* The parameters, joined by ",\v": wrapped at \v. */
static void list_parameters(fl_text *text, const fl_schema *schema) {
  fl_text_add(text, "const fl_ops *ops,\vvoid *stream");
  for (uint32_t i = 0; i < schema->n_arguments + schema->n_results; i++) {
    const fl_argument *value = &schema->values[i];
    const c_type *type = &c_types[value->type];
    bool is_result = i >= schema->n_arguments;
    fl_text_add(text, ",\v");
    add_named(text, is_result ? type->result : value->optional ? type->optional_argument : type->argument, value->name);
    if (value->type == FL_INT_LIST)
      fl_text_add(text, is_result ? ",\vuint32_t *n_%s" : ",\vuint32_t n_%s", value->name);
  }
}

static void add_signature(fl_text *text, const fl_schema *schema) {
  char indent[COLUMNS + 1];
  fl_text parameters = {0};
  size_t begin = text->length;
  list_parameters(&parameters, schema);
  fl_text_add(text, "static inline fl_status fl_%s(", schema->op_name);
  size_t column = text->length - begin;
  snprintf(indent, sizeof indent, "%*s", (int)column, "");
  fl_text_add(&parameters, ") {");
  add_wrapped(text, column, indent, fl_text_get(&parameters), '\v');
  fl_text_add(text, "\n");
  fl_text_free(&parameters);
}

/* Has it results that the call writes into its values? */
static bool writes_values(const fl_schema *schema) {
  for (uint32_t i = schema->n_arguments; i < schema->n_arguments + schema->n_results; i++)
    if (schema->values[i].type != FL_TENSOR)
      return true;
  return false;
}

static void add_results(fl_text *text, const fl_schema *schema) {
  for (uint32_t i = schema->n_arguments; i < schema->n_arguments + schema->n_results; i++) {
    const fl_argument *value = &schema->values[i];
    if (value->type == FL_TENSOR)
      continue;
    fl_text_add(text, "  if (status == FL_OK)\n    *%s = values[%u].v.%s;\n", value->name, (unsigned)i,
                c_types[value->type].member);
    if (value->type == FL_INT_LIST)
      fl_text_add(text, "  if (status == FL_OK)\n    *n_%s = values[%u].length;\n", value->name, (unsigned)i);
  }
}

static void add_function(fl_text *text, const fl_schema *schema) {
  uint32_t n = schema->n_arguments + schema->n_results;
  add_signature(text, schema);
  fl_text_add(text, "  fl_value values[%u];\n", (unsigned)n);
  for (uint32_t i = 0; i < n; i++) {
    const fl_argument *value = &schema->values[i];
    const c_type *type = &c_types[value->type];
    bool is_written = i >= schema->n_arguments && value->type != FL_TENSOR;
    fl_text_add(text, "  values[%u] = ", (unsigned)i);
    add_named(text, is_written ? "fl_none()" : value->optional ? type->optional_value : type->value, value->name);
    fl_text_add(text, ";\n");
  }
  fl_text_add(text, "  fl_call call;\n  fl_ops_call(&call, values, %u, stream);\n", (unsigned)n);
  if (!writes_values(schema)) {
    fl_text_add(text, "  return fl_invoke(ops->%s, &call);\n}\n", schema->op_name);
    return;
  }
  fl_text_add(text, "  fl_status status = fl_invoke(ops->%s, &call);\n", schema->op_name);
  add_results(text, schema);
  fl_text_add(text, "  return status;\n}\n");
}

static const char header_begin[] =
    "/*\n"
    " * flhost/ops.h: a typed call for each built-in op. Written by generate-ops from the entries in core/ops; do not "
    "edit.\n"
    " *\n"
    " *     fl_ops ops;\n"
    " *     fl_ops_init(&ops, host);\n"
    " *     if (fl_silu_and_mul(&ops, NULL, &x, &out)) fprintf(stderr, \"%s\\n\", fl_error_message());\n"
    " *\n"
    " * Each call takes the device's stream or queue (NULL: the default one), the op's arguments and its results. The "
    "caller\n"
    " * provides every output tensor; fl_infer says shapes and dtypes. Tensors are borrowed for the call, which may be "
    "made\n"
    " * from any thread. It returns what fl_invoke returns; FL_ENOENT when the host does not know the op. Workspaces "
    "are\n"
    " * the host's to bring; with one of your own, or weights that fl_prepare prepared, make a fl_call (FL_CALL) and "
    "invoke\n"
    " * that.\n"
    " *\n"
    " * T[..., 2*d] is a tensor of dtype T with any leading dimensions and a last one of 2*d; a letter or name has the "
    "same\n"
    " * meaning wherever it stands in one op. The last dimension is contiguous, the others may be strided.\n"
    " */\n"
    "/* clang-format off */\n"
    "#ifndef FLHOST_OPS_H\n"
    "#define FLHOST_OPS_H\n"
    "\n"
    "#include <flhost/flhost.h>\n"
    "\n"
    "#ifdef __cplusplus\n"
    "extern \"C\" {\n"
    "#endif\n"
    "\n"
    "/* The handles of the built-in ops in one host, valid as long as the host; NULL for an op that it does not know. "
    "*/\n";

static const char header_end[] = "\n"
                                 "#ifdef __cplusplus\n"
                                 "}\n"
                                 "#endif\n"
                                 "#endif /* FLHOST_OPS_H */\n";

static bool write_header(fl_text *text, fl_schema *const *schemas, size_t n) {
  fl_text_add(text, "%s", header_begin);
  fl_text_add(text, "typedef struct fl_ops {\n  uint32_t size; /* sizeof(fl_ops) */\n");
  for (size_t i = 0; i < n; i++)
    fl_text_add(text, "  fl_op *%s;\n", schemas[i]->op_name);
  fl_text_add(
      text, "} fl_ops;\n\n"
            "/* Gets the handles, by fl_op_handle: plugins that wait until an op of theirs is looked for are loaded by "
            "its first\n"
            " * call. FL_EINVAL: a null pointer; there is no message then. */\n"
            "static inline fl_status fl_ops_init(fl_ops *ops, fl_host *host) {\n"
            "  if (!ops || !host)\n"
            "    return FL_EINVAL;\n"
            "  ops->size = (uint32_t)sizeof(fl_ops);\n");
  for (size_t i = 0; i < n; i++)
    fl_text_add(text, "  ops->%s = fl_op_handle(host, \"%s\");\n", schemas[i]->op_name, schemas[i]->op_name);
  fl_text_add(text, "  return FL_OK;\n}\n\n"
                    "/* What FL_CALL makes, but for the message, which the host sets. */\n"
                    "static inline void fl_ops_call(fl_call *call, fl_value *values, uint32_t count, void *stream) {\n"
                    "  call->size = (uint32_t)sizeof *call;\n"
                    "  call->count = count;\n"
                    "  call->values = values;\n"
                    "  call->stream = stream;\n"
                    "  call->workspace = NULL;\n"
                    "  call->workspace_size = 0;\n"
                    "  call->prepared = NULL;\n"
                    "  call->group = NULL;\n"
                    "}\n");
  for (size_t i = 0; i < n; i++) {
    fl_text_add(text, "\n");
    if (!add_op_comment(text, schemas[i]))
      return false;
    add_function(text, schemas[i]);
  }
  fl_text_add(text, "%s", header_end);
  return true;
}

/* ----------------------------------------------------------------------------------------------- stubs for Python */

/* How a value of each type looks in Python. A sequence of ints is no str, but no type says so. */
static const char *const python_types[] = {
    [FL_TENSOR] = "_Tensor", [FL_INT] = "int",    [FL_FLOAT] = "float",
    [FL_BOOL] = "bool",      [FL_STRING] = "str", [FL_INT_LIST] = "Sequence[int]",
};

static const char stubs_begin[] =
    "\"\"\"The operators, as functions. Written by generate-ops from the entries in core/ops; do not edit.\n"
    "\n"
    "A result is of the kind of the first tensor; `out` takes the results instead, a tuple where there are several. "
    "`stream` is\n"
    "the address of the device's stream, that of the first tensor's library otherwise. `prepared` is what "
    "flhost.prepare made of the\n"
    "weights. Ops of plugins are there, too, without a type.\n"
    "\"\"\"\n"
    "\n"
    "from collections.abc import Callable, Sequence\n"
    "from typing import Any, Protocol, TypeVar\n"
    "\n"
    "from ._core import Prepared\n"
    "\n"
    "class _Tensor(Protocol):\n"
    "    def __dlpack__(self, *arguments: Any, **keywords: Any) -> Any: ...\n"
    "    def __dlpack_device__(self) -> Any: ...\n"
    "\n"
    "_T = TypeVar(\"_T\", bound=_Tensor)\n"
    "\n"
    "def __getattr__(name: str) -> Callable[..., Any]: ...\n"
    "def __dir__() -> list[str]: ...\n";

/* The fewest digits that give the number again. */
static void add_float(fl_text *text, double value) {
  char digits[40];
  for (int precision = 15; precision <= 17; precision++) {
    snprintf(digits, sizeof digits, "%.*g", precision, value);
    if (strtod(digits, NULL) == value)
      break;
  }
  fl_text_add(text, "%s%s", digits, strpbrk(digits, ".en") ? "" : ".0");
}

static void add_default(fl_text *text, const fl_value *value) {
  switch (value->type) {
  case FL_INT:
    fl_text_add(text, "%lld", (long long)value->v.i);
    break;
  case FL_FLOAT:
    add_float(text, value->v.f);
    break;
  case FL_BOOL:
    fl_text_add(text, value->v.b ? "True" : "False");
    break;
  case FL_NONE:
    fl_text_add(text, "None");
    break;
  default: /* texts and lists */
    fl_text_add(text, "...");
  }
}

/* The first tensor's type is that of the results. */
static void add_python_argument(fl_text *text, const fl_argument *value, bool is_first_tensor) {
  fl_text_add(text, "    %s: %s%s", value->name, is_first_tensor ? "_T" : python_types[value->type],
              value->optional ? " | None" : "");
  if (value->has_default) {
    fl_text_add(text, " = ");
    add_default(text, &value->default_value);
  }
  fl_text_add(text, ",\n");
}

/* `tensor` is the type of results that are tensors, `others`, of those that are not; NULL: their own. */
static void add_python_results(fl_text *text, const fl_schema *schema, const char *tensor, const char *others) {
  const fl_argument *results = schema->values + schema->n_arguments;
  if (schema->n_results != 1)
    fl_text_add(text, "%s", schema->n_results ? "tuple[" : "None");
  for (uint32_t i = 0; i < schema->n_results; i++) {
    bool is_tensor = results[i].type == FL_TENSOR;
    fl_text_add(text, "%s%s%s", i ? ", " : "",
                is_tensor ? tensor
                : others  ? others
                          : python_types[results[i].type],
                results[i].optional && !others ? " | None" : "");
  }
  if (schema->n_results > 1)
    fl_text_add(text, "]");
}

static bool has_tensor_result(const fl_schema *schema) {
  for (uint32_t i = 0; i < schema->n_results; i++)
    if (schema->values[schema->n_arguments + i].type == FL_TENSOR)
      return true;
  return false;
}

static bool write_stubs(fl_text *text, fl_schema *const *schemas, size_t n) {
  fl_text_add(text, "%s", stubs_begin);
  for (size_t i = 0; i < n; i++) {
    const fl_schema *schema = schemas[i];
    bool has_tensor = false;
    fl_text_add(text, "def %s(\n", schema->op_name);
    for (uint32_t j = 0; j < schema->n_arguments; j++) {
      bool is_first = schema->values[j].type == FL_TENSOR && !schema->values[j].optional && !has_tensor;
      add_python_argument(text, &schema->values[j], is_first);
      has_tensor |= is_first;
    }
    fl_text_add(text, "    *,\n    out: ");
    if (has_tensor_result(schema)) {
      add_python_results(text, schema, schema->n_results == 1 ? "_Tensor" : "_Tensor | None", "None");
      fl_text_add(text, " | ");
    }
    fl_text_add(text, "None = None,\n    stream: int | None = None,\n    prepared: Prepared | None = None,\n) -> ");
    add_python_results(text, schema, has_tensor ? "_T" : "Any", NULL);
    fl_text_add(text, ":\n    \"\"\"%s\"\"\"\n\n", schema->doc);
  }
  return true;
}

/* ------------------------------------------------------------------------------------------------------------ main */

static const struct {
  const char *name;
  bool (*write)(fl_text *text, fl_schema *const *schemas, size_t n);
} outputs[] = {{"header", write_header}, {"stubs", write_stubs}};

int main(int argc, char **argv) {
  size_t which = 0, n = 0, n_ops = 0;
  int exit_status = EXIT_FAILURE;
  fl_text text = {0};
  while (which < sizeof outputs / sizeof outputs[0] && (argc != 2 || strcmp(argv[1], outputs[which].name)))
    which++;
  if (which == sizeof outputs / sizeof outputs[0]) {
    fprintf(stderr, "usage: %s header|stubs\n", argv[0]);
    return 2;
  }
  while (fl_builtin_ops[n_ops])
    n_ops++;
  fl_schema **schemas = calloc(n_ops, sizeof *schemas);
  if (!schemas) {
    fprintf(stderr, "%s: out of memory\n", argv[0]);
    return EXIT_FAILURE;
  }
  for (; n < n_ops; n++)
    if (fl_schema_create_checked(fl_builtin_ops[n], &schemas[n])) {
      fprintf(stderr, "%s: %s\n", argv[0], fl_error_message());
      goto out;
    }
  if (!outputs[which].write(&text, schemas, n) || text.failed)
    fprintf(stderr, "%s: out of memory\n", argv[0]);
  else if (fputs(fl_text_get(&text), stdout) < 0 || fflush(stdout))
    perror(argv[0]);
  else
    exit_status = EXIT_SUCCESS;
out:
  while (n)
    fl_schema_free(schemas[--n]);
  free(schemas);
  fl_text_free(&text);
  return exit_status;
}
