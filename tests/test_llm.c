/*
 * examples/llm on the models of tests/models: tokens and logits as transformers', however the requests are batched,
 * whichever implementations run, with what a prompt begins with in the cache already, and over ranks.
 */
#include "cli/run/safetensors.h"
#include "tests/command.h"

#include <flhost/dtype.h>
#include <flhost/plugin.h>

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PROMPTS = 2, MOST_WORDS = 24, VOCABULARY = 256 };

static const char *const models[] = {"llama",  "qwen3",       "mixtral", "qwen2-moe",
                                     "mamba2", "deepseek-v2", "gpt-oss", "qwen3-next"};
enum { N_MODELS = sizeof models / sizeof *models };

static void read_file(const char *path, safetensors *file) {
  char error[SAFETENSORS_ERROR_MAX];
  ck_assert_msg(safetensors_read(path, file, error), "%s: %s", path, error);
}

static DLTensor *numbered(safetensors *file, const char *name, int i) {
  char whole[64];
  snprintf(whole, sizeof whole, "%s_%d", name, i);
  DLTensor *found = safetensors_find(file, whole);
  ck_assert_msg(found, "there is no %s", whole);
  return found;
}

/* Token ids as one types them. */
static const char *ids_of(const DLTensor *tensor, char *text, size_t size) {
  size_t length = 0;
  for (int64_t i = 0; i < tensor->shape[0]; i++)
    length += (size_t)snprintf(text + length, size - length, "%s%lld", i ? " " : "",
                               (long long)((const int64_t *)tensor->data)[i]);
  return text;
}

static int ranks = 1;

static const char *llm_program(void) {
  static char path[PATH_MAX];
  ck_assert_ptr_nonnull(realpath(build_dir(), path));
  return strcat(path, "/llm");
}

/* As many processes of it as there are to be ranks. */
static outcome run_llm(const char *const *words) {
  char number[16];
  const char *all[MOST_WORDS + 6] = {"launch", "-n", number, "--", llm_program()};
  if (ranks == 1)
    return run_built("llm", words);
  snprintf(number, sizeof number, "%d", ranks);
  for (int i = 0; words[i]; i++)
    all[5 + i] = words[i];
  return run_flhost(all);
}

/* Both prompts of a model, `times` times, with further options. What it printed, and what it wrote in `written`. */
static outcome run(const char *model, safetensors *expected, int times, const char *const *options,
                   safetensors *written) {
  char directory[128], ids[PROMPTS][512];
  const char *words[MOST_WORDS] = {directory, "--logits", scratch("logits.safetensors")};
  int n = 3;
  snprintf(directory, sizeof directory, "tests/models/%s", model);
  for (int i = 0; i < times * PROMPTS; i++) {
    words[n++] = "--prompt";
    words[n++] = ids_of(numbered(expected, "prompt", i % PROMPTS), ids[i % PROMPTS], sizeof ids[0]);
  }
  for (int i = 0; options && options[i]; i++)
    words[n++] = options[i];
  outcome o = run_llm(words);
  ck_assert_msg(!o.status, "%s: %s", model, o.err);
  ck_assert_str_eq(o.err, "");
  read_file(scratch("logits.safetensors"), written);
  return o;
}

/* Rows `from` on of logits, which belong to the same positions; NaN: it was in the cache. Gives how many were. */
static int64_t compare_rows(const char *what, const float *given, const float *expected, int64_t rows) {
  int64_t reused = 0;
  for (int64_t i = 0; i < rows; i++) {
    reused += isnan(given[i * VOCABULARY]);
    for (int64_t j = i * VOCABULARY; j < (i + 1) * VOCABULARY && !isnan(given[i * VOCABULARY]); j++)
      ck_each(fabsf(given[j] - expected[j]) <= 1e-3f + 1e-4f * fabsf(expected[j]), "%s, row %d: %.9g, expected %.9g",
              what, (int)i, (double)given[j], (double)expected[j]);
  }
  return reused;
}

/* As transformers computed them; gives how many tokens of prompts were in the cache. */
static int64_t check(const char *model, const outcome *o, safetensors *expected, safetensors *written, int times) {
  char text[512];
  int64_t reused = 0;
  const char *line = o->out;
  for (int i = 0; i < times * PROMPTS; i++) {
    const DLTensor *tokens = numbered(expected, "tokens", i % PROMPTS), *logits = numbered(written, "logits", i);
    int64_t n = numbered(expected, "prompt", i % PROMPTS)->shape[0], more = tokens->shape[0];
    ids_of(tokens, text, sizeof text);
    ck_assert_msg(!strncmp(line, text, strlen(text)) && line[strlen(text)] == '\n', "%s, prompt %d: %s, expected %s",
                  model, i, line, text);
    line += strlen(text) + 1;
    ck_assert_mem_eq(numbered(written, "tokens", i)->data, tokens->data, (size_t)more * sizeof(int64_t));
    ck_assert_int_eq(logits->shape[0], n + more - 1);
    const float *given = logits->data;
    reused += compare_rows(model, given, numbered(expected, "prompt_logits", i % PROMPTS)->data, n);
    ck_assert_int_eq(
        compare_rows(model, given + (n - 1) * VOCABULARY, numbered(expected, "step_logits", i % PROMPTS)->data, more),
        0);
  }
  ck_assert_str_eq(line, "");
  return reused;
}

static const struct {
  const char *prefer; /* NULL: the default */
  const char *options[5];
} ways[] = {
    {NULL, {NULL}},                               /* both prompts in one batch */
    {"reference", {NULL}},                        /* by plain code */
    {NULL, {"--at-once", "1"}},                   /* one after the other */
    {NULL, {"--pass", "3", "--block-size", "5"}}, /* prompts in parts, beside another's single tokens */
};
enum { N_WAYS = sizeof ways / sizeof *ways };

static void read_expected(const char *model, safetensors *expected) {
  char path[160];
  snprintf(path, sizeof path, "tests/models/%s/expected/expected.safetensors", model);
  read_file(path, expected);
}

START_TEST(tokens_and_logits_are_those_of_transformers) {
  const char *model = models[_i % N_MODELS], *prefer = ways[_i / N_MODELS].prefer;
  safetensors expected, written;
  if (prefer)
    setting("VLLM_FL_PREFER=%s", prefer);
  read_expected(model, &expected);
  outcome o = run(model, &expected, 1, ways[_i / N_MODELS].options, &written);
  ck_assert_int_eq(check(model, &o, &expected, &written, 1), 0);
  safetensors_free(&expected);
  safetensors_free(&written);
}
END_TEST

/* Except where a state is left behind that has no blocks. */
START_TEST(what_a_prompt_begins_with_may_be_in_the_cache_already) {
  const char *model = models[_i];
  bool has_states = !strcmp(model, "mamba2") || !strcmp(model, "qwen3-next");
  safetensors expected, written;
  read_expected(model, &expected);
  outcome o = run(model, &expected, 2, (const char *const[]){"--at-once", "2", "--block-size", "4", NULL}, &written);
  int64_t reused = check(model, &o, &expected, &written, 2);
  ck_assert_msg(has_states ? !reused : reused >= 4, "%s: %d tokens", model, (int)reused);
  safetensors_free(&expected);
  safetensors_free(&written);
}
END_TEST

/* Root of the mean square of what two rows are apart. */
static double apart(const float *a, const float *b) {
  double sum = 0;
  for (int i = 0; i < VOCABULARY; i++)
    sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
  return sqrt(sum / VOCABULARY);
}

/* Together over the prompts: a single row's distance is a matter of luck, theirs and ours. */
START_TEST(bfloat16_is_no_further_from_float32_than_in_transformers) {
  safetensors expected, written;
  double ours = 0, theirs = 0;
  read_expected("llama-bf16", &expected);
  run("llama-bf16", &expected, 1, NULL, &written);
  for (int i = 0; i < PROMPTS; i++) {
    const float *exact = numbered(&expected, "logits", i)->data;
    int64_t last = numbered(&expected, "prompt", i)->shape[0] - 1;
    ours += apart((const float *)numbered(&written, "logits", i)->data + last * VOCABULARY, exact);
    theirs += apart(numbered(&expected, "bf16_logits", i)->data, exact);
  }
  ck_assert_msg(ours <= theirs, "%g, theirs %g", ours, theirs);
  safetensors_free(&expected);
  safetensors_free(&written);
}
END_TEST

START_TEST(weights_of_bfloat16_can_be_run_in_float32) {
  safetensors expected, written;
  read_expected("llama-bf16", &expected);
  outcome o = run("llama-bf16", &expected, 1, (const char *const[]){"--dtype", "float32", NULL}, &written);
  check("llama-bf16", &o, &expected, &written, 1);
  safetensors_free(&expected);
  safetensors_free(&written);
}
END_TEST

static const char *const rounded_models[] = {"qwen3", "qwen2-moe", "deepseek-v2",
                                             "qwen3-next"}; /* each kind of block */
static const char *const formats[] = {"fp8", "int8", "int4"};
enum { N_ROUNDED = sizeof rounded_models / sizeof *rounded_models, N_FORMATS = sizeof formats / sizeof *formats };

/* Rounded weights give what the same values give in float32, and not what the checkpoint's give. */
START_TEST(rounded_weights_are_those_that_they_stand_for) {
  const char *model = rounded_models[_i % N_ROUNDED], *format = formats[_i / N_ROUNDED % N_FORMATS];
  safetensors expected, packed, unpacked;
  if (_i / N_ROUNDED / N_FORMATS)
    setting("VLLM_FL_PREFER=%s", "reference");
  read_expected(model, &expected);
  outcome rounded = run(model, &expected, 1, (const char *const[]){"--quantise", format, NULL}, &packed);
  outcome back =
      run(model, &expected, 1, (const char *const[]){"--quantise", format, "--dequantised", NULL}, &unpacked);
  ck_assert_str_eq(rounded.out, back.out);
  for (int i = 0; i < PROMPTS; i++) {
    const DLTensor *logits = numbered(&packed, "logits", i);
    const float *exact = numbered(&expected, "prompt_logits", i)->data;
    ck_assert_int_eq(compare_rows(model, logits->data, numbered(&unpacked, "logits", i)->data, logits->shape[0]), 0);
    ck_assert_double_gt(apart(logits->data, exact), 1e-3);
  }
  safetensors_free(&expected);
  safetensors_free(&packed);
  safetensors_free(&unpacked);
}
END_TEST

/* ------------------------------------------------------------------------------------------- gpt-oss in MXFP4 */

static const float mxfp4_values[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

static uint8_t nearest_code(float value) {
  uint8_t best = 0;
  for (uint8_t code = 1; code < 8; code++)
    best = fabsf(fabsf(value) - mxfp4_values[code]) < fabsf(fabsf(value) - mxfp4_values[best]) ? code : best;
  return (uint8_t)(best | (value < 0 ? 8 : 0));
}

static void add_entry(safetensors *file, const char *name, const char *end, DLDataType dtype, int ndim,
                      const int64_t *shape) {
  char whole[160];
  snprintf(whole, sizeof whole, "%s%s", name, end);
  ck_assert(safetensors_entry_create(&file->entries[file->n++], whole, dtype, ndim, shape));
}

/* Experts' weights [experts, in, out] as codes and scales at the end of `coded`; they become what these stand for. */
static void round_to_mxfp4(const safetensors_entry *plain, safetensors *coded) {
  static const DLDataType uint8 = {kDLUInt, 8, 1};
  int64_t experts = plain->shape[0], k = plain->shape[1], n = plain->shape[2];
  add_entry(coded, plain->name, "_blocks", uint8, 4, (const int64_t[]){experts, n, k / 32, 16});
  add_entry(coded, plain->name, "_scales", uint8, 3, (const int64_t[]){experts, n, k / 32});
  uint8_t *blocks = coded->entries[coded->n - 2].tensor.data, *scales = coded->entries[coded->n - 1].tensor.data;
  for (int64_t i = 0; i < experts * n * (k / 32); i++) {
    int64_t e = i / (n * (k / 32)), row = i / (k / 32) % n, first = i % (k / 32) * 32;
    float *values = (float *)plain->tensor.data + (e * k + first) * n + row, largest = 0;
    for (int64_t j = 0; j < 32; j++)
      largest = fmaxf(largest, fabsf(values[j * n]));
    int exponent = (int)ceilf(log2f(largest / 6 + 1e-30f));
    scales[i] = (uint8_t)(exponent + 127);
    for (int64_t j = 0; j < 32; j++) {
      uint8_t code = nearest_code(ldexpf(values[j * n], -exponent));
      blocks[i * 16 + j / 2] |= (uint8_t)(code << 4 * (j % 2));
      values[j * n] = (code & 8 ? -1 : 1) * ldexpf(mxfp4_values[code & 7], exponent);
    }
  }
}

/* A model's config.json with this behind its first brace, in a directory. */
static void write_config(const char *directory, const char *model, const char *more) {
  char path[512], text[4096];
  snprintf(path, sizeof path, "tests/models/%s/config.json", model);
  FILE *file = fopen(path, "rb");
  ck_assert_ptr_nonnull(file);
  size_t n = fread(text, 1, sizeof text, file);
  ck_assert(n > 0 && n < sizeof text && text[0] == '{');
  fclose(file);
  snprintf(path, sizeof path, "%s/config.json", directory);
  ck_assert_ptr_nonnull(file = fopen(path, "wb"));
  fprintf(file, "{%s%.*s", more, (int)n - 1, text + 1);
  fclose(file);
}

/* A directory with the config of a model and these weights; what a run of it writes. */
static outcome run_weights(const char *name, const char *model, const char *more, const safetensors *file,
                           safetensors *expected, safetensors *written) {
  char error[SAFETENSORS_ERROR_MAX], path[512], ids[512], directory[256];
  snprintf(directory, sizeof directory, "%s/%s", scratch_dir(), name);
  ck_assert_int_eq(mkdir(directory, 0700), 0);
  write_config(directory, model, more);
  snprintf(path, sizeof path, "%s/model.safetensors", directory);
  ck_assert_msg(safetensors_write(path, file, error), "%s", error);
  outcome o = run_llm((const char *const[]){directory, "--logits", scratch("logits.safetensors"), "--prompt",
                                            ids_of(numbered(expected, "prompt", 0), ids, sizeof ids), NULL});
  ck_assert_msg(!o.status, "%s", o.err);
  read_file(scratch("logits.safetensors"), written);
  return o;
}

/* Codes give what the same values give in float32, and not what the model's give. */
static void check_codes(const char *model, const char *more, safetensors *values, safetensors *codes,
                        safetensors *expected) {
  safetensors by_values, by_codes;
  outcome of_values = run_weights("values", model, "", values, expected, &by_values);
  outcome of_codes = run_weights("codes", model, more, codes, expected, &by_codes);
  ck_assert_str_eq(of_values.out, of_codes.out);
  const DLTensor *logits = numbered(&by_codes, "logits", 0);
  ck_assert_int_eq(compare_rows(model, logits->data, numbered(&by_values, "logits", 0)->data, logits->shape[0]), 0);
  ck_assert_double_gt(apart(logits->data, numbered(expected, "prompt_logits", 0)->data), 1e-3);
  safetensors_free(expected);
  safetensors_free(values);
  safetensors_free(codes);
  safetensors_free(&by_values);
  safetensors_free(&by_codes);
}

/* Room for twice the entries, as codes have scales. */
static safetensors beside(const safetensors *plain) {
  safetensors coded = {.entries = calloc(2 * plain->n, sizeof *coded.entries)};
  ck_assert_ptr_nonnull(coded.entries);
  return coded;
}

static void add_copy(safetensors *file, const safetensors_entry *entry) {
  add_entry(file, entry->name, "", entry->tensor.dtype, entry->tensor.ndim, entry->shape);
  memcpy(file->entries[file->n - 1].tensor.data, entry->tensor.data, safetensors_data_size(&entry->tensor));
}

/* As it is published; the second time over ranks. */
START_TEST(experts_of_gpt_oss_may_be_mxfp4) {
  safetensors expected, plain;
  ranks = 1 + _i;
  read_expected("gpt-oss", &expected);
  read_file("tests/models/gpt-oss/model.safetensors", &plain);
  safetensors coded = beside(&plain);
  for (size_t i = 0; i < plain.n; i++)
    if (strstr(plain.entries[i].name, "experts.") && !strstr(plain.entries[i].name, "_bias"))
      round_to_mxfp4(&plain.entries[i], &coded);
    else
      add_copy(&coded, &plain.entries[i]);
  check_codes("gpt-oss", "", &plain, &coded, &expected);
}
END_TEST

/* ------------------------------------------------------------------------------------------ DeepSeek in float8 */

static const DLDataType float32 = {kDLFloat, 32, 1}, float8 = {FL_DTYPE_FLOAT8_E4M3FN, 8, 1};

/* A weight [n, k] as codes, and a scale for each block of rows and columns, at the end of `coded`; it becomes what
 * these stand for. */
static void round_to_float8(const safetensors_entry *plain, safetensors *coded, const int64_t *block) {
  int64_t n = plain->shape[0], k = plain->shape[1], across = (k + block[1] - 1) / block[1];
  add_entry(coded, plain->name, "", float8, 2, plain->shape);
  add_entry(coded, plain->name, "_scale_inv", float32, 2, (const int64_t[]){(n + block[0] - 1) / block[0], across});
  float *values = plain->tensor.data, *scales = coded->entries[coded->n - 1].tensor.data;
  uint8_t *codes = coded->entries[coded->n - 2].tensor.data;
  for (int64_t i = 0; i < n * k; i++) {
    float *scale = &scales[i / k / block[0] * across + i % k / block[1]];
    *scale = fmaxf(*scale, fabsf(values[i]) / 448);
  }
  for (int64_t i = 0; i < n * k; i++) {
    float scale = scales[i / k / block[0] * across + i % k / block[1]];
    codes[i] = fl_float_to_e4m3fn(values[i] / scale);
    values[i] = fl_e4m3fn_to_float(codes[i]) * scale;
  }
}

/* As it is published, but for the sizes: where blocks are smaller than experts, and where they are larger than all
 * matrices, so that an expert's two cannot share what scales they have. */
START_TEST(weights_of_deepseek_may_be_float8_with_a_scale_for_each_block) {
  static const int64_t blocks[][2] = {{32, 16}, {128, 128}};
  char more[160];
  safetensors expected, plain;
  snprintf(more, sizeof more, "\"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [%d, %d]},",
           (int)blocks[_i % 2][0], (int)blocks[_i % 2][1]);
  if (_i / 2 == 1)
    setting("VLLM_FL_PREFER=%s", "reference");
  ranks = _i / 2 == 2 ? 2 : 1;
  read_expected("deepseek-v2", &expected);
  read_file("tests/models/deepseek-v2/model.safetensors", &plain);
  safetensors coded = beside(&plain);
  for (size_t i = 0; i < plain.n; i++)
    if (strstr(plain.entries[i].name, "_proj"))
      round_to_float8(&plain.entries[i], &coded, blocks[_i % 2]);
    else
      add_copy(&coded, &plain.entries[i]);
  check_codes("deepseek-v2", more, &plain, &coded, &expected);
}
END_TEST

#define QUERY   "model.layers.0.self_attn.q_proj.weight"
#define GATE_UP "model.layers.0.mlp.experts.gate_up_proj"

/* Codes whose scales the engine does not know how to find are no weights; a block is 16 bytes. */
START_TEST(codes_that_it_cannot_read_are_refused) {
  static const struct {
    const char *replaces, *name;
    DLDataType dtype;
    int64_t shape[4];
    int ndim;
    int64_t scales[2]; /* 0: there are none */
    const char *message;
  } cases[] = {
      {QUERY, QUERY, {kDLUInt, 8, 1}, {64, 64}, 2, {0}, "'" QUERY "' is a code with a scale elsewhere"},
      {GATE_UP, GATE_UP "_blocks", {kDLUInt, 8, 1}, {4, 64, 16, 2}, 4, {0}, "expected blocks of 16 bytes"},
      {QUERY, QUERY, {FL_DTYPE_FLOAT8_E4M3FN, 8, 1}, {128, 64}, 2, {0}, "the checkpoint has no '" QUERY "_scale_inv'"},
      {QUERY,
       QUERY,
       {FL_DTYPE_FLOAT8_E4M3FN, 8, 1},
       {128, 64},
       2,
       {2, 1},
       "'" QUERY "_scale_inv': expected float32 [1, 1], a scale for each 128 rows and 128 columns"},
  };
  char path[256], error[SAFETENSORS_ERROR_MAX];
  safetensors plain;
  read_file("tests/models/gpt-oss/model.safetensors", &plain);
  safetensors file = beside(&plain);
  for (size_t i = 0; i < plain.n; i++)
    if (strcmp(plain.entries[i].name, cases[_i].replaces) != 0)
      add_copy(&file, &plain.entries[i]);
    else
      add_entry(&file, cases[_i].name, "", cases[_i].dtype, cases[_i].ndim, cases[_i].shape);
  if (cases[_i].scales[0])
    add_entry(&file, cases[_i].name, "_scale_inv", float32, 2, cases[_i].scales);
  write_config(scratch_dir(), "gpt-oss", "");
  snprintf(path, sizeof path, "%s/model.safetensors", scratch_dir());
  ck_assert_msg(safetensors_write(path, &file, error), "%s", error);
  outcome o = run_built("llm", (const char *const[]){scratch_dir(), "--prompt", "1", NULL});
  ck_assert_int_eq(o.status, 1);
  assert_contains(o.err, cases[_i].message);
  safetensors_free(&plain);
  safetensors_free(&file);
}
END_TEST

/* --------------------------------------------------------------------------------------------------------- ranks */

static const struct {
  const char *model;
  int ranks;
} shared[] = {
    {"llama", 2},       {"qwen3", 2},      {"mixtral", 2}, {"qwen2-moe", 2}, {"mamba2", 2}, {"gpt-oss", 2},
    {"deepseek-v2", 2}, {"qwen3-next", 2}, {"llama", 4},   {"gpt-oss", 4},   {"mamba2", 3}}; /* of its vocabulary each
                                                                                                of 3 has all */
enum { N_SHARED = sizeof shared / sizeof *shared };

/* Of qwen2-moe both ranks have its one head of keys, of others two of four. Those of more than two take prompts in
 * parts. */
START_TEST(tokens_and_logits_over_ranks_are_those_of_transformers) {
  static const char *const parts[] = {"--pass", "3", "--block-size", "5", NULL};
  const char *model = shared[_i].model;
  safetensors expected, written;
  ranks = shared[_i].ranks;
  read_expected(model, &expected);
  outcome o = run(model, &expected, 1, ranks > 2 ? parts : NULL, &written);
  check(model, &o, &expected, &written, 1);
  safetensors_free(&expected);
  safetensors_free(&written);
}
END_TEST

/* Each rank has a part of what is rounded: codes and scales are those of one that is alone. */
START_TEST(rounded_weights_over_ranks_are_those_of_one) {
  const char *model = rounded_models[_i / N_FORMATS], *format = formats[_i % N_FORMATS];
  const char *const options[] = {"--quantise", format, NULL};
  safetensors expected, alone, together;
  read_expected(model, &expected);
  outcome one = run(model, &expected, 1, options, &alone);
  ranks = 2;
  outcome two = run(model, &expected, 1, options, &together);
  ck_assert_str_eq(one.out, two.out);
  for (int i = 0; i < PROMPTS; i++) {
    const DLTensor *logits = numbered(&together, "logits", i);
    ck_assert_int_eq(compare_rows(model, logits->data, numbered(&alone, "logits", i)->data, logits->shape[0]), 0);
  }
  safetensors_free(&expected);
  safetensors_free(&alone);
  safetensors_free(&together);
}
END_TEST

START_TEST(heads_that_ranks_cannot_divide_are_named) {
  static const char config[] = "{\"architectures\": [\"LlamaForCausalLM\"], \"num_hidden_layers\": 1, "
                               "\"num_attention_heads\": 6, \"num_key_value_heads\": 3}";
  ranks = 4;
  outcome o = run_llm((const char *const[]){"tests/models/qwen2-moe", "--prompt", "1", NULL});
  ck_assert_int_eq(o.status, 1);
  ck_assert_str_eq(o.out, "");
  assert_contains(o.err, "llm: num_attention_heads 2 cannot be divided among 4 ranks\n");
  scratch_file("config.json", config);
  ck_assert_int_eq(symlink("/proc/self/cwd/tests/models/llama/model.safetensors", scratch("model.safetensors")), 0);
  ranks = 2;
  o = run_llm((const char *const[]){scratch_dir(), "--prompt", "1", NULL});
  ck_assert_int_eq(o.status, 1);
  assert_contains(o.err, "llm: num_key_value_heads 3 cannot be divided among 2 ranks\n");
}
END_TEST

/* Nobody watches these two, so that the one that is left has to notice by itself. */
START_TEST(a_rank_that_is_killed_is_named_by_the_other) {
  char script[PATH_MAX + 1024];
  setting("PATH=/usr/bin:/bin");
  setting("FLHOST_GROUP_FILE=%s", scratch("id"));
  snprintf(script, sizeof script,
           "unset FLHOST_RANK FLHOST_RANKS FLHOST_LOCAL_RANK FLHOST_GROUP_ID; export WORLD_SIZE=2\n"
           "set -- %s tests/models/llama --timing --at-once 1 --tokens 100 $(for i in $(seq 40); do echo --prompt $i; "
           "done)\n"
           "RANK=1 \"$@\" & other=$!\n"
           "{ RANK=0 \"$@\"; echo status $? >&2; } 2>&1 >/dev/null | { read line; kill -9 $other; tail -n 2; }\n",
           llm_program());
  outcome o = FLHOST("launch", "-n", "1", "--", "sh", "-c", script);
  assert_contains(o.out, "status 1\n");
  assert_contains(o.out, "rank 1");
  assert_contains(o.out, "tp");
}
END_TEST

/* What is sampled does not depend on who else is in the batch, and a seed gives the same again. */
START_TEST(sampling_follows_the_seed_alone) {
#define SAMPLE(...)                                                                                                    \
  run_built("llm", (const char *const[]){"tests/models/llama", "--temperature", "1.5", "--top-k", "50", "--top-p",     \
                                         "0.9", "--tokens", "8", __VA_ARGS__, NULL})                                   \
      .out
  const char *one = SAMPLE("--prompt", "3 1 4"), *two = SAMPLE("--prompt", "3 1 4", "--prompt", "1 5 9 2 6");
  ck_assert_str_eq(one, SAMPLE("--prompt", "3 1 4"));
  ck_assert_int_eq(strncmp(one, two, strlen(one)), 0);
  ck_assert_str_ne(one, SAMPLE("--prompt", "3 1 4", "--seed", "1"));
#undef SAMPLE
}
END_TEST

/* A line for each pass; the rate is of what passes without prompts generated, in their time. */
START_TEST(a_pass_is_timed_and_the_rate_of_tokens_is_that_of_passes_without_prompts) {
  enum { TOKENS = 9 };
  static const char rate[] = "; generated: 18, ";
  double seconds, decoding = 0;
  long long of_prompts, generated;
  outcome o = run_built("llm", (const char *const[]){"tests/models/llama", "--prompt", "3 1 4", "--prompt", "1 5",
                                                     "--tokens", "9", "--timing", "--statistics", NULL});
  ck_assert_int_eq(o.status, 0);
  const char *line = o.err;
  for (int i = 0; i < TOKENS; i++, line = strchr(line, '\n') + 1) {
    ck_assert_int_eq(
        sscanf(line, "pass: %lld prompt tokens, %lld generated, %lf s\n", &of_prompts, &generated, &seconds), 3);
    ck_assert_int_eq(of_prompts, i ? 0 : 5);
    ck_assert_int_eq(generated, 2);
    decoding += i ? seconds : 0;
  }
  assert_contains(line, rate);
  ck_assert_double_eq_tol(strtod(strstr(line, rate) + strlen(rate), NULL) * decoding / (2 * (TOKENS - 1)), 1, 0.05);
}
END_TEST

static const struct {
  const char *words[8];
  int status;
  const char *message;
} mistakes[] = {
    {{"tests/models/none", "--prompt", "1"}, 1, "llm: tests/models/none/config.json: unable to open"},
    {{"tests/models/llama"}, 2, "llm: expected --prompt\n"},
    {{"--prompt", "1"}, 2, "llm: expected a model's directory\n"},
    {{"tests/models/llama", "tests/models/qwen3", "--prompt", "1"}, 2, "llm: Too many arguments\n"},
    {{"tests/models/llama", "--prompt", "1 x"}, 1, "llm: --prompt: expected token ids, not 'x'\n"},
    {{"tests/models/llama", "--prompt", "1", "--quantise", "int3"},
     1,
     "llm: --quantise: expected fp8, int8 or int4, not 'int3'\n"},
    {{"tests/models/llama", "--prompt", "1 256"}, 1, "llm: prompt 0: token 1 is 256, expected 0 to 255\n"},
    {{"tests/models/llama", "--prompt", ""}, 1, "llm: prompt 0 is empty\n"},
    {{"tests/models/llama", "--prompt", "1", "--tokens", "0"},
     2,
     "llm: --tokens: expected a whole number from 1 to 1e+09, not '0'\n"},
    {{"tests/models/llama", "--prompt", "1", "--tokens", "128"},
     1,
     "llm: prompt 0: 129 tokens with what is to follow, the model takes 128\n"},
    {{"tests/models/llama", "--prompt", "1", "--blocks", "1", "--block-size", "8"},
     1,
     "llm: prompt 0 needs 2 blocks of the cache, which has 1\n"},
    {{"tests/models/llama", "--prompt", "1", "--dtype", "int8"},
     1,
     "llm: element type 'int8': expected float32, float16 or bfloat16\n"},
};
enum { N_MISTAKES = sizeof mistakes / sizeof *mistakes };

START_TEST(a_mistake_is_answered_with_what_was_expected) {
  outcome o = run_built("llm", mistakes[_i].words);
  ck_assert_int_eq(o.status, mistakes[_i].status);
  ck_assert_str_eq(o.out, "");
  assert_contains(o.err, mistakes[_i].message);
}
END_TEST

/* A cut file, and one whose header lies. */
START_TEST(a_broken_checkpoint_is_refused) {
  static const struct {
    const char *text;
    size_t size;
    const char *message;
  } files[] = {{"short", 5, "not a safetensors file"},
               {"\xff\xff\xff\x7f\0\0\0\0{}", 10, "a header of 2147483647 bytes"},
               {"\x44\0\0\0\0\0\0\0{\"lm_head.weight\":{\"dtype\":\"F32\",\"shape\":[9],\"data_offsets\":[0,36]}}", 76,
                "'lm_head.weight' takes 36 bytes, but lies at 0 to 36 of 0"}};
  char path[256];
  snprintf(path, sizeof path, "%s/config.json", scratch_dir());
  ck_assert_int_eq(symlink("/proc/self/cwd/tests/models/llama/config.json", path), 0);
  snprintf(path, sizeof path, "%s/model.safetensors", scratch_dir());
  FILE *file = fopen(path, "wb");
  ck_assert_ptr_nonnull(file);
  fwrite(files[_i].text, 1, files[_i].size, file);
  fclose(file);
  outcome o = run_built("llm", (const char *const[]){scratch_dir(), "--prompt", "1", NULL});
  ck_assert_int_eq(o.status, 1);
  assert_contains(o.err, files[_i].message);
}
END_TEST

/* What the index names is taken, and nothing else that lies there; nothing outside. */
START_TEST(a_checkpoint_may_be_several_files_that_an_index_names) {
  char error[SAFETENSORS_ERROR_MAX], path[512], ids[512];
  safetensors expected, whole, written, parts[2];
  read_expected("qwen3", &expected);
  read_file("tests/models/qwen3/model.safetensors", &whole);
  write_config(scratch_dir(), "qwen3", "");
  snprintf(path, sizeof path, "%s/model.safetensors.index.json", scratch_dir());
  FILE *index = fopen(path, "wb");
  ck_assert_ptr_nonnull(index);
  fprintf(index, "{\"weight_map\": {");
  for (size_t i = 0; i < whole.n; i++)
    fprintf(index, "%s\"%s\": \"%s%zu.safetensors\"", i ? ", " : "", whole.entries[i].name, _i ? "../part-" : "part-",
            i % 2);
  fprintf(index, "}}");
  fclose(index);
  for (size_t part = 0; part < 2; part++) {
    parts[part] = beside(&whole);
    for (size_t i = part; i < whole.n; i += 2)
      add_copy(&parts[part], &whole.entries[i]);
    snprintf(path, sizeof path, "%s/part-%zu.safetensors", scratch_dir(), part);
    ck_assert_msg(safetensors_write(path, &parts[part], error), "%s", error);
    safetensors_free(&parts[part]);
  }
  snprintf(path, sizeof path, "%s/consolidated.safetensors", scratch_dir());
  ck_assert_int_eq(symlink("/dev/null", path), 0);
  outcome o =
      run_built("llm", (const char *const[]){scratch_dir(), "--logits", scratch("logits.safetensors"), "--prompt",
                                             ids_of(numbered(&expected, "prompt", 0), ids, sizeof ids), NULL});
  ck_assert_int_eq(o.status, _i);
  if (_i) {
    assert_contains(o.err, "names a file elsewhere, '../part-");
  } else {
    read_file(scratch("logits.safetensors"), &written);
    const DLTensor *logits = numbered(&expected, "prompt_logits", 0);
    ck_assert_int_eq(compare_rows("qwen3", numbered(&written, "logits", 0)->data, logits->data, logits->shape[0]), 0);
    safetensors_free(&written);
  }
  safetensors_free(&whole);
  safetensors_free(&expected);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, NULL, end_scenario);
  tcase_add_loop_test(tests, tokens_and_logits_are_those_of_transformers, 0, N_MODELS * (sample() > 1 ? 1 : N_WAYS));
  tcase_add_loop_test(tests, what_a_prompt_begins_with_may_be_in_the_cache_already, 0, N_MODELS);
  tcase_add_test(tests, bfloat16_is_no_further_from_float32_than_in_transformers);
  tcase_add_test(tests, weights_of_bfloat16_can_be_run_in_float32);
  tcase_add_loop_test(tests, rounded_weights_are_those_that_they_stand_for, 0,
                      (sample() > 1 ? 1 : 2) * N_ROUNDED * N_FORMATS);
  tcase_add_loop_test(tests, experts_of_gpt_oss_may_be_mxfp4, 0, 2);
  tcase_add_loop_test(tests, weights_of_deepseek_may_be_float8_with_a_scale_for_each_block, 0, 6);
  tcase_add_loop_test(tests, codes_that_it_cannot_read_are_refused, 0, 4);
  tcase_add_loop_test(tests, tokens_and_logits_over_ranks_are_those_of_transformers, 0, N_SHARED);
  tcase_add_loop_test(tests, rounded_weights_over_ranks_are_those_of_one, 0, N_FORMATS + 1);
  tcase_add_test(tests, heads_that_ranks_cannot_divide_are_named);
  tcase_add_test(tests, a_rank_that_is_killed_is_named_by_the_other);
  tcase_add_test(tests, sampling_follows_the_seed_alone);
  tcase_add_test(tests, a_pass_is_timed_and_the_rate_of_tokens_is_that_of_passes_without_prompts);
  tcase_add_loop_test(tests, a_mistake_is_answered_with_what_was_expected, 0, N_MISTAKES);
  tcase_add_loop_test(tests, a_broken_checkpoint_is_refused, 0, 3);
  tcase_add_loop_test(tests, a_checkpoint_may_be_several_files_that_an_index_names, 0, 2);
}

int main(void) {
  return run_suite("llm", add_tests, 60);
}
