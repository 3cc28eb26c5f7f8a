/* The command: see llm.h. */
#include "llm.h"

#include <errno.h>
#include <flhost/testing.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static const char usage[] = "usage: llm MODEL [--prompt IDS]... [OPTION]...\n"
                            "\n"
                            "Runs a model of a Hugging Face directory through flhost. Prompts are token ids,\n"
                            "\"1 5 17\"; for each a line of the ids that follow is printed. Which implementations\n"
                            "run is flhost's to say: VLLM_FL_PREFER, VLLM_FL_CONFIG and others of flhost(1).\n"
                            "\n"
                            "  --prompt IDS       a prompt; several are computed together\n"
                            "  --tokens N         tokens to generate for each (16)\n"
                            "  --temperature T    sample; 0: the most probable token (0)\n"
                            "  --top-k N          sample from the N most probable (0: all)\n"
                            "  --top-p P          and from those that together have the probability P (1: all)\n"
                            "  --seed N           of what is sampled (0)\n"
                            "  --dtype TYPE       float32, float16 or bfloat16 (the checkpoint's)\n"
                            "  --blocks N         blocks of the cache (64)\n"
                            "  --block-size N     tokens of a block (16)\n"
                            "  --at-once N        requests in a pass (16)\n"
                            "  --pass N           tokens of a pass; longer prompts are taken in parts (512)\n"
                            "  --compare[=FILE]   tokens and logits beside those of a file, of\n"
                            "                     MODEL/expected/expected.safetensors; 1 if they differ\n"
                            "  --statistics       print tokens a second and memory to standard error\n"
                            "  --help             print this\n";

typedef struct options {
  const char *directory, *dtype, *logits;
  const char **prompts;
  int64_t n_prompts, tokens, blocks, block_size, at_once, pass;
  sampling sampling;
  bool statistics;
} options;

static _Noreturn void misuse(const char *what, const char *given) {
  fprintf(stderr, "llm: %s '%s'; see llm --help\n", what, given);
  exit(2);
}

static double number(const char *name, const char *text, double least, double most, bool whole) {
  char *end, words[128];
  double value = strtod(text, &end);
  snprintf(words, sizeof words, "--%s: expected a%s number from %g to %g, not", name, whole ? " whole" : "", least,
           most);
  if (end == text || *end || !(value >= least && value <= most) || (whole && value != floor(value)))
    misuse(words, text);
  return value;
}

static options parse(int argc, char **argv) {
  enum { PROMPT = 64, DTYPE, LOGITS, STATISTICS, HELP };
  options o = {.tokens = 16, .blocks = 64, .block_size = 16, .at_once = 16, .pass = 512, .sampling = {.top_p = 1}};
  int64_t seed = 0;
  const struct {
    const char *name;
    int64_t *whole; /* or */
    double *real;
    double least, most;
  } numbers[] = {{"tokens", &o.tokens, NULL, 1, 1e9},
                 {"blocks", &o.blocks, NULL, 1, 1e9},
                 {"block-size", &o.block_size, NULL, 1, 1e6},
                 {"at-once", &o.at_once, NULL, 1, 1e6},
                 {"pass", &o.pass, NULL, 1, 1e6},
                 {"top-k", &o.sampling.top_k, NULL, 0, 1e9},
                 {"seed", &seed, NULL, 0, 0x1p53},
                 {"top-p", NULL, &o.sampling.top_p, 0, 1},
                 {"temperature", NULL, &o.sampling.temperature, 0, 1e6}};
  enum { N = sizeof numbers / sizeof *numbers };
  struct option known[N + 6] = {{"prompt", 1, NULL, PROMPT},
                                {"dtype", 1, NULL, DTYPE},
                                {"logits", 1, NULL, LOGITS},
                                {"statistics", 0, NULL, STATISTICS},
                                {"help", 0, NULL, HELP}};
  for (int i = 0; i < N; i++)
    known[5 + i] = (struct option){numbers[i].name, 1, NULL, i};
  o.prompts = calloc((size_t)argc, sizeof *o.prompts);
  if (!o.prompts)
    fail("out of memory");
  for (int i; (i = getopt_long(argc, argv, "", known, NULL)) != -1;) {
    if (i < N) {
      double value = number(numbers[i].name, optarg, numbers[i].least, numbers[i].most, numbers[i].whole != NULL);
      if (numbers[i].whole)
        *numbers[i].whole = (int64_t)value;
      else
        *numbers[i].real = value;
    } else if (i == PROMPT) {
      o.prompts[o.n_prompts++] = optarg;
    } else if (i == DTYPE) {
      o.dtype = optarg;
    } else if (i == LOGITS) {
      o.logits = optarg;
    } else if (i == STATISTICS) {
      o.statistics = true;
    } else if (i == HELP) {
      fputs(usage, stdout);
      exit(EXIT_SUCCESS);
    } else {
      exit(2); /* getopt_long said why */
    }
  }
  if (optind + 1 != argc)
    misuse("expected one directory, not", optind == argc ? "" : argv[optind + 1]);
  o.directory = argv[optind];
  o.sampling.seed = (uint64_t)seed;
  if (!o.n_prompts)
    misuse("expected --prompt for", o.directory);
  return o;
}

/* "1 5 17" */
static void add_prompt(engine *e, const char *text, int64_t n_more, bool keep_logits) {
  int64_t *ids = malloc((strlen(text) + 1) * sizeof *ids), n = 0;
  if (!ids)
    fail("out of memory");
  for (char *end; *(text += strspn(text, " ,\t\n")); text = end) {
    errno = 0;
    ids[n++] = strtoll(text, &end, 10);
    if (end == text || errno)
      misuse("expected token ids, not", text);
  }
  engine_add(e, ids, n, n_more, keep_logits);
  free(ids);
}

static void print_statistics(const engine *e) {
  const model *m = e->model;
  struct rusage used;
  size_t mapped = 0;
  getrusage(RUSAGE_SELF, &used);
  for (size_t i = 0; i < m->files.n_files; i++)
    mapped += m->files.files[i].size;
  fprintf(stderr, "passes: %lld; tokens of prompts: %lld, %.1f/s; generated: %lld, %.1f/s in passes without prompts\n",
          (long long)e->n_passes, (long long)e->n_prompt_tokens,
          e->prompt_seconds > 0 ? (double)e->n_prompt_tokens / e->prompt_seconds : 0, (long long)e->n_generated,
          e->generate_seconds > 0 ? (double)e->n_generated / e->generate_seconds : 0);
  fprintf(stderr, "memory in MB: files mapped %.1f; cache, states, rearranged weights %.1f; a pass %.1f; peak %.1f\n",
          (double)mapped / 1e6, (double)m->kept.total / 1e6, (double)m->step.total / 1e6, (double)used.ru_maxrss / 1e3);
}

static void save(engine *e, const char *path) {
  enum { NAME = 32 };
  size_t n = 2 * (size_t)e->n_requests;
  arena *a = &e->model->kept;
  const char **names = arena_take(a, n * sizeof *names);
  const DLTensor **tensors = arena_take(a, n * sizeof *tensors);
  for (size_t i = 0; i < n; i++) {
    const request *r = &e->requests[i / 2];
    DLTensor ids = {.data = r->ids, .device = {kDLCPU, 0}, .dtype = int64},
             logits = {.data = r->logits, .device = {kDLCPU, 0}, .dtype = float32};
    tensors[i] = i % 2 ? view(a, &logits, 0, NULL, SHAPE(r->n_computed, e->model->vocabulary))
                       : view(a, &ids, r->n_prompt, NULL, SHAPE(r->n - r->n_prompt));
    char *name = arena_take(a, NAME);
    snprintf(name, NAME, "%s_%zu", i % 2 ? "logits" : "tokens", i / 2);
    names[i] = name;
  }
  ok(fl_save_tensors(path, names, tensors, (uint32_t)n, NULL, 0));
}

int main(int argc, char **argv) {
  options o = parse(argc, argv);
  fl_host *host = NULL;
  model m;
  engine e;
  setenv("VLLM_FL_LOG_LEVEL", "WARNING", 0); /* unless somebody wants more */
  ok(fl_host_create(NULL, &host));
  model_open(&m, host, o.directory, o.dtype, o.blocks, o.block_size, o.at_once);
  engine_make(&e, &m);
  e.tokens_at_once = o.pass;
  e.sampling = o.sampling;
  for (int64_t i = 0; i < o.n_prompts; i++)
    add_prompt(&e, o.prompts[i], o.tokens, o.logits != NULL);
  engine_run(&e);
  for (int64_t i = 0; i < o.n_prompts; i++)
    for (int64_t j = e.requests[i].n_prompt; j < e.requests[i].n; j++)
      printf("%lld%c", (long long)e.requests[i].ids[j], j + 1 < e.requests[i].n ? ' ' : '\n');
  if (o.logits)
    save(&e, o.logits);
  if (o.statistics)
    print_statistics(&e);
  engine_free(&e);
  model_close(&m);
  fl_host_destroy(host);
  free(o.prompts);
  return EXIT_SUCCESS;
}
