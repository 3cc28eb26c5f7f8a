/*
 * Which instruction sets this machine has, by the compilers' names for them. On x86 the processor's word is not
 * enough: the operating system must also save the wider registers (XCR0), else the first such instruction traps.
 */
#include "core/plugins/instruction_sets.h"

#include "core/support.h"

#include <string.h>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

enum { EAX, EBX, ECX, EDX };
enum { NO_STATE = 0, AVX_STATE = 0x6, AVX512_STATE = 0xe6, AMX_STATE = 0x60000 };

/* A feature bit of CPUID, and the register state that the operating system must save for it; or, with `implied`, a
 * name for several of them. */
typedef struct feature {
  const char *name;
  unsigned leaf, subleaf;
  int reg, bit;
  unsigned state;
  const char *implied;
} feature;

#define V2 "cx16,sahf,popcnt,sse3,ssse3,sse4.1,sse4.2"
#define V3 V2 ",avx,avx2,bmi,bmi2,f16c,fma,lzcnt,movbe,xsave"

static const feature features[] = {
    {"cx8", 1, 0, EDX, 8, NO_STATE, NULL},
    {"cmov", 1, 0, EDX, 15, NO_STATE, NULL},
    {"mmx", 1, 0, EDX, 23, NO_STATE, NULL},
    {"fxsr", 1, 0, EDX, 24, NO_STATE, NULL},
    {"sse", 1, 0, EDX, 25, NO_STATE, NULL},
    {"sse2", 1, 0, EDX, 26, NO_STATE, NULL},
    {"sse3", 1, 0, ECX, 0, NO_STATE, NULL},
    {"pclmul", 1, 0, ECX, 1, NO_STATE, NULL},
    {"ssse3", 1, 0, ECX, 9, NO_STATE, NULL},
    {"fma", 1, 0, ECX, 12, AVX_STATE, NULL},
    {"cx16", 1, 0, ECX, 13, NO_STATE, NULL},
    {"sse4.1", 1, 0, ECX, 19, NO_STATE, NULL},
    {"sse4.2", 1, 0, ECX, 20, NO_STATE, NULL},
    {"movbe", 1, 0, ECX, 22, NO_STATE, NULL},
    {"popcnt", 1, 0, ECX, 23, NO_STATE, NULL},
    {"aes", 1, 0, ECX, 25, NO_STATE, NULL},
    {"xsave", 1, 0, ECX, 27, NO_STATE, NULL}, /* OSXSAVE: in use */
    {"avx", 1, 0, ECX, 28, AVX_STATE, NULL},
    {"f16c", 1, 0, ECX, 29, AVX_STATE, NULL},
    {"rdrnd", 1, 0, ECX, 30, NO_STATE, NULL},
    {"fsgsbase", 7, 0, EBX, 0, NO_STATE, NULL},
    {"bmi", 7, 0, EBX, 3, NO_STATE, NULL},
    {"avx2", 7, 0, EBX, 5, AVX_STATE, NULL},
    {"bmi2", 7, 0, EBX, 8, NO_STATE, NULL},
    {"avx512f", 7, 0, EBX, 16, AVX512_STATE, NULL},
    {"avx512dq", 7, 0, EBX, 17, AVX512_STATE, NULL},
    {"rdseed", 7, 0, EBX, 18, NO_STATE, NULL},
    {"adx", 7, 0, EBX, 19, NO_STATE, NULL},
    {"avx512ifma", 7, 0, EBX, 21, AVX512_STATE, NULL},
    {"clflushopt", 7, 0, EBX, 23, NO_STATE, NULL},
    {"clwb", 7, 0, EBX, 24, NO_STATE, NULL},
    {"avx512cd", 7, 0, EBX, 28, AVX512_STATE, NULL},
    {"sha", 7, 0, EBX, 29, NO_STATE, NULL},
    {"avx512bw", 7, 0, EBX, 30, AVX512_STATE, NULL},
    {"avx512vl", 7, 0, EBX, 31, AVX512_STATE, NULL},
    {"avx512vbmi", 7, 0, ECX, 1, AVX512_STATE, NULL},
    {"avx512vbmi2", 7, 0, ECX, 6, AVX512_STATE, NULL},
    {"gfni", 7, 0, ECX, 8, NO_STATE, NULL},
    {"vaes", 7, 0, ECX, 9, AVX_STATE, NULL},
    {"vpclmulqdq", 7, 0, ECX, 10, AVX_STATE, NULL},
    {"avx512vnni", 7, 0, ECX, 11, AVX512_STATE, NULL},
    {"avx512bitalg", 7, 0, ECX, 12, AVX512_STATE, NULL},
    {"avx512vpopcntdq", 7, 0, ECX, 14, AVX512_STATE, NULL},
    {"movdiri", 7, 0, ECX, 27, NO_STATE, NULL},
    {"movdir64b", 7, 0, ECX, 28, NO_STATE, NULL},
    {"avx512vp2intersect", 7, 0, EDX, 8, AVX512_STATE, NULL},
    {"serialize", 7, 0, EDX, 14, NO_STATE, NULL},
    {"amx-bf16", 7, 0, EDX, 22, AMX_STATE, NULL},
    {"avx512fp16", 7, 0, EDX, 23, AVX512_STATE, NULL},
    {"amx-tile", 7, 0, EDX, 24, AMX_STATE, NULL},
    {"amx-int8", 7, 0, EDX, 25, AMX_STATE, NULL},
    {"avxvnni", 7, 1, EAX, 4, AVX_STATE, NULL},
    {"avx512bf16", 7, 1, EAX, 5, AVX512_STATE, NULL},
    {"amx-fp16", 7, 1, EAX, 21, AMX_STATE, NULL},
    {"avxifma", 7, 1, EAX, 23, AVX_STATE, NULL},
    {"avxvnniint8", 7, 1, EDX, 4, AVX_STATE, NULL},
    {"avxneconvert", 7, 1, EDX, 5, AVX_STATE, NULL},
    {"sahf", 0x80000001, 0, ECX, 0, NO_STATE, NULL},
    {"lzcnt", 0x80000001, 0, ECX, 5, NO_STATE, NULL},
    {"sse4a", 0x80000001, 0, ECX, 6, NO_STATE, NULL},
    {"prfchw", 0x80000001, 0, ECX, 8, NO_STATE, NULL},
    {"xop", 0x80000001, 0, ECX, 11, AVX_STATE, NULL},
    {"fma4", 0x80000001, 0, ECX, 16, AVX_STATE, NULL},
    {"x86-64", 0, 0, 0, 0, 0, "cmov,cx8,fxsr,mmx,sse,sse2"},
    {"x86-64-v2", 0, 0, 0, 0, 0, V2},
    {"x86-64-v3", 0, 0, 0, 0, 0, V3},
    {"x86-64-v4", 0, 0, 0, 0, 0, V3 ",avx512f,avx512bw,avx512cd,avx512dq,avx512vl"},
};

/* Register states that the operating system saves. */
static unsigned saved_states(void) {
  unsigned eax, ebx, ecx, edx, low, high;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & bit_OSXSAVE))
    return 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

static bool feature_present(const feature *wanted) {
  unsigned registers[4] = {0};
  if (wanted->implied)
    return fl_isa_available(wanted->implied, NULL, 0);
  return __get_cpuid_count(wanted->leaf, wanted->subleaf, &registers[EAX], &registers[EBX], &registers[ECX],
                           &registers[EDX]) &&
         (registers[wanted->reg] >> wanted->bit & 1) && (saved_states() & wanted->state) == wanted->state;
}

#elif defined(__aarch64__)
#include <sys/auxv.h>

/* A bit of the kernel's AT_HWCAP or AT_HWCAP2 (numbers of the kernel's interface: headers older than a feature lack
 * its macro). The kernel sets a bit only for what it also supports. */
typedef struct feature {
  const char *name;
  unsigned long type;
  int bit;
} feature;

static const feature features[] = {
    {"fp", AT_HWCAP, 0},         {"simd", AT_HWCAP, 1},      {"aes", AT_HWCAP, 3},
    {"sha2", AT_HWCAP, 6},       {"crc", AT_HWCAP, 7},       {"lse", AT_HWCAP, 8},
    {"fp16", AT_HWCAP, 10},      {"rdma", AT_HWCAP, 12},     {"jscvt", AT_HWCAP, 13},
    {"fcma", AT_HWCAP, 14},      {"rcpc", AT_HWCAP, 15},     {"sha3", AT_HWCAP, 17},
    {"sm4", AT_HWCAP, 19},       {"dotprod", AT_HWCAP, 20},  {"sve", AT_HWCAP, 22},
    {"fp16fml", AT_HWCAP, 23},   {"flagm", AT_HWCAP, 27},    {"ssbs", AT_HWCAP, 28},
    {"sve2", AT_HWCAP2, 1},      {"sve2-aes", AT_HWCAP2, 2}, {"sve2-bitperm", AT_HWCAP2, 4},
    {"sve2-sha3", AT_HWCAP2, 5}, {"sve2-sm4", AT_HWCAP2, 6}, {"i8mm", AT_HWCAP2, 13},
    {"bf16", AT_HWCAP2, 14},     {"rng", AT_HWCAP2, 16},     {"bti", AT_HWCAP2, 17},
    {"memtag", AT_HWCAP2, 18},   {"sme", AT_HWCAP2, 23},     {"f32mm", AT_HWCAP2, 10},
    {"f64mm", AT_HWCAP2, 11},
};

static bool feature_present(const feature *wanted) {
  return getauxval(wanted->type) >> wanted->bit & 1;
}

#else
/* No table for this architecture: only plugins that need nothing beyond its base load. */
typedef struct feature {
  const char *name;
} feature;
static const feature features[] = {{"base"}};

static bool feature_present(const feature *wanted) {
  return wanted == features;
}
#endif

enum { N_FEATURES = sizeof features / sizeof features[0] };

static const feature *find_feature(const char *name, size_t length) {
  for (size_t i = 0; i < N_FEATURES; i++)
    if (strlen(features[i].name) == length && !memcmp(features[i].name, name, length))
      return &features[i];
  return NULL;
}

static void say_unknown(const char *name, size_t length, char *missing, size_t size) {
  const char *names[N_FEATURES];
  char word[64];
  for (size_t i = 0; i < N_FEATURES; i++)
    names[i] = features[i].name;
  snprintf(word, sizeof word, "%.*s", (int)length, name);
  const char *nearest = fl_nearest_word(word, names, N_FEATURES);
  snprintf(missing, size, "%s (unknown instruction set%s)", word, fl_suggest(nearest).text);
}

bool fl_isa_available(const char *isa, char *missing, size_t size) {
  while (*isa) {
    size_t part = strcspn(isa, ",");
    const char *name = isa;
    size_t length = fl_trim(&name, part);
    const feature *wanted = find_feature(name, length);
    isa += part + (isa[part] == ',');
    if (!length || (wanted && feature_present(wanted)))
      continue;
    if (missing && wanted)
      snprintf(missing, size, "%s", wanted->name);
    else if (missing)
      say_unknown(name, length, missing, size);
    return false;
  }
  return true;
}
