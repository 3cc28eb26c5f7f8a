/* Evaluation by recursive descent: see expression.h. */
#include "core/schema/expression.h"

#include "core/schema/schema.h"

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

static fl_status evaluate_number(fl_expression *e, double *value) {
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
  if (!fl_read_float(number, (size_t)(at - begin), value))
    return fl_scan_fail(&e->scan, begin, "expected a number, a name or an expression in parentheses");
  e->scan.at = at;
  return FL_OK;
}

static fl_status evaluate_factor(fl_expression *e, double *value) {
  char first = fl_expression_look(e);
  if (++e->depth > MAX_DEPTH)
    return fl_scan_fail(&e->scan, e->scan.at, "more than %d levels of parentheses and signs", MAX_DEPTH);
  fl_status status;
  if (first == '-') {
    e->scan.at++;
    status = evaluate_factor(e, value);
    *value = -*value;
  } else if (first == '(') {
    e->scan.at++;
    status = fl_expression_sum(e, value);
    if (!status)
      status = fl_expression_expect(e, ')');
  } else {
    status = fl_scan_is_letter(first) ? e->word(e, value) : evaluate_number(e, value);
  }
  e->depth--;
  return status;
}

static fl_status divide(const fl_expression *e, const char *sign, double right, double *value) {
  if (!e->form && (right == 0 || (e->exact && fmod(*value, right) != 0)))
    return fl_scan_fail(&e->scan, sign, "%g / %g is not %s", *value, right, e->exact ? "exact" : "a number");
  *value /= right;
  return FL_OK;
}

static fl_status evaluate_product(fl_expression *e, double *value) {
  fl_status status = evaluate_factor(e, value);
  while (!status && (fl_expression_look(e) == '*' || fl_expression_look(e) == '/')) {
    const char *sign = e->scan.at++;
    double right = 0;
    status = evaluate_factor(e, &right);
    if (!status && *sign == '/')
      status = divide(e, sign, right, value);
    else if (!status)
      *value *= right;
  }
  return status;
}

fl_status fl_expression_sum(fl_expression *e, double *value) {
  *value = 0;
  fl_status status = evaluate_product(e, value);
  while (!status && (fl_expression_look(e) == '+' || fl_expression_look(e) == '-')) {
    char sign = *e->scan.at++;
    double right = 0;
    status = evaluate_product(e, &right);
    *value += sign == '+' ? right : -right;
  }
  return status;
}

fl_status fl_expression_evaluate(fl_expression *e, double *value) {
  const char *begin = e->scan.at;
  fl_status status = fl_expression_sum(e, value);
  if (!status && fl_expression_look(e))
    return fl_scan_fail(&e->scan, e->scan.at, "expected an operator or the end of '%.*s'", (int)(e->end - begin),
                        begin);
  return status;
}
