/*
 * Expressions in the texts of an entry: + - * / ( ) over numbers and words, in floating point. What a word stands for
 * is the business of whoever reads the text: cases.c knows dimensions and ints, cost.c tensors and functions, too.
 * Expressions stay text: they are few, and nothing on a call's path looks at them.
 */
#ifndef FLHOST_CORE_SCHEMA_EXPRESSION_H
#define FLHOST_CORE_SCHEMA_EXPRESSION_H

#include "core/support.h"

typedef struct fl_expression fl_expression;
struct fl_expression {
  fl_scanner scan;
  const char *end; /* of the text that belongs to it */
  /* Gives the value of the word at the cursor and moves past it and what belongs to it. */
  fl_status (*word)(fl_expression *e, double *value);
  const void *context; /* of `word` */
  bool form;           /* only names and form are looked at: values mean nothing */
  bool exact;          /* a division may leave no rest */
  unsigned depth;      /* of parentheses and signs */
};

/* The whole of it. FL_EINVAL with the place in the text, what was found and what is expected. */
fl_status fl_expression_evaluate(fl_expression *e, double *value);

/* For words with arguments. A sum up to the first thing that cannot go on with it; the character at the cursor, behind
 * white space, 0 at the end; moves past a character, or says that it is missing. */
fl_status fl_expression_sum(fl_expression *e, double *value);
char fl_expression_look(fl_expression *e);
fl_status fl_expression_expect(fl_expression *e, char c);

#endif
