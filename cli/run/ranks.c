/* One call on several ranks: see ranks.h. */
#include "cli/run/ranks.h"

#include "cli/cli.h"
#include "cli/trials/clock.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* How an argument of an op is divided. */
typedef enum division {
  ROWS,       /* by its first dimension */
  COLUMNS,    /* by its last */
  FIRST,      /* the first rank has it, the others zeros: what is added up */
  EXPERT_MAP, /* of all experts to those of the rank */
  VOCABULARY  /* the first of org_vocab_start and org_vocab_end: the range of the rank's rows of `weight` */
} division;

static const struct shard {
  const char *op, *argument;
  division how;
  const char *unless; /* a bool or what may be none: not divided where it is false or given */
} shards[] = {
    {"column_parallel_linear", "weight", ROWS, NULL},
    {"column_parallel_linear", "bias", ROWS, NULL},
    {"row_parallel_linear", "weight", COLUMNS, NULL},
    {"row_parallel_linear", "x", COLUMNS, "input_is_parallel"},
    {"vocab_parallel_embedding", "weight", ROWS, NULL},
    {"vocab_parallel_embedding", "org_vocab_start", VOCABULARY, NULL},
    {"parallel_lm_head", "weight", ROWS, NULL},
    {"parallel_lm_head", "bias", ROWS, NULL},
    {"logits_processor", "weight", ROWS, NULL},
    {"logits_processor", "bias", ROWS, NULL},
    {"tensor_model_parallel_all_reduce", "x", FIRST, NULL},
    {"all_reduce_fused_add_rms_norm", "x", FIRST, NULL},
#define EXPERTS(op)                                                                                                    \
  {op, "w13", ROWS, NULL}, {op, "w2", ROWS, NULL}, {op, "w13_bias", ROWS, NULL}, {op, "w2_bias", ROWS, NULL},          \
      {op, "w13_scale", ROWS, NULL}, {op, "w2_scale", ROWS, NULL}, {                                                   \
    op, "expert_map", EXPERT_MAP, NULL                                                                                 \
  }
    EXPERTS("unquantized_fused_moe"),
    EXPERTS("fused_moe"),
    EXPERTS("modular_fused_moe"),
    {"modular_fused_moe", "x", ROWS, NULL},
    {"modular_fused_moe", "topk_weights", ROWS, NULL},
    {"modular_fused_moe", "topk_ids", ROWS, NULL},
#undef EXPERTS
};
enum { N_SHARDS = sizeof shards / sizeof *shards };

/* --------------------------------------------------------------------------------------------------------- dividing */

static uint32_t find(const fl_op *op, const char *name) {
  uint32_t n = fl_op_argument_count(op), i = 0;
  while (i < n && strcmp(fl_op_argument(op, i)->name, name) != 0)
    i++;
  return i;
}

/* Is the row about this op's argument, in this call? Its index, else the number of arguments. */
static uint32_t argument_of(const struct shard *shard, const fl_op *op, const fl_value *values) {
  uint32_t n = fl_op_argument_count(op);
  if (strcmp(shard->op, fl_op_name(op)) != 0)
    return n;
  if (shard->unless && !values[find(op, shard->unless)].v.b)
    return n;
  return find(op, shard->argument);
}

static int dimension_of(const struct shard *shard, const DLTensor *tensor) {
  return shard->how == ROWS ? 0 : tensor->ndim - 1;
}

/* A shard of a vocabulary is one rank's already. */
static bool is_whole(const fl_op *op, const fl_value *values) {
  uint32_t end = find(op, "org_vocab_end");
  return end == fl_op_argument_count(op) || values[end].type == FL_NONE;
}

static bool divides(const fl_op *op, const fl_value *values, int32_t ranks) {
  bool divided = false;
  for (int i = 0; i < N_SHARDS; i++) {
    uint32_t index = argument_of(&shards[i], op, values);
    if (index == fl_op_argument_count(op))
      continue;
    divided = true;
    if (values[index].type != FL_TENSOR || shards[i].how > COLUMNS)
      continue;
    const DLTensor *tensor = values[index].v.tensor;
    if (tensor->ndim < 1 || tensor->shape[dimension_of(&shards[i], tensor)] % ranks)
      return false;
  }
  return divided && is_whole(op, values);
}

int32_t run_ranks_of(const fl_op *op, const fl_value *values, int32_t most) {
  while (most > 1 && !divides(op, values, most))
    most--;
  return most;
}

/* ------------------------------------------------------------------------------------------------------ one rank's
 * call
 */

typedef struct held {
  DLTensor tensor;
  int64_t shape[FL_MAX_DIMS];
} held;

typedef struct rank {
  pthread_t thread;
  fl_host *host;
  fl_op *op;
  const fl_group_id *id;
  const fl_value *given; /* arguments of the whole call */
  int32_t number, ranks;
  uint32_t n_arguments, n_results;
  fl_value *values;
  held *tensors; /* by value */
  double time_us;
  fl_status status;
  char words[RUN_RANKS_WORDS];
} rank;

static size_t item_size(const DLTensor *tensor) {
  return (size_t)tensor->dtype.bits / 8;
}

static int64_t elements(const DLTensor *tensor) {
  int64_t n = 1;
  for (int i = 0; i < tensor->ndim; i++)
    n *= tensor->shape[i];
  return n;
}

/* Compact memory of its own for the value, cleared; its shape is set. NULL: there is none. */
static DLTensor *hold(rank *r, uint32_t index, DLDataType dtype, int ndim, const int64_t *shape) {
  held *h = &r->tensors[index];
  memcpy(h->shape, shape, (size_t)ndim * sizeof *shape);
  h->tensor = (DLTensor){.device = {kDLCPU, 0}, .ndim = ndim, .dtype = dtype, .shape = h->shape};
  size_t bytes = (size_t)elements(&h->tensor) * item_size(&h->tensor);
  if (posix_memalign(&h->tensor.data, 64, bytes ? bytes : 1))
    return NULL;
  memset(h->tensor.data, 0, bytes);
  r->values[index] = fl_tensor(&h->tensor);
  return &h->tensor;
}

/* Part `number` of a dimension, between the whole and that part: both compact. */
static void copy_part(DLTensor *whole, DLTensor *part, int dimension, int32_t number, bool into_whole) {
  size_t inner = item_size(part);
  int64_t outer = 1;
  for (int i = dimension + 1; i < part->ndim; i++)
    inner *= (size_t)part->shape[i];
  for (int i = 0; i < dimension; i++)
    outer *= part->shape[i];
  size_t run = inner * (size_t)part->shape[dimension], pitch = inner * (size_t)whole->shape[dimension];
  for (int64_t i = 0; i < outer; i++) {
    char *at = (char *)whole->data + (size_t)i * pitch + (size_t)number * run,
         *own = (char *)part->data + (size_t)i * run;
    memcpy(into_whole ? at : own, into_whole ? own : at, run);
  }
}

static bool hold_part(rank *r, uint32_t index, DLTensor *whole, int dimension) {
  int64_t shape[FL_MAX_DIMS];
  memcpy(shape, whole->shape, (size_t)whole->ndim * sizeof *shape);
  shape[dimension] /= r->ranks;
  DLTensor *part = hold(r, index, whole->dtype, whole->ndim, shape);
  if (part)
    copy_part(whole, part, dimension, r->number, false);
  return part;
}

static bool hold_copy(rank *r, uint32_t index, const DLTensor *whole, bool cleared) {
  DLTensor *copy = hold(r, index, whole->dtype, whole->ndim, whole->shape);
  if (copy && !cleared)
    memcpy(copy->data, whole->data, (size_t)elements(whole) * item_size(whole));
  return copy;
}

static int64_t integer_at(const DLTensor *tensor, int64_t i) {
  return tensor->dtype.bits == 64 ? ((const int64_t *)tensor->data)[i] : ((const int32_t *)tensor->data)[i];
}

/* Where each expert of all is among the rank's; -1: elsewhere. `before`: where it is among those of all ranks. */
static bool hold_expert_map(rank *r, uint32_t index, const DLTensor *before) {
  int64_t experts = r->given[find(r->op, "w13")].v.tensor->shape[0], own = experts / r->ranks;
  int64_t n = before ? before->shape[0] : experts;
  DLTensor *map = hold(r, index, (DLDataType){kDLInt, 32, 1}, 1, &n);
  for (int64_t i = 0; map && i < n; i++) {
    int64_t at = before ? integer_at(before, i) : i;
    ((int32_t *)map->data)[i] = at >= 0 && at / own == r->number ? (int32_t)(at % own) : -1;
  }
  return map;
}

static bool divide(rank *r, uint32_t index, const struct shard *shard) {
  const fl_value *given = &r->given[index];
  DLTensor *whole = given->type == FL_TENSOR ? given->v.tensor : NULL;
  if (shard->how == VOCABULARY) {
    int64_t rows = r->given[find(r->op, "weight")].v.tensor->shape[0] / r->ranks;
    r->values[index] = fl_int(r->number * rows);
    r->values[index + 1] = fl_int((r->number + 1) * rows);
    return true;
  }
  if (shard->how == EXPERT_MAP)
    return hold_expert_map(r, index, whole);
  if (!whole)
    return true;
  return shard->how == FIRST ? hold_copy(r, index, whole, r->number > 0)
                             : hold_part(r, index, whole, dimension_of(shard, whole));
}

static bool make_arguments(rank *r) {
  bool made = true;
  memcpy(r->values, r->given, r->n_arguments * sizeof *r->values);
  for (int i = 0; i < N_SHARDS && made; i++) {
    uint32_t index = argument_of(&shards[i], r->op, r->given);
    if (index < r->n_arguments)
      made = divide(r, index, &shards[i]);
  }
  /* The others are its own, too: a call may overwrite them. */
  for (uint32_t i = 0; i < r->n_arguments && made; i++)
    if (r->given[i].type == FL_TENSOR && !r->tensors[i].tensor.data)
      made = hold_copy(r, i, r->given[i].v.tensor, false);
  return made;
}

static fl_status make_results(rank *r) {
  fl_call call = {.size = sizeof call, .count = r->n_arguments, .values = r->values};
  fl_tensor_spec *specs = calloc(r->n_results + 1, sizeof *specs);
  fl_status status = specs ? fl_infer(r->op, &call, specs, r->n_results, sizeof *specs) : FL_ENOMEM;
  for (uint32_t i = 0; i < r->n_results && !status; i++)
    if (specs[i].present && !hold(r, r->n_arguments + i, specs[i].dtype, specs[i].ndim, specs[i].shape))
      status = FL_ENOMEM;
  free(specs);
  return status;
}

/* In the scope of the group. */
static fl_status call(rank *r, fl_group *group) {
  fl_call made = {.size = sizeof made, .count = r->n_arguments + r->n_results, .values = r->values};
  fl_status status = make_arguments(r) ? make_results(r) : FL_ENOMEM;
  /* All begin together; one that has no memory comes, too, and says so afterwards. */
  fl_status together = fl_barrier(group, NULL);
  double start = seconds_now();
  if (!status)
    status = together ? together : fl_invoke(r->op, &made);
  r->time_us = (seconds_now() - start) * 1e6;
  return status;
}

static void *be_rank(void *of) {
  rank *r = of;
  fl_group *group = NULL;
  fl_scope scope;
  r->status = fl_group_create(r->host, r->id, r->number, r->ranks, NULL, &group);
  if (!r->status && !(r->status = fl_scope_group(r->host, group, &scope))) {
    r->status = call(r, group);
    if (r->status)
      snprintf(r->words, sizeof r->words, "%s", r->status == FL_ENOMEM ? "out of memory" : fl_error_message());
    fl_scope_leave(&scope);
  }
  if (r->status && !*r->words)
    snprintf(r->words, sizeof r->words, "%s", fl_error_message());
  fl_group_destroy(group);
  return NULL;
}

/* ---------------------------------------------------------------------------------------------------------- joining */

/* The dimension in which a rank's result is a part of the whole; -1: it is the whole. */
static int divided_dimension(const DLTensor *whole, const DLTensor *part) {
  for (int i = 0; i < whole->ndim; i++)
    if (whole->shape[i] != part->shape[i])
      return i;
  return -1;
}

static fl_status join_result(const rank *all, int32_t ranks, uint32_t index, DLTensor *whole,
                             char words[RUN_RANKS_WORDS]) {
  size_t bytes = (size_t)elements(whole) * item_size(whole);
  int dimension = divided_dimension(whole, &all[0].tensors[index].tensor);
  for (int32_t i = 0; i < ranks; i++) {
    DLTensor *own = &all[i].tensors[index].tensor;
    if (dimension >= 0)
      copy_part(whole, own, dimension, i, true);
    else if (!i)
      memcpy(whole->data, own->data, bytes);
    else if (memcmp(whole->data, own->data, bytes) != 0) {
      snprintf(words, RUN_RANKS_WORDS, "'%s' of rank %d is another than that of rank 0",
               fl_op_argument(all[0].op, index)->name, i);
      return FL_EINTERNAL;
    }
  }
  return FL_OK;
}

/* What all ranks have made; the first error that says something of itself, not of another rank's. */
static fl_status join(const rank *all, int32_t ranks, const fl_value *values, double *time_us,
                      char words[RUN_RANKS_WORDS]) {
  fl_status status = FL_OK;
  *time_us = 0;
  for (int32_t i = 0; i < ranks; i++) {
    if (all[i].time_us > *time_us)
      *time_us = all[i].time_us;
    if (all[i].status && (!status || status == FL_EDEVICE)) {
      status = all[i].status;
      snprintf(words, RUN_RANKS_WORDS, "rank %d of %d: %.900s", i, ranks, all[i].words);
    }
  }
  for (uint32_t i = 0; i < all[0].n_results && !status; i++) {
    uint32_t index = all[0].n_arguments + i;
    if (values[index].type == FL_TENSOR)
      status = join_result(all, ranks, index, values[index].v.tensor, words);
  }
  return status;
}

static void free_ranks(rank *all, int32_t ranks) {
  for (int32_t i = 0; all && i < ranks; i++) {
    for (uint32_t j = 0; all[i].tensors && j < all[i].n_arguments + all[i].n_results; j++)
      free(all[i].tensors[j].tensor.data);
    free(all[i].tensors);
    free(all[i].values);
  }
  free(all);
}

static rank *make_ranks(fl_host *host, fl_op *op, const fl_value *values, int32_t ranks, const fl_group_id *id) {
  rank *all = calloc((size_t)ranks, sizeof *all);
  for (int32_t i = 0; all && i < ranks; i++) {
    uint32_t n_arguments = fl_op_argument_count(op), n_results = fl_op_result_count(op);
    all[i] = (rank){.host = host, .op = op, .id = id, .given = values, .number = i, .ranks = ranks};
    all[i].n_arguments = n_arguments;
    all[i].n_results = n_results;
    all[i].values = calloc(n_arguments + n_results + 1, sizeof *all[i].values);
    all[i].tensors = calloc(n_arguments + n_results + 1, sizeof *all[i].tensors);
    if (!all[i].values || !all[i].tensors) {
      free_ranks(all, ranks);
      return NULL;
    }
  }
  return all;
}

fl_status run_over_ranks(fl_host *host, fl_op *op, const fl_value *values, int32_t ranks, double *time_us,
                         char words[RUN_RANKS_WORDS]) {
  fl_group_id id;
  int32_t started = 0;
  fl_status status = fl_group_make_id(host, kDLCPU, &id);
  rank *all = status ? NULL : make_ranks(host, op, values, ranks, &id);
  if (!all) {
    snprintf(words, RUN_RANKS_WORDS, "%s", status ? fl_error_message() : "out of memory");
    return status ? status : FL_ENOMEM;
  }
  while (started < ranks && !pthread_create(&all[started].thread, NULL, be_rank, &all[started]))
    started++;
  for (int32_t i = 0; i < started; i++)
    pthread_join(all[i].thread, NULL);
  if (started < ranks) {
    snprintf(words, RUN_RANKS_WORDS, "%d of %d threads could be started", started, ranks);
    status = FL_EINTERNAL;
  } else {
    status = join(all, ranks, values, time_us, words);
  }
  free_ranks(all, ranks);
  return status;
}
