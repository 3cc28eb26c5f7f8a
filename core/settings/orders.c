/* Orders of ops: see orders.h. */
#include "core/settings/orders.h"

#include <stdlib.h>
#include <string.h>

void fl_orders_add(fl_problems *problems, fl_orders *orders, const char *op, size_t length, fl_strings *tokens,
                   fl_place place) {
  if (!fl_array_grow(&orders->items, orders->n, sizeof *orders->items)) {
    problems->no_memory = true;
    return;
  }
  fl_order order = {.line = place.line, .column = place.column, .rank = orders->n, .absent = !tokens};
  order.op = strndup(op, length);
  order.origin = fl_place_origin(problems, place);
  if (!order.op) {
    problems->no_memory = true;
    fl_origin_free(order.origin);
    return;
  }
  if (tokens) {
    order.tokens = *tokens;
    *tokens = (fl_strings){0};
  }
  orders->items[orders->n++] = order;
}

static int compare_orders(const void *a, const void *b) {
  const fl_order *left = a, *right = b;
  int order = strcmp(left->op, right->op);
  return order ? order : left->rank < right->rank ? -1 : 1;
}

static void free_order(fl_order *order) {
  free(order->op);
  fl_origin_free(order->origin);
  fl_strings_free(&order->tokens);
}

static void drop_absent(fl_orders *orders) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < orders->n; i++)
    if (orders->items[i].absent)
      free_order(&orders->items[i]);
    else
      orders->items[kept++] = orders->items[i];
  orders->n = kept;
}

void fl_orders_finish(fl_problems *problems, fl_orders *orders, const char *file) {
  uint32_t kept = 0;
  if (orders->n)
    qsort(orders->items, orders->n, sizeof *orders->items, compare_orders);
  for (uint32_t i = 0; i < orders->n; i++) {
    fl_order *order = &orders->items[i], *before = kept ? &orders->items[kept - 1] : NULL;
    if (before && !strcmp(before->op, order->op)) {
      if (file)
        fl_problem(problems, (fl_place){file, order->line, order->column},
                   "op '%s' stands here and in line %u, expected once", order->op, before->line);
      free_order(before);
      kept--;
    }
    orders->items[kept++] = *order;
  }
  orders->n = kept;
  drop_absent(orders);
}

static int compare_op(const void *op, const void *order) {
  return strcmp(op, ((const fl_order *)order)->op);
}

const fl_order *fl_orders_find(const fl_orders *orders, const char *op) {
  return orders->n ? bsearch(op, orders->items, orders->n, sizeof *orders->items, compare_op) : NULL;
}

void fl_orders_free(fl_orders *orders) {
  for (uint32_t i = 0; i < orders->n; i++)
    free_order(&orders->items[i]);
  free(orders->items);
  *orders = (fl_orders){0};
}
