/*
 * A small engine on flhost: from a checkpoint's files to the next token. Public headers only.
 *
 *   main.c         the command: prompts in, tokens out
 *   engine.c       requests, batches of mixed prompts and single tokens, the paged cache, sampling
 *   checkpoint.c   config.json and *.safetensors, mapped, not read
 *   tensors.c      tensors, and the memory that they are made in
 *   rope.c         tables of angles
 *   model.c        which architecture is made of which blocks; the pass through the layers
 *   quantise.c     weights rounded to 8 or 4 bits
 *   attention.c    Llama, Mistral, Mixtral, Qwen2, Qwen3, gpt-oss, Qwen3-Next: attention over the paged cache
 *   latent.c       DeepSeek-V2 and V3: latent attention
 *   delta_net.c    Qwen3-Next: gated delta rule
 *   mamba2.c       Mamba-2
 *   feed_forward.c dense and mixture of experts
 *
 * What is wrong ends the program with a message: fail() is the one way out, so that the rest reads as what it does.
 */
#ifndef LLM_H
#define LLM_H

#include <flhost/element.h>
#include <flhost/flhost.h>
#include <flhost/ops.h>
#include <jansson.h>

/* Prints "llm: …" and ends the program with status 1. */
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* What every call of an op goes through: ends the program with the host's own words unless it is FL_OK. */
void ok(fl_status status);

/* Memory that is given back all at once: what a step computes, or what a model keeps. */
typedef struct arena {
  struct piece *pieces;
  size_t total, most; /* bytes, now and at most */
} arena;

void *arena_take(arena *a, size_t size); /* not cleared */
void arena_reset(arena *a);

/* A list of sizes, as two arguments: SHAPE(n, 4 * d). */
#define SIZES(...) ((int64_t[]){__VA_ARGS__})
#define SHAPE(...) (int)(sizeof SIZES(__VA_ARGS__) / sizeof(int64_t)), SIZES(__VA_ARGS__)

extern const DLDataType float32, int32, int64, boolean;

/* A tensor with memory of its own, not cleared. */
DLTensor *tensor(arena *a, DLDataType dtype, int ndim, const int64_t *shape);
/* The same memory from element `offset` on, in another shape. `strides`, in elements, may be NULL: compact. */
DLTensor *view(arena *a, const DLTensor *of, int64_t offset, const int64_t *strides, int ndim, const int64_t *shape);
int64_t elements(const DLTensor *t);
size_t bytes(const DLTensor *t);
/* Its first element, at byte_offset. */
void *data(const DLTensor *t);
/* A copy in another element type; the tensor itself if it has that already, or is NULL. */
DLTensor *converted(arena *a, DLTensor *t, DLDataType dtype);

/* A Hugging Face directory. */
typedef struct checkpoint {
  json_t *config;
  struct named_tensor {
    const char *name;
    DLTensor *tensor;
  } * tensors; /* by name */
  size_t n, n_files;
  struct mapped_file {
    char *memory;
    size_t size;
  } * files;
} checkpoint;

void checkpoint_open(checkpoint *c, const char *directory, arena *kept);
void checkpoint_close(checkpoint *c);
/* NULL: there is none of that name. */
DLTensor *checkpoint_find(const checkpoint *c, const char *name);
/* Its pages may leave memory: it was copied. */
void checkpoint_release(const checkpoint *c, const DLTensor *t);

/* Of config.json; `fallback` where the key is missing or null, NULL: that is an error. */
int64_t config_int(const checkpoint *c, const char *key, const int64_t *fallback);
double config_number(const json_t *object, const char *key, double fallback);
bool config_is(const checkpoint *c, const char *key, bool fallback);

/* What one pass computes: tokens of several requests, one after the other. Sequence i is tokens query_start_loc[i] to
 * [i + 1] - 1, the last of its seq_lens[i]. */
typedef struct batch {
  int64_t n_tokens;
  DLTensor *ids, *positions; /* int64[n_tokens] */
  DLTensor *slot_mapping;    /* int64[n_tokens]: row of the paged cache that each token's key and value go to */
  DLTensor *query_start_loc; /* int32[n_sequences + 1] */
  DLTensor *seq_lens;        /* int32[n_sequences] */
  DLTensor *block_table;     /* int32[n_sequences, blocks of the longest] */
  DLTensor *states;          /* int32[n_sequences]: slot of its recurrent state */
  DLTensor *has_state;       /* bool[n_sequences]: not at its first token */
  DLTensor *wanted;          /* int64[…]: tokens whose logits are wanted */
} batch;

typedef struct model model;

/* A linear layer, with its weight as the checkpoint has it or rounded to fewer bits. */
typedef struct projection {
  DLTensor *weight, *scales, *bias; /* scales NULL: it was not rounded; bias may be NULL */
  int64_t n;                        /* rows: what it computes of a token */
} projection;

/* A layer has one that mixes tokens and perhaps one that does not. Gives x's successor, without the residual. */
typedef struct block {
  DLTensor *(*run)(model *m, const void *self, const batch *b, DLTensor *x);
  void *self;
} block;

typedef struct model_layer {
  DLTensor *mixer_norm, *feed_forward_norm; /* the second NULL: there is no feed_forward */
  block mixer, feed_forward;
} model_layer;

struct model {
  fl_ops ops;
  checkpoint files;
  arena kept, step; /* weights that had to be rearranged, caches; what one pass computes */
  DLDataType dtype;
  const struct format *format;                   /* of projections; NULL: as they are */
  bool dequantised;                              /* they are rounded to it, and kept in dtype */
  int64_t hidden, n_layers, vocabulary, longest; /* longest: tokens that the angles reach to */
  double epsilon;
  bool norms_from_one; /* their weights are counted from 1 */
  bool has_states;     /* recurrent: what a prefix leaves behind cannot be shared */
  int64_t n_blocks, block_size, n_states;
  DLTensor *embedding, *norm, *head, *cos, *sin;
  model_layer *layers;
};

/* `m` has the sizes of caches (n_blocks, block_size, n_states), format and dequantised. */
void model_open(model *m, fl_host *host, const char *directory, const char *dtype);
void model_close(model *m);
/* Logits of b->wanted in float32, in m->step. */
DLTensor *model_run(model *m, const batch *b);

/* The weight of that name, of a layer where it has a %d, in the model's element type. `weight` must be there. */
DLTensor *weight(model *m, const char *name, int64_t layer);
DLTensor *optional_weight(model *m, const char *name, int64_t layer);
/* As the file has it; NULL: it has none. */
DLTensor *stored_weight(const model *m, const char *name, int64_t layer);

/* fp8, int8 or int4. */
const struct format *format_named(const char *name);
/* Of a weight [n, k], or experts' [experts, n, k]; rounded, if the format takes its sizes. */
projection projected(model *m, DLTensor *weight, DLTensor *bias);
/* Where a weight of that size is rearranged for it: kept, unless it is rounded. */
arena *place_before_rounding(model *m, int ndim, const int64_t *shape);
/* That of name.weight and, if there is one, name.bias. */
projection find_projection(model *m, const char *name, int64_t layer);
DLTensor *linear(model *m, DLTensor *x, const projection *p);
void linear_into(model *m, DLTensor *x, const projection *p, DLTensor *out);
/* In place; with a residual, that becomes residual + x first, and x its norm. */
void norm(model *m, DLTensor *x, DLTensor *residual, DLTensor *weight);
/* float32[longest, dimensions / 2], by the config's rope_parameters; returns what attention's scale is to be multiplied
 * with. */
double make_angles(model *m, int64_t dimensions);

/* Blocks of layer `layer`: read the config, find the weights, make the cache. */
block attention_block(model *m, int64_t layer);
block latent_block(model *m, int64_t layer);
block delta_net_block(model *m, int64_t layer);
block mamba2_block(model *m, int64_t layer);
block feed_forward_block(model *m, int64_t layer);

typedef struct request {
  int64_t *ids; /* the prompt, then what is generated */
  int64_t n_prompt, n, n_most, n_computed, n_blocks;
  int32_t *blocks;
  int32_t state; /* slot; -1: waits */
  float *logits; /* [n_most, vocabulary], of each computed token, NaN of those in the cache; NULL: not kept */
} request;

typedef struct engine {
  model *model;
  arena memory;
  request *requests;
  int64_t n_requests, tokens_at_once, at_once; /* of a pass; longer prompts are taken in parts */
  double temperature, top_p;                   /* 0: the most probable token; 1: all */
  int64_t top_k;                               /* 0: all */
  uint64_t seed;
  struct cached_block *cached;                               /* what each block of the cache holds */
  bool *state_taken, timing;                                 /* timing: a line for each pass, to standard error */
  int64_t n_passes, n_prompt_tokens, n_generated, n_decoded; /* the last: in passes without prompts */
  double prompt_seconds, generate_seconds; /* of passes with a prompt's tokens in them; of the others */
} engine;

/* For so many requests. */
void engine_make(engine *e, model *m, int64_t n_requests);
/* The engine copies `ids`. */
void engine_add(engine *e, const int64_t *ids, int64_t n, int64_t n_more, bool keep_logits);
/* Until each request has its tokens. */
void engine_run(engine *e);

#endif
