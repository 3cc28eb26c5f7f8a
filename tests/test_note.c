/* What is said of a plugin file before it is mapped: its note (design: the ABI is judged first), and D4's reasons. */
#include "core/plugins/instruction_sets.h"
#include "core/plugins/loader.h"
#include "tests/scratch.h"

#include <elf.h>
#include <errno.h>
#include <link.h>

static fl_note_info info;

/* Where a plugin's note of type 1 has its descriptor. */
static unsigned char *find_descriptor(unsigned char *bytes, size_t length) {
  static const unsigned char header[] = {8, 0, 0, 0};
  unsigned char *type = memmem(bytes, length, "\1\0\0\0flhost\0", 12);
  ck_assert_ptr_nonnull(type);
  ck_assert_mem_eq(type - 8, header, 4);
  return type + 12;
}

static void expect_refusal(const char *path, const char *message) {
  ck_assert_int_eq(fl_note_read(path, &info), FL_EPLUGIN);
  ck_assert_str_eq(fl_error_message(), message);
}

START_TEST(note_is_read_from_the_file) {
  ck_assert_int_eq(fl_note_read(built("tests/plugins/good.so"), &info), FL_OK);
  ck_assert_str_eq(info.note.name, "good");
  ck_assert_str_eq(info.note.version, "1.2.3");
  ck_assert_str_eq(info.note.vendor, "Good GmbH");
  ck_assert_str_eq(info.note.licence, "MIT");
  ck_assert_str_eq(info.note.isa, "");
  ck_assert_uint_eq(info.note.abi_major, FL_ABI_MAJOR);
  ck_assert_uint_eq(info.note.abi_minor, FL_ABI_MINOR);
  ck_assert_str_eq(info.build_id, "00c0ffee");
}
END_TEST

START_TEST(a_list_of_ops_is_read_without_white_space) {
  ck_assert_int_eq(fl_note_read(built("tests/plugins/good.so"), &info), FL_OK);
  ck_assert_ptr_null(info.ops);
  ck_assert_int_eq(fl_note_read(built("tests/plugins/listed/lazy_better.so"), &info), FL_OK);
  ck_assert_str_eq(info.note.name, "lazy_better");
  ck_assert_str_eq(info.ops, "lazy_a,lazy_c");
  fl_note_clear(&info);
}
END_TEST

START_TEST(names_in_a_list_are_whole_words) {
  static const char list[] = "rms_norm,gelu,silu_and_mul";
  static const struct {
    const char *name;
    bool listed;
  } cases[] = {{"rms_norm", true},  {"gelu", true}, {"silu_and_mul", true},       {"rms", false},  {"norm", false},
               {"silu_and", false}, {"", false},    {"gelu,silu_and_mul", false}, {"gelu_", false}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    ck_assert_msg(fl_ops_list(list, sizeof list - 1, cases[i].name, strlen(cases[i].name)) == cases[i].listed, "'%s'",
                  cases[i].name);
}
END_TEST

/* What a future host appends. */
START_TEST(a_list_of_another_abi_is_not_believed) {
  size_t length;
  uint16_t major = 7;
  unsigned char *bytes = read_file(built("tests/plugins/listed/lazy_gap.so"), &length);
  memcpy(find_descriptor(bytes, length) + offsetof(fl_plugin_note, abi_major) - offsetof(fl_plugin_note, size), &major,
         sizeof major);
  ck_assert_int_eq(fl_note_read(write_file("x.so", bytes, length), &info), FL_OK);
  ck_assert_uint_eq(info.note.abi_major, 7);
  fl_note_clear(&info);
  free(bytes);
}
END_TEST

START_TEST(note_is_read_without_section_headers) {
  size_t length;
  unsigned char *bytes = read_file(built("tests/plugins/good.so"), &length);
  ElfW(Ehdr) *header = (ElfW(Ehdr) *)bytes;
  header->e_shoff = 0;
  header->e_shnum = 0;
  ck_assert_int_eq(fl_note_read(write_file("x.so", bytes, length), &info), FL_OK);
  ck_assert_str_eq(info.note.name, "good");
  free(bytes);
}
END_TEST

static const struct {
  const char *bytes;
  size_t length;
  const char *message;
} others[] = {
    {"", 0, "not a shared library: the file is empty"},
    {"hello\n", 6, "not a shared library (no ELF file): it is text"},
    {"#!/bin/sh\n", 10, "not a shared library (no ELF file): it is a script"},
    {"/* GNU ld script */\n", 20, "not a shared library (no ELF file): it is a linker script (text)"},
    {"!<arch>\nx.o", 11, "not a shared library (no ELF file): it is a static library (ar archive)"},
    {"MZ\x90\0\3", 5, "not a shared library (no ELF file): it is a Windows file (PE)"},
    {"\xcf\xfa\xed\xfe\7", 5, "not a shared library (no ELF file): it is a macOS file (Mach-O)"},
    {"PK\3\4", 4, "not a shared library (no ELF file): it is a zip archive or Python wheel"},
    {"version https://git-lfs.github.com/spec/v1\n", 43,
     "not a shared library (no ELF file): it is a Git LFS pointer: fetch the real file with 'git lfs pull'"},
    {"\0\1\2\3", 4, "not a shared library (no ELF file): it is unknown data"},
    {"\x7f"
     "EL",
     3, "not a shared library (no ELF file): it is unknown data"},
    {"\x7f"
     "ELF\2\1\1",
     7, "truncated: the file has 7 bytes, less than an ELF header"},
};

START_TEST(D4_other_files_are_named) {
  expect_refusal(write_file("x.so", others[_i].bytes, others[_i].length), others[_i].message);
}
END_TEST

START_TEST(D4_what_is_no_file_is_refused) {
  ck_assert_int_eq(mkfifo(in_scratch("fifo.so"), 0600), 0);
  expect_refusal(in_scratch("fifo.so"), "not a regular file: it is a named pipe");
  expect_refusal("/dev/null", "not a regular file: it is a device");
  expect_refusal(scratch, "not a regular file: it is a directory");
  expect_refusal(in_scratch("none.so"), "cannot be opened: No such file or directory");
}
END_TEST

/* A file of /sys says that it has a page, and has less: as one that is cut while it is read. */
START_TEST(D4_a_file_that_has_less_than_its_size_is_refused) {
  static const char file[] = "/sys/devices/system/cpu/possible";
  if (access(file, R_OK)) {
    printf("skip: D4_a_file_that_has_less_than_its_size_is_refused: no %s\n", file);
    return;
  }
  errno = EACCES;
  expect_refusal(file, "cannot be read: it has fewer bytes than its size says, and may be changing");
}
END_TEST

/* Byte 4: class; 5: byte order; 16: type; 18: machine. */
static const struct {
  unsigned char class, order, type, machine;
  const char *message;
} headers[] = {
    {ELFCLASS64, ELFDATA2LSB, ET_DYN, EM_AARCH64, "built for aarch64, this host is x86-64"},
    {ELFCLASS32, ELFDATA2LSB, ET_DYN, EM_386, "built for 32-bit x86, this host is x86-64"},
    {ELFCLASS32, ELFDATA2LSB, ET_DYN, EM_X86_64, "built for x32, this host is x86-64"},
    {ELFCLASS64, ELFDATA2LSB, ET_DYN, EM_RISCV, "built for riscv64, this host is x86-64"},
    {ELFCLASS64, ELFDATA2LSB, ET_DYN, 199, "built for 64-bit ELF machine 199, this host is x86-64"},
    {ELFCLASS64, ELFDATA2LSB, ET_REL, EM_X86_64,
     "not a shared library: it is an object file (.o); link it with -shared"},
    {ELFCLASS64, ELFDATA2LSB, ET_EXEC, EM_X86_64, "not a shared library: it is a program"},
    {ELFCLASS64, ELFDATA2LSB, ET_CORE, EM_X86_64, "not a shared library: it is a core dump"},
};

#ifdef __x86_64__
START_TEST(D4_other_architectures_are_named) {
  size_t length;
  unsigned char *bytes = read_file(built("tests/plugins/good.so"), &length);
  bytes[4] = headers[_i].class;
  bytes[5] = headers[_i].order;
  bytes[16] = headers[_i].type;
  bytes[18] = headers[_i].machine;
  expect_refusal(write_file("x.so", bytes, length), headers[_i].message);
  free(bytes);
}
END_TEST
#endif

/* Wherever a copy was interrupted. */
START_TEST(D4_any_truncation_is_found) {
  size_t length;
  unsigned char *bytes = read_file(built("tests/plugins/good.so"), &length);
  write_file("x.so", bytes, length);
  for (size_t cut = length - 1; cut > 64; cut -= cut % 256 && cut > 256 ? cut % 256 : cut > 320 ? 256 : 1) {
    ck_assert_int_eq(truncate(in_scratch("x.so"), (off_t)cut), 0);
    ck_assert_int_eq(fl_note_read(in_scratch("x.so"), &info), FL_EPLUGIN);
    ck_assert_msg(!strncmp(fl_error_message(), "truncated: the file has ", 24), "cut at %zu: %s", cut,
                  fl_error_message());
  }
  free(bytes);
}
END_TEST

/* Each byte that the reader may look at, damaged in several ways: any answer will do, but there must be one. */
START_TEST(damaged_bytes_do_no_harm) {
  static const unsigned char damage[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
  size_t length;
  fl_strings names = {0};
  unsigned char *bytes = read_file(built("tests/plugins/good.so"), &length);
  const ElfW(Ehdr) *header = (const ElfW(Ehdr) *)bytes;
  size_t start = find_descriptor(bytes, length) - 20 - bytes;
  int fd = open(write_file("x.so", bytes, length), O_RDWR);
  for (size_t at = 0; at < length; at++) {
    if (at >= 1024 && (at < start || at >= start + 64) && at < header->e_shoff)
      continue;
    for (size_t i = 0; i < sizeof damage; i++) {
      ck_assert_int_eq(pwrite(fd, &damage[i], 1, (off_t)at), 1);
      fl_note_read(in_scratch("x.so"), &info);
      for (int which = FL_ELF_NEEDED; which <= FL_ELF_UNDEFINED; which++)
        fl_elf_read_dynamic(in_scratch("x.so"), which, &names);
      ck_assert_ptr_nonnull(memchr(info.note.name, 0, sizeof info.note.name));
      fl_strings_free(&names);
    }
    ck_assert_int_eq(pwrite(fd, &bytes[at], 1, (off_t)at), 1);
  }
  close(fd);
  free(bytes);
}
END_TEST

START_TEST(D4_no_note_says_whether_there_is_an_entry) {
  expect_refusal(built("tests/plugins/no_note.so"),
                 "not an flhost plugin: it has no 'flhost' note, though it exports register_builtins; add "
                 "FL_PLUGIN(...) to one of its files");
  expect_refusal(built("tests/plugins/lib/libfake_driver.so"), "not an flhost plugin: it has no 'flhost' note");
}
END_TEST

/* Writes good.so with its note's descriptor changed: `length` bytes at `offset`. */
static const char *with_note(size_t offset, const void *bytes, size_t n) {
  size_t length;
  unsigned char *file = read_file(built("tests/plugins/good.so"), &length);
  memcpy(find_descriptor(file, length) + offset, bytes, n);
  const char *path = write_file("x.so", file, length);
  free(file);
  return path;
}

static uint32_t note_size(void) {
  return (uint32_t)(sizeof(fl_plugin_note) - offsetof(fl_plugin_note, size));
}

START_TEST(smaller_notes_read_as_zero_where_they_end) {
  uint32_t size = offsetof(fl_plugin_note, version) - offsetof(fl_plugin_note, size);
  ck_assert_int_eq(fl_note_read(with_note(0, &size, sizeof size), &info), FL_OK);
  ck_assert_str_eq(info.note.name, "good");
  ck_assert_str_eq(info.note.version, "");
  ck_assert_str_eq(info.note.isa, "");
}
END_TEST

START_TEST(larger_notes_are_read_as_far_as_known) {
  ck_assert_int_eq(fl_note_read(built("tests/plugins/new_minor.so"), &info), FL_OK);
  ck_assert_uint_gt(info.note.size, note_size());
  ck_assert_str_eq(info.note.name, "new_minor");
  ck_assert_uint_eq(info.note.abi_minor, 99);
}
END_TEST

START_TEST(notes_that_lie_about_their_size_are_refused) {
  char message[160];
  uint32_t sizes[] = {0, 4, 75, note_size() + 1, UINT32_MAX};
  snprintf(message, sizeof message,
           "damaged 'flhost' note: it says it has %u bytes, holds %u, and must have 76 at least", sizes[_i],
           note_size());
  expect_refusal(with_note(0, &sizes[_i], sizeof sizes[_i]), message);
}
END_TEST

START_TEST(strings_of_a_note_end_and_do_not_spoil_a_terminal) {
  char name[64];
  size_t at = offsetof(fl_plugin_note, name) - offsetof(fl_plugin_note, size);
  memset(name, 'A', sizeof name);
  ck_assert_int_eq(fl_note_read(with_note(at, name, sizeof name), &info), FL_OK);
  ck_assert_uint_eq(strlen(info.note.name), 63);
  ck_assert_int_eq(fl_note_read(with_note(at, "a\x1b[31m\xc3\xa9\xff\n", 11), &info), FL_OK);
  ck_assert_str_eq(info.note.name, "a\\x1b[31m\xc3\xa9\\xff\\x0a");
  at = offsetof(fl_plugin_note, version) - offsetof(fl_plugin_note, size);
  ck_assert_int_eq(fl_note_read(with_note(at, "1\u202e2", 6), &info), FL_OK); /* U+202E turns the line around */
  ck_assert_str_eq(info.note.version, "1\\xe2\\x80\\xae2");
  at = offsetof(fl_plugin_note, name) - offsetof(fl_plugin_note, size);
  expect_refusal(with_note(at, "", 1), "damaged 'flhost' note: the plugin's name is empty");
}
END_TEST

START_TEST(needed_libraries_and_exports_are_listed) {
  fl_strings needed = {0}, exports = {0};
  ck_assert_int_eq(fl_elf_read_dynamic(built("tests/plugins/absent.so"), FL_ELF_NEEDED, &needed), FL_OK);
  ck_assert_int_eq(fl_elf_read_dynamic(built("tests/plugins/absent.so"), FL_ELF_EXPORTS, &exports), FL_OK);
  ck_assert(fl_strings_has(&needed, "libfltest_absent.so.1"));
  ck_assert(fl_strings_has(&exports, "register_builtins"));
  ck_assert(!fl_strings_has(&exports, "abort"));
  fl_strings_free(&needed);
  fl_strings_free(&exports);
}
END_TEST

/* ------------------------------------------------------------------------------------------- instruction sets */

START_TEST(isa_lists_are_understood) {
  char missing[160] = "";
  ck_assert(fl_isa_available("", missing, sizeof missing));
  ck_assert(fl_isa_available(" , ", missing, sizeof missing));
  ck_assert_str_eq(missing, "");
  ck_assert(!fl_isa_available("no-such-thing", missing, sizeof missing));
  ck_assert_str_eq(missing, "no-such-thing (unknown instruction set)");
}
END_TEST

#ifdef __x86_64__
START_TEST(isa_x86_agrees_with_the_compilers_check) {
  char missing[160];
  const struct {
    const char *name;
    bool present;
  } known[] = {
#define KNOWN(name) {name, __builtin_cpu_supports(name)}
      KNOWN("mmx"),        KNOWN("sse"),      KNOWN("sse2"),       KNOWN("sse3"),     KNOWN("ssse3"),
      KNOWN("sse4.1"),     KNOWN("sse4.2"),   KNOWN("popcnt"),     KNOWN("avx"),      KNOWN("avx2"),
      KNOWN("fma"),        KNOWN("bmi"),      KNOWN("bmi2"),       KNOWN("aes"),      KNOWN("pclmul"),
      KNOWN("avx512f"),    KNOWN("avx512vl"), KNOWN("avx512bw"),   KNOWN("avx512dq"), KNOWN("avx512cd"),
      KNOWN("avx512vbmi"), KNOWN("gfni"),     KNOWN("avx512vnni"), KNOWN("sse4a"),    KNOWN("xop"),
  };
  ck_assert_msg(known[_i].present == fl_isa_available(known[_i].name, missing, sizeof missing), "%s", known[_i].name);
  ck_assert(fl_isa_available("sse2, sse", missing, sizeof missing));
  if (!known[_i].present)
    ck_assert_str_eq(missing, known[_i].name);
}
END_TEST

START_TEST(isa_x86_levels_are_their_parts) {
  char missing[160];
  ck_assert(fl_isa_available("x86-64", missing, sizeof missing));
  ck_assert_int_eq(fl_isa_available("x86-64-v3", missing, sizeof missing),
                   fl_isa_available("x86-64-v2,avx,avx2,bmi,bmi2,f16c,fma,lzcnt,movbe", missing, sizeof missing));
  ck_assert_int_eq(fl_isa_available("x86-64-v4", missing, sizeof missing),
                   fl_isa_available("x86-64-v3,avx512f,avx512bw,avx512cd,avx512dq,avx512vl", missing, sizeof missing));
  ck_assert(!fl_isa_available("avx513f", missing, sizeof missing));
  ck_assert_str_eq(missing, "avx513f (unknown instruction set; did you mean 'avx512f'?)");
  ck_assert(!fl_isa_available("AVX2", missing, sizeof missing));
}
END_TEST
#endif

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, scratch_make, scratch_remove);
  tcase_add_test(tests, note_is_read_from_the_file);
  tcase_add_test(tests, a_list_of_ops_is_read_without_white_space);
  tcase_add_test(tests, names_in_a_list_are_whole_words);
  tcase_add_test(tests, a_list_of_another_abi_is_not_believed);
  tcase_add_test(tests, note_is_read_without_section_headers);
  tcase_add_loop_test(tests, D4_other_files_are_named, 0, sizeof others / sizeof others[0]);
  tcase_add_test(tests, D4_what_is_no_file_is_refused);
  tcase_add_test(tests, D4_a_file_that_has_less_than_its_size_is_refused);
  tcase_add_test(tests, D4_any_truncation_is_found);
  tcase_add_test(tests, damaged_bytes_do_no_harm);
  tcase_add_test(tests, D4_no_note_says_whether_there_is_an_entry);
  tcase_add_test(tests, smaller_notes_read_as_zero_where_they_end);
  tcase_add_test(tests, larger_notes_are_read_as_far_as_known);
  tcase_add_loop_test(tests, notes_that_lie_about_their_size_are_refused, 0, 5);
  tcase_add_test(tests, strings_of_a_note_end_and_do_not_spoil_a_terminal);
  tcase_add_test(tests, needed_libraries_and_exports_are_listed);
  tcase_add_test(tests, isa_lists_are_understood);
#ifdef __x86_64__
  tcase_add_loop_test(tests, D4_other_architectures_are_named, 0, sizeof headers / sizeof headers[0]);
  tcase_add_loop_test(tests, isa_x86_agrees_with_the_compilers_check, 0, 25);
  tcase_add_test(tests, isa_x86_levels_are_their_parts);
#endif
}

int main(void) {
  return run_suite("note", add_tests, 120);
}
