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

enum { PROMPT, TOKENS, BLOCKS, BLOCK_SIZE, AT_ONCE, PASS, TOP_K, SEED, TOP_P, TEMPERATURE };
enum { DTYPE = TEMPERATURE + 1, QUANTISE, DEQUANTISED, LOGITS, STATISTICS, TIMING, N_OPTIONS, KEY = 1000 };

static const struct {
  const char *name, *argument, *about;
  double initial, least, most; /* of a number, a whole one before TOP_P; most 0: it is none */
} known[N_OPTIONS] = {
    {"prompt", "IDS", "a prompt; several are computed together", 0, 0, 0},
    {"tokens", "N", "tokens to generate for each prompt (16)", 16, 1, 1e9},
    {"blocks", "N", "blocks of the cache (64)", 64, 1, 1e9},
    {"block-size", "N", "tokens of a block (16)", 16, 1, 1e6},
    {"at-once", "N", "requests in a pass (16)", 16, 1, 1e6},
    {"pass", "N", "tokens of a pass; longer prompts are taken in parts (512)", 512, 1, 1e6},
    {"top-k", "N", "sample from the N most probable (0: all)", 0, 0, 1e9},
    {"seed", "N", "of what is sampled (0)", 0, 0, 0x1p53},
    {"top-p", "P", "sample from those that together have the probability P (1: all)", 1, 0, 1},
    {"temperature", "T", "sample; 0: the most probable token (0)", 0, 0, 1e6},
    {"dtype", "TYPE", "float32, float16 or bfloat16 (the checkpoint's)", 0, 0, 0},
    {"quantise", "FORMAT", "round the weights of linear layers to fp8, int8 or int4 (experts' not to int4)", 0, 0, 0},
    {"dequantised", NULL, "compute with the rounded weights in the type of the others", 0, 0, 0},
    {"logits", "FILE", "write tokens and logits to a safetensors file", 0, 0, 0},
    {"statistics", NULL, "print tokens a second and memory to standard error", 0, 0, 0},
    {"timing", NULL, "print what each pass took to standard error", 0, 0, 0}};

typedef struct options {
  const char *directory, *words[N_OPTIONS], **prompts; /* words: "" of those without an argument */
  double number[N_OPTIONS];
  int64_t n_prompts;
} options;

static error_t take(int key, char *text, struct argp_state *state) {
  options *o = state->input;
  int i = key - KEY;
  if (i == PROMPT)
    o->prompts[o->n_prompts++] = text;
  else if (i > PROMPT && i < N_OPTIONS && known[i].most > 0) {
    char *end;
    double value = o->number[i] = strtod(text, &end), least = known[i].least, most = known[i].most;
    if (end == text || *end || !(value >= least && value <= most) || (i < TOP_P && value != floor(value)))
      argp_error(state, "--%s: expected a%s number from %g to %g, not '%s'", known[i].name, i < TOP_P ? " whole" : "",
                 least, most, text);
  } else if (i > PROMPT && i < N_OPTIONS)
    o->words[i] = text ? text : "";
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
          LL(e->n_passes), LL(e->n_prompt_tokens), (double)e->n_prompt_tokens / e->prompt_seconds, LL(e->n_generated),
          e->n_decoded ? (double)e->n_decoded / e->generate_seconds : 0);
  fprintf(stderr, "memory in MB: files mapped %.1f; cache, states, rearranged weights %.1f; a pass %.1f; peak %.1f\n",
          m->files.size / 1e6, m->kept.total / 1e6, m->step.most / 1e6, used.ru_maxrss / 1e3);
}

static void save(engine *e, const char *path) {
  int64_t n = 2 * e->n_requests;
  arena *a = &e->memory;
  char(*text)[32] = arena_take(a, (size_t)n * sizeof *text);
  const char **names = arena_take(a, (size_t)n * sizeof *names);
  const DLTensor **tensors = arena_take(a, (size_t)n * sizeof *tensors);
  for (int64_t i = 0; i < n; i++) {
    const request *r = &e->requests[i / 2];
    DLTensor ids = {.data = r->ids, .device = cpu, .dtype = int64};
    names[i] = text[i];
    snprintf(text[i], sizeof text[i], "%s_%lld", i % 2 ? "logits" : "tokens", LL(i / 2));
    tensors[i] = i % 2 ? view(a, r->logits, 0, NULL, SHAPE(r->n_computed, e->model->vocabulary))
                       : view(a, &ids, r->n_prompt, NULL, SHAPE(r->n - r->n_prompt));
  }
  ok(fl_save_tensors(path, names, tensors, (uint32_t)n, NULL, 0));
}

int main(int argc, char **argv) {
  const char *prompts[argc];
  options o = {.prompts = prompts};
  struct argp_option list[N_OPTIONS + 1] = {{0}};
  fl_host *host = NULL;
  for (int i = 0; i < N_OPTIONS; i++) {
    list[i] = (struct argp_option){known[i].name, KEY + i, known[i].argument, 0, known[i].about, 0};
    o.number[i] = known[i].initial;
  }
  argp_err_exit_status = 2;
  argp_parse(&(struct argp){list, take, "MODEL", about, NULL, NULL, NULL}, argc, argv, 0, NULL, &o);
  setvbuf(stderr, NULL, _IOLBF, BUFSIZ); /* lines of several ranks stay apart */
  model m = {.n_blocks = o.number[BLOCKS], .block_size = o.number[BLOCK_SIZE], .n_states = o.number[AT_ONCE]};
  m.format = o.words[QUANTISE] ? format_named(o.words[QUANTISE]) : NULL;
  m.dequantised = o.words[DEQUANTISED];
  setenv("VLLM_FL_LOG_LEVEL", "WARNING", 0); /* unless somebody wants more */
  ok(fl_host_create(NULL, &host));
  model_open(&m, host, o.directory, o.words[DTYPE]);
  bool speaks = !m.own.part; /* all ranks have the same tokens */
  engine e = {.model = &m, .tokens_at_once = o.number[PASS], .timing = o.words[TIMING] && speaks};
  e.sampling = (sampling){o.number[TEMPERATURE], o.number[TOP_P], o.number[TOP_K], o.number[SEED]};
  engine_make(&e, o.n_prompts);
  for (int64_t i = 0; i < o.n_prompts; i++)
    add_prompt(&e, o.prompts[i], o.number[TOKENS], o.words[LOGITS]);
  engine_run(&e);
  for (const request *r = e.requests; speaks && r < e.requests + o.n_prompts; r++)
    for (int64_t i = r->n_prompt; i < r->n; i++)
      printf("%lld%c", LL(r->ids[i]), i + 1 < r->n ? ' ' : '\n');
  if (o.words[LOGITS] && speaks)
    save(&e, o.words[LOGITS]);
  if (o.words[STATISTICS] && speaks)
    print_statistics(&e);
  arena_reset(&e.memory);
  model_close(&m);
  fl_host_destroy(host);
  return EXIT_SUCCESS;
}
