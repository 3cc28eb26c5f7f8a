/*
 * A quick look at a call, for the call path: is it certainly good? Most calls are, and for most ops that takes some
 * tens of compares. Whatever is unusual (a size of zero, strides that interleave, an op whose rules need more) is left
 * to the full check, which also finds the words for what is wrong.
 */
#ifndef FLHOST_CORE_QUICK_H
#define FLHOST_CORE_QUICK_H

#include "core/schema.h"

/* A plan for an op, made once from its compiled rules; NULL: its calls always take the full check. */
typedef struct fl_quick fl_quick;
fl_quick *fl_quick_compile(const fl_schema *schema);

/* True: fl_schema_check would find nothing wrong, but for the entry's own check. False says nothing. */
bool fl_quick_check(const fl_quick *quick, const fl_call *call);

#endif
