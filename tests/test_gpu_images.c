/*
 * What was compiled for AMD's devices, as it lies in the plugin: bundles of code objects, for a loader that no test
 * has. Every architecture that the plugin says it has is in each of them, with every kernel, and needs nothing from
 * outside. The kernels' names are those of the stand-in, whose kernels are of the same sources. Without the compiler:
 * skipped.
 */
#include "tests/drivers/gpu/grid.h"
#include "tests/gpu.h"

#include <elf.h>
#include <stdint.h>
#include <unistd.h>

enum { EM_AMDGCN = 224, OSABI_HSA = 64, ABI_VERSION_4 = 2, MOST_BUNDLES = 64, MOST_ENTRIES = 32, MOST_KERNELS = 1024 };
enum { MACHINE = 0xff, XNACK = 0x300, SRAMECC = 0xc00, ANY_XNACK = 0x100, ANY_SRAMECC = 0x400 }; /* of e_flags */

#define ENTRY_PREFIX "hipv4-amdgcn-amd-amdhsa--"

/* LLVM's User Guide for the AMDGPU Backend, e_flags, and the width of a wavefront. */
static const struct {
  const char *name;
  unsigned machine, wave;
} archs[] = {
    {"gfx900", 0x2c, 64},  {"gfx906", 0x2f, 64},  {"gfx908", 0x30, 64},  {"gfx90a", 0x3f, 64},
    {"gfx942", 0x4c, 64},  {"gfx950", 0x4f, 64},  {"gfx1010", 0x33, 32}, {"gfx1030", 0x36, 32},
    {"gfx1100", 0x41, 32}, {"gfx1101", 0x46, 32}, {"gfx1102", 0x47, 32}, {"gfx1103", 0x44, 32},
    {"gfx1150", 0x43, 32}, {"gfx1151", 0x4a, 32}, {"gfx1200", 0x48, 32}, {"gfx1201", 0x4e, 32},
};
enum { N_ARCHS = sizeof archs / sizeof archs[0] };

/* The plugin's file. */
static char *file;
static size_t file_size;

static void read_plugin(void) {
  char path[4096];
  long size;
  snprintf(path, sizeof path, "%s/plugins/rocm.so", build_dir());
  FILE *f = fopen(path, "rb");
  ck_assert_msg(f != NULL, "%s: %m", path);
  ck_assert(!fseek(f, 0, SEEK_END) && (size = ftell(f)) > 0 && !fseek(f, 0, SEEK_SET));
  file_size = (size_t)size;
  file = malloc(file_size);
  ck_assert(file && fread(file, 1, file_size, f) == file_size);
  fclose(f);
}

/* "gfx908,gfx90a", as the plugin says it when it meets another one; NULL: it has no kernels, and the test is skipped.
 */
static const char *compiled_for(const char *test) {
  static char list[256];
  const gpu_setup rocm = {.plugin = "plugins/rocm.so",
                          .setting = "FLHOST_ROCM_DRIVER",
                          .driver = "standin_hip6.so",
                          .math = "FLHOST_ROCBLAS"};
  static gpu_plugin plugin;
  const char *reason = NULL;
  gpu_plugin_on_stand_in(&plugin, &rocm, NULL);
  stand_in_set("arch=2"); /* gfx803 */
  const fl_impl *any = gpu_plugin_impl(&plugin, "silu_and_mul", NULL);
  ck_assert(!any->is_available(any->self, &reason));
  const char *begin = strstr(reason, "compiled for "), *end = strstr(reason, ", this device is gfx803");
  if (begin && end) {
    begin += strlen("compiled for ");
    snprintf(list, sizeof list, "%.*s", (int)(end - begin), begin);
    return list;
  }
  ck_contains(reason, "built without");
  printf("skip: %s: %s\n", test, reason);
  return NULL;
}

/* -------------------------------------------------------------------------------------------------------- bundles */

/* A code object of a bundle. */
typedef struct entry {
  char arch[32];
  const char *code;
  size_t size;
} entry;

typedef struct bundle {
  entry entries[MOST_ENTRIES];
  int n;
} bundle;

static uint64_t number_at(const char *at) {
  uint64_t number;
  ck_assert(at >= file && at + sizeof number <= file + file_size);
  memcpy(&number, at, sizeof number);
  return number;
}

/* A count, then for each entry where it lies, its size, and its name with the length before it. */
static bundle read_bundle(const char *begin) {
  const char *at = begin + strlen("__CLANG_OFFLOAD_BUNDLE__");
  uint64_t count = number_at(at);
  bundle b = {.n = 0};
  at += sizeof count;
  for (uint64_t i = 0; i < count; i++) {
    uint64_t offset = number_at(at), size = number_at(at + 8), length = number_at(at + 16);
    const char *name = at + 24;
    at = name + length;
    ck_assert(at <= file + file_size && begin + offset + size <= file + file_size);
    if (strncmp(name, ENTRY_PREFIX, strlen(ENTRY_PREFIX)) != 0) {
      ck_assert_msg(!size && !strncmp(name, "host-", 5), "entry '%.*s'", (int)length, name);
      continue;
    }
    ck_assert_int_lt(b.n, MOST_ENTRIES);
    entry *e = &b.entries[b.n++];
    snprintf(e->arch, sizeof e->arch, "%.*s", (int)(length - strlen(ENTRY_PREFIX)), name + strlen(ENTRY_PREFIX));
    e->code = begin + offset;
    e->size = size;
  }
  return b;
}

/* All in the file; how many. */
static int find_bundles(bundle *bundles) {
  const char magic[] = "__CLANG_OFFLOAD_BUNDLE__";
  int n = 0;
  for (const char *at = file; (at = memmem(at, file_size - (size_t)(at - file), magic, sizeof magic - 1)); at++) {
    ck_assert_int_lt(n, MOST_BUNDLES);
    bundles[n++] = read_bundle(at);
  }
  return n;
}

static const entry *entry_for(const bundle *b, const char *arch, size_t length) {
  for (int i = 0; i < b->n; i++)
    if (strlen(b->entries[i].arch) == length && !strncmp(b->entries[i].arch, arch, length))
      return &b->entries[i];
  return NULL;
}

/* ---------------------------------------------------------------------------------------------------- code objects */

static const Elf64_Shdr *section_of(const entry *e, uint32_t type) {
  const Elf64_Ehdr *header = (const Elf64_Ehdr *)e->code;
  const Elf64_Shdr *sections = (const Elf64_Shdr *)(e->code + header->e_shoff);
  ck_assert_uint_le(header->e_shoff + header->e_shnum * sizeof *sections, e->size);
  for (int i = 0; i < header->e_shnum; i++)
    if (sections[i].sh_type == type)
      return &sections[i];
  ck_abort_msg("%s: no section of type %u", e->arch, type);
  return NULL;
}

/* Names that the loader can look up, of kernels' descriptors alone. Whatever is not defined is an error. */
static int kernels_of(const entry *e, const char *names[]) {
  const Elf64_Shdr *table = section_of(e, SHT_DYNSYM);
  const Elf64_Ehdr *header = (const Elf64_Ehdr *)e->code;
  const Elf64_Shdr *strings = (const Elf64_Shdr *)(e->code + header->e_shoff) + table->sh_link;
  const Elf64_Sym *symbols = (const Elf64_Sym *)(e->code + table->sh_offset);
  int n = 0;
  for (size_t i = 1; i < table->sh_size / sizeof *symbols; i++) {
    const char *name = e->code + strings->sh_offset + symbols[i].st_name, *end = strrchr(name, '.');
    ck_assert_msg(symbols[i].st_shndx != SHN_UNDEF, "%s: %s is not defined", e->arch, name);
    if (!end || strcmp(end, ".kd") != 0)
      continue;
    ck_assert_int_lt(n, MOST_KERNELS);
    names[n++] = name;
  }
  return n;
}

/* A number of MessagePack, of at most 16 bits. */
static unsigned packed_number(const unsigned char *at) {
  return *at == 0xcd ? at[1] * 256u + at[2] : *at == 0xcc ? at[1] : *at;
}

/* What follows a key of the metadata, from `at` on; NULL: it does not come any more. */
static const unsigned char *after_key(const char *at, const char *end, const char *key) {
  const char *found = memmem(at, (size_t)(end - at), key, strlen(key));
  return found ? (const unsigned char *)found + strlen(key) : NULL;
}

/* A kernel of the stand-in, by a name that is not ended; NULL: there is none. */
static const grid_kernel *source_of(const char *name, size_t length) {
  const grid_kernel *(*kernel_at)(size_t), *kernel;
  size_t i = 0;
  stand_in_find("flhost_stand_in_kernel", &kernel_at);
  while ((kernel = kernel_at(i++)))
    if (strlen(kernel->name) == length && !strncmp(kernel->name, name, length))
      return kernel;
  return NULL;
}

/* In the note of metadata, MessagePack, each kernel is a map whose keys come in alphabetical order; they are strings,
 * with their lengths before. The threads that a block may have say how many registers each gets. */
static void check_metadata(const entry *e, int kernels, unsigned wave) {
  const Elf64_Shdr *note = section_of(e, SHT_NOTE);
  const char *at = e->code + note->sh_offset, *end = at + note->sh_size;
  const unsigned char *threads, *name, *width;
  int n = 0;
  for (; (threads = after_key(at, end, "\xb8.max_flat_workgroup_size")); n++) {
    ck_assert((name = after_key((const char *)threads, end, "\xa5.name")) != NULL);
    size_t length = *name == 0xd9 ? name[1] : *name & 0x1fu; /* of one byte, or up to 31 */
    const char *text = (const char *)name + (*name == 0xd9 ? 2 : 1);
    const grid_kernel *source = source_of(text, length);
    ck_assert_msg(source != NULL, "%s: unknown kernel %.*s", e->arch, (int)length, text);
    ck_assert_msg(packed_number(threads) == source->most_threads, "%s: %s is for %u threads, expected %u", e->arch,
                  source->name, packed_number(threads), source->most_threads);
    ck_assert((width = after_key(text, end, "\xaf.wavefront_size")) != NULL);
    ck_assert_msg(packed_number(width) == wave, "%s: %s has wavefronts of %u, expected %u", e->arch, source->name,
                  packed_number(width), wave);
    at = (const char *)width;
  }
  ck_assert_int_eq(n, kernels);
}

static void check_header(const entry *e, unsigned machine) {
  const Elf64_Ehdr *header = (const Elf64_Ehdr *)e->code;
  ck_assert_uint_gt(e->size, sizeof *header);
  ck_assert(!memcmp(header->e_ident, ELFMAG, SELFMAG) && header->e_machine == EM_AMDGCN);
  ck_assert_uint_eq(header->e_ident[EI_OSABI], OSABI_HSA);
  ck_assert_uint_eq(header->e_ident[EI_ABIVERSION], ABI_VERSION_4);
  ck_assert_msg((header->e_flags & MACHINE) == machine, "%s: e_flags 0x%x", e->arch, header->e_flags);
  /* Whatever the device's settings are. */
  ck_assert((header->e_flags & XNACK) <= ANY_XNACK && (header->e_flags & SRAMECC) <= ANY_SRAMECC);
}

/* ----------------------------------------------------------------------------------------------------------- tests */

START_TEST(every_file_of_kernels_has_code_for_every_architecture) {
  static bundle bundles[MOST_BUNDLES];
  const char *list = compiled_for("every_file_of_kernels_has_code_for_every_architecture");
  if (!list)
    return;
  read_plugin();
  int n = find_bundles(bundles);
  ck_assert_int_gt(n, 0);
  for (int i = 0; i < n; i++) {
    int found = 0;
    for (const char *arch = list; *arch; arch += strspn(arch, ","), found++) {
      size_t length = strcspn(arch, ",");
      ck_assert_msg(entry_for(&bundles[i], arch, length) != NULL, "bundle %d has nothing for %.*s", i, (int)length,
                    arch);
      arch += length;
    }
    ck_assert_int_eq(bundles[i].n, found);
  }
  free(file);
}
END_TEST

START_TEST(every_code_object_is_one_for_its_architecture) {
  static bundle bundles[MOST_BUNDLES];
  static const char *names[MOST_KERNELS];
  if (!compiled_for("every_code_object_is_one_for_its_architecture"))
    return;
  read_plugin();
  int n = find_bundles(bundles);
  for (int i = 0; i < n; i++)
    for (const entry *e = bundles[i].entries; e < bundles[i].entries + bundles[i].n; e++) {
      int a = 0;
      while (a < N_ARCHS && strcmp(archs[a].name, e->arch) != 0)
        a++;
      ck_assert_msg(a < N_ARCHS, "%s: not in this test's table", e->arch);
      check_header(e, archs[a].machine);
      check_metadata(e, kernels_of(e, names), archs[a].wave);
    }
  free(file);
}
END_TEST

/* Does one of the bundles define it for the architecture? */
static bool has_kernel(const bundle *bundles, int n, const char *arch, const char *kernel) {
  static const char *names[MOST_KERNELS];
  size_t length = strlen(kernel);
  for (int i = 0; i < n; i++) {
    const entry *e = entry_for(&bundles[i], arch, strlen(arch));
    for (int k = e ? kernels_of(e, names) : 0; k-- > 0;)
      if (!strncmp(names[k], kernel, length) && !strcmp(names[k] + length, ".kd"))
        return true;
  }
  return false;
}

START_TEST(every_kernel_is_there_for_every_architecture) {
  static bundle bundles[MOST_BUNDLES];
  static const char *names[MOST_KERNELS];
  const grid_kernel *(*kernel_at)(size_t), *kernel;
  if (!compiled_for("every_kernel_is_there_for_every_architecture"))
    return;
  read_plugin();
  stand_in_find("flhost_stand_in_kernel", &kernel_at);
  int n = find_bundles(bundles), wanted = 0;
  for (size_t k = 0; (kernel = kernel_at(k)); k++) {
    if (!strstr(kernel->file, "plugins/gpu/kernels/"))
      continue;
    wanted++;
    for (int a = 0; a < bundles[0].n; a++)
      ck_assert_msg(has_kernel(bundles, n, bundles[0].entries[a].arch, kernel->name), "%s: no %s",
                    bundles[0].entries[a].arch, kernel->name);
  }
  ck_assert_int_gt(wanted, 0);
  for (int a = 0; a < bundles[0].n; a++) {
    int had = 0;
    for (int i = 0; i < n; i++)
      had += kernels_of(entry_for(&bundles[i], bundles[0].entries[a].arch, strlen(bundles[0].entries[a].arch)), names);
    ck_assert_int_eq(had, wanted);
  }
  free(file);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_test(tests, every_file_of_kernels_has_code_for_every_architecture);
  tcase_add_test(tests, every_code_object_is_one_for_its_architecture);
  tcase_add_test(tests, every_kernel_is_there_for_every_architecture);
}

int main(void) {
  return run_suite("gpu_images", add_tests, 60);
}
