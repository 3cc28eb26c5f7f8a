/*
 * A small engine on flhost: from a checkpoint's files to the next token. Public headers only.
 *
 *   main.c         the command: prompts in, tokens out
 *   engine.c       requests, batches of mixed prompts and single tokens, the paged cache, sampling
 *   model.c        which architecture is made of which blocks; the pass through them; what ranks have of them
 *   attention.c    attention over the paged cache, DeepSeek's latent one too; rope.c tables of angles
 *   recurrent.c    the gated delta rule of Qwen3-Next, Mamba-2; feed_forward.c dense and mixture of experts
 *   weights.c      weights by name, as files have them or rounded to 8 or 4 bits; linear layers
 *   checkpoint.c   config.json and *.safetensors, mapped, not read; tensors.c tensors, and the memory they are made in
 *
 * Ranks (flhost launch -n 2 -- llm …, mpirun, torchrun) have a part each: of heads, of a feed-forward network's inner
 * columns, of experts, of the vocabulary. They make the same calls, and have the same tokens; rank 0 prints them.
 * What is wrong ends the program with a message: fail() is the one way out, so that the rest reads as what it does.
 */
#ifndef LLM_H
#define LLM_H

#include <err.h>
#include <flhost/element.h>
#include <flhost/flhost.h>
#include <flhost/ops.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Prints "llm: …" and ends the program with status 1. */
#define fail(...)  errx(EXIT_FAILURE, __VA_ARGS__)
#define LL(number) (long long)(number) /* for "%lld" */
/* What every call of an op goes through: ends the program with the host's own words unless it is FL_OK. */
void ok(fl_status status);

/* Memory of the device's pool, given back all at once: what a step computes, or what a model keeps. */
typedef struct arena {
  fl_host *host;
  void *stream;
  struct piece *pieces;
  size_t total, most; /* bytes, now and at most */
} arena;
void *arena_take(arena *a, size_t size); /* not cleared */
void arena_reset(arena *a);
/* A list of sizes, as two arguments: SHAPE(n, 4 * d). */
#define SIZES(...) ((int64_t[]){__VA_ARGS__})
#define SHAPE(...) (int)(sizeof SIZES(__VA_ARGS__) / sizeof(int64_t)), SIZES(__VA_ARGS__)
extern const DLDataType float32, int32, int64, boolean;
extern const DLDevice cpu;
/* What a rank has of a dimension: one of several equal parts. */
typedef struct share {
  int64_t part, parts;
} share;
#define ALL ((share){0, 1})
/* A tensor with memory of its own, not cleared. */
DLTensor *tensor(arena *a, DLDataType dtype, int ndim, const int64_t *shape);
/* The same memory from element `offset` on, in another shape. `strides`, in elements, may be NULL: compact. */
DLTensor *view(arena *a, const DLTensor *of, int64_t offset, const int64_t *strides, int ndim, const int64_t *shape);
/* A share of its first dimension, or of the second of a matrix; the tensor itself if that is all. It may be NULL. */
DLTensor *cut(arena *a, DLTensor *t, share rows, share columns);
int64_t elements(const DLTensor *t);
size_t bytes(const DLTensor *t);
/* Copies what `from`, of any strides and element type, has into elements `at` on of `to`, which is compact. */
void put(DLTensor *to, int64_t at, const DLTensor *from);
/* A compact copy in an element type; the second gives the tensor itself if it has that already. */
DLTensor *copied(arena *a, const DLTensor *t, DLDataType dtype);
DLTensor *converted(arena *a, DLTensor *t, DLDataType dtype);

/* A Hugging Face directory. */
typedef struct checkpoint {
  json_t *config, *tensors; /* the second: addresses of tensors by name; an object is a hash table */
  struct mapped_file {
    struct mapped_file *next;
    char *memory;
    size_t size;
  } * files;
  size_t size; /* of all files */
} checkpoint;
void checkpoint_open(checkpoint *c, const char *directory, arena *kept);
void checkpoint_close(checkpoint *c);
DLTensor *checkpoint_find(const checkpoint *c, const char *name); /* NULL: none has that name */
void checkpoint_release(const checkpoint *c); /* what was read may leave memory: it was copied, or is read again */
/* Of config.json or an object in it; true is 1. `fallback`: where the key is missing or null; REQUIRED: an error. */
#define REQUIRED NAN
double config_number(const json_t *config, const char *key, double fallback);

typedef struct model model;
/* What one pass computes: tokens of several requests, one after the other. Sequence i is tokens query_start_loc[i] to
 * [i + 1] - 1, the last of its seq_lens[i]. */
typedef struct batch {
  int64_t n_tokens;
  DLTensor *ids, *positions;   /* int64[n_tokens] */
  DLTensor *slot_mapping;      /* int64[n_tokens]: row of the paged cache that each token's key and value go to */
  DLTensor *query_start_loc;   /* int32[n_sequences + 1] */
  DLTensor *block_table;       /* int32[n_sequences, blocks of the longest] */
  DLTensor *seq_lens, *states; /* int32[n_sequences]; the second: slot of its recurrent state */
  DLTensor *has_state;         /* bool[n_sequences]: not at its first token */
  DLTensor *wanted;            /* int64[…]: tokens whose logits are wanted, and whose they are */
  struct request **owners;
} batch;
/* A linear layer, or the same of each expert, with its weight as the checkpoint has it or rounded to fewer bits. */
typedef struct projection {
  DLTensor *weight, *scales, *bias; /* scales NULL: the weight is no code; bias may be NULL */
  int64_t n;                        /* rows: what it computes of a token */
  bool summed;                      /* ranks have columns each: the result is the sum of theirs */
} projection;
/* What a residual goes through: a layer has a block that mixes tokens and mostly one that does not. `run` gives x's
 * successor, without the residual. */
typedef struct block {
  DLTensor *(*run)(model *m, const void *self, const batch *b, DLTensor *x);
  void *self;
  DLTensor *norm; /* of x, before it */
} block;
struct model {
  fl_host *host;
  fl_ops ops;
  void *stream;    /* on which all is done */
  fl_group *group; /* NULL: alone */
  fl_scope scope;  /* in which ops are made by all ranks */
  checkpoint files;
  const json_t *config; /* that of the files */
  arena kept, step;     /* weights that had to be rearranged, caches; what one pass computes */
  DLDataType dtype;
  const struct format *format; /* that projections are rounded to; NULL: as they are */
  bool dequantised;            /* codes are kept as what they stand for, in dtype */
  int64_t scale_block[2];      /* rows and columns of a weight that share a scale */
  int64_t hidden, vocabulary, longest, n_blocks, block_size, n_states; /* longest: tokens that the angles reach to */
  double epsilon;
  bool norms_from_one, has_states; /* norms' weights are counted from 1; what a prefix leaves cannot be shared */
  share own, tokens;               /* this rank's part of what is shared; of the rows of the next two */
  DLTensor *embedding, *head, *norm, *cos, *sin; /* the last two: float32[longest, half of what turns] */
  block *chain;
  int64_t n_chain;
  const char *kind; /* of the layer that is made, as layer_types of the config has it; NULL: it says nothing */
};

/* Of a model m: what typed calls begin with, and a new tensor of these sizes for a pass. */
#define OPS       &m->ops, m->stream
#define MADE(...) tensor(&m->step, m->dtype, SHAPE(__VA_ARGS__))

/* `m` has the sizes of caches (n_blocks, block_size, n_states), format and dequantised. */
void model_open(model *m, fl_host *host, const char *directory, const char *dtype);
void model_close(model *m);
DLTensor *model_run(model *m, const batch *b); /* logits of b->wanted, in m->step, for the host to read */
int64_t divided(const model *m, const char *what, int64_t n); /* n among the ranks; `what` they are: for the message */
/* In place; with a residual, that becomes residual + x first, and x its norm. Without a weight nothing is done. */
void norm(model *m, DLTensor *x, DLTensor *residual, DLTensor *weight);

/* Weights have a name between a prefix, "model.layers.3.", and an end, ".weight". As the file has it; NULL: it has
 * none, which `must` makes an error. */
DLTensor *stored_weight(const model *m, const char *prefix, const char *name, const char *end, bool must);
/* The same in the model's element type; what is made for that lies in `a`, or in m->kept. */
DLTensor *weight_in(model *m, arena *a, const char *prefix, const char *name, const char *end, bool must);
#define weight(m, ...) weight_in(m, &(m)->kept, __VA_ARGS__)
/* That of name.weight and, if there is one, name.bias: a rank's share of rows, or of columns. */
projection find_projection(model *m, const char *prefix, const char *name, share rows, share columns);
/* Those of this rank's n experts, one behind the other: of prefix0.name.weight and so on, `parts` names in one matrix.
 * Or, as gpt-oss has them, all in prefix.name: [experts, in, out], or MXFP4, codes [experts, out, in / 32, 16 bytes] in
 * name_blocks and their scales in name_scales. */
projection find_experts(model *m, const char *prefix, int parts, const char *const *names, int64_t n);
/* Of a share of a matrix's columns: rounded, if there is a format that takes its sizes; that of an expert has `parts`,
 * others 0. What is made lies in `a`, and with a format that is all. */
projection projected(model *m, arena *a, DLTensor *matrix, int parts, share columns);
const struct format *format_named(const char *name); /* fp8, int8 or int4 */
/* x through it, into `out`; NULL: a new tensor. */
DLTensor *linear(model *m, DLTensor *x, const projection *p, DLTensor *out);
/* Makes m->cos and m->sin, by the config's rope_parameters; returns what attention's scale is to be multiplied with. */
double make_angles(model *m, int64_t dimensions);
/* Blocks of a layer: they read the config, find the weights behind the prefix, make the cache. */
typedef block block_maker(model *m, const char *prefix);
block_maker attention_block, latent_block, delta_net_block, mamba2_block, feed_forward_block;

typedef struct request {
  int64_t *ids;                                             /* the prompt, then what is generated */
  int64_t n_prompt, n, n_most, n_computed, n_now, n_blocks; /* n_now: that the pass takes */
  int32_t *blocks, state;                                   /* the second: slot; -1: waits */
  DLTensor *logits; /* float32[n_most, vocabulary], of each computed token, NaN of those in the cache; NULL: not kept */
} request;
typedef struct sampling {
  double temperature, top_p; /* 0: the most probable token; 1: all */
  int64_t top_k, seed;       /* 0: all */
} sampling;
typedef struct engine {
  model *model;
  sampling sampling;
  int64_t tokens_at_once; /* of a pass; longer prompts are taken in parts */
  bool timing;            /* a line for each pass, to standard error */
  arena memory;
  request *requests;
  struct cached_block *cached; /* what each block of the cache holds */
  bool *state_taken;
  int64_t n_requests, n_passes, n_prompt_tokens, n_generated, n_decoded; /* the last: in passes without prompts */
  double prompt_seconds, generate_seconds; /* of passes with a prompt's tokens in them; of the others */
} engine;

void engine_make(engine *e, int64_t n_requests); /* `e` has what comes before its memory */
void engine_add(engine *e, const int64_t *ids, int64_t n, int64_t n_more, bool keep_logits); /* copies `ids` */
void engine_run(engine *e); /* until each request has its tokens */

#endif
