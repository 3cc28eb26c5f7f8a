/* The orders of single ops, collected from one source: where each stands, and which of several for one op counts. */
#ifndef FLHOST_CORE_SETTINGS_ORDERS_H
#define FLHOST_CORE_SETTINGS_ORDERS_H

#include "core/support.h"

/* The order of one op, and where it stands. */
typedef struct fl_order {
  char *op, *origin;
  fl_strings tokens;
  unsigned line, column;
  uint32_t rank; /* of several for one op, the last counts */
  bool absent;   /* the op stands there without an order; gone once finished */
} fl_order;

typedef struct fl_orders {
  fl_order *items; /* once finished: sorted by op, one for each */
  uint32_t n;
} fl_orders;

/* Adds an order; the tokens become the order's, and are empty again. NULL: the op stands there without a usable order,
 * which takes an earlier one out of force, too. */
void fl_orders_add(fl_problems *problems, fl_orders *orders, const char *op, size_t length, fl_strings *tokens,
                   fl_place place);

/* Sorts by op and keeps the last order of each, if it is one. `file` is reported as naming an op twice, unless NULL. */
void fl_orders_finish(fl_problems *problems, fl_orders *orders, const char *file);
const fl_order *fl_orders_find(const fl_orders *orders, const char *op);
void fl_orders_free(fl_orders *orders);

#endif
