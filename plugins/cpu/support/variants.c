/* Chooses among the instruction sets: see variants.h. */
#include "plugins/cpu/support/variants.h"

#include <string.h>

/* What a variant's code uses. The C library has asked processor and operating system. */
#if defined(__x86_64__) && __has_include(<sys/platform/x86.h>)
#include <sys/platform/x86.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NEEDS = 17 };
static const unsigned avx2[NEEDS] = {x86_cpu_AVX,  x86_cpu_AVX2, x86_cpu_BMI1,  x86_cpu_BMI2,
                                     x86_cpu_F16C, x86_cpu_FMA,  x86_cpu_LZCNT, x86_cpu_MOVBE};
static const unsigned avx512[NEEDS] = {x86_cpu_AVX,     x86_cpu_AVX2,     x86_cpu_BMI1,     x86_cpu_BMI2,
                                       x86_cpu_F16C,    x86_cpu_FMA,      x86_cpu_LZCNT,    x86_cpu_MOVBE,
                                       x86_cpu_AVX512F, x86_cpu_AVX512BW, x86_cpu_AVX512CD, x86_cpu_AVX512DQ,
                                       x86_cpu_AVX512VL};
static const unsigned avx512_bf16[NEEDS] = {x86_cpu_AVX,      x86_cpu_AVX2,        x86_cpu_BMI1,       x86_cpu_BMI2,
                                            x86_cpu_F16C,     x86_cpu_FMA,         x86_cpu_LZCNT,      x86_cpu_MOVBE,
                                            x86_cpu_AVX512F,  x86_cpu_AVX512BW,    x86_cpu_AVX512CD,   x86_cpu_AVX512DQ,
                                            x86_cpu_AVX512VL, x86_cpu_AVX512_BF16, x86_cpu_AVX512_VNNI};
static const unsigned amx[NEEDS] = {
    x86_cpu_AVX,      x86_cpu_AVX2,        x86_cpu_BMI1,        x86_cpu_BMI2,     x86_cpu_F16C,     x86_cpu_FMA,
    x86_cpu_LZCNT,    x86_cpu_MOVBE,       x86_cpu_AVX512F,     x86_cpu_AVX512BW, x86_cpu_AVX512CD, x86_cpu_AVX512DQ,
    x86_cpu_AVX512VL, x86_cpu_AVX512_BF16, x86_cpu_AVX512_VNNI, x86_cpu_AMX_TILE, x86_cpu_AMX_BF16};

/* The header's own function shifts a 1 into the sign. */
static bool machine_has(const unsigned *needs) {
  for (int i = 0; i < NEEDS && needs[i]; i++)
    if (!(__x86_get_cpuid_feature_leaf(needs[i] / 128)->active_array[needs[i] % 128 / 32] >> needs[i] % 32 & 1))
      return false;
  return true;
}

/* A process has the registers of tiles once it has asked for them, and so have its children (Linux, arch_prctl(2)). */
static bool may_use_tiles(void) {
  enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
  return !syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA);
}
#else
static const unsigned avx2[1], avx512[1], avx512_bf16[1], amx[1];

static bool machine_has(const unsigned *needs) {
  return !needs;
}

static bool may_use_tiles(void) {
  return false;
}
#endif

/* Of a variant that was not compiled there are none. */
#define LISTS(name)                                                                                                    \
  extern const op_list *const __start_op_lists_##name[] __attribute__((visibility("hidden"), weak));                   \
  extern const op_list *const __stop_op_lists_##name[] __attribute__((visibility("hidden"), weak))
LISTS(baseline);
LISTS(avx2);
LISTS(avx512);
LISTS(avx512_bf16);
LISTS(amx);

/* The best first. */
static const struct {
  cpu_variant variant;
  const unsigned *needs; /* NULL: nothing */
} variants[] = {
    {{"amx", __start_op_lists_amx, __stop_op_lists_amx}, amx},
    {{"avx512_bf16", __start_op_lists_avx512_bf16, __stop_op_lists_avx512_bf16}, avx512_bf16},
    {{"avx512", __start_op_lists_avx512, __stop_op_lists_avx512}, avx512},
    {{"avx2", __start_op_lists_avx2, __stop_op_lists_avx2}, avx2},
    {{"baseline", __start_op_lists_baseline, __stop_op_lists_baseline}, NULL},
};
enum { N_VARIANTS = sizeof variants / sizeof variants[0] };

static bool runs(int i) {
  const unsigned *needs = variants[i].needs;
  return variants[i].variant.lists && (!needs || machine_has(needs)) && (needs != amx || may_use_tiles());
}

/* A word that is no variant's is `auto`, the host having said what is wrong with it. */
const cpu_variant *cpu_variant_choose(const char *wanted, char *reason, size_t size) {
  for (int i = 0; i < N_VARIANTS; i++) {
    if (strcmp(wanted, variants[i].variant.name))
      continue;
    if (runs(i))
      return &variants[i].variant;
    snprintf(reason, size, "VLLM_FL_CPU_ISA=%s: %s", wanted,
             variants[i].variant.lists
                 ? "this machine has not these instructions, or its operating system does not save "
                   "their registers"
                 : "this plugin was built without them");
    return NULL;
  }
  int best = 0;
  while (!runs(best))
    best++;
  return &variants[best].variant;
}
