/* Calls of the sampling ops, row by row: see sampling.h. */
#include "plugins/cpu/sampling.h"
#include "plugins/cpu/support/parallel.h"
#include "plugins/cpu/support/rows.h"

typedef struct sampling_job {
  cpu_sampling_fn row;
  fl_call *call;
  DLTensor *logits;
  /* Puts what the op has of row `index` into `row`, which has size, dtype and logits already. */
  void (*read)(const fl_call *call, int64_t index, cpu_sampling_row *row);
} sampling_job;

static fl_status sample_rows(void *user, int64_t first, int64_t end) {
  const sampling_job *job = user;
  const DLTensor *logits = job->logits;
  cpu_dtype dtype = cpu_dtype_of(logits);
  fl_status status = FL_OK;
  for (int64_t i = first; i < end && !status; i++) {
    cpu_sampling_row row = {.size = logits->shape[1],
                            .dtype = dtype,
                            .logits = (const char *)fl_data(logits) + i * fl_stride(logits, 0) * cpu_dtype_size(dtype),
                            .index = i};
    job->read(job->call, i, &row);
    status = job->row(&row);
  }
  return status;
}

/* `work` of an entry, as cpu_grain counts it; `extra` of a row. */
static fl_status run(void *self, fl_call *call, int64_t work, int64_t extra,
                     void (*read)(const fl_call *call, int64_t index, cpu_sampling_row *row)) {
  DLTensor *logits = cpu_tensor(call, 0);
  sampling_job job = {*(cpu_sampling_fn *)self, call, logits, read};
  if (cpu_dtype_of(logits) == CPU_OTHER)
    return cpu_wrong_type(call, "logits");
  fl_status status = cpu_parallel_for(logits->shape[0], cpu_grain(work * logits->shape[1] + extra), sample_rows, &job);
  return status == FL_ENOMEM ? fl_fail(call, status, "no memory for a row of %lld logits", (long long)logits->shape[1])
                             : status;
}

static float *row_of(const fl_call *call, uint32_t index, int64_t row) {
  const DLTensor *tensor = cpu_tensor(call, index);
  return (float *)fl_data(tensor) + row * fl_stride(tensor, 0);
}

static float number_of(const fl_call *call, uint32_t index, int64_t row) {
  return ((const float *)fl_data(cpu_tensor(call, index)))[row];
}

static int64_t *id_of(const fl_call *call, uint32_t index, int64_t row) {
  return (int64_t *)fl_data(cpu_tensor(call, index)) + row;
}

/* (logits, prompt_token_ids, output_token_ids, presence_penalties, frequency_penalties, repetition_penalties) -> out */
static void read_penalties(const fl_call *call, int64_t index, cpu_sampling_row *row) {
  row->prompt = cpu_tensor(call, 1);
  row->output = cpu_tensor(call, 2);
  row->presence = number_of(call, 3, index);
  row->frequency = number_of(call, 4, index);
  row->repetition = number_of(call, 5, index);
  row->out = row_of(call, 6, index);
}

fl_status cpu_apply_penalties(void *self, fl_call *call) {
  int64_t ids = cpu_tensor(call, 1)->shape[1] + cpu_tensor(call, 2)->shape[1];
  bool in_place = fl_data(cpu_tensor(call, 0)) == fl_data(cpu_tensor(call, 6));
  return run(self, call, in_place ? 0 : 8, 64 * ids, read_penalties);
}

/* (logits, temperature) -> out */
static void read_temperature(const fl_call *call, int64_t index, cpu_sampling_row *row) {
  row->temperature = number_of(call, 1, index);
  row->out = row_of(call, 2, index);
}

fl_status cpu_apply_temperature(void *self, fl_call *call) {
  return run(self, call, 8, 0, read_temperature);
}

/* (logits, min_p) -> out */
static void read_min_p(const fl_call *call, int64_t index, cpu_sampling_row *row) {
  row->min_p = number_of(call, 1, index);
  row->out = row_of(call, 2, index);
}

fl_status cpu_apply_min_p(void *self, fl_call *call) {
  return run(self, call, 12, 0, read_min_p);
}

/* (logits, top_k, top_p) -> out */
static void read_top(const fl_call *call, int64_t index, cpu_sampling_row *row) {
  const DLTensor *top_k = cpu_tensor(call, 1);
  int64_t k = top_k ? cpu_index(top_k, index) : row->size;
  row->top_k = k >= 1 && k < row->size ? k : row->size;
  row->top_p = cpu_tensor(call, 2) ? number_of(call, 2, index) : 1;
  row->out = row_of(call, 3, index);
}

fl_status cpu_apply_top_k_top_p(void *self, fl_call *call) {
  return run(self, call, 16, 0, read_top);
}

/* (logits) -> ids */
static void read_greedy(const fl_call *call, int64_t index, cpu_sampling_row *row) {
  row->id = id_of(call, 1, index);
}

fl_status cpu_greedy_argmax(void *self, fl_call *call) {
  return run(self, call, 4, 0, read_greedy);
}

/* (logits, noise) -> ids */
static void read_exponential(const fl_call *call, int64_t index, cpu_sampling_row *row) {
  row->noise = row_of(call, 1, index);
  row->id = id_of(call, 2, index);
}

fl_status cpu_exponential_sample(void *self, fl_call *call) {
  return run(self, call, 8 * CPU_WORK_EXP, 0, read_exponential);
}

/* (logits, uniform, temperature) -> ids */
static void read_gumbel(const fl_call *call, int64_t index, cpu_sampling_row *row) {
  row->noise = row_of(call, 1, index);
  row->temperature = number_of(call, 2, index);
  row->id = id_of(call, 3, index);
}

fl_status cpu_gumbel_sample(void *self, fl_call *call) {
  return run(self, call, 16 * CPU_WORK_EXP, 0, read_gumbel);
}

/* (logits, token_ids, num_logprobs) -> (logprob_token_ids, logprobs, ranks) */
static void read_gather(const fl_call *call, int64_t index, cpu_sampling_row *row) {
  const DLTensor *ids = cpu_tensor(call, 3);
  row->token = cpu_index(cpu_tensor(call, 1), index);
  row->wanted = call->values[2].v.i;
  row->ids = (int32_t *)fl_data(ids) + index * fl_stride(ids, 0);
  row->logprobs = row_of(call, 4, index);
  row->rank = id_of(call, 5, index);
}

fl_status cpu_gather_logprobs(void *self, fl_call *call) {
  int64_t size = cpu_tensor(call, 0)->shape[1];
  fl_status status = cpu_check_index_list(call, "token_ids", cpu_tensor(call, 1), 0, size - 1, "entries of a row");
  return status ? status : run(self, call, 8 * CPU_WORK_EXP, 0, read_gather);
}
