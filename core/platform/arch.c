/*
 * Names of architectures, read as far as they say what runs where. Each form is split into a line, within which a
 * greater number is a later architecture, and that number; names of different lines of one form do not replace each
 * other. What has none of the forms is not judged.
 */
#include "core/platform/arch.h"

#include <ctype.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A name as read. */
typedef struct arch {
  const char *form; /* "gfx", "Ascend"; else the name's own letters, of `form_length` */
  size_t form_length;
  int line; /* within the form */
  unsigned long number;
  const char *suffix; /* what follows the number: "a" of sm_90a, ":xnack-" of gfx90a:xnack- */
} arch;

/* ------------------------------------------------------------------------------------------------------------- AMD
 */

enum { GFX_WAVE64, GFX_WAVE32 };

/* gfx90a, gfx1030: major, and a hexadecimal digit each for minor and stepping. Up to gfx9 wavefronts have 64 lanes,
 * from gfx10 on 32: two lines. Of the first, the integrated processors have late numbers but none of the matrix units.
 */
static bool read_gfx(const char *name, bool device, arch *read) {
  static const unsigned long integrated[] = {0x902, 0x909, 0x90c};
  char *end;
  (void)device;
  if (!isxdigit((unsigned char)name[3]))
    return false;
  *read = (arch){.form = "gfx", .form_length = 3, .number = strtoul(name + 3, &end, 16)};
  read->suffix = end;
  read->line = read->number >= 0x1000 ? GFX_WAVE32 : GFX_WAVE64;
  for (size_t i = 0; i < sizeof integrated / sizeof *integrated; i++)
    if (read->number == integrated[i])
      read->number = 0x900;
  return *end == 0 || *end == ':';
}

/* ---------------------------------------------------------------------------------------------------------- Huawei */

enum { ASCEND_910, ASCEND_310P, ASCEND_310B };

/* By the beginning of the name; the longest that fits counts. `exact`: the whole name, of a device. A first-generation
 * device may call itself Ascend910B; as a least architecture that is the generation of 910B1 to B4. */
static const struct {
  const char *name;
  bool exact;
  int line, generation;
} ascends[] = {
    {"Ascend910A", false, ASCEND_910, 1},        {"Ascend910B", true, ASCEND_910, 1},
    {"Ascend910PremiumA", false, ASCEND_910, 1}, {"Ascend910Pro", false, ASCEND_910, 1},
    {"Ascend910B", false, ASCEND_910, 2},        {"Ascend910_93", false, ASCEND_910, 3},
    {"Ascend950", false, ASCEND_910, 4},         {"Ascend310P", false, ASCEND_310P, 1},
    {"Ascend310B", false, ASCEND_310B, 1},
};

static bool read_ascend(const char *name, bool device, arch *read) {
  size_t longest = 0;
  for (size_t i = 0; i < sizeof ascends / sizeof *ascends; i++) {
    size_t length = strlen(ascends[i].name);
    bool fits = ascends[i].exact ? device && !strcmp(name, ascends[i].name) : !strncmp(name, ascends[i].name, length);
    if (!fits || length <= longest)
      continue;
    longest = length;
    *read = (arch){.form = "Ascend",
                   .form_length = 6,
                   .line = ascends[i].line,
                   .number = (unsigned long)ascends[i].generation,
                   .suffix = ""};
  }
  return longest > 0;
}

/* ---------------------------------------------------------------------------------------------------------- others */

/* sm_90, acme7: letters, then a decimal number. */
static bool read_number(const char *name, bool device, arch *read) {
  (void)device;
  size_t letters = strcspn(name, "0123456789");
  char *end;
  if (!letters || !name[letters])
    return false;
  *read = (arch){.form = name, .form_length = letters, .number = strtoul(name + letters, &end, 10)};
  read->suffix = end;
  return true;
}

static bool read_arch(const char *name, bool device, arch *read) {
  static const struct {
    const char *prefix;
    bool (*read)(const char *name, bool device, arch *read);
  } forms[] = {{"gfx", read_gfx}, {"Ascend", read_ascend}, {"", read_number}};
  size_t i = 0;
  while (strncmp(name, forms[i].prefix, strlen(forms[i].prefix)) != 0)
    i++;
  return forms[i].read(name, device, read);
}

/* ------------------------------------------------------------------------------------------------------- comparison */

/* Has a device each feature ("xnack-") that follows a colon in `wanted`? One that it does not mention counts as had. */
static bool has_features(const char *had, const char *wanted) {
  while (*wanted == ':') {
    size_t length = strcspn(++wanted, ":");
    for (const char *at = had; length && *at == ':';) {
      size_t other = strcspn(++at, ":");
      if (other == length && !strncmp(at, wanted, length - 1) && at[length - 1] != wanted[length - 1])
        return false; /* xnack+ for xnack- */
      at += other;
    }
    wanted += length;
  }
  return true;
}

static bool reaches(const char *name, const char *least) {
  arch device, wanted;
  if (!read_arch(name, true, &device) || !read_arch(least, false, &wanted) ||
      device.form_length != wanted.form_length || strncmp(device.form, wanted.form, device.form_length) != 0)
    return true;
  if (device.line != wanted.line)
    return false;
  if (!strcmp(wanted.suffix, "a")) /* sm_90a: code for this very architecture */
    return device.number == wanted.number;
  if (!strcmp(wanted.suffix, "f")) /* sm_100f: for those of its major version */
    return device.number / 10 == wanted.number / 10 && device.number >= wanted.number;
  return device.number >= wanted.number && has_features(device.suffix, wanted.suffix);
}

bool fl_arch_reaches(const char *name, const char *least) {
  char one[64]; /* as long as a device's */
  bool reached = !name || !least;
  while (!reached && least) {
    const char *comma = strchr(least, ',');
    snprintf(one, sizeof one, "%.*s", (int)strcspn(least, ","), least);
    reached = reaches(name, one);
    least = comma ? comma + 1 : NULL;
  }
  return reached;
}
