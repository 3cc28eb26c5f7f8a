/*
 * flhost/flhost.h: all that an engine needs to load backends and call operators.
 *
 *     fl_host *host;
 *     if (fl_host_create(NULL, &host)) { fprintf(stderr, "%s\n", fl_error_message()); return 1; }
 *     fl_op *relu2 = fl_find_op(host, "relu2");
 *     fl_value values[] = {fl_tensor(&x), fl_tensor(&out)};
 *     fl_call call = FL_CALL(values);
 *     if (fl_invoke(relu2, &call)) fprintf(stderr, "%s\n", fl_error_message());
 *     fl_host_destroy(host);
 *
 * flhost/ops.h has a typed call for each built-in op.
 *
 * Unless a comment says otherwise: every function may be called from any thread at any time; a function that returns
 * fl_status leaves its outputs alone on error and sets this thread's fl_error_message(); a `const char *` or struct
 * that is handed out belongs to the object it came from and lives as long as that; a pointer that is passed in is not
 * NULL. FL_ENOMEM may come from every function that makes something.
 */
#ifndef FLHOST_FLHOST_H
#define FLHOST_FLHOST_H

#include <flhost/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the library exports. */
#define FL_API __attribute__((visibility("default")))

/* Version of the library, "0.1.0". */
FL_API const char *fl_version(void);

/* ------------------------------------------------------------------------------------------------------- errors */

/* Why this thread's last call that failed did. Like errno it is of use after a failure alone: a call that goes well may
 * leave it or clear it. Valid until the thread's next call of flhost. */
FL_API const char *fl_error_message(void);

/* Its status, for functions that give back a pointer and gave NULL. */
FL_API fl_status fl_error_status(void);

/* "FL_EINVAL" and so on; "unknown status" for other numbers. */
FL_API const char *fl_status_name(fl_status status);

/* -------------------------------------------------------------------------------------------------------- words */

/*
 * The word of a list that was probably meant, for "did you mean": at most three slips of the keyboard away (fewer for a
 * short word), letter case and - for _ not counted; NULL if none is near. The list has `n` words or ends in NULL
 * before.
 */
FL_API const char *fl_nearest_word(const char *word, const char *const *words, size_t n);

/* The name of a DLPack device type: "cpu", "cuda", "rocm", "ext_dev"…; NULL for a number without a name. */
FL_API const char *fl_device_type_name(int32_t device_type);

/*
 * The device type that one of vLLM's names of dispatch stands for: cuda, hip, xpu, cpu, tpu, oot; 0 for native, which
 * is the reference on any device; -1 for another word (the message names the nearest). What runs there is what declares
 * the device: hip runs a CUDA implementation only if that declares ROCm, too.
 */
FL_API int32_t fl_dispatch_device(const char *name);

/* -------------------------------------------------------------------------------------------------------- hosts */

/* A registry of implementations, a policy, and the plugins that were loaded. Several may live in one process. */
typedef struct fl_host fl_host;

/* Receives one message of the log, without a newline at its end; one that lists something has a line for each. `level`
 * is one of FL_LOG_*. Called from any thread, also several at once. */
typedef void (*fl_log_fn)(void *user, int level, const char *line);

enum {
  FL_HOST_NO_PLUGINS = 1 << 0,         /* load no plugin by itself; fl_load_plugin still does */
  FL_HOST_NO_ARGUMENT_CHECKS = 1 << 1, /* trust the caller: calls skip the schema's checks. A wrong call is then
                                          undefined behaviour, as in a direct call of the kernel */
  FL_HOST_STATISTICS = 1 << 2,         /* count calls (failures and fallbacks are always counted) */
  FL_HOST_SYNCHRONOUS = 1 << 3         /* wait for the device after each call, so that an error of a kernel is that
                                          call's; as VLLM_FL_SYNCHRONIZE=1. While a graph is captured nothing
                                          runs, and a GPU's plugin waits for nothing */
};

/* How to create a host. A zero or NULL field leaves the setting to the environment and files. */
typedef struct fl_host_options {
  uint32_t size;  /* sizeof(fl_host_options) */
  uint32_t flags; /* FL_HOST_* */
  /* NAME=VALUE strings, ended by NULL, in place of the process's environment; an empty list: no environment. */
  const char *const *environment;
  const char *config_file;    /* beats VLLM_FL_CONFIG */
  const char *config_dir;     /* beats VLLM_FL_CONFIG_DIR */
  const char *platform;       /* beats VLLM_FL_PLATFORM */
  const char *plugin_path;    /* beats VLLM_FL_PLUGIN_PATH */
  const char *plugin_modules; /* beats VLLM_FL_PLUGIN_MODULES */
  fl_log_fn log;              /* NULL: lines go to standard error */
  void *log_user;
} fl_host_options;

/*
 * Reads settings, finds the platform, loads the plugins. `options` may be NULL. On success the caller owns *host.
 * FL_ECONFIG: a setting is invalid; FL_EPLUGIN: a plugin that its manifest calls critical failed.
 */
FL_API fl_status fl_host_create(const fl_host_options *options, fl_host **host);

/* Ends a host. No call, scope or other object of it may be in use; its op handles are gone. NULL is ignored. */
FL_API void fl_host_destroy(fl_host *host);

/* The host that a process shares, created from the environment at first use; NULL on error (fl_error_message()): those
 * of fl_host_create, and FL_ESTATE for code of a plugin that is being loaded into it. */
FL_API fl_host *fl_get_default_manager(void);

/* Destroys it; the next fl_get_default_manager() creates a new one. Nobody may be using it. */
FL_API void fl_reset_default_manager(void);

/* Least severe level that is logged: "DEBUG", "INFO", "WARNING" or "ERROR", any case. FL_EINVAL: another word. */
FL_API fl_status fl_set_log_level(fl_host *host, const char *level);

/* -------------------------------------------------------------------------------------------------- ops and calls */

/* A handle of one op in one host, valid until the host is destroyed. */
typedef struct fl_op fl_op;

/* The op of that name; NULL (FL_ENOENT) if there is none, and the message names the nearest. The first time that an op
 * is looked for its schema is parsed, and the deferred plugins that list it are loaded. */
FL_API fl_op *fl_find_op(fl_host *host, const char *name);

/*
 * Enables an op of this host whatever custom_ops says (vLLM's enforce_enable); false: custom_ops decides again. In
 * force for every thread's next call. FL_ENOENT: `op` is NULL.
 */
FL_API fl_status fl_op_enforce_enable(fl_op *op, bool enforce);

/* How many of the ops that have an implementation custom_ops leaves enabled, and how many it makes run their reference.
 */
FL_API void fl_custom_op_counts(fl_host *host, uint32_t *enabled, uint32_t *disabled);

/* A fl_call over an array of values. */
#ifdef __cplusplus
#define FL_CALL(values_)                                                                                               \
  fl_call {                                                                                                            \
    (uint32_t)sizeof(fl_call), (uint32_t)(sizeof(values_) / sizeof((values_)[0])), (values_), NULL, NULL, 0, NULL, 0   \
  }
#else
#define FL_CALL(values_)                                                                                               \
  ((fl_call){.size = sizeof(fl_call), .count = (uint32_t)(sizeof(values_) / sizeof((values_)[0])), .values = (values_)})
#endif

/*
 * Calls an op: checks the arguments against the schema, picks the implementation under the policy in force, falls back
 * when that fails and the policy allows it. An implementation of the engine's own may call ops in its turn. Returns
 * - FL_OK: the outputs are written.
 * - FL_EINVAL: bad arguments; nothing was called, or the implementation found them bad.
 * - FL_ENOENT: `op` is NULL.
 * - FL_ENOIMPL: nothing to call; the message lists every registered implementation and why it was not used.
 * - FL_ENOTSUP, FL_ENOMEM, FL_EDEVICE, FL_EINTERNAL: what the last implementation returned.
 */
FL_API fl_status fl_invoke(fl_op *op, fl_call *call);

/* The same by name. FL_ENOENT: no such op. */
FL_API fl_status fl_call_op(fl_host *host, const char *name, fl_call *call);

/*
 * Shapes, dtypes and devices of an op's results, from the arguments' shapes and attributes; no data is read. Only the
 * arguments in call->values need to be set, and call->count may leave out the results. `results` has room for
 * `n_results` specs, one per result of the schema (more is an error; fewer gives the first ones). Errors are those of
 * fl_check.
 */
FL_API fl_status fl_infer(const fl_op *op, const fl_call *call, fl_tensor_spec *results, uint32_t n_results);

/* Checks a call's arguments and results as fl_invoke does, without calling anything. FL_EINVAL: the message names the
 * argument or result, what it is, and what was expected; FL_ENOENT: `op` is NULL. */
FL_API fl_status fl_check(const fl_op *op, const fl_call *call);

/*
 * Bytes that call->workspace should have: the most that any implementation which the policy in force may run for these
 * arguments asks for, fallbacks included; 0 if none does. Another policy may want more. The memory lies on the call's
 * device, aligned to 256 (fl_device_allocate), and may be used again for the next call on the same stream. Errors are
 * those of fl_check, and FL_ENOIMPL where nothing is there to run.
 */
FL_API fl_status fl_workspace(fl_op *op, const fl_call *call, size_t *size);

/* One argument or result of an op. */
typedef struct fl_argument {
  const char *name;
  fl_type type;
  bool optional;    /* written `Type?`: may be none */
  bool mutates;     /* written `Tensor(a!)`: may be overwritten */
  bool has_default; /* an argument that may be left out */
  fl_value default_value;
  int32_t alias; /* result: index of the argument that it may be (in place), else -1; argument: -1 */
} fl_argument;

/* What an op says of itself; valid as long as the host. */
FL_API const char *fl_op_name(const fl_op *op);
FL_API const char *fl_op_schema(const fl_op *op);   /* canonical text */
FL_API const char *fl_op_rules(const fl_op *op);    /* shapes and dtypes, "" if none are given */
FL_API const char *fl_op_category(const fl_op *op); /* "" if none */
FL_API const char *fl_op_doc(const fl_op *op);      /* "" if none */
FL_API const char *fl_op_formula(const fl_op *op);  /* "" if none */
FL_API uint32_t fl_op_argument_count(const fl_op *op);
FL_API uint32_t fl_op_result_count(const fl_op *op);
FL_API const fl_argument *fl_op_argument(const fl_op *op, uint32_t index); /* arguments, then results; else NULL */

/* What a call costs, as fl_op_def has it; "" if not given. */
FL_API const char *fl_op_bytes(const fl_op *op);
FL_API const char *fl_op_flops(const fl_op *op);

/* What a call costs by the best algorithm. */
typedef struct fl_cost {
  uint32_t size; /* sizeof(fl_cost) of the caller */
  double bytes;  /* moved to and from memory */
  double flops;  /* operations on floating-point numbers; -1: the op does not say */
} fl_cost;

/*
 * What a call costs, from its arguments' shapes and attributes alone: as fl_infer, it reads no data and needs no
 * results in the call. Where the data decides (lengths of sequences, experts that were chosen), it is as much as the
 * shapes allow. FL_EINVAL: bad arguments, or counts of the op that give no number for them.
 */
FL_API fl_status fl_op_cost(const fl_op *op, const fl_call *call, fl_cost *cost);

/* The op's tolerance for an element type (fl_tolerance), or vLLM IR's default for that type. */
FL_API fl_tolerance fl_op_tolerance(const fl_op *op, DLDataType dtype);

/* ------------------------------------------------------------------------------------------------ generated calls */

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
  fl_value value;      /* unless it is a tensor; strings and lists live as long as the op */
  fl_tensor_spec spec; /* a tensor: present or not, element type, shape */
  fl_contents contents;
  double low, high;
} fl_input;

/*
 * The arguments of a call to test an op with, by its rules and cases (fl_op_def): `number` 0, 1, 2… gives one call
 * after the other, always the same ones for one `seed`. `dtype`, one of FL_FLOAT32…, is the element type that the
 * rules' first dtype variable stands for, or without variables that of the first tensor; 0: any. `n_inputs` is the
 * number of arguments. FL_ENOENT: the op does not take that element type. FL_EINVAL: this number makes no call, nor do
 * those that fl_infer and fl_check refuse: take the next.
 */
FL_API fl_status fl_generate_inputs(const fl_op *op, uint32_t dtype, uint64_t seed, uint64_t number, fl_input *inputs,
                                    uint32_t n_inputs);

/*
 * The arguments of a call to time an op with, by fl_op_def.bench: `number` 0, 1, 2… up to *n_calls (may be NULL) less
 * one. `sizes` (may be NULL) is a text in that form, of dimensions, `...` and ints, that goes before the op's own:
 * "n: 1 128; d: 8192". `dtype` as above. FL_ENOENT: the op does not take that element type. FL_EINVAL: sizes with a
 * mistake (the message shows the place), no call of that number, or sizes that go with no others of the op.
 */
FL_API fl_status fl_generate_bench_inputs(const fl_op *op, uint32_t dtype, const char *sizes, uint32_t number,
                                          fl_input *inputs, uint32_t n_inputs, uint32_t *n_calls);

/* ------------------------------------------------------------------------------------------------ device memory */

/*
 * For tools and small engines; one that has an allocator of its own needs none of this. Memory of kDLCPU is the host's
 * own; that of another device type is what a plugin's platform brings (fl_platform), of several the one in force. In
 * all of these FL_ENOENT: nobody brings memory of that type (the message says who brings which), the platform is not
 * active, or there is no device; FL_EINVAL: no such device; FL_ENOMEM, FL_EDEVICE: it failed, in the platform's words.
 * They may initialise the vendor's driver in this process, which a later fork does not survive.
 */

/* Devices of a type: their indices are 0 to *count - 1. FL_EDEVICE: the platform cannot count them. */
FL_API fl_status fl_device_count(fl_host *host, int32_t device_type, int32_t *count);

/* properties->size is set by the caller to sizeof(fl_device_properties). */
FL_API fl_status fl_device_get_properties(fl_host *host, DLDevice device, fl_device_properties *properties);

/* The device of that type that this thread uses. */
FL_API fl_status fl_device_current(fl_host *host, int32_t device_type, DLDevice *device);

/* Aligned to 256, not cleared; the caller frees it with fl_device_free, when no work that uses it is left. A size of 0
 * gives memory, too. */
FL_API fl_status fl_device_allocate(fl_host *host, DLDevice device, size_t size, void **memory);
FL_API fl_status fl_device_free(fl_host *host, DLDevice device, void *memory); /* NULL is ignored */

/* Copies in the order of `stream` (NULL = the device's default). `direction` is one of FL_COPY_*: with host memory on
 * either side the copy is done when this returns. */
FL_API fl_status fl_device_copy(fl_host *host, DLDevice device, void *to, const void *from, size_t size,
                                int32_t direction, void *stream);

/* Waits until all work of the stream, or of `all` streams of the device, is done. An error of earlier work shows up
 * here, as FL_EDEVICE. */
FL_API fl_status fl_device_synchronize(fl_host *host, DLDevice device, void *stream, bool all);

/* ------------------------------------------------------------------------------------------------------ policies */

/*
 * Which implementations may run, in which order. Immutable and counted: fl_policy_retain/release; a function that gives
 * out a `fl_policy **` gives out a count that the caller releases.
 */
typedef struct fl_policy fl_policy;

/* The tokens to try for one op, in order: flagos, vendor, vendor:NAME, reference, impl:ID; native, which is another
 * word for reference; unfused, which runs a fused op by its parts (fused_add_rms_norm as an addition and rms_norm). */
typedef struct fl_op_order {
  const char *op;
  const char *const *tokens;
  uint32_t n_tokens;
} fl_op_order;

/* What a policy is made of; a zero or NULL field stands for the default. */
typedef struct fl_policy_fields {
  uint32_t size;        /* sizeof(fl_policy_fields) of who made it */
  const char *prefer;   /* "flagos", "vendor" or "reference"; NULL = flagos */
  bool strict;          /* fail at once, never fall back */
  bool preserve_inputs; /* keep a copy of what an in-place call overwrites, so that a fallback can start from it */
  const fl_op_order *per_op;
  uint32_t n_per_op;
  const char *const *deny_vendors;
  uint32_t n_deny_vendors;
  const char *const *allow_vendors; /* NULL: all vendors; not NULL and n 0: none */
  uint32_t n_allow_vendors;
} fl_policy_fields;

/* Makes a policy of its fields, which are copied. FL_EINVAL: an unknown `prefer` or token; the message names the
 * nearest valid one. */
FL_API fl_status fl_policy_create(const fl_policy_fields *fields, fl_policy **policy);

/* From a YAML file of the form that VLLM_FL_CONFIG takes. FL_ECONFIG with file, line and column. */
FL_API fl_status fl_policy_from_config(const char *path, fl_policy **policy);

/* One count more, and one less; the last frees the policy. NULL is ignored. */
FL_API fl_policy *fl_policy_retain(fl_policy *policy);
FL_API void fl_policy_release(fl_policy *policy);

/* The fields, valid as long as the policy. per_op is sorted by op, the vendor sets by name. */
FL_API const fl_policy_fields *fl_policy_get_fields(const fl_policy *policy);

/* Equal fields make equal policies. */
FL_API bool fl_policy_equal(const fl_policy *a, const fl_policy *b);

/* "prefer=flagos;st=0;allow=a,b;deny=c;per=op=x|y", the form of the dispatcher that flhost replaces. */
FL_API const char *fl_policy_fingerprint(const fl_policy *policy);

/* Derived policies. */
FL_API fl_status fl_policy_with_strict(const fl_policy *policy, bool strict, fl_policy **derived);
FL_API fl_status fl_policy_with_preference(const fl_policy *policy, const char *prefer, fl_policy **derived);
/* Replaces the set of allowed vendors; n 0 lifts the restriction. */
FL_API fl_status fl_policy_with_allowed_vendors(const fl_policy *policy, const char *const *vendors, uint32_t n,
                                                fl_policy **derived);
/* Adds to the set of denied vendors. */
FL_API fl_status fl_policy_with_denied_vendors(const fl_policy *policy, const char *const *vendors, uint32_t n,
                                               fl_policy **derived);

/* Replaces the order of one op; n 0 takes it away. FL_EINVAL: an unknown token. */
FL_API fl_status fl_policy_with_op_order(const fl_policy *policy, const char *op, const char *const *tokens, uint32_t n,
                                         fl_policy **derived);

/* The policy in force in this thread: the innermost scope's, else the host's. The caller releases it. To hand a
 * thread's policy to another thread, take it here and enter a scope with it there. */
FL_API fl_policy *fl_get_policy(fl_host *host);

/* In force for every thread's next call outside scopes; the host keeps a count of its own. FL_EINVAL: `policy` is NULL;
 * FL_ESTATE: the host is frozen. */
FL_API fl_status fl_set_global_policy(fl_host *host, fl_policy *policy);

/* Rereads environment and files. FL_ECONFIG: an invalid setting; the old policy stays. FL_ESTATE: the host is frozen.
 */
FL_API fl_status fl_reset_global_policy(fl_host *host);

/* Forgets failures, and everything resolved; availability is asked again. */
FL_API void fl_bump_policy_epoch(fl_host *host);

/*
 * A policy for this thread only, until the scope is left. Storage is the caller's; scopes nest and must be left in
 * reverse order, by the thread that entered them.
 *
 *     fl_scope scope;
 *     if (fl_scope_prefer(host, "reference", &scope)) …;
 *     … calls …
 *     fl_scope_leave(&scope);
 */
typedef struct fl_scope {
  fl_host *host;
  fl_policy *policy;
  struct fl_scope *outer;
  void *view;         /* the host's */
  uint64_t thread_id; /* the thread that entered it */
} fl_scope;

/* FL_EINVAL: `policy` is NULL, or a word that is none, and the nearest; FL_ESTATE: the host is frozen. The scope is
 * then not entered, and not to be left. */
FL_API fl_status fl_scope_enter(fl_host *host, fl_policy *policy, fl_scope *scope);
/* Like fl_policy_with_…, derived from the policy in force in this thread. */
FL_API fl_status fl_scope_strict(fl_host *host, fl_scope *scope);
FL_API fl_status fl_scope_prefer(fl_host *host, const char *prefer, fl_scope *scope);
FL_API fl_status fl_scope_allow_vendors(fl_host *host, const char *const *vendors, uint32_t n, fl_scope *scope);
FL_API fl_status fl_scope_deny_vendors(fl_host *host, const char *const *vendors, uint32_t n, fl_scope *scope);
/* FL_ENOENT: the host knows no such op. */
FL_API fl_status fl_scope_op_order(fl_host *host, const char *op, const char *const *tokens, uint32_t n,
                                   fl_scope *scope);
/* FL_ESTATE: not this thread's innermost scope. */
FL_API fl_status fl_scope_leave(fl_scope *scope);

/* -------------------------------------------------------------------------------------------- resolving, asking why */

/* The winner for an op. */
typedef struct fl_resolution {
  fl_kernel_fn fn;
  void *self;
  fl_kind kind;
  int32_t priority;
  char impl_id[FL_NAME_MAX + 1];
  char vendor[FL_NAME_MAX + 1]; /* "" if none */
} fl_resolution;

/* The implementation that the policy in force puts first for tensors on a device type (kDLCPU…), whether or not it
 * failed before. FL_ENOENT: no such op; FL_ENOIMPL: none; FL_EINVAL: no such device type. */
FL_API fl_status fl_resolve_op(fl_host *host, const char *op, int32_t device_type, fl_resolution *resolution);

/* Its impl_id, into `buffer`. FL_EINVAL: that is too small (the message says what it takes), or as above. */
FL_API fl_status fl_get_selected_impl_id(fl_host *host, const char *op, int32_t device_type, char *buffer, size_t size);

/* What became of an implementation when one was selected. */
typedef enum fl_verdict { FL_SELECTED = 1, FL_CANDIDATE = 2, FL_REJECTED = 3 } fl_verdict;

/* One registered implementation and what became of it. */
typedef struct fl_explained {
  const char *impl_id;
  const char *kind;   /* "flagos", "vendor", "reference" */
  const char *vendor; /* NULL if none */
  int32_t priority;
  const char *plugin; /* who registered it */
  fl_verdict verdict;
  const char *reason; /* the rule that decided, with the setting and where it comes from */
} fl_explained;

/* A layer class of vLLM's that the op replaces, if the switches and lists for out-of-tree replacement allow it. */
typedef struct fl_replaced {
  const char *class_name;
  bool allowed;
  const char *reason; /* why not, with the setting and where it comes from; NULL when allowed */
} fl_replaced;

/* Why an op resolves as it does: candidates in the order they are tried, then the rejected ones. */
typedef struct fl_explanation {
  const char *op;
  const char *const *order; /* tokens */
  uint32_t n_order;
  const char *order_origin; /* "VLLM_FL_PER_OP", "policy.yaml:4", … */
  const char *selected;     /* impl_id or NULL */
  const char *error;        /* NULL, or why nothing is selected */
  const fl_explained *impls;
  uint32_t n_impls;
  const fl_replaced *replaces;
  uint32_t n_replaces;
} fl_explanation;

/* `op` may also be the name of a layer class that an op replaces. The caller frees it. FL_ENOENT: no such op;
 * FL_EINVAL: no such device type. */
FL_API fl_status fl_explain(fl_host *host, const char *op, int32_t device_type, fl_explanation **explanation);
FL_API void fl_explanation_free(fl_explanation *explanation);

/* ------------------------------------------------------------------------------------------------------ registry */

/* Registers from the engine itself, as a plugin named "engine" would; visible at once. Errors are those of
 * fl_registry's functions, and FL_ESTATE: the host is frozen. */
FL_API fl_status fl_register_op(fl_host *host, const fl_op_def *op);
FL_API fl_status fl_register_impl(fl_host *host, const fl_impl *impl);

/* Withdraws all impls and components of a plugin, of each of that name (or "engine"): returns when no call of them is
 * in flight. Ops that it defined stay. FL_ENOENT: no such plugin; FL_ESTATE: called from inside a call of an op, or the
 * host is frozen. */
FL_API fl_status fl_withdraw_plugin(fl_host *host, const char *plugin);

/*
 * The identity of an implementation, for keys of caches: the SHA-256, in hex, of the op's schema, the impl_id and the
 * build id of the plugin's file ("engine" for an implementation of the engine's own). The same inputs give the same
 * text in every process; a change of any gives another. FL_ENOENT: no such op or implementation; FL_ENOTSUP: the
 * plugin's file has no build id, so that nothing would tell one build of it from the next.
 */
FL_API fl_status fl_impl_uuid(fl_host *host, const char *op, const char *impl_id, char uuid[65]);

/* One registered implementation. */
typedef struct fl_impl_info {
  const char *op_name, *impl_id, *vendor, *plugin, *min_arch; /* vendor, min_arch: NULL if none */
  fl_kind kind;
  int32_t priority;
  uint32_t flags, dtypes;
  uint64_t devices;
  bool available;
  const char *reason;     /* why it is not available, else NULL */
  bool has_supports_args; /* it has that function; without, it is said to take all calls */
} fl_impl_info;

/* What is registered at one moment. Stays as it is until released, whatever happens to the host's registry. */
typedef struct fl_snapshot fl_snapshot;
FL_API fl_snapshot *fl_registry_snapshot(fl_host *host);
FL_API void fl_snapshot_release(fl_snapshot *snapshot);
FL_API uint32_t fl_snapshot_op_count(const fl_snapshot *snapshot);
FL_API const char *fl_snapshot_op_name(const fl_snapshot *snapshot, uint32_t op); /* sorted by name */
FL_API uint32_t fl_snapshot_impl_count(const fl_snapshot *snapshot, uint32_t op);
FL_API const fl_impl_info *fl_snapshot_impl(const fl_snapshot *snapshot, uint32_t op, uint32_t impl);

/* ---------------------------------------------------------------------------------------------- failures, counters */

/* An implementation that calls skip because it failed. */
typedef struct fl_failed_impl {
  const char *op, *impl_id, *reason;
  double retry_in; /* seconds until it is tried again; negative: never, or not while the host is frozen */
} fl_failed_impl;

/* Several of them. */
typedef struct fl_failed_impls {
  const fl_failed_impl *impls;
  uint32_t n;
} fl_failed_impls;

/* Impls that are skipped because they failed, of one op or (NULL) all. The caller frees the list. FL_ENOENT: no such
 * op.
 */
FL_API fl_status fl_get_failed_impls(fl_host *host, const char *op, fl_failed_impls **failed);
FL_API void fl_failed_impls_free(fl_failed_impls *failed);

/* Lets them be tried again: those of one op, or (NULL) all. */
FL_API void fl_clear_failed_impls(fl_host *host, const char *op);

/* What became of an implementation's calls since the host was created, or forked. */
typedef struct fl_counters {
  uint64_t calls;                   /* with FL_HOST_STATISTICS, else 0 */
  uint64_t fallbacks_not_supported; /* passed over, supports_args or FL_ENOTSUP */
  uint64_t fallbacks_failed;        /* left for the next after a failure */
  uint64_t failures;
} fl_counters;

/* FL_ENOENT: no such op or impl. */
FL_API fl_status fl_get_counters(fl_host *host, const char *op, const char *impl_id, fl_counters *counters);

/* ----------------------------------------------------------------------------------------------- freezing, manifest */

/*
 * Resolves, under the policy in force in this thread, every op that has an implementation for a device type (kDLCPU…),
 * so that no call has to; an op without tensors, too, since its calls are for any device. Counts as an op's first use
 * in the log. `n_resolved` gets the number of ops that are ready, `n_without` of those of which no implementation may
 * run (fl_explain says why), which is no error; either may be NULL. FL_EINVAL: no such device type; FL_ENOMEM.
 */
FL_API fl_status fl_warm_up(fl_host *host, int32_t device_type, uint32_t *n_resolved, uint32_t *n_without);

/*
 * Freezes what calls run, for a graph capture or an ahead-of-time compilation. `who` (up to FL_NAME_MAX bytes) is named
 * in what is refused until fl_thaw with the same name. Freezes nest and may overlap: the host stays frozen while one is
 * left. In a frozen host
 *   - registering, loading, discovering and withdrawing plugins, setting or resetting the global policy, entering a
 *     scope and fl_op_enforce_enable return FL_ESTATE; fl_bump_policy_epoch and fl_clear_failed_impls do nothing and
 *     log a warning. Each names what was refused, who froze the host and how to thaw it;
 *   - a scope that was entered before stays in force in its thread, and may be left;
 *   - what is bound stays bound. What is not is resolved by its first call, to what it would have been resolved to at
 *     the freeze: all availability is asked before, and an implementation that failed and was not due to be tried again
 *     stays out;
 *   - an implementation that fails is not replaced: its status comes back, with its message and who froze the host, and
 *     is not remembered. Candidates whose supports_args says no are passed over as ever;
 *   - a forked child is frozen, too.
 *
 * A call that is running meanwhile may still fall back, and changes nothing for later ones. FL_EINVAL: `who` is NULL,
 * empty or too long.
 */
FL_API fl_status fl_freeze(fl_host *host, const char *who);

/* Ends one freeze of that name. When it was the last: implementations that failed before the freeze wait for their
 * back-off from now on. FL_ESTATE: `who` has not frozen the host; the message says who has. */
FL_API fl_status fl_thaw(fl_host *host, const char *who);

/* Is the host frozen? `who` (may be NULL) gets the names in quotes, in the order of freezing, separated by ", "; cut
 * off at `size` bytes; "" if it is not. */
FL_API bool fl_is_frozen(fl_host *host, char *who, size_t size);

/* One implementation that calls of an op may run. */
typedef struct fl_manifest_row {
  const char *op, *impl_id, *vendor; /* vendor: NULL if none */
  fl_kind kind;
  uint32_t place;       /* 0: tried first; the next is tried where supports_args or the element type says no */
  const char *plugin;   /* who registered it: "engine" for the engine itself, "flhost" for the host */
  const char *version;  /* the plugin's, the library's for "flhost"; "" for the engine */
  const char *build_id; /* of the plugin's file, "" if it has none; "engine" for the engine, the library's version for
                           the host */
} fl_manifest_row;

/*
 * What calls for one device type run, and a digest of it for the key of a compile cache. The digest is the SHA-256, in
 * hex, of `text`: lines that end in \n, of fields separated by \t. In a field, a backslash and the bytes 00 to 1f and
 * 7f are written \xHH, with small letters. Lists are sorted bytewise. In this order:
 *
 *     flhost-manifest 1                        the version of this form
 *     library VERSION                          fl_version()
 *     device TYPE                              DLPack's number, in decimal
 *     policy FINGERPRINT                       fl_policy_fingerprint
 *     setting VLLM_FL_PREFER_ENABLED BOOL      true or false
 *     setting USE_FLAGGEMS BOOL
 *     setting flagos_whitelist OP...           only if it is set
 *     setting flagos_blacklist OP...           only if it is set
 *     setting custom_ops all|none +OP... -OP...
 *     setting enforced OP...                   fl_op_enforce_enable; only if there are any
 *     setting VLLM_FL_OOT_ENABLED BOOL
 *     setting VLLM_FL_OOT_WHITELIST LAYER...   only if it is set
 *     setting oot_blacklist LAYER...           only if it is set
 *     layer CLASS OP PLUGIN                    one for each class that a plugin brings, by class
 *     op NAME SCHEMA                           one for each op with an implementation for the device type (or without
 *                                              tensors), by name, each followed by
 *     impl PLACE IMPL_ID KIND VENDOR PLUGIN VERSION BUILD_ID
 *                                              one for each of its rows, by place; KIND is flagos, vendor or
 *                                              reference, VENDOR empty if there is none
 *
 * An op's last row is the first that takes all calls, as what stands behind it is never reached in a frozen host. The
 * text is the same in every process and for any order of loading. It says nothing of the hardware, and an
 * implementation of the engine's own is known by name alone.
 */
typedef struct fl_manifest {
  const char *library; /* fl_version() */
  int32_t device_type;
  const char *policy; /* fingerprint */
  const fl_manifest_row *rows;
  uint32_t n_rows;
  const char *const *without; /* ops with an implementation for the device type of which none may run; by name */
  uint32_t n_without;
  const char *text;
  const char *sha256;  /* 64 hex digits; NULL if a plugin's file has no build id: nothing would tell its builds apart */
  const char *problem; /* then: which plugin, and what to do; else NULL */
} fl_manifest;

/*
 * Under the policy in force in this thread; an implementation that calls skip because it failed is left out. Unless the
 * host is frozen the next call may already run something else. The caller frees it. FL_EINVAL: no such device type.
 */
FL_API fl_status fl_get_manifest(fl_host *host, int32_t device_type, fl_manifest **manifest);
FL_API void fl_manifest_free(fl_manifest *manifest);

/* ------------------------------------------------------------------------------------------------------- plugins */

/* What was found of one plugin. */
typedef struct fl_plugin_info {
  const char *name, *file, *version, *vendor, *licence; /* "" where unknown */
  const char *route;                                    /* "directory", "manifest", "module" (also fl_load_plugin) */
  const char *abi;                                      /* "0.2", "" where unknown */
  const char *status;                                   /* "loaded", "unavailable", "skipped", "failed", "deferred" */
  const char *reason; /* why that; of a loaded one what is missing of it, "" if nothing: implementations that are not
                         available, rows that were refused */
  double load_us;     /* time that loading took, microseconds */
  uint32_t impls;     /* number of implementations that it registered */
} fl_plugin_info;

/* Several of them. */
typedef struct fl_plugins {
  const fl_plugin_info *plugins;
  uint32_t n;
} fl_plugins;

/*
 * Every plugin that was found, in the order of loading. The caller frees the list. One that says in its file which ops
 * it implements (FL_PLUGIN_OPS) is "deferred", without implementations so far, until one of these is first looked for:
 * by fl_find_op, a call by name, a registration of that name, or anything that shows all implementations; or until its
 * platform is (FL_PLUGIN_PLATFORM). This function and fl_withdraw_plugin load none.
 */
FL_API fl_status fl_get_discovered_plugins(fl_host *host, fl_plugins **plugins);
FL_API void fl_plugins_free(fl_plugins *plugins);

/* Looks again: loads, or defers, what was not found before. `n_loaded` (may be NULL) gets the number of those that were
 * loaded now. A plugin that fails is no error but in the list; FL_EPLUGIN: one that its manifest calls critical;
 * FL_ESTATE: the host is frozen. */
FL_API fl_status fl_discover_plugins(fl_host *host, uint32_t *n_loaded);

/* Forgets the record of plugins that are not loaded, nor deferred. */
FL_API void fl_clear_discovered_plugins(fl_host *host);

/* Loads one, at once: a path, or a name that is looked up in the plugin directories; either may carry ":symbol". A file
 * that is loaded already is left alone. FL_EPLUGIN: it is not there or failed, and why; FL_ESTATE: the host is frozen.
 */
FL_API fl_status fl_load_plugin(fl_host *host, const char *module);

/* The directories that are searched, in order; NULL ends the list. Valid as long as the host. */
FL_API const char *const *fl_plugin_directories(fl_host *host);

/* ----------------------------------------------------------------------------------------------- settings, platform */

/* One setting in force. */
typedef struct fl_setting {
  const char *name;     /* the YAML key, or the variable where there is none */
  const char *variable; /* "" if none */
  const char *value;    /* JSON text: true, "flagos", ["cuda"], {"op": ["vendor"]}, null */
  const char *origin;   /* "VLLM_FL_PREFER", "/etc/policy.yaml:3", "built-in", … */
  const char *doc;      /* one line */
} fl_setting;

/* Several of them. */
typedef struct fl_settings {
  const fl_setting *settings;
  uint32_t n;
} fl_settings;

/* Every setting in force and where it comes from. The caller frees it. */
FL_API fl_status fl_get_settings(fl_host *host, fl_settings **settings);
FL_API void fl_settings_free(fl_settings *settings);

/* Out-of-tree replacement: may the layer be replaced, by the switches and lists? */
FL_API bool fl_is_oot_enabled(fl_host *host);
FL_API bool fl_is_oot_allowed(fl_host *host, const char *layer);

/*
 * The op that replaces a layer class of vLLM's ("SiluAndMul"), if that is enabled and the lists allow it; in these the
 * layer stands by the name of its class or of the op. Valid as long as the host. NULL with fl_error_status():
 * FL_ENOENT, no op replaces such a class (the message names the nearest), or the op is not registered; FL_ESTATE, not
 * allowed, and why.
 */
FL_API const char *fl_oot_op(fl_host *host, const char *class_name);

/* May the op use implementations of kind default, by the switches and FlagGems lists? */
FL_API bool fl_is_flagos_allowed(fl_host *host, const char *op);

/* One step of the way from the bus to the devices; the first that is not in order is what to repair. */
typedef struct fl_platform_step {
  const char *name;    /* "bus", "kernel driver", "device node", "user driver", "plugin", "devices" */
  const char *state;   /* "ok", "missing", "failed", "unknown": not looked at, since an earlier step is not ok */
  const char *finding; /* what was found, or what is not there */
  const char *advice;  /* what to do, "" if nothing */
} fl_platform_step;

/* What was found of one platform. */
typedef struct fl_platform_info {
  const char *name;      /* "cpu", "cuda", "rocm", "ascend", or a plugin's */
  const char *plugin;    /* "" for the built-in ones */
  bool active;           /* the one whose file is used */
  uint32_t pci_devices;  /* devices of that vendor on the bus */
  const char *pci;       /* their names, comma separated, "" if none */
  bool driver_found;     /* the driver library opens */
  const char *driver;    /* its name, or the loader's words why it does not open; "" if none is needed */
  int32_t device_count;  /* devices that the driver reports; -1 = not asked or failed */
  const char *diagnosis; /* one sentence */
  int32_t device_type;   /* of its tensors */
  const fl_platform_step *steps;
  uint32_t n_steps;
  uint32_t n_devices; /* of those below: what the platform's plugin, or the host, says of each */
  const fl_device_properties *devices;
} fl_platform_info;

/* What was found of all platforms, and which is in force. */
typedef struct fl_platform_report {
  const char *active;        /* name of the platform in force */
  const char *active_origin; /* "VLLM_FL_PLATFORM", "plugin 'acme'", "detected" */
  const char *config_file;   /* its platform file, "" if none */
  const fl_platform_info *platforms;
  uint32_t n;
} fl_platform_report;

/* Looks at the hardware and drivers. May take some 100 ms. The caller frees the report. */
FL_API fl_status fl_get_platform(fl_host *host, fl_platform_report **report);
FL_API void fl_platform_report_free(fl_platform_report *report);

#ifdef __cplusplus
}
#endif
#endif /* FLHOST_FLHOST_H */
