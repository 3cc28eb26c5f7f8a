/* Golden files: see golden_files.h. */
#include "tests/golden_files.h"

#include "cli/run/safetensors.h"
#include "cli/trials/compare.h"

#include <dirent.h>

enum { MAX_VALUES = FL_SCHEMA_MAX_VALUES, MAX_LIST = 8 };

static comparison compare_as(const fl_schema *schema, const DLTensor *result, const DLTensor *expected, bool exact) {
  fl_tolerance tolerance = fl_schema_tolerance(schema, expected->dtype);
  return compare_tensors(result, expected, tolerance.atol, tolerance.rtol, exact);
}

/* An attribute of a golden file, or its default. Lists go to `list`. */
static fl_value attribute(const json_t *attributes, const fl_argument *argument, int64_t *list) {
  json_t *json = json_object_get(attributes, argument->name), *item;
  size_t i;
  if (!json || json_is_null(json))
    return argument->has_default ? argument->default_value : fl_none();
  json_array_foreach(json, i, item) {
    ck_assert_uint_lt(i, MAX_LIST);
    list[i] = json_integer_value(item);
  }
  return argument->type == FL_FLOAT      ? fl_float(json_number_value(json))
         : argument->type == FL_INT      ? fl_int(json_integer_value(json))
         : argument->type == FL_STRING   ? fl_string(json_string_value(json))
         : argument->type == FL_INT_LIST ? fl_ints(list, (uint32_t)json_array_size(json))
                                         : fl_bool(json_is_true(json));
}

/* A golden file while it is run. */
typedef struct golden {
  safetensors file;
  json_t *attributes;
  fl_value values[MAX_VALUES];
  int64_t lists[MAX_VALUES][MAX_LIST];
  safetensors_entry results[MAX_VALUES];
  int n_results;
} golden;

static void open_golden(golden *g, const char *path, const fl_schema *schema) {
  char error[SAFETENSORS_ERROR_MAX], name[64];
  ck_assert_msg(safetensors_read(path, &g->file, error), "%s: %s", path, error);
  ck_assert_str_eq(safetensors_metadata(&g->file, "op"), schema->op_name);
  g->attributes = json_loads(safetensors_metadata(&g->file, "attrs"), 0, NULL);
  g->n_results = 0;
  for (uint32_t i = 0; i < schema->n_arguments; i++)
    g->values[i] = schema->values[i].type == FL_TENSOR ? fl_tensor(safetensors_find(&g->file, schema->values[i].name))
                                                       : attribute(g->attributes, &schema->values[i], g->lists[i]);
  for (uint32_t i = schema->n_arguments; i < schema->n_arguments + schema->n_results; i++) {
    snprintf(name, sizeof name, "out.%s", schema->values[i].name);
    DLTensor *expected = safetensors_find(&g->file, name);
    safetensors_entry *result = &g->results[g->n_results];
    g->values[i] = fl_none();
    if (!expected)
      continue;
    ck_assert(safetensors_entry_create(result, name, expected->dtype, expected->ndim, expected->shape));
    g->values[i] = fl_tensor(&result->tensor);
    g->n_results++;
  }
}

static void close_golden(golden *g) {
  for (int i = 0; i < g->n_results; i++)
    safetensors_entry_free(&g->results[i]);
  json_decref(g->attributes);
  safetensors_free(&g->file);
}

/* Runs one file; how many tensors were compared: results, and state that the call changes. */
static int check_golden_file(const fl_schema *schema, bool exact, golden_call call, void *user, const char *path) {
  static golden g; /* large */
  char name[64];
  int compared = 0;
  open_golden(&g, path, schema);
  exact = exact && safetensors_says(&g.file, "bitexact", "yes");
  call(user, schema, g.values, schema->n_arguments + schema->n_results);
  for (uint32_t i = 0; i < schema->n_arguments + schema->n_results; i++) {
    snprintf(name, sizeof name, "%s.%s", i < schema->n_arguments ? "after" : "out", schema->values[i].name);
    DLTensor *expected = safetensors_find(&g.file, name);
    if (!expected)
      continue;
    comparison c = compare_as(schema, g.values[i].v.tensor, expected, exact);
    ck_assert_msg(c.pass, "%s, %s: %s", path, name, c.problem);
    compared++;
  }
  close_golden(&g);
  return compared;
}

int check_golden_op(const fl_schema *schema, bool exact, golden_call call, void *user) {
  char directory[64], path[512];
  int compared = 0;
  snprintf(directory, sizeof directory, "tests/golden/%s", schema->op_name);
  DIR *listing = opendir(directory);
  for (struct dirent *file; listing && (file = readdir(listing));) {
    if (file->d_name[0] == '.')
      continue;
    snprintf(path, sizeof path, "%s/%s", directory, file->d_name);
    compared += check_golden_file(schema, exact, call, user, path);
  }
  if (listing)
    closedir(listing);
  return compared;
}
