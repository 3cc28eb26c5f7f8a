/*
 * The library's USDT probes (core/support/probes.h): that the file says where they are, and what a tracer finds there.
 * Tracers need privileges, so the second test is its own: it puts a breakpoint at each probe of its own program, which
 * is linked with the library's objects, and reads the arguments from where the notes say they lie.
 */
#include "scratch.h"

#include "core/support.h"
#include "fixture.h"

#ifdef _SYS_SDT_H

#include <elf.h>
#include <link.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { MAX_PROBES = 32 };

/* What is documented. s: a string, d: a number. */
static const struct expected {
  const char *name, *arguments;
} expected[] = {{"resolve", "ssd"}, {"fallback", "ssss"}, {"failure", "ssds"}, {"plugin_load", "ssdd"}};
enum { N_EXPECTED = sizeof expected / sizeof expected[0] };

/* A place in a file, and its arguments as the note has them: "8@%rax -4@$5 8@-8(%rbp)". */
static struct probe {
  char provider[16], name[16], operands[128];
  uintptr_t address;
} probes[MAX_PROBES];
static int n_probes;

static const struct expected *expectation(const char *name) {
  for (int i = 0; i < N_EXPECTED; i++)
    if (!strcmp(expected[i].name, name))
      return &expected[i];
  return NULL;
}

/* A note's string; gives back the place behind it. */
static const char *take(const char *text, char *to, size_t size) {
  size_t length = strlen(text);
  ck_assert_uint_lt(length, size);
  memcpy(to, text, length + 1);
  return text + length + 1;
}

static void read_notes(const char *at, size_t size) {
  for (const char *end = at + size; at + sizeof(ElfW(Nhdr)) <= end;) {
    const ElfW(Nhdr) *note = (const ElfW(Nhdr) *)at;
    const char *owner = at + sizeof *note, *descriptor = owner + (note->n_namesz + 3) / 4 * 4;
    ck_assert_str_eq(owner, "stapsdt");
    ck_assert_int_eq(note->n_type, 3);
    ck_assert_int_lt(n_probes, MAX_PROBES);
    struct probe *p = &probes[n_probes++];
    memcpy(&p->address, descriptor, sizeof p->address);
    const char *text = descriptor + 3 * sizeof(uintptr_t); /* behind the address, a base and a semaphore */
    text = take(text, p->provider, sizeof p->provider);
    text = take(text, p->name, sizeof p->name);
    take(text, p->operands, sizeof p->operands);
    at = descriptor + (note->n_descsz + 3) / 4 * 4;
  }
}

static void read_probes(const char *path) {
  size_t length;
  char *file = (char *)read_file(path, &length);
  const ElfW(Ehdr) *header = (const ElfW(Ehdr) *)file;
  ck_assert_int_eq(header->e_type, ET_DYN); /* addresses are offsets */
  const ElfW(Shdr) *sections = (const ElfW(Shdr) *)(file + header->e_shoff);
  const char *names = file + sections[header->e_shstrndx].sh_offset;
  n_probes = 0;
  for (int i = 0; i < header->e_shnum; i++)
    if (!strcmp(names + sections[i].sh_name, ".note.stapsdt"))
      read_notes(file + sections[i].sh_offset, sections[i].sh_size);
  free(file);
}

START_TEST(the_library_says_where_its_probes_are_and_what_they_tell) {
  bool found[N_EXPECTED] = {0};
  read_probes(built("libflhost.so"));
  for (int i = 0; i < n_probes; i++) {
    const struct expected *wanted = expectation(probes[i].name);
    size_t operands = 0;
    for (const char *at = probes[i].operands; (at = strchr(at, '@')); at++)
      operands++;
    ck_assert_msg(wanted != NULL, "probe '%s' is not documented", probes[i].name);
    ck_assert_str_eq(probes[i].provider, "flhost");
    ck_assert_uint_eq(operands, strlen(wanted->arguments));
    found[wanted - expected] = true;
  }
  for (int i = 0; i < N_EXPECTED; i++)
    ck_assert_msg(found[i], "no probe '%s'", expected[i].name);
}
END_TEST

#ifdef __x86_64__

static uintptr_t base;  /* where this program lies */
static char seen[4096]; /* one line for each probe that was passed: "resolve|op|default.flagos|0" */

static const struct {
  const char *names[4];
  int index;
} registers[] = {{{"rax", "eax", "ax", "al"}, REG_RAX},      {{"rbx", "ebx", "bx", "bl"}, REG_RBX},
                 {{"rcx", "ecx", "cx", "cl"}, REG_RCX},      {{"rdx", "edx", "dx", "dl"}, REG_RDX},
                 {{"rsi", "esi", "si", "sil"}, REG_RSI},     {{"rdi", "edi", "di", "dil"}, REG_RDI},
                 {{"rbp", "ebp", "bp", "bpl"}, REG_RBP},     {{"rsp", "esp", "sp", "spl"}, REG_RSP},
                 {{"r8", "r8d", "r8w", "r8b"}, REG_R8},      {{"r9", "r9d", "r9w", "r9b"}, REG_R9},
                 {{"r10", "r10d", "r10w", "r10b"}, REG_R10}, {{"r11", "r11d", "r11w", "r11b"}, REG_R11},
                 {{"r12", "r12d", "r12w", "r12b"}, REG_R12}, {{"r13", "r13d", "r13w", "r13b"}, REG_R13},
                 {{"r14", "r14d", "r14w", "r14b"}, REG_R14}, {{"r15", "r15d", "r15w", "r15b"}, REG_R15}};

/* Of "rax" and what follows; `*name` goes on behind it. */
static int64_t register_value(const ucontext_t *context, char **name) {
  size_t length = strcspn(*name, " )");
  const char *wanted = *name;
  *name += length;
  for (size_t i = 0; i < sizeof registers / sizeof registers[0]; i++)
    for (int j = 0; j < 4; j++)
      if (strlen(registers[i].names[j]) == length && !strncmp(registers[i].names[j], wanted, length))
        return context->uc_mcontext.gregs[registers[i].index];
  ck_abort_msg("no register '%.*s'", (int)length, wanted);
  return 0;
}

/* Of "8@%rax", "-4@$5" or "8@-16(%rbp)"; `*operand` goes on behind it. */
static int64_t operand_value(const ucontext_t *context, char **operand) {
  int64_t value = 0;
  bool is_wide = labs(strtol(*operand, operand, 10)) == 8;
  char *at = *operand + 1; /* behind the @ */
  if (*at == '$') {
    value = strtoll(at + 1, &at, 10);
  } else if (*at == '%') {
    at++;
    value = register_value(context, &at);
  } else {
    int64_t address = strtoll(at, &at, 10);
    ck_assert_msg(at[0] == '(' && at[1] == '%', "an operand of another form: '%s'", at);
    at += 2;
    address += register_value(context, &at);
    memcpy(&value, (const void *)(uintptr_t)address, is_wide ? 8 : 4);
    at++;
  }
  *operand = at + (*at == ' ');
  return is_wide ? value : (int32_t)value;
}

static void on_breakpoint(int number, siginfo_t *info, void *given) {
  const ucontext_t *context = given;
  uintptr_t address = (uintptr_t)context->uc_mcontext.gregs[REG_RIP] - 1 - base;
  int i = 0;
  (void)number;
  (void)info;
  while (i < n_probes && probes[i].address != address)
    i++;
  ck_assert_int_lt(i, n_probes);
  size_t used = strlen(seen);
  used += (size_t)snprintf(seen + used, sizeof seen - used, "%s", probes[i].name);
  char *operand = probes[i].operands;
  for (const char *type = expectation(probes[i].name)->arguments; *type; type++) {
    int64_t value = operand_value(context, &operand);
    if (*type == 's')
      used += (size_t)snprintf(seen + used, sizeof seen - used, "|%s", (const char *)(intptr_t)value);
    else
      used += (size_t)snprintf(seen + used, sizeof seen - used, "|%lld", (long long)value);
  }
  snprintf(seen + used, sizeof seen - used, "\n");
}

static int take_base(struct dl_phdr_info *info, size_t size, void *data) {
  (void)size;
  (void)data;
  base = info->dlpi_addr;
  return 1; /* the first is the program */
}

/* In place of an instruction of one byte that does nothing: the breakpoint, which goes on behind it. False: this system
 * forbids to change code. */
static bool set_breakpoints(void) {
  static const unsigned char breakpoint = 0xcc, nothing = 0x90;
  struct sigaction action = {.sa_sigaction = on_breakpoint, .sa_flags = SA_SIGINFO};
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  read_probes("/proc/self/exe");
  dl_iterate_phdr(take_base, NULL);
  sigaction(SIGTRAP, &action, NULL);
  for (int i = 0; i < n_probes; i++) {
    unsigned char *at = (unsigned char *)(base + probes[i].address);
    void *start = (void *)((uintptr_t)at & ~(page - 1));
    if (mprotect(start, page, PROT_READ | PROT_WRITE | PROT_EXEC))
      return false;
    ck_assert_uint_eq(*at, nothing);
    *at = breakpoint;
    mprotect(start, page, PROT_READ | PROT_EXEC);
  }
  return true;
}

START_TEST(a_tracer_sees_what_is_resolved_fails_falls_back_and_is_loaded) {
  static test_impl bad = {.id = "vendor.bad", .status = FL_EDEVICE, .message = "out of order"};
  static test_impl odd = {.id = "vendor.odd", .status = FL_ENOTSUP, .message = "odd sizes only"};
  static test_impl picky = {.id = "vendor.picky", .unsupported = true}, good = {.id = "reference.good"};
  const char *result, *plugin = built("tests/plugins/good.so");
  char loaded[1024];
#if defined(__SANITIZE_THREAD__)
  printf(
      "skip: a_tracer_sees_what_is_resolved_fails_falls_back_and_is_loaded: the thread sanitizer takes the signal\n");
  return;
#endif
  if (!set_breakpoints()) {
    printf("skip: a_tracer_sees_what_is_resolved_fails_falls_back_and_is_loaded: this system forbids to change code\n");
    return;
  }
  fl_host *host = test_host((const char *const[]){"VLLM_FL_PREFER=vendor", NULL}, 0);
  test_op(host, "op");
  test_register(host, "op", &picky, 103, true);
  test_register(host, "op", &odd, 102, false);
  test_register(host, "op", &bad, 101, false);
  test_register(host, "op", &good, 0, false);
  *seen = 0;
  ck_ok(test_call(host, "op", &result));
  ck_assert_str_eq(result, "reference.good");
  ck_assert_str_eq(seen, "resolve|op|vendor.picky|0\n"
                         "fallback|op|vendor.picky|vendor.odd|odd sizes only\n"
                         "fallback|op|vendor.odd|vendor.bad|odd sizes only\n"
                         "failure|op|vendor.bad|4|out of order\n"
                         "fallback|op|vendor.bad|reference.good|out of order\n");
  *seen = 0;
  ck_ok(fl_load_plugin(host, plugin));
  snprintf(loaded, sizeof loaded, "plugin_load|good|%s|0|", plugin);
  ck_assert_msg(!strncmp(seen, loaded, strlen(loaded)), "'%s' does not begin with '%s'", seen, loaded);
  ck_assert_int_gt(atoi(seen + strlen(loaded)), 0);
  *seen = 0;
  ck_assert_int_eq(fl_load_plugin(host, built("tests/plugins/no_note.so")), FL_EPLUGIN);
  snprintf(loaded, sizeof loaded, "plugin_load|no_note|%s|8|", built("tests/plugins/no_note.so"));
  ck_assert_msg(!strncmp(seen, loaded, strlen(loaded)), "'%s' does not begin with '%s'", seen, loaded);
  fl_host_destroy(host);
}
END_TEST

#endif

static void add_tests(TCase *tests) {
  tcase_add_test(tests, the_library_says_where_its_probes_are_and_what_they_tell);
#ifdef __x86_64__
  tcase_add_test(tests, a_tracer_sees_what_is_resolved_fails_falls_back_and_is_loaded);
#endif
}

#else

START_TEST(probes) {
  printf("skip: probes: <sys/sdt.h> was not there when the library was built (systemtap-sdt-dev)\n");
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_test(tests, probes);
}

#endif

int main(void) {
  return run_suite("probes", add_tests, 30);
}
