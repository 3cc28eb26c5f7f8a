/*
 * Expressions in the texts of an entry: + - * / // ( ) over numbers and words; // rounds down. What a word stands for
 * is the business of whoever reads the text, and so is what becomes of it: rules.c compiles nodes, to be matched in
 * every call; cases.c knows dimensions and ints, cost.c tensors and functions, too. These two evaluate, in floating
 * point, each time anew: nothing on a call's path looks at them.
 */
#ifndef FLHOST_CORE_SCHEMA_EXPRESSION_H
#define FLHOST_CORE_SCHEMA_EXPRESSION_H

#include "core/support.h"

/* What a part of an expression comes to. */
typedef union fl_operand {
  double value;
  uint16_t node; /* its index, where nodes are compiled */
} fl_operand;

typedef struct fl_expression fl_expression;
struct fl_expression {
  fl_scanner scan;
  const char *end; /* of the text that belongs to it */
  /* The word at the cursor, or the number, or what stands there in place of one: gives what it comes to and moves past
   * it and what belongs to it. `number` and `join` are fl_expression_evaluate's own where that is called. */
  fl_status (*word)(fl_expression *e, fl_operand *operand);
  fl_status (*number)(fl_expression *e, fl_operand *operand);
  /* *left and `right` become *left; `sign` points to the sign in the text. */
  fl_status (*join)(fl_expression *e, const char *sign, fl_operand *left, fl_operand right);
  const void *context; /* of these */
  bool form;           /* only names and form are looked at: values mean nothing */
  bool exact;          /* a division may leave no rest */
  bool negative;       /* a minus may stand before an operand */
  unsigned depth;      /* of parentheses and signs */
};

/* The value of the whole of it. FL_EINVAL with the place in the text, what was found and what is expected. */
fl_status fl_expression_evaluate(fl_expression *e, double *value);

/* A sum up to the first thing that cannot go on with it. For words with arguments: the character at the cursor, behind
 * white space, 0 at the end; moves past a character, or says that it is missing. */
fl_status fl_expression_sum(fl_expression *e, fl_operand *operand);
char fl_expression_look(fl_expression *e);
bool fl_expression_is_floor(const char *sign); /* is it "//"? */
fl_status fl_expression_expect(fl_expression *e, char c);

#endif
