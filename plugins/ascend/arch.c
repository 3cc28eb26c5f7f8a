/* Names of chips, as far as they say what runs where (fl_platform.arch_reaches). */
#include "plugins/ascend/platform.h"

#include <string.h>

typedef struct series {
  const char *name;
  bool exact;     /* the whole name, of a device */
  int generation; /* within its line; the tens tell lines that do not stand in for each other */
} series;

/* By the beginning of the name; the longest that fits counts. A first-generation device may call itself Ascend910B; as
 * a least architecture that is the generation of 910B1 to B4. */
static const series all[] = {
    {"Ascend910A", false, 11},   {"Ascend910B", true, 11},  {"Ascend910PremiumA", false, 11},
    {"Ascend910Pro", false, 11}, {"Ascend910B", false, 12}, {"Ascend910_93", false, 13},
    {"Ascend950", false, 14},    {"Ascend310P", false, 21}, {"Ascend310B", false, 31},
};

/* 0: not known. */
static int generation_of(const char *name, bool device) {
  const series *found = NULL;
  for (const series *at = all; at < all + sizeof all / sizeof *all; at++) {
    size_t length = strlen(at->name);
    bool fits = at->exact ? device && !strcmp(name, at->name) : !strncmp(name, at->name, length);
    if (fits && (!found || length > strlen(found->name)))
      found = at;
  }
  return found ? found->generation : 0;
}

bool ascend_arch_reaches(void *self, const char *arch, const char *least) {
  int has = generation_of(arch, true), wants = generation_of(least, false);
  (void)self;
  return !has || !wants || (has / 10 == wants / 10 && has >= wants);
}
