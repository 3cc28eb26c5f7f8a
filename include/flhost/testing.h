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
 * The same with sizes of the caller's: a text of dimensions, `...` and ints as in fl_op_def.bench, one size each, that
 * go before those of the op's cases: "d: 8195; ...: [2, 3]". NULL: none. FL_EINVAL too for a text with a mistake, and
 * for sizes that go with no others of the op.
 */
FL_API fl_status fl_generate_sized_inputs(const fl_op *op, uint32_t dtype, const char *sizes, uint64_t seed,
                                          uint64_t number, fl_input *inputs, uint32_t n_inputs, size_t input_size);

/* A dimension of an op's rules whose size a call may choose without regard to others. */
typedef struct fl_dimension {
  uint32_t size; /* sizeof(fl_dimension), set by the caller */
  char name[60]; /* as in the rules; "..." for the leading dimensions, which are a list: "...: [2, 3]" */
  int64_t step;  /* all sizes in the op's cases are multiples of it */
} fl_dimension;

/* Dimension `index` of those that are free, from 0. FL_ENOENT: there are not so many. */
FL_API fl_status fl_free_dimension(const fl_op *op, uint32_t index, fl_dimension *dimension);

/*
 * The arguments of a call to time an op with, by fl_op_def.bench: `number` 0, 1, 2… up to *n_calls (may be NULL) less
 * one. `sizes` (may be NULL) is a text in that form, of dimensions, `...` and ints, that goes before the op's own:
 * "n: 1 128; d: 8192". `dtype` and `input_size` as above. FL_ENOENT: the op does not take that element type. FL_EINVAL:
 * sizes with a mistake (the message shows the place), no call of that number, or sizes that go with no others of the
 * op.
 */
FL_API fl_status fl_generate_bench_inputs(const fl_op *op, uint32_t dtype, const char *sizes, uint32_t number,
                                          fl_input *inputs, uint32_t n_inputs, size_t input_size, uint32_t *n_calls);

/* What a comparison of two tensors found. */
typedef struct fl_comparison {
  uint32_t size; /* sizeof(fl_comparison) of the caller, who sets it */
  bool pass;
  double max_abs_err; /* largest |result - expected|; infinite where only one of them is NaN or infinite */
  double max_rel_err; /* largest of that over |expected|, of the elements with expected != 0 */
  double max_share;   /* largest difference as a share of what is allowed there; infinite where nothing is */
  int64_t worst;      /* linear index of the element that is farthest out (passing or not); -1: all are equal */
  double got, wanted; /* its values, if there is one */
  int64_t failures;   /* number of elements that do not pass */
  char problem[256];  /* "" when pass: what differs, in words */
} fl_comparison;

/*
 * Compares a result with what was expected, element by element: compact tensors in the host's memory. Floating-point
 * elements, and codes of int8, pass when |result - expected| <= atol + rtol * |expected|, both are NaN, or both are the
 * same infinity; other integers and booleans when they are equal. With `bit_exact` elements pass when their bits are
 * equal or both are NaN. Different shapes or element types, or one that cannot be compared, do not pass. Any thread.
 * FL_EINVAL: `found` is NULL or its size is not set.
 */
FL_API fl_status fl_compare_tensors(const DLTensor *result, const DLTensor *expected, double atol, double rtol,
                                    bool bit_exact, fl_comparison *found);

/*
 * Writes a safetensors file of `n` tensors in the host's memory, of any strides, under their names, with `n_metadata`
 * pairs of strings: metadata[0] is a key, metadata[1] its value, and so on. The file appears whole or not at all, and
 * is never written through a link. Any thread. FL_EINVAL: a name or string is not UTF-8 or stands twice, or a tensor's
 * element type has no name in safetensors; FL_EINTERNAL: it cannot be written.
 */
FL_API fl_status fl_save_tensors(const char *path, const char *const *names, const DLTensor *const *tensors, uint32_t n,
                                 const char *const *metadata, uint32_t n_metadata);

/* Where memory that may not be touched begins. */
typedef enum fl_edge {
  FL_EDGE_NONE = 0,
  FL_EDGE_END = 1,      /* right behind each tensor */
  FL_EDGE_BEGINNING = 2 /* right before each */
} fl_edge;

/* What a saved call says beside its arguments; all may be NULL, or 0. */
typedef struct fl_saved_call {
  uint32_t size;            /* sizeof(fl_saved_call) of the caller, who sets it */
  bool bit_exact;           /* the reference gives these very bits: `flhost run` compares so */
  const fl_value *expected; /* by value of the op, arguments then results, as many as the schema has: what each result
                               should be, and each state after the call; none (FL_NONE) where nothing is expected */
  const char *source;       /* what computed that */
  const char *note;         /* why it was saved, for people */
  const fl_value *layout;   /* by value, as many as the call has: tensors that lie as those did with which it failed,
                               where those of the call are copies that lie otherwise; their elements are not read */
  fl_edge edge;             /* it fails with its tensors there */
  uint32_t calls;           /* it fails in one of so many calls of a process, from the first; 0: in each */
} fl_saved_call;

/*
 * Saves a call of an op as a file that `flhost run FILE` repeats: its arguments as they are now, and what is expected
 * of it. Tensors may lie on a device, from which they are copied in the order of the call's stream. The file has their
 * elements, and how they lie: strides, offset, alignment, and which share memory, a result with its argument for one;
 * of results that are in call->values nothing but that is looked at. `about` may be NULL. Any thread.
 * Errors: those of fl_save_tensors and fl_device_copy; FL_EINVAL: too few values, or an attribute that JSON cannot
 * hold, such as a NaN.
 */
FL_API fl_status fl_save_call(const char *path, fl_op *op, const fl_call *call, const fl_saved_call *about);

/* -------------------------------------------------------------------------------------------- a process with limits */

/* Where a program that was started finds the channel to who started it. */
enum { FL_CHILD_CHANNEL = 3 };

/*
 * What runs in a child process, and how far it may go. A program (`argv`, whose first word is its path) is started
 * afresh, without this process's descriptors; a function (`run`) goes on in a copy of this process, with all of them.
 * Either has a process group of its own, no blocked signal, no handler, no core file, and nothing on standard input.
 * The limits of files and core files hold from a moment after its start on.
 */
typedef struct fl_child_options {
  uint32_t size;                  /* sizeof(fl_child_options) */
  uint32_t max_files;             /* of open descriptors; 0: as this process */
  const char *const *argv;        /* ends in NULL; NULL: `run` */
  const char *const *environment; /* of the program, ends in NULL; NULL: this process's */
  /* What the child does: `channel` is its end of the channel; the result is its exit status. */
  int (*run)(void *user, int channel);
  /* What came through the channel, in the order it was written, also when the child died just after. Called in the
   * calling thread while the child runs; `data` is not a string. NULL: there is no channel. */
  void (*receive)(void *user, const void *data, size_t length);
  void *user;
  uint32_t timeout_ms; /* time for all of it; 0: none */
  uint32_t silence_ms; /* and from one message to the next; 0: none */
  /* Bytes of memory in use (resident) by it and its children, looked at some fifty times a second; 0: no limit. Address
   * space is not limited: drivers reserve more of it than any machine has. Without /proc there is no limit. */
  uint64_t max_memory;
  uint64_t max_file_size; /* bytes that it may write to one file; 0: as this process */
  /* Takes the beginning of what the child wrote to standard output and standard error, in one, and a NUL behind it.
   * What has no room is read and forgotten. NULL: both go to /dev/null. */
  char *output;
  size_t output_size;
} fl_child_options;

/* How it ended. */
typedef enum fl_child_end {
  FL_CHILD_EXITED = 1, /* `code` is its exit status */
  FL_CHILD_KILLED = 2, /* by a signal that it got: `code` is the number */
  FL_CHILD_HUNG = 3,   /* a limit of time was reached, or it stopped itself; it was killed */
  FL_CHILD_MEMORY = 4, /* the limit of memory was reached; it was killed */
  FL_CHILD_UNKNOWN = 5 /* it has ended, and somebody else in this process took its status (waitpid(-1)), or nobody wants
                          any (SIGCHLD is ignored) */
} fl_child_end;

/* What became of a child. */
typedef struct fl_child_result {
  uint32_t size; /* sizeof(fl_child_result) */
  fl_child_end end;
  int32_t code;
  uint32_t signal;      /* the number of the signal, 0 unless killed or stopped by one */
  double seconds;       /* that it took */
  uint64_t peak_memory; /* the most bytes that were seen in use; 0: nobody looked */
  uint64_t output;      /* bytes that it wrote to its standard streams; may be more than there was room for */
  char words[128]; /* "exited with status 3", "killed by SIGSEGV (Segmentation fault)", "did not end within 2.5 s" */
} fl_child_result;

/*
 * Runs it, and returns when it is gone, with all of its process group. Any thread; it takes no notice of interrupting
 * signals, changes no handler and no mask, waits for no other child, and leaves no descriptor behind. FL_ENOENT: there
 * is no such program; FL_ESTATE: this process may or can start none (limits, a filter of system calls); FL_EINVAL:
 * options that make no sense.
 */
FL_API fl_status fl_child_run(const fl_child_options *options, fl_child_result *result);

/*
 * Kills and reaps all children of this process, and what those leave behind: for a program that has no children of its
 * own and has made itself the one whose they become (PR_SET_CHILD_SUBREAPER). It may take 0.2 s. Without /proc nothing
 * is killed.
 */
FL_API void fl_end_children(void);

/* What a plugin did in a process of its own. */
typedef struct fl_probed {
  uint32_t size;     /* sizeof(fl_probed) */
  bool failed;       /* it did harm: no host lets it in */
  bool refused;      /* it did none, but no host can use it; `words` say why */
  double seconds;    /* that it took */
  char words[400];   /* "crashed in register_builtins (SIGSEGV)"; "" if nothing is wrong */
  char changed[400]; /* what of the process is another than before, a list: "the locale, descriptors (1 more)" */
} fl_probed;

/* Follows a trial step by step; `phase` is "its initialisers", "register_builtins", "is_available", "its destructors".
 */
typedef void (*fl_probe_fn)(void *user, const char *phase);

/*
 * Loads a plugin (a path or name, as fl_load_plugin) in a copy of this process, registers what it brings with a host of
 * its own, asks whether that is available, and ends the process. Each step may take 20 s, all of it 4 GiB, or half of
 * the machine, of memory. A process that has threads, or that uses drivers, is a bad one to be copied: the command
 * `flhost probe` is there for it. `follow` may be NULL. FL_ESTATE: this process can start none.
 */
FL_API fl_status fl_probe_plugin(const char *module, fl_probe_fn follow, void *user, fl_probed *result);

#ifdef __cplusplus
}
#endif
#endif /* FLHOST_TESTING_H */
