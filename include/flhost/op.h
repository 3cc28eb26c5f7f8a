/*
 * flhost/op.h: what an op takes, gives, costs and how exact it is, by its handle.
 */
#ifndef FLHOST_OP_H
#define FLHOST_OP_H

#include <flhost/host.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A handle of one op in one host, valid until the host is destroyed. */
typedef struct fl_op fl_op;

/* The op of that name; NULL (FL_ENOENT) if there is none, and the message names the nearest. The first time that an op
 * is looked for its schema is parsed, and the deferred plugins that list it are loaded. */
FL_API fl_op *fl_find_op(fl_host *host, const char *name);

/* The same, but nothing is parsed or loaded yet: that is left to the first use of the handle, which then has what
 * fl_find_op would have said to say. NULL (FL_ENOENT) if the host does not know the name; that of a built-in op it
 * does, that of an op which a deferred plugin brings it does not. */
FL_API fl_op *fl_op_handle(fl_host *host, const char *name);

/* One argument or result of an op. */
typedef struct fl_argument {
  uint32_t size;
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
FL_API const char *fl_op_parts(const fl_op *op);    /* what a fused op is made of (fl_op_def.parts), "" if nothing */
FL_API const char *fl_op_ranks(const fl_op *op);    /* what ranks do with it (fl_op_def.ranks), "" if nothing */
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

/* The op's tolerance for an element type (fl_tolerance), or vLLM IR's default for that type; 0 and 0 for a type that
 * has none. */
FL_API void fl_op_tolerance(const fl_op *op, DLDataType dtype, double *atol, double *rtol);

#ifdef __cplusplus
}
#endif
#endif /* FLHOST_OP_H */
