/*
 * What an ELF file says of itself, read as plain data: no byte of it is mapped as code. Every offset and size in the
 * file is taken for hostile and checked against the file's length before it is used.
 */
#include "core/plugins/elf_note.h"

#include "core/registry.h"
#include "core/support.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Larger tables than any real plugin has; what exceeds them is damaged. */
enum {
  MAX_SEGMENTS = 1024,
  MAX_SECTIONS = 65536,
  MAX_TABLE = 64 << 20,
  MAX_NOTES = 1 << 20,
  MAX_OPS = 1 << 16,
  MAX_SIGNS = 4096,
  MAX_HARDWARE = 4096
};

typedef struct elf_file {
  int fd;
  uint64_t size;
  const char *path;
  size_t n_start;            /* bytes of the file that are in `start` */
  unsigned char start[4096]; /* headers and notes lie in the first page, where linkers are left alone */
  ElfW(Ehdr) header;
  ElfW(Phdr) * segments;
  ElfW(Shdr) * sections; /* NULL: stripped of them */
} elf_file;

/* `length` bytes at `offset`; false: beyond the end, or a read error. */
static bool read_at(const elf_file *file, void *to, uint64_t offset, uint64_t length) {
  uint64_t done = 0;
  if (offset > file->size || length > file->size - offset)
    return false;
  if (offset + length <= file->n_start) {
    memcpy(to, file->start + offset, length);
    return true;
  }
  while (done < length) {
    ssize_t n = pread(file->fd, (char *)to + done, length - done, (off_t)(offset + done));
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0) {
      errno = n ? errno : 0;
      return false;
    }
    done += (uint64_t)n;
  }
  return true;
}

static fl_status unreadable(void) {
  return fl_error(FL_EPLUGIN, "cannot be read: %s",
                  errno ? strerror(errno) : "it has fewer bytes than its size says, and may be changing");
}

static fl_status truncated(const elf_file *file, uint64_t offset, uint64_t length) {
  uint64_t end = offset + length < offset ? UINT64_MAX : offset + length;
  return fl_error(FL_EPLUGIN, "truncated: the file has %llu bytes, its headers speak of %llu; copy or install it again",
                  (unsigned long long)file->size, (unsigned long long)end);
}

/* A table of the file in memory (the caller frees it). */
static fl_status read_table(const elf_file *file, uint64_t offset, uint64_t length, void **table) {
  if (offset > file->size || length > file->size - offset)
    return truncated(file, offset, length);
  if (length > MAX_TABLE)
    return fl_error(FL_EPLUGIN, "damaged: a table of %llu bytes", (unsigned long long)length);
  void *bytes = malloc(length ? length : 1);
  if (!bytes)
    return fl_error_no_memory();
  if (!read_at(file, bytes, offset, length)) {
    free(bytes);
    return unreadable();
  }
  *table = bytes;
  return FL_OK;
}

/* ------------------------------------------------------------------------------------------- what the file is */

static const struct {
  const char *magic;
  size_t length;
  const char *what;
} kinds[] = {
    {"!<arch>\n", 8, "a static library (ar archive)"},
    {"!<thin>\n", 8, "a static library (thin ar archive)"},
    {"MZ", 2, "a Windows file (PE)"},
    {"\xcf\xfa\xed\xfe", 4, "a macOS file (Mach-O)"},
    {"\xce\xfa\xed\xfe", 4, "a macOS file (Mach-O)"},
    {"\xca\xfe\xba\xbe", 4, "a macOS file (Mach-O, several architectures)"},
    {"BC\xc0\xde", 4, "LLVM bitcode"},
    {"PK\x03\x04", 4, "a zip archive or Python wheel"},
    {"\x1f\x8b", 2, "gzip data"},
    {"\xfd"
     "7zXZ",
     5, "xz data"},
    {"#!", 2, "a script"},
    {"version https://git-lfs", 23, "a Git LFS pointer: fetch the real file with 'git lfs pull'"},
    {"/* GNU ld script", 16, "a linker script (text)"},
};

static const char *kind_of_bytes(const unsigned char *bytes, size_t length) {
  size_t text = 0;
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
    if (length >= kinds[i].length && !memcmp(bytes, kinds[i].magic, kinds[i].length))
      return kinds[i].what;
  while (text < length && (bytes[text] >= 0x20 ? bytes[text] != 0x7f : bytes[text] >= 9 && bytes[text] <= 13))
    text++;
  return text == length ? "text" : "unknown data";
}

/* The header of the file that this library is in, which is of the architecture that plugins must be of; the linker
 * defines it. */
extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));

/* Of the first 20 bytes, which are laid out alike for 32 and 64 bits, the half word at `at`. */
static unsigned half_word(const unsigned char *start, size_t at) {
  bool big = start[EI_DATA] == ELFDATA2MSB;
  return start[at] * (big ? 256u : 1u) + start[at + 1] * (big ? 1u : 256u);
}

static unsigned machine_of(const unsigned char *start) {
  return half_word(start, offsetof(ElfW(Ehdr), e_machine));
}

static const char *machine_name(const unsigned char *start, char *buffer, size_t size) {
  static const struct {
    unsigned machine;
    bool wide;
    const char *name;
  } machines[] = {{EM_X86_64, true, "x86-64"},   {EM_X86_64, false, "x32"},          {EM_386, false, "32-bit x86"},
                  {EM_AARCH64, true, "aarch64"}, {EM_ARM, false, "32-bit ARM"},      {EM_RISCV, true, "riscv64"},
                  {EM_RISCV, false, "riscv32"},  {EM_PPC64, true, "ppc64"},          {EM_S390, true, "s390x"},
                  {EM_MIPS, true, "mips64"},     {EM_LOONGARCH, true, "loongarch64"}};
  unsigned machine = machine_of(start);
  bool wide = start[EI_CLASS] == ELFCLASS64, big = start[EI_DATA] == ELFDATA2MSB;
  const char *order = big && machine != EM_S390 ? " big-endian" : "";
  snprintf(buffer, size, "%s-bit ELF machine %u%s", wide ? "64" : "32", machine, order);
  for (size_t i = 0; i < sizeof machines / sizeof machines[0]; i++)
    if (machines[i].machine == machine && machines[i].wide == wide)
      snprintf(buffer, size, "%s%s", machines[i].name, order);
  return buffer;
}

/* Everything that can be said from the first 20 bytes. */
static fl_status check_identity(const unsigned char *start, size_t length) {
  const unsigned char *own = (const unsigned char *)&__ehdr_start;
  char its_name[64], own_name[64];
  if (!length)
    return fl_error(FL_EPLUGIN, "not a shared library: the file is empty");
  if (length < SELFMAG || memcmp(start, ELFMAG, SELFMAG))
    return fl_error(FL_EPLUGIN, "not a shared library (no ELF file): it is %s", kind_of_bytes(start, length));
  if (length < 20)
    return fl_error(FL_EPLUGIN, "truncated: the file has %zu bytes, less than an ELF header", length);
  unsigned type = half_word(start, offsetof(ElfW(Ehdr), e_type));
  if (machine_of(start) != machine_of(own) || start[EI_CLASS] != own[EI_CLASS] || start[EI_DATA] != own[EI_DATA])
    return fl_error(FL_EPLUGIN, "built for %s, this host is %s", machine_name(start, its_name, sizeof its_name),
                    machine_name(own, own_name, sizeof own_name));
  if (type != ET_DYN)
    return fl_error(FL_EPLUGIN, "not a shared library: it is %s",
                    type == ET_REL    ? "an object file (.o); link it with -shared"
                    : type == ET_EXEC ? "a program"
                    : type == ET_CORE ? "a core dump"
                                      : "an ELF file of unknown type");
  return FL_OK;
}

/* Program headers, all of whose segments must lie in the file. */
static fl_status read_segments(elf_file *file) {
  const ElfW(Ehdr) *header = &file->header;
  if (header->e_phentsize != sizeof *file->segments || !header->e_phnum || header->e_phnum > MAX_SEGMENTS)
    return fl_error(FL_EPLUGIN, "damaged: %u program headers of %u bytes", header->e_phnum, header->e_phentsize);
  fl_status status =
      read_table(file, header->e_phoff, header->e_phnum * sizeof *file->segments, (void **)&file->segments);
  for (unsigned i = 0; !status && i < header->e_phnum; i++) {
    const ElfW(Phdr) *segment = &file->segments[i];
    if (segment->p_type != PT_GNU_STACK && segment->p_filesz &&
        (segment->p_offset > file->size || segment->p_filesz > file->size - segment->p_offset))
      status = truncated(file, segment->p_offset, segment->p_filesz);
  }
  return status;
}

static bool has_sections(const elf_file *file) {
  return file->header.e_shoff && file->header.e_shnum;
}

/* Section headers are not needed to load a file and may be stripped; where they are announced they must be there. */
static fl_status check_sections(const elf_file *file) {
  const ElfW(Ehdr) *header = &file->header;
  uint64_t length = header->e_shnum * sizeof *file->sections;
  if (!has_sections(file))
    return FL_OK;
  if (header->e_shentsize != sizeof *file->sections)
    return fl_error(FL_EPLUGIN, "damaged: section headers of %u bytes", header->e_shentsize);
  if (header->e_shoff > file->size || length > file->size - header->e_shoff)
    return truncated(file, header->e_shoff, length);
  return FL_OK;
}

static fl_status read_sections(elf_file *file) {
  if (!has_sections(file) || file->sections)
    return FL_OK;
  return read_table(file, file->header.e_shoff, file->header.e_shnum * sizeof *file->sections,
                    (void **)&file->sections);
}

static void elf_close(elf_file *file) {
  free(file->segments);
  free(file->sections);
  if (file->fd >= 0)
    close(file->fd);
}

static fl_status elf_open(const char *path, elf_file *file) {
  enum { IDENTITY = 64 };
  struct stat status;
  file->path = path;
  file->segments = NULL;
  file->sections = NULL;
  file->n_start = 0;
  /* O_NONBLOCK: a FIFO must not make the host wait. */
  file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file->fd < 0 || fstat(file->fd, &status))
    return fl_error(FL_EPLUGIN, "cannot be opened: %s", strerror(errno));
  if (!S_ISREG(status.st_mode))
    return fl_error(FL_EPLUGIN, "not a regular file: it is %s", fl_irregular(status.st_mode));
  file->size = (uint64_t)status.st_size;
  size_t length = file->size < sizeof file->start ? (size_t)file->size : sizeof file->start;
  if (!read_at(file, file->start, 0, length))
    return unreadable();
  file->n_start = length;
  fl_status result = check_identity(file->start, length < IDENTITY ? length : (size_t)IDENTITY);
  if (!result && !read_at(file, &file->header, 0, sizeof file->header))
    result = truncated(file, 0, sizeof file->header);
  if (!result)
    result = read_segments(file);
  if (!result)
    result = check_sections(file);
  return result;
}

/* ------------------------------------------------------------------------------------------------ dynamic part */

/* Symbols that the file defines for others, or wants of them: its dynamic symbol table, found through the section
 * headers. */
static fl_status read_symbols(elf_file *file, bool undefined, fl_strings *list) {
  const ElfW(Shdr) *table = NULL;
  ElfW(Sym) *symbols = NULL;
  char *names = NULL;
  fl_status status = read_sections(file);
  for (unsigned i = 0; file->sections && i < file->header.e_shnum; i++)
    if (file->sections[i].sh_type == SHT_DYNSYM)
      table = &file->sections[i];
  if (!table || table->sh_link >= file->header.e_shnum || table->sh_entsize != sizeof *symbols)
    return status;
  const ElfW(Shdr) *strings = &file->sections[table->sh_link];
  status = read_table(file, table->sh_offset, table->sh_size, (void **)&symbols);
  if (!status)
    status = read_table(file, strings->sh_offset, strings->sh_size, (void **)&names);
  bool named = !status && strings->sh_size && !names[strings->sh_size - 1];
  for (uint64_t i = 0; named && i < table->sh_size / sizeof *symbols; i++)
    if ((symbols[i].st_shndx == SHN_UNDEF) == undefined && symbols[i].st_name && symbols[i].st_name < strings->sh_size)
      fl_strings_add(list, names + symbols[i].st_name);
  free(symbols);
  free(names);
  return status;
}

/* Where in the file a virtual address is; false: nowhere. *left: bytes from there to the end of its segment. */
static bool offset_of_address(const elf_file *file, uint64_t address, uint64_t *offset, uint64_t *left) {
  for (unsigned i = 0; i < file->header.e_phnum; i++) {
    const ElfW(Phdr) *segment = &file->segments[i];
    if (segment->p_type == PT_LOAD && address >= segment->p_vaddr && address - segment->p_vaddr < segment->p_filesz) {
      *offset = segment->p_offset + (address - segment->p_vaddr);
      *left = segment->p_filesz - (address - segment->p_vaddr);
      return true;
    }
  }
  return false;
}

/* The value of an entry of the dynamic linker's table; 0: it has none. */
static uint64_t dynamic_value(const ElfW(Dyn) * entries, uint64_t n, int64_t tag) {
  for (uint64_t i = 0; i < n; i++)
    if (entries[i].d_tag == tag)
      return entries[i].d_un.d_val;
  return 0;
}

/* The dynamic linker's table, from where it will be mapped; *n counts what stands before its end, which the linker
 * looks for wherever the header says that the table ends. None: *n is 0. The caller frees *entries. */
static fl_status read_linkers_table(const elf_file *file, ElfW(Dyn) * *entries, uint64_t *n) {
  const ElfW(Phdr) *dynamic = NULL;
  uint64_t offset, left;
  *entries = NULL;
  *n = 0;
  for (unsigned i = 0; i < file->header.e_phnum; i++)
    if (file->segments[i].p_type == PT_DYNAMIC)
      dynamic = &file->segments[i];
  if (!dynamic || !dynamic->p_filesz)
    return FL_OK;
  if (!offset_of_address(file, dynamic->p_vaddr, &offset, &left) || left < dynamic->p_filesz)
    return fl_error(FL_EPLUGIN, "damaged: its dynamic section lies in no segment that is loaded");
  fl_status status = read_table(file, offset, dynamic->p_filesz, (void **)entries);
  while (!status && *n < dynamic->p_filesz / sizeof **entries && (*entries)[*n].d_tag != DT_NULL)
    ++*n;
  if (!status && *n == dynamic->p_filesz / sizeof **entries)
    status = fl_error(FL_EPLUGIN, "damaged: its dynamic section has no end");
  return status;
}

static fl_status read_needed(const elf_file *file, fl_strings *needed) {
  ElfW(Dyn) * entries;
  char *names = NULL;
  uint64_t n, offset = 0, left = 0;
  fl_status status = read_linkers_table(file, &entries, &n);
  uint64_t length = status ? 0 : dynamic_value(entries, n, DT_STRSZ);
  if (!length || !offset_of_address(file, dynamic_value(entries, n, DT_STRTAB), &offset, &left))
    goto out;
  length = length < left ? length : left;
  status = read_table(file, offset, length, (void **)&names);
  if (status || names[length - 1])
    goto out;
  for (uint64_t i = 0; i < n; i++)
    if (entries[i].d_tag == DT_NEEDED && entries[i].d_un.d_val < length)
      fl_strings_add(needed, names + entries[i].d_un.d_val);
out:
  free(entries);
  free(names);
  return status;
}

/* What loading the file would do to the process: a stack without this mark becomes executable, for all of it. */
static fl_status read_memory_wants(const elf_file *file, fl_note_info *info) {
  ElfW(Dyn) * entries;
  uint64_t n;
  fl_status status = read_linkers_table(file, &entries, &n);
  for (uint64_t i = 0; i < n && !status; i++)
    info->text_relocations |=
        entries[i].d_tag == DT_TEXTREL || (entries[i].d_tag == DT_FLAGS && entries[i].d_un.d_val & DF_TEXTREL);
  free(entries);
  info->executable_stack = true;
  for (unsigned i = 0; i < file->header.e_phnum; i++)
    if (file->segments[i].p_type == PT_GNU_STACK)
      info->executable_stack = file->segments[i].p_flags & PF_X;
  return status;
}

fl_status fl_elf_read_dynamic(const char *path, fl_elf_names which, fl_strings *list) {
  elf_file file;
  fl_status status = elf_open(path, &file);
  if (!status)
    status = which == FL_ELF_NEEDED ? read_needed(&file, list) : read_symbols(&file, which == FL_ELF_UNDEFINED, list);
  elf_close(&file);
  return !status && list->failed ? fl_error_no_memory() : status;
}

/* ------------------------------------------------------------------------------------------------------- notes */

/* Ends a field of the note, and makes it what may be shown. */
static void end_field(char *field, size_t size) {
  field[size - 1] = 0;
  fl_show(field, size, field, false);
}

/* Our descriptor: what it has of fl_plugin_note's fields from `size` on. */
static fl_status take_descriptor(const unsigned char *bytes, uint32_t length, fl_note_info *info) {
  enum { START = offsetof(fl_plugin_note, size), LEAST = offsetof(fl_plugin_note, version) - START };
  fl_plugin_note *note = &info->note;
  uint32_t size = 0;
  if (note->name[0]) /* the first counts */
    return FL_OK;
  if (length >= sizeof size)
    memcpy(&size, bytes, sizeof size);
  if (size < LEAST || size > length)
    return fl_error(FL_EPLUGIN, "damaged 'flhost' note: it says it has %u bytes, holds %u, and must have %u at least",
                    size, length, (unsigned)LEAST);
  uint32_t known = sizeof *note - START;
  memcpy((char *)note + START, bytes, size < known ? size : known);
  end_field(note->name, sizeof note->name);
  end_field(note->version, sizeof note->version);
  end_field(note->vendor, sizeof note->vendor);
  end_field(note->licence, sizeof note->licence);
  end_field(note->isa, sizeof note->isa);
  if (!note->name[0])
    return fl_error(FL_EPLUGIN, "damaged 'flhost' note: the plugin's name is empty");
  return FL_OK;
}

static void take_build_id(const unsigned char *bytes, uint32_t length, fl_note_info *info) {
  uint32_t most = (sizeof info->build_id - 1) / 2;
  uint32_t n = length < most ? length : most;
  for (uint32_t i = 0; i < n; i++) {
    info->build_id[2 * i] = "0123456789abcdef"[bytes[i] >> 4];
    info->build_id[2 * i + 1] = "0123456789abcdef"[bytes[i] & 15];
  }
  info->build_id[2 * n] = 0;
}

/* ------------------------------------------------------------------------------------------------ the list of ops */

/* A note's text as it may be shown. NULL: out of memory. */
static const char *take_text(const unsigned char *bytes, size_t length, fl_note_info *info) {
  size_t size = 4 * length + 1; /* a byte is shown as four at most */
  char *text = fl_arena_allocate(&info->owned, size), *raw = strndup((const char *)bytes, length);
  if (text && raw)
    fl_show(text, size, raw, false);
  info->owned.failed |= !raw;
  free(raw);
  return text;
}

/* FL_PLUGIN_OPS as it stands there. A second note adds to the first. */
static fl_status take_ops(const unsigned char *bytes, uint32_t length, fl_note_info *info) {
  size_t before = info->ops ? strlen(info->ops) : 0, more = strnlen((const char *)bytes, length);
  if (before + more > MAX_OPS)
    return fl_error(FL_EPLUGIN, "damaged 'flhost' note: FL_PLUGIN_OPS has %zu bytes, %d at most", before + more,
                    (int)MAX_OPS);
  char *all = fl_arena_allocate(&info->owned, before + more + 2);
  if (!all)
    return fl_error_no_memory();
  if (before)
    sprintf(all, "%s,", info->ops);
  memcpy(all + strlen(all), bytes, more);
  info->ops = all;
  return FL_OK;
}

static bool is_op_name(const char *name, size_t length) {
  for (size_t i = 0; i < length; i++)
    if (!fl_scan_is_letter(name[i]) && !(i && fl_scan_is_digit(name[i])))
      return false;
  return length && length <= FL_NAME_MAX;
}

/* Hashes of names that were seen, a bit each: most names are new, and need not be looked for among the others. */
enum { SEEN_BITS = 2048 };
typedef struct seen {
  uint64_t bits[SEEN_BITS / 64];
} seen;

static bool may_be_seen(seen *names, const char *name, size_t length) {
  uint64_t hash = fl_hash_name(name, length), bit = UINT64_C(1) << (hash & 63);
  uint64_t *word = &names->bits[(hash >> 6) % (SEEN_BITS / 64)];
  bool may_be = *word & bit;
  *word |= bit;
  return may_be;
}

/* Puts name number `n` behind those at the beginning of the list, which take no more room than they were read from. */
static fl_status add_op(char *ops, size_t *end, seen *names, unsigned n, const char *name, size_t length) {
  const char *problem = NULL;
  if (!length)
    problem = "is empty";
  else if (!is_op_name(name, length))
    problem = "is not the name of an op";
  else if (may_be_seen(names, name, length) && fl_ops_list(ops, *end, name, length))
    problem = "stands there twice";
  if (problem)
    return fl_error(FL_EPLUGIN, "damaged 'flhost' note: name %u of FL_PLUGIN_OPS, '%.*s', %s", n,
                    (int)(length < FL_NAME_MAX ? length : FL_NAME_MAX), name, problem);
  if (*end)
    ops[(*end)++] = ',';
  memmove(ops + *end, name, length);
  *end += length;
  return FL_OK;
}

/* Takes out the white space. */
static fl_status check_ops(char *ops) {
  size_t end = 0;
  const char *name = ops;
  seen names = {{0}};
  for (unsigned n = 1;; n++) {
    size_t length = strcspn(name, ",");
    const char *trimmed = name, *next = name[length] ? name + length + 1 : NULL;
    size_t trimmed_length = fl_trim(&trimmed, length);
    fl_status status = add_op(ops, &end, &names, n, trimmed, trimmed_length);
    if (status)
      return status;
    if (!next)
      break;
    name = next;
  }
  ops[end] = 0;
  return FL_OK;
}

/* FL_PLUGIN_PLATFORM, "name:signs". */
static fl_status take_platform(const unsigned char *bytes, uint32_t length, fl_note_info *info) {
  size_t n = strnlen((const char *)bytes, length);
  const unsigned char *colon = memchr(bytes, ':', n);
  size_t name = colon ? (size_t)(colon - bytes) : n;
  if (info->platform)
    return fl_error(FL_EPLUGIN, "damaged 'flhost' note: it has FL_PLUGIN_PLATFORM twice");
  if (!name || name > FL_NAME_MAX || name + 1 >= n || n > MAX_SIGNS)
    return fl_error(FL_EPLUGIN,
                    "damaged 'flhost' note: FL_PLUGIN_PLATFORM is not the name of a platform, a colon, and signs of it "
                    "(%d bytes at most)",
                    (int)MAX_SIGNS);
  info->platform = take_text(bytes, name, info);
  info->signs = take_text(colon + 1, n - name - 1, info);
  return info->owned.failed ? fl_error_no_memory() : FL_OK;
}

/* FL_PLUGIN_HARDWARE as it stands there. */
static fl_status take_hardware(const unsigned char *bytes, uint32_t length, fl_note_info *info) {
  size_t n = strnlen((const char *)bytes, length);
  if (info->hardware || n > MAX_HARDWARE)
    return fl_error(FL_EPLUGIN, "damaged 'flhost' note: FL_PLUGIN_HARDWARE %s",
                    info->hardware ? "stands there twice" : "has more than 4096 bytes");
  info->hardware = take_text(bytes, n, info);
  return info->owned.failed ? fl_error_no_memory() : FL_OK;
}

/* FL_PLUGIN_VENDOR: a token that deny_vendors can name. */
static fl_status take_vendor(const unsigned char *bytes, uint32_t length, fl_note_info *info) {
  size_t n = strnlen((const char *)bytes, length);
  const char *token = (const char *)bytes;
  size_t trimmed = fl_trim(&token, n);
  if (info->vendor)
    return fl_error(FL_EPLUGIN, "damaged 'flhost' note: FL_PLUGIN_VENDOR stands there twice");
  if (!n || n > FL_NAME_MAX || trimmed != n || memchr(bytes, ',', n))
    return fl_error(FL_EPLUGIN,
                    "damaged 'flhost' note: FL_PLUGIN_VENDOR is empty, longer than %d bytes, or holds a comma or white "
                    "space at an end: deny_vendors could not name it",
                    FL_NAME_MAX);
  info->vendor = take_text(bytes, n, info);
  return info->owned.failed ? fl_error_no_memory() : FL_OK;
}

/* FL_PLUGIN_COMMUNICATORS as it stands there. */
static fl_status take_communicators(const unsigned char *bytes, uint32_t length, fl_note_info *info) {
  enum { MOST = 1024 };
  size_t n = strnlen((const char *)bytes, length);
  if (info->communicators || !n || n > MOST)
    return fl_error(FL_EPLUGIN, "damaged 'flhost' note: FL_PLUGIN_COMMUNICATORS %s",
                    info->communicators ? "stands there twice"
                    : n                 ? "has more than 1024 bytes"
                                        : "is empty");
  info->communicators = take_text(bytes, n, info);
  return info->owned.failed ? fl_error_no_memory() : FL_OK;
}

/* Is what it says of its platform understood? */
static fl_status check_platform(const fl_note_info *info) {
  fl_platform_kind kind;
  fl_arena scratch = {0};
  if (!info->platform)
    return fl_error(FL_EPLUGIN, "damaged 'flhost' note: it has FL_PLUGIN_HARDWARE without FL_PLUGIN_PLATFORM");
  const fl_platform_note note = fl_note_platform(info);
  fl_status status = fl_platform_kind_read(&note, &scratch, &kind);
  fl_arena_free(&scratch);
  return status;
}

fl_platform_note fl_note_platform(const fl_note_info *info) {
  return (fl_platform_note){.plugin = info->note.name,
                            .name = info->platform,
                            .signs = info->signs,
                            .hardware = info->hardware,
                            .is_newer = info->note.abi_minor > FL_ABI_MINOR};
}

/* ------------------------------------------------------------------------------------------------- the note itself */

static uint64_t align_up(uint64_t n, uint64_t alignment) {
  return (n + alignment - 1) & ~(alignment - 1);
}

/* Ours, by their types. */
static fl_status (*const takers[])(const unsigned char *bytes, uint32_t length, fl_note_info *info) = {
    NULL, take_descriptor, take_ops, take_platform, take_hardware, take_vendor, take_communicators};

/* All notes of one segment. A malformed one ends the walk: nothing behind it can be trusted. */
static fl_status take_notes(const unsigned char *bytes, uint64_t length, uint64_t alignment, fl_note_info *info) {
  fl_status status = FL_OK;
  uint64_t at = 0;
  while (!status && at <= length && length - at >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    memcpy(&note, bytes + at, sizeof note);
    uint64_t name = at + sizeof note;
    uint64_t descriptor = align_up(name + note.n_namesz, alignment);
    if (descriptor > length || note.n_descsz > length - descriptor)
      break;
    /* 7 bytes with the NUL, or the 8 that the header's array has. */
    bool ours = (note.n_namesz == 7 || note.n_namesz == 8) && !memcmp(bytes + name, "flhost", 7);
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && !memcmp(bytes + name, "GNU", 4))
      take_build_id(bytes + descriptor, note.n_descsz, info);
    else if (ours && note.n_type && note.n_type < sizeof takers / sizeof takers[0])
      status = takers[note.n_type](bytes + descriptor, note.n_descsz, info);
    at = align_up(descriptor + note.n_descsz, alignment);
  }
  return status;
}

static fl_status no_note(elf_file *file) {
  fl_strings exports = {0};
  fl_status status = read_symbols(file, false, &exports);
  if (!status)
    status = fl_error(FL_EPLUGIN, "not an flhost plugin: it has no 'flhost' note%s",
                      fl_strings_has(&exports, "register_builtins")
                          ? ", though it exports register_builtins; add FL_PLUGIN(...) to one of its files"
                          : "");
  fl_strings_free(&exports);
  return status;
}

fl_status fl_note_read(const char *path, fl_note_info *info) {
  elf_file file;
  *info = (fl_note_info){0};
  fl_status status = elf_open(path, &file);
  for (unsigned i = 0; !status && i < file.header.e_phnum; i++) {
    const ElfW(Phdr) *segment = &file.segments[i];
    void *bytes = NULL;
    if (segment->p_type != PT_NOTE)
      continue;
    if (segment->p_filesz > MAX_NOTES) {
      status = fl_error(FL_EPLUGIN, "damaged: notes of %llu bytes", (unsigned long long)segment->p_filesz);
      break;
    }
    status = read_table(&file, segment->p_offset, segment->p_filesz, &bytes);
    if (!status)
      status = take_notes(bytes, segment->p_filesz, segment->p_align == 8 ? 8 : 4, info);
    free(bytes);
  }
  if (!status && !info->note.name[0])
    status = no_note(&file);
  if (!status)
    status = read_memory_wants(&file, info);
  /* Of another ABI major only the version is believed. */
  if (!status && info->ops && info->note.abi_major == FL_ABI_MAJOR)
    status = check_ops(info->ops);
  if (!status && info->hardware && info->note.abi_major == FL_ABI_MAJOR)
    status = check_platform(info);
  if (!status && info->communicators && !info->ops && !(info->ops = fl_arena_allocate(&info->owned, 1)))
    status = fl_error_no_memory(); /* a list without an op */
  elf_close(&file);
  if (status)
    fl_note_clear(info);
  return status;
}

void fl_note_clear(fl_note_info *info) {
  fl_arena_free(&info->owned);
  *info = (fl_note_info){0};
}
