/*
 * Which instruction sets this machine has, by the compilers' names for them. The processor's word is not enough: the
 * operating system must also save the wider registers, else the first such instruction traps. The C library knows both,
 * and what the user has turned off (GLIBC_TUNABLES).
 */
#include "core/plugins/instruction_sets.h"

#include "core/support.h"

#include <string.h>

#if (defined(__x86_64__) || defined(__i386__)) && __has_include(<sys/platform/x86.h>)
#include <sys/platform/x86.h>

/* The C library's number of a feature. `with`: it is newer than the library, which knows that its registers are in use
 * by that other one. */
typedef struct feature {
  const char *name;
  unsigned number, with;
} feature;

enum { LEVEL = 1 << 30, EDX = 96 };

/* What the names for several mean; number LEVEL + index. */
#define V2 "cx16,sahf,popcnt,sse3,ssse3,sse4.1,sse4.2"
#define V3 V2 ",avx,avx2,bmi,bmi2,f16c,fma,lzcnt,movbe,xsave"
static const char *const levels[] = {"cmov,cx8,fxsr,mmx,sse,sse2", V2, V3,
                                     V3 ",avx512f,avx512bw,avx512cd,avx512dq,avx512vl"};

static const feature features[] = {
    {"cx8", x86_cpu_CX8, 0},
    {"cmov", x86_cpu_CMOV, 0},
    {"mmx", x86_cpu_MMX, 0},
    {"fxsr", x86_cpu_FXSR, 0},
    {"sse", x86_cpu_SSE, 0},
    {"sse2", x86_cpu_SSE2, 0},
    {"sse3", x86_cpu_SSE3, 0},
    {"pclmul", x86_cpu_PCLMULQDQ, 0},
    {"ssse3", x86_cpu_SSSE3, 0},
    {"fma", x86_cpu_FMA, 0},
    {"cx16", x86_cpu_CMPXCHG16B, 0},
    {"sse4.1", x86_cpu_SSE4_1, 0},
    {"sse4.2", x86_cpu_SSE4_2, 0},
    {"movbe", x86_cpu_MOVBE, 0},
    {"popcnt", x86_cpu_POPCNT, 0},
    {"aes", x86_cpu_AES, 0},
    {"xsave", x86_cpu_OSXSAVE, 0},
    {"avx", x86_cpu_AVX, 0},
    {"f16c", x86_cpu_F16C, 0},
    {"rdrnd", x86_cpu_RDRAND, 0},
    {"fsgsbase", x86_cpu_FSGSBASE, 0},
    {"bmi", x86_cpu_BMI1, 0},
    {"avx2", x86_cpu_AVX2, 0},
    {"bmi2", x86_cpu_BMI2, 0},
    {"avx512f", x86_cpu_AVX512F, 0},
    {"avx512dq", x86_cpu_AVX512DQ, 0},
    {"rdseed", x86_cpu_RDSEED, 0},
    {"adx", x86_cpu_ADX, 0},
    {"avx512ifma", x86_cpu_AVX512_IFMA, 0},
    {"clflushopt", x86_cpu_CLFLUSHOPT, 0},
    {"clwb", x86_cpu_CLWB, 0},
    {"avx512cd", x86_cpu_AVX512CD, 0},
    {"sha", x86_cpu_SHA, 0},
    {"avx512bw", x86_cpu_AVX512BW, 0},
    {"avx512vl", x86_cpu_AVX512VL, 0},
    {"avx512vbmi", x86_cpu_AVX512_VBMI, 0},
    {"avx512vbmi2", x86_cpu_AVX512_VBMI2, 0},
    {"gfni", x86_cpu_GFNI, 0},
    {"vaes", x86_cpu_VAES, 0},
    {"vpclmulqdq", x86_cpu_VPCLMULQDQ, 0},
    {"avx512vnni", x86_cpu_AVX512_VNNI, 0},
    {"avx512bitalg", x86_cpu_AVX512_BITALG, 0},
    {"avx512vpopcntdq", x86_cpu_AVX512_VPOPCNTDQ, 0},
    {"movdiri", x86_cpu_MOVDIRI, 0},
    {"movdir64b", x86_cpu_MOVDIR64B, 0},
    {"avx512vp2intersect", x86_cpu_AVX512_VP2INTERSECT, 0},
    {"serialize", x86_cpu_SERIALIZE, 0},
    {"amx-bf16", x86_cpu_AMX_BF16, 0},
    {"avx512fp16", x86_cpu_AVX512_FP16, 0},
    {"amx-tile", x86_cpu_AMX_TILE, 0},
    {"amx-int8", x86_cpu_AMX_INT8, 0},
    {"avxvnni", x86_cpu_AVX_VNNI, 0},
    {"avx512bf16", x86_cpu_AVX512_BF16, 0},
    {"sahf", x86_cpu_LAHF64_SAHF64, 0},
    {"lzcnt", x86_cpu_LZCNT, 0},
    {"sse4a", x86_cpu_SSE4A, 0},
    {"prfchw", x86_cpu_PREFETCHW, 0},
    {"xop", x86_cpu_XOP, 0},
    {"fma4", x86_cpu_FMA4, 0},
    {"amx-fp16", x86_cpu_index_7_ecx_1_eax + 21, x86_cpu_AMX_TILE},
    {"avxifma", x86_cpu_index_7_ecx_1_eax + 23, x86_cpu_AVX2},
    {"avxvnniint8", x86_cpu_index_7_ecx_1_eax + EDX + 4, x86_cpu_AVX2},
    {"avxneconvert", x86_cpu_index_7_ecx_1_eax + EDX + 5, x86_cpu_AVX2},
    {"x86-64", LEVEL, 0},
    {"x86-64-v2", LEVEL + 1, 0},
    {"x86-64-v3", LEVEL + 2, 0},
    {"x86-64-v4", LEVEL + 3, 0},
};

/* The header's own functions shift a 1 into the sign. */
static bool is_set(const unsigned *registers, unsigned number) {
  return registers[number % 128 / 32] >> number % 32 & 1;
}

static bool is_active(unsigned number) {
  return is_set(__x86_get_cpuid_feature_leaf(number / 128)->active_array, number);
}

static bool feature_present(const feature *wanted) {
  if (wanted->number & LEVEL)
    return fl_isa_available(levels[wanted->number - LEVEL], NULL, 0);
  return is_active(wanted->number) ||
         (wanted->with && is_active(wanted->with) &&
          is_set(__x86_get_cpuid_feature_leaf(wanted->number / 128)->cpuid_array, wanted->number));
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
/* No table for this architecture, or a C library that does not say (glibc before 2.33): only plugins that need nothing
 * beyond its base load. */
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
