/* Recursive descent: see expression.h. */
#include "core/schema/expression.h"

#include "core/schema/literal.h"

#include <math.h>

enum { MAX_DEPTH = 32 };

char fl_expression_look(fl_expression *e) {
  while (e->scan.at < e->end && strchr(" \t\r\n", *e->scan.at))
    e->scan.at++;
  return e->scan.at < e->end ? *e->scan.at : 0;
}

fl_status fl_expression_expect(fl_expression *e, char c) {
  char found = fl_expression_look(e), expected[] = {'\'', c, '\'', 0};
  if (found != c)
    return found ? fl_scan_unexpected(&e->scan, expected, NULL, 0)
                 : fl_scan_fail(&e->scan, e->scan.at, "found the end, expected %s", expected);
  e->scan.at++;
  return FL_OK;
}

static fl_status read_factor(fl_expression *e, fl_operand *operand) {
  char first = fl_expression_look(e);
  fl_status status;
  if (e->depth++ > MAX_DEPTH)
    return fl_scan_fail(&e->scan, e->scan.at, "more than %d levels of parentheses%s", MAX_DEPTH,
                        e->negative ? " and signs" : "");
  if (first == '-' && e->negative) {
    e->scan.at++;
    status = read_factor(e, operand);
    operand->value = -operand->value;
  } else if (first == '(') {
    e->scan.at++;
    status = fl_expression_sum(e, operand);
    if (!status)
      status = fl_expression_expect(e, ')');
  } else {
    status = fl_scan_is_letter(first) ? e->word(e, operand) : e->number(e, operand);
  }
  e->depth--;
  return status;
}

bool fl_expression_is_floor(const char *sign) {
  return sign[0] == '/' && sign[1] == '/';
}

/* Operands joined by signs, from left to right. */
static fl_status read_chain(fl_expression *e, const char *signs, fl_status (*read)(fl_expression *, fl_operand *),
                            fl_operand *left) {
  *left = (fl_operand){0};
  fl_status status = read(e, left);
  while (!status && fl_expression_look(e) && strchr(signs, *e->scan.at)) {
    const char *sign = e->scan.at++;
    fl_operand right = {0};
    e->scan.at += e->scan.at < e->end && fl_expression_is_floor(sign);
    status = read(e, &right);
    if (!status)
      status = e->join(e, sign, left, right);
  }
  return status;
}

static fl_status read_product(fl_expression *e, fl_operand *operand) {
  return read_chain(e, "*/", read_factor, operand);
}

fl_status fl_expression_sum(fl_expression *e, fl_operand *operand) {
  return read_chain(e, "+-", read_product, operand);
}

/* ------------------------------------------------------------------------------------------------------- evaluation */

static fl_status evaluate_number(fl_expression *e, fl_operand *operand) {
  char number[64]; /* alone: of 0..1 a reader of numbers takes "0." */
  const char *begin = e->scan.at, *at = begin;
  while (at < e->end && fl_scan_is_digit(*at))
    at++;
  if (at + 1 < e->end && *at == '.' && fl_scan_is_digit(at[1])) /* not the points of a range */
    for (at++; at < e->end && fl_scan_is_digit(*at);)
      at++;
  if (at < e->end && *at == 'e') {
    at++;
    at += at < e->end && (*at == '-' || *at == '+');
    while (at < e->end && fl_scan_is_digit(*at))
      at++;
  }
  snprintf(number, sizeof number, "%.*s", (int)(at - begin), begin);
  if (fl_scan_is_octal(begin))
    return fl_scan_unexpected(&e->scan, "a decimal number without leading zeros", NULL, 0);
  if (!fl_read_float(number, (size_t)(at - begin), &operand->value))
    return fl_scan_fail(&e->scan, begin, "expected a number, a name or an expression in parentheses");
  e->scan.at = at;
  return FL_OK;
}

static fl_status evaluate_join(fl_expression *e, const char *sign, fl_operand *left, fl_operand right) {
  double *value = &left->value;
  bool floors = fl_expression_is_floor(sign);
  if (*sign == '/' && !e->form && (right.value == 0 || (e->exact && !floors && fmod(*value, right.value) != 0)))
    return fl_scan_fail(&e->scan, sign, "%g / %g is not %s", *value, right.value, e->exact ? "exact" : "a number");
  *value = *sign == '+'   ? *value + right.value
           : *sign == '-' ? *value - right.value
           : *sign == '*' ? *value * right.value
           : floors       ? floor(*value / right.value)
                          : *value / right.value;
  return FL_OK;
}

fl_status fl_expression_evaluate(fl_expression *e, double *value) {
  const char *begin = e->scan.at;
  fl_operand operand;
  e->number = evaluate_number;
  e->join = evaluate_join;
  e->negative = true;
  fl_status status = fl_expression_sum(e, &operand);
  *value = operand.value;
  if (!status && fl_expression_look(e))
    return fl_scan_fail(&e->scan, e->scan.at, "expected an operator or the end of '%.*s'", (int)(e->end - begin),
                        begin);
  return status;
}
