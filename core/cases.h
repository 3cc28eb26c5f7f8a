/* Calls that are made up to verify and to time ops, and what calls cost. Used by commands and tests, by no call. What
 * rooms above may use. */
#ifndef FLHOST_CORE_CASES_H
#define FLHOST_CORE_CASES_H

#include "core/cases/calls.h"
#include "core/cases/cases.h"
#include "core/cases/cost.h"

#endif
