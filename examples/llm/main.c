/* The command: see llm.h. */
#include "llm.h"

#include <argp.h>
#include <errno.h>
#include <flhost/testing.h>
#include <sys/resource.h>

static const char about[] =
    "Runs a model of a Hugging Face directory through flhost. Prompts are token ids, \"1 5 17\"; for each a line of "
    "the ids that follow is printed. Which implementations run is flhost's to say: VLLM_FL_PREFER, VLLM_FL_CONFIG and "
    "others of flhost(1).";

enum { TOKENS, BLOCKS, BLOCK_SIZE, AT_ONCE, PASS, TOP_K, SEED, TOP_P, TEMPERATURE, N_NUMBERS };
enum { PROMPT = 1, DTYPE, QUANTISE, DEQUANTISED, LOGITS, STATISTICS, TIMING, NUMBER = 1000 };

static const struct argp_option known[] = {
    {"tokens", NUMBER + TOKENS, "N", 0, "tokens to generate for each prompt (16)", 0},
    {"blocks", NUMBER + BLOCKS, "N", 0, "blocks of the cache (64)", 0},
    {"block-size", NUMBER + BLOCK_SIZE, "N", 0, "tokens of a block (16)", 0},
    {"at-once", NUMBER + AT_ONCE, "N", 0, "requests in a pass (16)", 0},
    {"pass", NUMBER + PASS, "N", 0, "tokens of a pass; longer prompts are taken in parts (512)", 0},
    {"top-k", NUMBER + TOP_K, "N", 0, "sample from the N most probable (0: all)", 0},
    {"seed", NUMBER + SEED, "N", 0, "of what is sampled (0)", 0},
    {"top-p", NUMBER + TOP_P, "P", 0, "sample from those that together have the probability P (1: all)", 0},
    {"temperature", NUMBER + TEMPERATURE, "T", 0, "sample; 0: the most probable token (0)", 0},
    {"prompt", PROMPT, "IDS", 0, "a prompt; several are computed together", 0},
    {"dtype", DTYPE, "TYPE", 0, "float32, float16 or bfloat16 (the checkpoint's)", 0},
    {"quantise", QUANTISE, "FORMAT", 0,
     "round the weights of linear layers to fp8, int8 or int4 (experts' not to int4)", 0},
    {"dequantised", DEQUANTISED, NULL, 0, "compute with the rounded weights in the type of the others", 0},
    {"logits", LOGITS, "FILE", 0, "write tokens and logits to a safetensors file", 0},
    {"statistics", STATISTICS, NULL, 0, "print tokens a second and memory to standard error", 0},
    {"timing", TIMING, NULL, 0, "print what each pass took to standard error", 0},
    {0}};

static const struct {
  double least, most;
} range[N_NUMBERS] = {
    [TOKENS] = {1, 1e9}, [BLOCKS] = {1, 1e9},  [BLOCK_SIZE] = {1, 1e6}, [AT_ONCE] = {1, 1e6},    [PASS] = {1, 1e6},
    [TOP_K] = {0, 1e9},  [SEED] = {0, 0x1p53}, [TOP_P] = {0, 1},        [TEMPERATURE] = {0, 1e6}};

typedef struct options {
  const char *directory, *words[TIMING + 1], **prompts; /* words: "" of those without an argument */
  double number[N_NUMBERS];
  int64_t n_prompts;
} options;

static void take_number(options *o, int which, const char *text, struct argp_state *state) {
  char *end;
  bool whole = which < TOP_P;
  double value = o->number[which] = strtod(text, &end), least = range[which].least, most = range[which].most;
  if (end == text || *end || !(value >= least && value <= most) || (whole && value != floor(value)))
    argp_error(state, "--%s: expected a%s number from %g to %g, not '%s'", known[which].name, whole ? " whole" : "",
               least, most, text);
}

static error_t take(int key, char *text, struct argp_state *state) {
  options *o = state->input;
  if (key >= NUMBER && key < NUMBER + N_NUMBERS)
    take_number(o, key - NUMBER, text, state);
  else if (key == PROMPT)
    o->prompts[o->n_prompts++] = text;
  else if (key >= DTYPE && key <= TIMING)
    o->words[key] = text ? text : "";
  else if (key == ARGP_KEY_ARG && !o->directory)
    o->directory = text;
  else if (key == ARGP_KEY_END && (!o->directory || !o->n_prompts))
    argp_error(state, "expected %s", o->directory ? "--prompt" : "a model's directory");
  else
    return ARGP_ERR_UNKNOWN;
  return 0;
}

/* "1 5 17" */
static void add_prompt(engine *e, const char *text, int64_t n_more, bool keep_logits) {
  int64_t *ids = arena_take(&e->memory, (strlen(text) + 1) * sizeof *ids), n = 0;
  for (char *end; *(text += strspn(text, " ,\t\n")); text = end) {
    errno = 0;
    ids[n++] = strtoll(text, &end, 10);
    if (end == text || errno)
      fail("--prompt: expected token ids, not '%s'", text);
  }
  engine_add(e, ids, n, n_more, keep_logits);
}

static void print_statistics(const engine *e) {
  const model *m = e->model;
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  fprintf(stderr, "passes: %lld; tokens of prompts: %lld, %.1f/s; generated: %lld, %.1f/s in passes without prompts\n",
          (long long)e->n_passes, (long long)e->n_prompt_tokens, (double)e->n_prompt_tokens / e->prompt_seconds,
          (long long)e->n_generated, e->n_decoded ? (double)e->n_decoded / e->generate_seconds : 0);
  fprintf(stderr, "memory in MB: files mapped %.1f; cache, states, rearranged weights %.1f; a pass %.1f; peak %.1f\n",
          (double)m->files.size / 1e6, (double)m->kept.total / 1e6, (double)m->step.most / 1e6,
          (double)used.ru_maxrss / 1e3);
}

static void save(engine *e, const char *path) {
  int64_t n = 2 * e->n_requests;
  arena *a = &e->memory;
  char(*text)[32] = arena_take(a, (size_t)n * sizeof *text);
  const char **names = arena_take(a, (size_t)n * sizeof *names);
  const DLTensor **tensors = arena_take(a, (size_t)n * sizeof *tensors);
  for (int64_t i = 0; i < n; i++) {
    const request *r = &e->requests[i / 2];
    DLTensor ids = {.data = r->ids, .device = {kDLCPU, 0}, .dtype = int64};
    names[i] = text[i];
    snprintf(text[i], sizeof text[i], "%s_%lld", i % 2 ? "logits" : "tokens", (long long)i / 2);
    tensors[i] = i % 2 ? view(a, r->logits, 0, NULL, SHAPE(r->n_computed, e->model->vocabulary))
                       : view(a, &ids, r->n_prompt, NULL, SHAPE(r->n - r->n_prompt));
  }
  ok(fl_save_tensors(path, names, tensors, (uint32_t)n, NULL, 0));
}

int main(int argc, char **argv) {
  const char *prompts[argc];
  options o = {.prompts = prompts,
               .number = {[TOKENS] = 16, [BLOCKS] = 64, [BLOCK_SIZE] = 16, [AT_ONCE] = 16, [PASS] = 512, [TOP_P] = 1}};
  fl_host *host = NULL;
  argp_err_exit_status = 2;
  argp_parse(&(struct argp){known, take, "MODEL", about, NULL, NULL, NULL}, argc, argv, 0, NULL, &o);
  model m = {.n_blocks = (int64_t)o.number[BLOCKS],
             .block_size = (int64_t)o.number[BLOCK_SIZE],
             .n_states = (int64_t)o.number[AT_ONCE],
             .format = o.words[QUANTISE] ? format_named(o.words[QUANTISE]) : NULL,
             .dequantised = o.words[DEQUANTISED] != NULL};
  setenv("VLLM_FL_LOG_LEVEL", "WARNING", 0); /* unless somebody wants more */
  ok(fl_host_create(NULL, &host));
  model_open(&m, host, o.directory, o.words[DTYPE]);
  engine e = {.model = &m,
              .tokens_at_once = (int64_t)o.number[PASS],
              .temperature = o.number[TEMPERATURE],
              .top_p = o.number[TOP_P],
              .top_k = (int64_t)o.number[TOP_K],
              .seed = (uint64_t)o.number[SEED],
              .timing = o.words[TIMING] != NULL};
  engine_make(&e, o.n_prompts);
  for (int64_t i = 0; i < o.n_prompts; i++)
    add_prompt(&e, o.prompts[i], (int64_t)o.number[TOKENS], o.words[LOGITS] != NULL);
  engine_run(&e);
  for (int64_t i = 0; i < o.n_prompts; i++)
    for (int64_t j = e.requests[i].n_prompt; j < e.requests[i].n; j++)
      printf("%lld%c", (long long)e.requests[i].ids[j], j + 1 < e.requests[i].n ? ' ' : '\n');
  if (o.words[LOGITS])
    save(&e, o.words[LOGITS]);
  if (o.words[STATISTICS])
    print_statistics(&e);
  arena_reset(&e.memory);
  model_close(&m);
  fl_host_destroy(host);
  return EXIT_SUCCESS;
}
