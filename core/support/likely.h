/* Which way a condition of the call path goes, for the compiler to lay that way out straight. */
#ifndef FLHOST_CORE_SUPPORT_LIKELY_H
#define FLHOST_CORE_SUPPORT_LIKELY_H

#define likely(condition)   __builtin_expect(!!(condition), 1)
#define unlikely(condition) __builtin_expect(!!(condition), 0)

#endif
