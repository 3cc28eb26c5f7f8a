/*
 * How the files that are shipped were compiled and linked, read in the files themselves: what makes a fault in them
 * harder to use. A file that was linked without one of these options fails here, whoever wrote its line in a Makefile.
 */
#include "tests/scratch.h"

#include <elf.h>
#include <glob.h>
#include <link.h>
#include <stdbool.h>

enum { MAX_FILES = 64 };

typedef struct elf_file {
  char path[PATH_MAX];
  unsigned char *bytes;
  size_t length;
  const ElfW(Ehdr) * header;
  const ElfW(Phdr) * segments;
  const ElfW(Sym) * symbols; /* the dynamic ones */
  size_t n_symbols;
  const char *names; /* of symbols */
} elf_file;

static elf_file files[MAX_FILES];
static int n_files;

static const ElfW(Phdr) * segment_of(const elf_file *file, uint32_t type) {
  for (int i = 0; i < file->header->e_phnum; i++)
    if (file->segments[i].p_type == type)
      return &file->segments[i];
  return NULL;
}

static uint64_t dynamic(const elf_file *file, int64_t tag) {
  const ElfW(Phdr) *segment = segment_of(file, PT_DYNAMIC);
  const ElfW(Dyn) *entry = (const ElfW(Dyn) *)(file->bytes + segment->p_offset);
  while (entry->d_tag != DT_NULL && entry->d_tag != tag)
    entry++;
  return entry->d_tag == tag ? entry->d_un.d_val : 0;
}

static bool has_dynamic(const elf_file *file, int64_t tag) {
  const ElfW(Phdr) *segment = segment_of(file, PT_DYNAMIC);
  const ElfW(Dyn) *entry = (const ElfW(Dyn) *)(file->bytes + segment->p_offset);
  while (entry->d_tag != DT_NULL && entry->d_tag != tag)
    entry++;
  return entry->d_tag == tag;
}

static void add_file(const char *path) {
  elf_file *file = &files[n_files++];
  ck_assert_int_lt(n_files, MAX_FILES);
  snprintf(file->path, sizeof file->path, "%s", path);
  file->bytes = read_file(path, &file->length);
  file->header = (const ElfW(Ehdr) *)file->bytes;
  file->segments = (const ElfW(Phdr) *)(file->bytes + file->header->e_phoff);
  const ElfW(Shdr) *sections = (const ElfW(Shdr) *)(file->bytes + file->header->e_shoff);
  for (int i = 0; i < file->header->e_shnum; i++)
    if (sections[i].sh_type == SHT_DYNSYM) {
      file->symbols = (const ElfW(Sym) *)(file->bytes + sections[i].sh_offset);
      file->n_symbols = sections[i].sh_size / sizeof *file->symbols;
      file->names = (const char *)file->bytes + sections[sections[i].sh_link].sh_offset;
    }
  ck_assert_ptr_nonnull(file->symbols);
}

static void set_up(void) {
  glob_t plugins;
  char pattern[2 * PATH_MAX];
  snprintf(pattern, sizeof pattern, "%s/*.so", built("plugins"));
  add_file(built("libflhost.so"));
  add_file(built("flhost"));
  ck_assert_int_eq(glob(pattern, 0, NULL, &plugins), 0);
  for (size_t i = 0; i < plugins.gl_pathc; i++)
    add_file(plugins.gl_pathv[i]);
  globfree(&plugins);
  ck_assert_int_ge(n_files, 4);
}

static void tear_down(void) {
  for (int i = 0; i < n_files; i++)
    free(files[i].bytes);
}

/* A symbol that the file wants of others: `name`, or one that begins and ends so. */
static bool wants(const elf_file *file, const char *begin, const char *end) {
  for (size_t i = 1; i < file->n_symbols; i++) {
    const char *name = file->names + file->symbols[i].st_name;
    size_t length = strlen(name), tail = strlen(end);
    if (file->symbols[i].st_shndx == SHN_UNDEF && !strncmp(name, begin, strlen(begin)) && length >= tail &&
        !strcmp(name + length - tail, end))
      return true;
  }
  return false;
}

static bool is_sanitized(void) {
  const char *options = getenv("SANITIZE");
  return options && *options;
}

/* ------------------------------------------------------------------------------------------------------- the tests */

START_TEST(no_memory_of_a_shipped_file_is_writable_and_executable) {
  for (int i = 0; i < n_files; i++) {
    const ElfW(Phdr) *stack = segment_of(&files[i], PT_GNU_STACK);
    ck_assert_msg(stack && !(stack->p_flags & PF_X), "%s asks for an executable stack", files[i].path);
    for (int j = 0; j < files[i].header->e_phnum; j++)
      ck_assert_msg(files[i].segments[j].p_type != PT_LOAD ||
                        (files[i].segments[j].p_flags & (PF_W | PF_X)) != (PF_W | PF_X),
                    "%s: segment %d is writable and executable", files[i].path, j);
    ck_assert_msg(!has_dynamic(&files[i], DT_TEXTREL) && !(dynamic(&files[i], DT_FLAGS) & DF_TEXTREL),
                  "%s has text relocations", files[i].path);
  }
}
END_TEST

START_TEST(what_the_dynamic_linker_fills_in_is_read_only_before_code_runs) {
  for (int i = 0; i < n_files; i++) {
    ck_assert_msg(segment_of(&files[i], PT_GNU_RELRO) != NULL, "%s: linked without -z relro", files[i].path);
    ck_assert_msg((dynamic(&files[i], DT_FLAGS) & DF_BIND_NOW) || (dynamic(&files[i], DT_FLAGS_1) & DF_1_NOW),
                  "%s: linked without -z now", files[i].path);
  }
}
END_TEST

START_TEST(every_shipped_file_can_be_loaded_anywhere) {
  for (int i = 0; i < n_files; i++) {
    bool is_program = has_dynamic(&files[i], DT_DEBUG);
    ck_assert_msg(files[i].header->e_type == ET_DYN, "%s: linked at a fixed address", files[i].path);
    const char *slash = strrchr(files[i].path, '/'); /* the directory may be named like the command */
    ck_assert_msg(is_program == !strcmp(slash ? slash + 1 : files[i].path, "flhost"), "%s", files[i].path);
    ck_assert_msg(!is_program || dynamic(&files[i], DT_FLAGS_1) & DF_1_PIE, "%s: linked without -pie", files[i].path);
  }
}
END_TEST

START_TEST(functions_with_arrays_guard_their_frames) {
  for (int i = 0; i < n_files; i++)
    ck_assert_msg(wants(&files[i], "__stack_chk_fail", ""), "%s: compiled without -fstack-protector-strong",
                  files[i].path);
}
END_TEST

/* All but those of which the compiler itself can see that there is enough. */
START_TEST(functions_that_write_text_know_how_much_room_there_is) {
  if (is_sanitized()) {
    printf("skip: functions_that_write_text_know_how_much_room_there_is: not with a sanitizer\n");
    return;
  }
  for (int i = 0; i < n_files; i++)
    ck_assert_msg(wants(&files[i], "__", "_chk"), "%s: compiled without -D_FORTIFY_SOURCE", files[i].path);
}
END_TEST

/* Options that leave no trace but in what gcc notes of them beside the debug information. */
static void expect_noted(const char *option) {
  int n = 0;
  for (int i = 0; i < n_files; i++)
    if (memmem(files[i].bytes, files[i].length, "GNU C11 ", 8)) {
      ck_assert_msg(memmem(files[i].bytes, files[i].length, option, strlen(option)) != NULL, "%s: compiled without %s",
                    files[i].path, option);
      n++;
    }
  if (!n)
    printf("skip: %s: this compiler notes no options\n", option);
}

START_TEST(large_frames_are_touched_page_by_page) {
  expect_noted("-fstack-clash-protection");
}
END_TEST

START_TEST(returns_are_what_a_shadow_stack_can_check) {
#if defined(__x86_64__) && defined(__CET__)
  expect_noted("-fcf-protection=return");
#else
  printf("skip: returns_are_what_a_shadow_stack_can_check: not on this processor\n");
#endif
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, no_memory_of_a_shipped_file_is_writable_and_executable);
  tcase_add_test(tests, what_the_dynamic_linker_fills_in_is_read_only_before_code_runs);
  tcase_add_test(tests, every_shipped_file_can_be_loaded_anywhere);
  tcase_add_test(tests, functions_with_arrays_guard_their_frames);
  tcase_add_test(tests, functions_that_write_text_know_how_much_room_there_is);
  tcase_add_test(tests, returns_are_what_a_shadow_stack_can_check);
  tcase_add_test(tests, large_frames_are_touched_page_by_page);
}

int main(void) {
  return run_suite("hardened", add_tests, 60);
}
