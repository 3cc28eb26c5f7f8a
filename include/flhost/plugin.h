/*
 * flhost/plugin.h: all that a backend needs to offer operators to flhost.
 *
 * A backend is one shared object. It carries a note that says what it is (FL_PLUGIN) and exports one function,
 * register_builtins(), which the host calls once with a table of function pointers. It links nothing of the host.
 *
 *     #include <flhost/plugin.h>
 *     FL_PLUGIN("acme", "1.0", "acme", "Apache-2.0", "");
 *     static fl_status relu2(void *self, fl_call *call) { ... }
 *     fl_status register_builtins(fl_registry *registry) {
 *         static const fl_impl impl = {.size = sizeof impl, .op_name = "relu2", .impl_id = "vendor.acme",
 *             .kind = FL_KIND_VENDOR, .vendor = "acme", .devices = FL_DEVICE(kDLCPU), .fn = relu2};
 *         return registry->register_impl(registry, &impl);
 *     }
 *
 * Rules of this interface:
 * - A struct that crosses it begins with its size: sizeof, in the header of the side whose memory it is. Fields are
 * only ever appended; one that is missing reads as zero, one that is not known is not looked at. Structs in an array
 * have no size of their own: it stands beside the array, in a field or argument called ..._size. fl_value never
 * changes.
 * - Memory belongs to the side that made it. Tensors, values and strings of a call are borrowed for that call. The
 *   host copies what it is given at registration, except `fn`, `self` and the other function pointers.
 * - A plugin stays mapped until the process ends, so its functions and static strings stay valid.
 * - Strings are UTF-8 and end in NUL. A pointer is not NULL unless its comment says that it may be.
 */
#ifndef FLHOST_PLUGIN_H
#define FLHOST_PLUGIN_H

#include <dlpack/dlpack.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this interface. A plugin for another major is refused before any of its code runs; a different minor is
 * fine in both directions. Major 0 means: not yet released, may still change. */
#define FL_ABI_MAJOR 0
#define FL_ABI_MINOR 3

/* Makes register_builtins visible in a plugin that is compiled with -fvisibility=hidden (as it should be). */
#define FL_EXPORT __attribute__((visibility("default")))

/* Lets the compiler check the arguments of a format. */
#if defined(__GNUC__)
#define FL_PRINTF(format_index, first_index) __attribute__((format(printf, format_index, first_index)))
#else
#define FL_PRINTF(format_index, first_index)
#endif

/* ------------------------------------------------------------------------------------------------ status codes */

/*
 * What a function of flhost or of an implementation returns. What the host does when an implementation returns:
 * - FL_OK: the outputs are written.
 * - FL_EINVAL: the caller's arguments are wrong. Returned to the caller at once, held against nobody.
 * - FL_ENOTSUP: these arguments are not supported here, and nothing was written. The next candidate is tried.
 * - FL_ENOMEM, FL_EDEVICE, FL_EINTERNAL: the implementation failed. Counted, and (policy not strict) the next candidate
 *   is tried.
 *
 * Any other value that an implementation returns counts as FL_EINTERNAL.
 */
typedef int32_t fl_status;
enum {
  FL_OK = 0,
  FL_EINVAL = 1,    /* bad argument */
  FL_ENOTSUP = 2,   /* not supported for these arguments */
  FL_ENOMEM = 3,    /* out of host or device memory */
  FL_EDEVICE = 4,   /* device or driver error */
  FL_EINTERNAL = 5, /* any other failure of an implementation, or of the host itself */
  FL_ENOIMPL = 6,   /* no implementation is registered, allowed, available or left */
  FL_ECONFIG = 7,   /* an invalid setting */
  FL_EPLUGIN = 8,   /* a plugin that cannot be used */
  FL_EEXIST = 9,    /* there is one already */
  FL_ENOENT = 10,   /* no such op, implementation, plugin or file */
  FL_ESTATE = 11    /* not allowed in the present state */
};

/* ------------------------------------------------------------------------------------------------------- values */

/* DLPack type codes that came after the release in Debian 12 (0.6); a tensor may carry them. */
enum {
  FL_DTYPE_BOOL = 6,
  FL_DTYPE_FLOAT8_E4M3FN = 10,
  FL_DTYPE_FLOAT8_E4M3FNUZ = 11, /* MI300's */
  FL_DTYPE_FLOAT8_E5M2 = 12
};

/* Tensors have at most this many dimensions. */
#define FL_MAX_DIMS 8

/* What a value is. */
typedef enum fl_type {
  FL_NONE = 0,
  FL_TENSOR = 1,  /* DLTensor *; strides may be NULL (compact, row-major) */
  FL_INT = 2,     /* int64_t */
  FL_FLOAT = 3,   /* double */
  FL_BOOL = 4,    /* bool */
  FL_STRING = 5,  /* const char * */
  FL_INT_LIST = 6 /* const int64_t *, `length` of them */
} fl_type;

/* One argument or result of an op: 16 bytes, the type first. */
typedef struct fl_value {
  uint32_t type;   /* fl_type */
  uint32_t length; /* number of elements of an FL_INT_LIST, else 0 */
  union {
    DLTensor *tensor;
    int64_t i;
    double f;
    bool b;
    const char *s;
    const int64_t *ints;
  } v;
} fl_value;

/* No value. */
static inline fl_value fl_none(void) {
  fl_value value;
  value.type = FL_NONE;
  value.length = 0;
  value.v.i = 0;
  return value;
}

/* A tensor; NULL gives none. */
static inline fl_value fl_tensor(DLTensor *tensor) {
  fl_value value = fl_none();
  value.type = tensor ? FL_TENSOR : FL_NONE;
  value.v.tensor = tensor;
  return value;
}

/* A tensor that is no optional one: NULL is an error, which the argument check finds. */
static inline fl_value fl_required_tensor(DLTensor *tensor) {
  fl_value value = fl_none();
  value.type = FL_TENSOR;
  value.v.tensor = tensor;
  return value;
}

/* A number. */
static inline fl_value fl_int(int64_t i) {
  fl_value value = fl_none();
  value.type = FL_INT;
  value.v.i = i;
  return value;
}

/* A floating-point number. */
static inline fl_value fl_float(double f) {
  fl_value value = fl_none();
  value.type = FL_FLOAT;
  value.v.f = f;
  return value;
}

/* A truth value. */
static inline fl_value fl_bool(bool b) {
  fl_value value = fl_none();
  value.type = FL_BOOL;
  value.v.b = b;
  return value;
}

/* A string, not copied; NULL gives none. */
static inline fl_value fl_string(const char *s) {
  fl_value value = fl_none();
  value.type = s ? FL_STRING : FL_NONE;
  value.v.s = s;
  return value;
}

/* A list of integers, not copied. */
static inline fl_value fl_ints(const int64_t *ints, uint32_t length) {
  fl_value value = fl_none();
  value.type = FL_INT_LIST;
  value.length = length;
  value.v.ints = ints;
  return value;
}

/* -------------------------------------------------------------------------------------------------------- calls */

/* What was made of weights for calls with them: fl_prepared_data. */
typedef struct fl_prepared fl_prepared;

/* The ranks of a call: this one and others, each with a call of its own, that make one result together. */
typedef struct fl_ranks fl_ranks;
struct fl_collective; /* communicator.h */
struct fl_ranks {
  uint32_t size;       /* sizeof(fl_ranks) of the host */
  int32_t rank, ranks; /* 0 to ranks - 1; how many there are */
  const char *name;    /* of their group, "tp" */
  const char *communicator;
  /* Makes one collective of these ranks, as fl_collective_run does: on the stream that it names. The words for an error
   * go to `message`. */
  fl_status (*collective)(const fl_ranks *ranks, const struct fl_collective *collective, char *message,
                          size_t message_size);
};

/*
 * One call of an op, the same for all ops. `values` holds the arguments and then the results, in the order of the
 * schema. The caller provides every output tensor (fl_infer says shapes and dtypes); an optional result is FL_NONE
 * when it is not there; a result that is a string, number or bool is written into its value by the implementation.
 * A string ends within FL_STRING_RESULT_MAX bytes. What else is in the call an implementation leaves as it is.
 * A tensor's first element is aligned to its element type: the caller sees to that, the host does not check it.
 */
typedef struct fl_call {
  uint32_t size;       /* sizeof(fl_call) of the caller */
  uint32_t count;      /* number of values */
  fl_value *values;    /* arguments, then results */
  void *stream;        /* the device's stream or queue; NULL = the device's default */
  char *message;       /* where an implementation says why it failed (fl_fail); set by the host */
  size_t message_size; /* bytes at `message` */
  void *workspace;     /* scratch memory on the call's device, aligned to 256; NULL = none (fl_impl.workspace_size) */
  size_t workspace_size;
  const fl_prepared *prepared; /* what fl_prepare made of its weights (fl_impl.prepares); NULL = nothing */
  /* Whom the call is shared with: set by the host, in a scope with a group (fl_scope_group) and for an implementation
   * that says FL_IMPL_RANKS; a caller leaves it NULL. NULL: nobody. */
  const fl_ranks *group;
} fl_call;

/* Most bytes of a result that is a string, with the NUL. */
#define FL_STRING_RESULT_MAX 65536

/* Implements one op. Called from any thread, several at a time. It returns: a C++ exception, longjmp or the thread's
 * end (pthread_exit) that leaves it is a failure of it (docs/architecture.md, "Containment"). */
typedef fl_status (*fl_kernel_fn)(void *self, fl_call *call);

/* Fills `size` bytes with what an implementation makes of weights: fl_impl.prepares. */
typedef fl_status (*fl_prepare_fn)(void *self, fl_call *call, void *memory, size_t size);

/* Says why a call is not carried out and gives back `status`, for `return fl_fail(call, FL_EDEVICE, "...")`. What it is
 * given may be the message of another call, which lies in the same place. */
static inline FL_PRINTF(3, 4) fl_status fl_fail(fl_call *call, fl_status status, const char *format, ...) {
  if (call->message && call->message_size) {
    char text[4096];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    snprintf(call->message, call->message_size, "%s", text);
  }
  return status;
}

/* First element of a tensor. */
static inline void *fl_data(const DLTensor *tensor) {
  return (char *)tensor->data + tensor->byte_offset;
}

/* Number of elements between two neighbours along `dim`. */
static inline int64_t fl_stride(const DLTensor *tensor, int dim) {
  int64_t stride = 1;
  if (tensor->strides)
    return tensor->strides[dim];
  for (int i = tensor->ndim - 1; i > dim; i--)
    stride *= tensor->shape[i];
  return stride;
}

/* Room for the text of a reason, in bytes with the NUL; this number never changes. */
#define FL_REASON_MAX 512

/* Says why not, for `return fl_reason(reason, "needs %d rows", n);` in is_available, supports_args and is_active, and
 * gives back false. Where nobody reads the reason nothing is formatted. What it is given may lie in the room. */
static inline FL_PRINTF(2, 3) bool fl_reason(const char **reason, const char *format, ...) {
  if (reason && *reason) {
    char text[FL_REASON_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    snprintf((char *)(uintptr_t)*reason, FL_REASON_MAX, "%s", text);
  }
  return false;
}

/* ----------------------------------------------------------------------------------------------- implementations */

/* Whose an implementation is. */
typedef enum fl_kind {
  FL_KIND_DEFAULT = 1,  /* printed `flagos`, priority 150 */
  FL_KIND_VENDOR = 2,   /* printed `vendor`, priority 100 */
  FL_KIND_REFERENCE = 3 /* printed `reference`, priority 50 */
} fl_kind;

enum { FL_PRIORITY_DEFAULT = 150, FL_PRIORITY_VENDOR = 100, FL_PRIORITY_REFERENCE = 50 };

/* Sets of DLPack device types and of element types, for fl_impl. */
#define FL_DEVICE(device_type) (UINT64_C(1) << (device_type))
#define FL_DEVICE_ANY          UINT64_MAX
enum {
  FL_FLOAT32 = 1 << 0,
  FL_FLOAT16 = 1 << 1,
  FL_BFLOAT16 = 1 << 2,
  FL_FLOAT8_E4M3FN = 1 << 3,
  FL_FLOAT64 = 1 << 4,
  FL_INT32 = 1 << 5,
  FL_INT64 = 1 << 6,
  FL_UINT8 = 1 << 7,
  FL_INT8 = 1 << 8,
  FL_BOOLEAN = 1 << 9 /* a byte an element: 0 is false, any other is true, and 1 is what is written */
};

enum {
  FL_IMPL_INPLACE_ONLY = 1 << 0,  /* works only where an output is the very tensor of its (a!) argument; the host copies
                                     the argument into the output first when the caller gave two tensors */
  FL_IMPL_DETERMINISTIC = 1 << 1, /* the same bits with any number of threads */
  FL_IMPL_PRIORITY_ZERO = 1 << 2, /* `priority` is really 0 */
  FL_IMPL_OPAQUE = 1 << 3         /* takes opaque calls, too (fl_invoke_opaque): `values` is NULL then and `count` 0 */
};
/* And: it does all of fl_op_def.ranks itself where fl_call.group is given. Its supports_args then says the same on all
 * ranks: by types, shapes and attributes alone. */
#define FL_IMPL_RANKS (1 << 4)

/* A call's ranks; NULL: it is this process's alone. */
static inline const fl_ranks *fl_call_ranks(const fl_call *call) {
  return call->size >= offsetof(fl_call, group) + sizeof call->group ? call->group : NULL;
}

/* Longest op name, impl_id, vendor or name of a component, in bytes without the NUL. */
#define FL_NAME_MAX 127

/*
 * One implementation of one op.
 *
 * `min_arch` is compared with fl_device_properties.arch of the devices; an implementation is not run on a device
 * that does not reach it. Which names reach which is the platform's to say (fl_platform.arch_reaches); without that
 * function only equal ones do. Several, with commas between them: a device has to reach one ("gfx908,gfx1030").
 */
typedef struct fl_impl {
  uint32_t size;       /* sizeof(fl_impl) */
  uint32_t flags;      /* FL_IMPL_* */
  const char *op_name; /* the op; required */
  const char *impl_id; /* unique within the op; by convention default.flagos, vendor.<vendor>, reference.<name>.
                          Neither this nor `vendor` may be native or unfused, which orders use, nor this
                          reference.parts, which is the host's. Settings put
                          both into lists, so do without white space and , | ; : = in them */
  int32_t kind;        /* fl_kind */
  int32_t priority;    /* higher first among impls that match the same policy token; 0 = that of the kind */
  const char *vendor;  /* required for FL_KIND_VENDOR; without comma, and without white space at its ends */
  uint64_t devices;    /* set of FL_DEVICE(type): where its tensors may be; required */
  uint32_t dtypes; /* set of FL_FLOAT32…: element types of the first tensor that it takes; 0 = all of the schema */
  const char *min_arch; /* least device architecture ("sm_80"), see above; NULL = any */
  fl_kernel_fn fn;      /* required */
  void *self;           /* given back to the functions below */
  /* Does this machine have the device, driver and library? NULL = yes. Asked when its op is first resolved or listed,
   * and again after something was registered or withdrawn or fl_bump_policy_epoch; never per call. Says why when not
   * (fl_reason), or sets *reason to a static string. It must not look at environment variables or policy: whether an
   * impl is *wanted* is not its business. Threads: a host calls it from one thread at a time. */
  bool (*is_available)(void *self, const char **reason);
  /* Does it take this call (dtype, shape, layout, alignment)? Asked before each call, after the arguments passed the
   * schema; NULL = takes all. May say why when not (fl_reason), or set *reason, if that is no NULL, to a static string.
   */
  bool (*supports_args)(void *self, const fl_call *call, const char **reason);
  /* Bytes of device memory, aligned to 256, that it wants in call->workspace for these arguments; NULL = none. From the
   * arguments' shapes and attributes alone. A call that brings less gets FL_ENOTSUP, or takes a way that needs none:
   * an implementation never allocates in a call. */
  size_t (*workspace_size)(void *self, const fl_call *call);
  /* Which of several codes for different machines it is, where a plugin chooses one when it registers: "avx512". It is
   * shown, and decides nothing. One word; NULL = there is only one. */
  const char *variant;
  /*
   * Prepared weights: an engine that passes the same weights again and again may ask (fl_prepare) for memory in which
   * the implementation keeps them as it likes them best, packed or converted. The host allocates that, counts it, and
   * frees it without asking; calls still bring the original tensors. An implementation may be called with and without.
   *
   * `prepares`: the arguments that it reads for this, 1 << index of each; 0 = it prepares nothing.
   * `prepared_size`: bytes that it wants for them, on the call's device, aligned to 64; 0 = it would gain nothing. It
   * looks at types, shapes and attributes, and of what is not in `prepares` (rows of x, say) at nothing that may be
   * another in the calls to come. Required with `prepares`.
   * `prepare`: fills them, on a device in the order of call->stream. FL_ENOTSUP: nothing is prepared after all;
   * another error is the engine's to see, by fl_fail. Required with `prepares`.
   */
  uint64_t prepares;
  size_t (*prepared_size)(void *self, const fl_call *call);
  fl_prepare_fn prepare;
} fl_impl;

/* What fl_prepare made, as the host hands it to implementations; it stays as it is as long as it is there. */
struct fl_prepared {
  uint32_t size;     /* sizeof(fl_prepared) of the host */
  uintptr_t prepare; /* whose it is: fl_impl.prepare, as a number, and fl_impl.self */
  void *self;
  const void *data; /* what that filled, */
  size_t bytes;     /* and how many bytes it has */
};

/* What this implementation's `prepare` filled for a call's weights: the host has seen to it that they are the same
 * tensors. NULL: the call brings nothing of it. */
static inline const void *fl_prepared_data(const fl_call *call, fl_prepare_fn prepare, const void *self) {
  const fl_prepared *prepared =
      call->size >= offsetof(fl_call, prepared) + sizeof call->prepared ? call->prepared : NULL;
  return prepared && prepared->prepare == (uintptr_t)prepare && prepared->self == self ? prepared->data : NULL;
}

/* ----------------------------------------------------------------------------------------------------------- ops */

/* Largest accepted difference |result - expected| <= atol + rtol * |expected|, for one element type. */
typedef struct fl_tolerance {
  uint32_t dtype; /* one of FL_FLOAT32… */
  double atol, rtol;
} fl_tolerance;

/* Shape and dtype of a tensor, without data. */
typedef struct fl_tensor_spec {
  bool present; /* false: an optional result that is not there */
  int32_t ndim;
  DLDataType dtype;
  DLDevice device;
  int64_t shape[FL_MAX_DIMS];
} fl_tensor_spec;

/* Of fl_op_def.flags. */
typedef enum fl_op_flags {
  FL_OP_NOT_FINITE = 1 /* finite arguments may give infinities or NaN: masked logits, codes that stand for NaN */
} fl_op_flags;

/* An op. Only `size` and `schema` are required. */
typedef struct fl_op_def {
  uint32_t size;
  uint32_t flags;     /* FL_OP_* */
  const char *schema; /* PyTorch's form: "my_op(Tensor x, float alpha=1.0) -> Tensor out" */
  /* Shapes and dtypes, as text: "x: T[..., 2*d]; out: T[..., d]; T = float32|float16|bfloat16". One clause per tensor:
   * dtype, then dimensions. A dimension is a number, a name (equal wherever it stands; an int argument's name has its
   * value), or an expression of + - * / // ( ) over those; / leaves no rest, // rounds down. `...` stands for any
   * leading dimensions, the same everywhere; [] is a tensor of no dimensions, no brackets any shape. A capital letter
   * is a dtype variable, bound by the first tensor that carries it, limited by its own clause; or named by a str
   * argument: "O = float32|float16 by out_dtype". Alternatives for one tensor: "query: T[n, h, d] or T[n, hd]".
   * Further terms of expressions:
   * - bool arguments, which are 1 or 0; stride[0], an element of an int[] argument;
   * - given(x): 1 if the argument is not none, else 0; numel(...): how many elements the leading dimensions make;
   * - min(a, b), max(a, b);
   * - ranks, in an op that has `ranks` below: how many the call has, 1 without a group.
   * A dimension's name is told by a size in + - * /, but not in //, min and max.
   *
   * A result may be `like` a tensor argument, and its alternatives may have conditions, comparisons by < <= == != >= >
   * or expressions that are not 0, joined by `and`: "scale_out: like scale or float32[1] when group[0] < 0 or
   * float32[..., 1]". The first counts that holds and in which everything is known, a `like` where that is given.
   * Where none does, a result that may be none ("Tensor? out") is.
   * NULL: outputs have the shape and dtype of the first tensor. */
  const char *rules;
  const char *category;          /* "activation", "normalisation"… for lists and docs */
  const char *doc;               /* one line: what it computes */
  const char *formula;           /* the formula and where it comes from */
  const fl_tolerance *tolerance; /* ended by dtype 0; NULL or a missing dtype = vLLM IR's default table */
  /* Where rules cannot say it: shapes and dtypes of the results, one spec each, which holds what the rules say of it
   * and the arguments' device (that stays); without rules no result is present. Called after the arguments passed type
   * and rule checks, with only the arguments in call->values valid. Returns FL_OK, or an implementation's status with
   * the reason by fl_fail. NULL = by the rules. */
  fl_status (*infer)(fl_call *call, fl_tensor_spec *results);
  /* Further argument checks that need no data. Called after the rules and before anything is inferred, with only the
   * arguments in call->values valid. Returns FL_OK, or FL_EINVAL with the reason by fl_fail. NULL = none. */
  fl_status (*check)(fl_call *call);
  /*
   * Calls to test the op with (`flhost verify`), as text: what each part of a call is drawn from.
   *
   *     "...: [1] [7, 3] [0]; d: 1 64 2*g; approximate: none tanh; position_ids: 0..p-1; weight: none 0.5..2"
   *
   * One clause for each part: a dimension's name of the rules, `...` or an argument; a colon; the choices, divided by
   * white space. All choices of a clause are taken equally often, and clauses independently of each other: a call that
   * the rules, `check` or `infer` refuse is left out, so only a good part of the calls has to be a valid one.
   * Choices are, for
   * - a dimension or an int: an expression of + - * / // ( ) without spaces, over numbers, dimensions and ints (of
   * those that have a clause: earlier ones);
   * - `...` and int[]: lists, [1, 2]; a float: numbers; a bool: true, false; a str: words, or "texts";
   * - a tensor: what is in it. LOW..HIGH, two expressions or numbers, both included. `distinct LOW..HIGH`: integers, no
   *   two alike (if they do not suffice: in a row). `ascending LOW..HIGH`: integers in order, from LOW to HIGH.
   *   `normal`: about the standard normal distribution, in some calls with zeros, infinities, NaN, denormals and
   *   largest values. `moderate`: without largest values, for an op that makes rounding errors grow with them. Before
   *   these its shape, [n, 1], where the rules leave it open, and before that the element type, or variable, of one of
   *   the rules' alternatives: `int8 -100..100`;
   * - what may be none: also `none`.
   * Before all choices of a tensor `with NAME` or `without NAME`: it is none unless that earlier tensor is there, or is
   * not. Before those of any part `as NAME`: the choice of the same number as an earlier clause's, which has as many.
   *
   * Without a clause: some small sizes; for `...` some shapes, zero tokens among them; floats `normal`, integers 0..3;
   * a bool both ways; another argument its default; what may be none and has no default: there or not (an attribute:
   * not). A str without default needs a clause. A name of both a dimension and a tensor is the dimension's.
   */
  const char *cases;
  /*
   * What a call costs by the best algorithm, as text, for `flhost bench`: bytes moved to or from memory, and operations
   * on floating-point numbers. An addition, multiplication, division, comparison, exponential, square root and the like
   * counts one each, a fused multiply-add two; terms of lower order may be left out. Expressions of + - * / // ( ) over
   * - numbers, dimensions of the rules, int and bool arguments (true is 1; what is none or not known is 0);
   * - numel(x), nbytes(x), itemsize(x): elements of a tensor argument or result, its bytes, those of one element; 0 if
   * it is none. numel(...) is the number of elements that the leading dimensions make (one for no dimensions);
   * - given(x): 1 if the argument is not none, else 0; min(a, b), max(a, b);
   * - in `bytes`, default: each argument read once and each result written once, a state (an argument that is
   *   overwritten without a result in its place) read and written.
   *
   *     .flops = "2*numel(...)*n*k + given(bias)*numel(out)", .bytes = "default - nbytes(table) + nbytes(out)"
   *
   * bytes NULL: `default`. flops NULL: not known.
   */
  const char *bytes, *flops;
  /* Calls to time the op with, in the form of `cases`: call 0 is made of the first choice of each clause, call 1 of the
   * second, and so on, the last choice of a clause standing for those that it lacks. What has no clause here is as the
   * first choice of its clause in `cases`; NULL: all is. "n: 1 128 4096; d: 4096" */
  const char *bench;
  /* The layer classes of vLLM's that the op replaces, a comma list: "RMSNorm". No other op may replace them. Where
   * lists have a name for a layer besides those of its class and of the op, that stands behind a colon:
   * "AcmeNorm:norm". They count as components (type "layer") of the plugin. NULL = none. */
  const char *layers;
  /* sizeof(fl_tensor_spec) and sizeof(fl_tolerance), of what `infer` and `tolerance` have; 0: those of ABI 0.3. */
  uint32_t spec_size, tolerance_size;
  /*
   * What a fused op is made of, as text: calls of other ops, one after the other.
   *
   *     "residual_out = add(x_residual, x); out = rms_norm(residual_out, weight=weight, epsilon=epsilon)"
   *     "y = silu_and_mul(x); q, _ = quant_fp8(y, scale=scale)"
   *
   * Each makes results of the op, or tensors between (y), which lie in the call's workspace; _ is one that nobody
   * reads. Operands are the op's arguments, what parts before have made, and literals (1, 0.5, True, None, "text", [1,
   * 2]); by place, or behind the name of their argument. A tensor's last dimension may be cut: x[..., :d], with
   * expressions of + - * / // ( ) over numbers and the rules' names. An argument in whose place a result may be is read
   * before that result is made. Optional results that a part need not make may be left away at its end.
   *
   * The host makes it an implementation `reference.parts` of the op (kind reference, priority 40, any device): it takes
   * what each part's own implementations take under the policy in force. NULL = none.
   */
  const char *parts;
  /*
   * What a call means where ranks share it (fl_scope_group), as text: the groups that it goes by, the first that is
   * there, then a colon, and what becomes of arguments before the kernel runs and of results behind it.
   *
   *     "tp: x = part(x) if not input_is_parallel; bias = first(bias); out = all_reduce(out) if reduce_results"
   *     "ep: x = all_gather(x, 0); out = reduce_scatter(out, 0)"
   *
   * Of an argument:
   * - part(x): this rank's part of the last dimension;
   * - first(x): on the first rank x, on the others none;
   * - none: none;
   * - all_gather(x, 0): all ranks' rows, in the order of ranks.
   * Of a result, which the kernel computes of this rank's arguments:
   * - all_reduce(out): the sum of all ranks';
   * - all_gather(out, -1): all ranks' columns in the order of ranks, as many of them as the result has;
   * - reduce_scatter(out, 0): this rank's rows of the sum.
   * `if` and `if not` name a bool, or what may be none: then whether it is given. A group called "world" is of all ops,
   * and `any:` goes by any group. Nothing behind the colon: only implementations of FL_IMPL_RANKS, and the parts, know
   * what to do with ranks.
   *
   * The host does all that around whichever implementation was chosen, which sees this rank's part alone and no group;
   * one that is first in the order and says FL_IMPL_RANKS gets the whole call instead. NULL = ranks do not matter.
   */
  const char *ranks;
} fl_op_def;

/* ---------------------------------------------------------------------------------------------------- components */

/* What fl_platform.copy copies between. */
enum { FL_COPY_TO_DEVICE = 1, FL_COPY_TO_HOST = 2, FL_COPY_ON_DEVICE = 3 };

/* What fl_component.functions points to. */
enum {
  FL_FUNCTIONS_PLATFORM = 1,     /* a fl_platform */
  FL_FUNCTIONS_OP_NAME = 2,      /* a string, the name of an op */
  FL_FUNCTIONS_COMMUNICATOR = 3, /* a fl_communicator (communicator.h) */
  FL_FUNCTIONS_CLASS_PATH = 4    /* a string, the path of a Python class */
};

/* Longest path of a Python class, in bytes without the NUL. */
#define FL_CLASS_PATH_MAX 255

/*
 * Something other than an op that a plugin brings. Its type is one of
 * - "platform": `functions` is a fl_platform *;
 * - "communicator": a fl_communicator *;
 * - "layer", an op replaces a layer of vLLM's (fl_op_def.layers): the op's name, const char *;
 * - "attention_backend", "mla_attention_backend", "worker", "model_runner", a class that vLLM is to use in place of its
 *   own: the path of the class, const char *, "package.module.Class". That is two or more names with dots between them,
 *   each of ASCII letters, digits and '_', no digit first, FL_CLASS_PATH_MAX bytes at most. The host keeps a copy, and
 *   hands it to the engine (fl_class_path in vllm.h); nobody looks here whether there is such a class. A plugin brings
 *   one of a type for a platform.
 */
typedef struct fl_component {
  uint32_t size;
  const char *type; /* one of those above */
  const char *name; /* "acme": ASCII letters, digits, _ + - and . (not first), but not "auto"; of a layer, the class:
                       "AcmeAttention"; of a class path, the platform that it is for by its own name, no alias: "acme",
                       "cuda", "cpu" */
  const void *functions; /* as `type` says */
  void *self;
  /* What `functions` points to, FL_FUNCTIONS_*, and its bytes (of a string with the NUL), so that a pointer to
   * something else is found out. 0, as before ABI 0.3: what `type` says. */
  uint32_t functions_type, functions_size;
} fl_component;

/* --------------------------------------------------------------------------------------------- register_builtins */

enum { FL_LOG_DEBUG = 10, FL_LOG_INFO = 20, FL_LOG_WARNING = 30, FL_LOG_ERROR = 40 };

/* What a plugin logs with after register_builtins, for as long as it likes and from any thread: a copy of
 * fl_registry.logger. Lines of a host that has ended go nowhere. This struct never changes. */
typedef struct fl_logger fl_logger;
struct fl_logger {
  void (*log)(const fl_logger *logger, int level, const char *message); /* as fl_registry.log; NULL: nobody listens */
  uint64_t host;                                                        /* this and the next are the host's own */
  const void *plugin;
};

/* Logs a line that is formatted (as much of it as 1023 bytes hold). */
static inline FL_PRINTF(3, 4) void fl_logf(const fl_logger *logger, int level, const char *format, ...) {
  if (logger->log) {
    char message[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    logger->log(logger, level, message);
  }
}

/* The steps of a loop from `first` up to, not including, `end`. An error other than FL_OK ends the loop. */
typedef fl_status (*fl_range_fn)(void *user, int64_t first, int64_t end);

/*
 * Runs a loop of n steps in the threads of the process's pool, the calling thread among them: calls `body` for ranges
 * that do not overlap and together are 0 to n. `grain` (at least 1) is the least that is worth a thread, some ten
 * microseconds of work: a range is a multiple of it, but for the last, and a loop of no more is run where it is. Which
 * thread runs which range, and in which order, is not fixed. Returns when no thread is in `body` any more: FL_OK, or
 * the first error that `body` returned, after which no range is begun.
 *
 * For kernels while they run, from any thread. A loop in a loop runs in its own thread. `body` has the floating-point
 * mode of the caller; scopes and thread storage are each thread's own, and it does not touch fl_call.message. It may
 * not end its thread: a range that was left so is FL_EINTERNAL. How many threads: VLLM_FL_CPU_THREADS.
 */
typedef fl_status (*fl_parallel_for_fn)(int64_t n, int64_t grain, fl_range_fn body, void *user);

/*
 * What register_builtins is given. Valid only during that call and in that thread. What is registered becomes visible
 * all together when register_builtins returns FL_OK, and not at all otherwise.
 *
 * The three functions that register copy the struct and its strings. The host reports a row that they refuse by itself;
 * when the plugin's note has FL_PLUGIN_SKIP_REFUSED the other rows stand, else the whole plugin is refused.
 */
typedef struct fl_registry fl_registry;
struct fl_registry {
  uint32_t size;
  uint16_t abi_major, abi_minor; /* those of the host */
  void *host;                    /* the host's own */
  /* Defines an op. FL_EINVAL: a field is wrong; FL_EEXIST: the op is known with another schema. */
  fl_status (*register_op)(fl_registry *registry, const fl_op_def *op);
  /* Offers an implementation. FL_EINVAL: a field is wrong; FL_EEXIST: (op_name, impl_id) is taken; FL_ENOENT: there is
   * no such op. */
  fl_status (*register_impl)(fl_registry *registry, const fl_impl *impl);
  /* Brings a component. FL_EINVAL: a field is wrong; FL_EEXIST: the platform, the communicator or the layer class is
   * taken, or the plugin brought a class path of that type for the platform before. */
  fl_status (*register_component)(fl_registry *registry, const fl_component *component);
  /* Why register_builtins is about to return an error; shown by `flhost plugins`. If it then returns FL_OK, the plugin
   * is loaded, with a warning. */
  void (*error)(fl_registry *registry, const char *message);
  void (*log)(fl_registry *registry, int level, const char *message); /* one of FL_LOG_*, and a line without newline */
  fl_logger logger; /* to log with later, fl_logger_of; each host has its own */
  /* To be kept; the same in all hosts. NULL: there is no pool. */
  fl_parallel_for_fn parallel_for;
  /* What a setting of the host's is ("VLLM_FL_CPU_ISA", or a YAML key), wherever it was set: the word or number itself,
   * a list as JSON, "null" where it is not set. At most `size` bytes with the NUL at their end. FL_ENOENT: there is no
   * such setting, which leaves `value` empty; FL_EINVAL: `size` is too small. */
  fl_status (*setting)(fl_registry *registry, const char *name, char *value, size_t size);
};

/* The host's logger, to keep. One that logs nothing where the host is older than this. */
static inline fl_logger fl_logger_of(const fl_registry *registry) {
  fl_logger logger;
  logger.log = NULL;
  logger.host = 0;
  logger.plugin = NULL;
  return registry->size >= offsetof(fl_registry, logger) + sizeof logger ? registry->logger : logger;
}

/*
 * The one function of a plugin. Each host that loads the plugin calls it once; a process may have several hosts, and in
 * several threads. Returns FL_OK, or an error after registry->error().
 * It must be quick, must not start threads or print, and must leave the process as it was (working directory, locale,
 * signal handlers, floating-point mode). No device needs to be present: say so in is_available.
 */
FL_EXPORT fl_status register_builtins(fl_registry *registry);
/* That function. */
typedef fl_status (*fl_register_fn)(fl_registry *registry);

#ifdef __cplusplus
}
#endif
/* Parts of this header in files of their own: FL_PLUGIN and what stands beside it; */
#include <flhost/note.h>
/* platforms, fl_platform. */
#include <flhost/hardware.h>

#endif /* FLHOST_PLUGIN_H */
