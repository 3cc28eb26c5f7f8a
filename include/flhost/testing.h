/*
 * flhost/testing.h: calls to test and time ops with, and other help for tools. flhost.h does not include it.
 */
#ifndef FLHOST_TESTING_H
#define FLHOST_TESTING_H

#include <flhost/op.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The word of a list that was probably meant, for "did you mean": at most three slips of the keyboard away (fewer for a
 * short word), letter case and - for _ not counted; NULL if none is near. The list has `n` words or ends in NULL
 * before.
 */
FL_API const char *fl_nearest_word(const char *word, const char *const *words, size_t n);

/* Bytes of the UTF-8 character that `text` begins with, and its code point; 0, and U+FFFD, for what is none. */
FL_API size_t fl_character(const char *text, uint32_t *code);

/* May a terminal be shown that character as it is? Not control characters, which are commands to some, line breaks
 * included; nor what turns the direction of writing, so that one reads another text than is there. */
FL_API bool fl_is_printable(uint32_t code);

/* What the elements of a generated tensor are. */
typedef enum fl_contents {
  FL_CONTENTS_NORMAL = 1, /* about standard normal; zeros, infinities, NaN, denormals, largest values make sense too */
  FL_CONTENTS_RANGE = 2,  /* low to high, both included; integers where the element type is one */
  FL_CONTENTS_DISTINCT = 3,  /* the same, no two alike; if they do not suffice, along the last dimension */
  FL_CONTENTS_ASCENDING = 4, /* in order along the last dimension, the first `low`, the last `high` */
  FL_CONTENTS_MODERATE = 5   /* as normal, but no largest values */
} fl_contents;

/* One argument of a generated call. */
typedef struct fl_input {
  fl_value value; /* unless it is a tensor; strings and lists live as long as the op */
  fl_contents contents;
  double low, high;
  fl_tensor_spec spec; /* a tensor: present or not, element type, shape; last, so that it may grow */
} fl_input;

/*
 * The arguments of a call to test an op with, by its rules and cases (fl_op_def): `number` 0, 1, 2… gives one call
 * after the other, always the same ones for one `seed`. `dtype`, one of FL_FLOAT32…, is the element type that the
 * rules' first dtype variable stands for, or without variables that of the first tensor; 0: any. `n_inputs` is the
 * number of arguments, `input_size` sizeof(fl_input). FL_ENOENT: the op does not take that element type. FL_EINVAL:
 * this number makes no call, nor do those that fl_infer and fl_check refuse: take the next.
 */
FL_API fl_status fl_generate_inputs(const fl_op *op, uint32_t dtype, uint64_t seed, uint64_t number, fl_input *inputs,
                                    uint32_t n_inputs, size_t input_size);

/*
 * The arguments of a call to time an op with, by fl_op_def.bench: `number` 0, 1, 2… up to *n_calls (may be NULL) less
 * one. `sizes` (may be NULL) is a text in that form, of dimensions, `...` and ints, that goes before the op's own:
 * "n: 1 128; d: 8192". `dtype` and `input_size` as above. FL_ENOENT: the op does not take that element type. FL_EINVAL:
 * sizes with a mistake (the message shows the place), no call of that number, or sizes that go with no others of the
 * op.
 */
FL_API fl_status fl_generate_bench_inputs(const fl_op *op, uint32_t dtype, const char *sizes, uint32_t number,
                                          fl_input *inputs, uint32_t n_inputs, size_t input_size, uint32_t *n_calls);

#ifdef __cplusplus
}
#endif
#endif /* FLHOST_TESTING_H */
