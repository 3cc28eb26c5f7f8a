/* What an op says of itself: arguments and results, the rules for shapes and types, and what follows from them. What
 * rooms above may use. */
#ifndef FLHOST_CORE_SCHEMA_H
#define FLHOST_CORE_SCHEMA_H

#include "core/schema/check.h"
#include "core/schema/expression.h"
#include "core/schema/literal.h"
#include "core/schema/match.h"
#include "core/schema/parts.h"
#include "core/schema/ranks.h"
#include "core/schema/rules.h"
#include "core/schema/schema.h"

#endif
