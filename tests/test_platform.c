/* The platform: what is found on the bus, through device nodes and drivers (H1), and which one is in force (H2). */
#include "core/platform.h"
#include "core/plugins.h"
#include "tests/fixture.h"
#include "tests/scratch.h"

#include <grp.h>
#include <signal.h>

/* Machines with and without devices, as hwloc would see them. */
#define PCI(index, address, class, vendor)                                                                             \
  "<object type=\"PCIDev\" gp_index=\"" index "\" pci_busid=\"" address                                                \
  "\" pci_type=\"" class " [" vendor "] [0000:0000] 00\" pci_link_speed=\"0\"/>"
#define MACHINE(devices)                                                                                               \
  "<?xml version=\"1.0\"?><!DOCTYPE topology SYSTEM \"hwloc2.dtd\"><topology version=\"2.0\">"                         \
  "<object type=\"Machine\" os_index=\"0\" cpuset=\"0x3\" complete_cpuset=\"0x3\" allowed_cpuset=\"0x3\" "             \
  "nodeset=\"0x1\" complete_nodeset=\"0x1\" allowed_nodeset=\"0x1\" gp_index=\"1\">"                                   \
  "<object type=\"NUMANode\" os_index=\"0\" cpuset=\"0x3\" complete_cpuset=\"0x3\" nodeset=\"0x1\" "                   \
  "complete_nodeset=\"0x1\" gp_index=\"2\" local_memory=\"1024\"/>"                                                    \
  "<object type=\"Core\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" nodeset=\"0x1\" "                       \
  "complete_nodeset=\"0x1\" gp_index=\"3\"><object type=\"PU\" os_index=\"0\" cpuset=\"0x1\" "                         \
  "complete_cpuset=\"0x1\" nodeset=\"0x1\" complete_nodeset=\"0x1\" gp_index=\"4\"/></object>"                         \
  "<object type=\"Core\" os_index=\"1\" cpuset=\"0x2\" complete_cpuset=\"0x2\" nodeset=\"0x1\" "                       \
  "complete_nodeset=\"0x1\" gp_index=\"5\"><object type=\"PU\" os_index=\"1\" cpuset=\"0x2\" "                         \
  "complete_cpuset=\"0x2\" nodeset=\"0x1\" complete_nodeset=\"0x1\" gp_index=\"6\"/></object>"                         \
  "<object type=\"Bridge\" gp_index=\"7\" bridge_type=\"0-1\" depth=\"0\" bridge_pci=\"0000:[00-01]\">" devices        \
  "</object></object></topology>"

static const char bare[] = MACHINE(PCI("20", "0000:00:02.0", "0200", "8086:1000"));
static const char with_nvidia[] = MACHINE(PCI("20", "0000:00:02.0", "0302", "10de:2330") PCI(
    "21", "0000:00:03.0", "0302", "10de:2330") PCI("22", "0000:00:04.0", "0403", "10de:10fa"));
static const char with_amd[] = MACHINE(PCI("20", "0000:00:02.0", "1200", "1002:74a1"));
/* The vendor's network card, and an accelerator. */
static const char with_huawei[] =
    MACHINE(PCI("20", "0000:00:02.0", "0200", "19e5:1822") PCI("21", "0000:00:03.0", "1200", "19e5:d802"));

/* Platforms as the vendors' plugins describe them, but whose nodes and drivers are the test's own; and what stands for
 * each plugin, which is active where its node is there. */
static char node[2 * PATH_MAX], driver[2 * PATH_MAX];
static fl_platform_kind kinds[5];
static fl_arena arena; /* of their strings */
static fl_component_record plugins[3];
enum { CUDA = 1, ROCM = 2, ASCEND = 3 };

static bool has_node(void *self, const char **reason) {
  const fl_platform_kind *kind = self;
  *reason = "no device node";
  return fl_platform_node(kind);
}

/* FAKE_DRIVER says what happens: a number of devices, "error", "crash", "hang". */
static int count_devices(void *self) {
  const char *mode = getenv("FAKE_DRIVER");
  (void)self;
  if (!strcmp(mode, "crash"))
    raise(SIGSEGV);
  while (!strcmp(mode, "hang"))
    pause();
  return strcmp(mode, "error") ? atoi(mode) : -1;
}

static const char *count_error(void *self) {
  (void)self;
  return "initialisation: error 803";
}

static void say_version(void *self, char *text, size_t size) {
  (void)self;
  snprintf(text, size, "13.1");
}

/* Of a plugin that was built. */
static void describe(fl_platform_kind *kind, fl_component_record *plugin, const char *name) {
  char path[PATH_MAX];
  fl_note_info info;
  snprintf(path, sizeof path, "%s/plugins/%s.so", build_dir(), name);
  ck_ok(fl_note_read(path, &info));
  const fl_platform_note note = fl_note_platform(&info);
  ck_ok(fl_platform_kind_read(&note, &arena, kind));
  fl_note_clear(&info);
  *plugin = (fl_component_record){.plugin = (char *)kind->plugin,
                                  .type = (char *)"platform",
                                  .name = (char *)kind->name,
                                  .platform = {.size = sizeof(fl_platform),
                                               .is_active = has_node,
                                               .device_count = count_devices,
                                               .error = count_error,
                                               .driver_version = say_version},
                                  .self = kind};
}

static void set_up(void) {
  scratch_make();
  snprintf(node, sizeof node, "%s", in_scratch("node"));
  snprintf(driver, sizeof driver, "%s", built("tests/plugins/lib/libfake_driver.so"));
  kinds[0] = (fl_platform_kind){.name = "cpu", .title = "CPU", .device_type = kDLCPU};
  for (int i = 1; i < 4; i++) {
    describe(&kinds[i], &plugins[i - 1], (const char *[]){NULL, "cuda", "rocm", "ascend"}[i]);
    memset(kinds[i].nodes, 0, sizeof kinds[i].nodes);
    memset(kinds[i].driver.libraries, 0, sizeof kinds[i].driver.libraries);
    memset(kinds[i].kernel, 0, sizeof kinds[i].kernel);
    memset(kinds[i].versions, 0, sizeof kinds[i].versions);
    memset(kinds[i].patterns, 0, sizeof kinds[i].patterns);
    kinds[i].nodes[0] = kinds[i].patterns[0] = "/nonexistent/node";
    kinds[i].kernel[0] = "/nonexistent/module";
    kinds[i].driver.libraries[0] = "libflhost_no_such_driver.so.1";
  }
  setenv("HWLOC_THISSYSTEM", "0", 1);
}

static void tear_down(void) {
  fl_arena_free(&arena);
  scratch_remove();
}

static void set_machine(const char *xml) {
  setenv("HWLOC_XMLFILE", write_text("machine.xml", xml), 1);
}

/* Gives a platform of the table a device node and a driver that behaves as told. */
static void install(int kind, bool with_node, const char *behaviour) {
  write_text("node", "");
  if (with_node)
    kinds[kind].nodes[0] = node;
  if (behaviour) {
    kinds[kind].driver.libraries[0] = driver;
    setenv("FAKE_DRIVER", behaviour, 1);
  }
}

static fl_platform_report *report_of(const fl_component_record *components, uint32_t n) {
  fl_platform_report *report;
  ck_ok(fl_platform_report_create(kinds, "cpu", "detected", "/etc/cpu.yaml", components, n, &report));
  return report;
}

static void expect_diagnosis(const char *platform, const char *diagnosis) {
  fl_platform_report *report = report_of(plugins, 3);
  const fl_platform_info *info = NULL;
  for (uint32_t i = 0; i < report->n; i++)
    if (!strcmp(fl_platform_at(report, i)->name, platform))
      info = fl_platform_at(report, i);
  ck_assert_ptr_nonnull(info);
  ck_assert_str_eq(info->diagnosis, diagnosis);
  fl_platform_report_free(report);
}

/* The step of that name; `finding` NULL: of any finding. */
static const fl_platform_step *expect_step(const fl_platform_info *platform, const char *name, const char *state,
                                           const char *finding) {
  for (uint32_t i = 0; i < platform->n_steps; i++) {
    const fl_platform_step *step = fl_platform_step_at(platform, i);
    if (strcmp(step->name, name) != 0)
      continue;
    ck_assert_msg(!strcmp(step->state, state), "%s is %s: %s", name, step->state, step->finding);
    if (finding)
      ck_contains(step->finding, finding);
    return step;
  }
  ck_abort_msg("%s has no step '%s'", platform->name, name);
  return NULL;
}

/* ------------------------------------------------------------------------------------------------------ diagnoses */

START_TEST(H1_no_device_and_no_driver) {
  set_machine(bare);
  expect_diagnosis("cuda", "no NVIDIA device on the PCI bus; driver library not found");
  expect_diagnosis("rocm", "no AMD device on the PCI bus; driver library not found");
  expect_diagnosis("ascend", "no Ascend device on the PCI bus; driver library not found");
  expect_diagnosis("cpu", "always available, 2 cores");
}
END_TEST

START_TEST(H1_a_device_without_driver_is_a_diagnosis) {
  set_machine(with_nvidia);
  expect_diagnosis("cuda",
                   "NVIDIA device present, driver library not found: libflhost_no_such_driver.so.1: cannot open "
                   "shared object file: No such file or directory");
  fl_platform_report *report = report_of(plugins, 3);
  ck_assert_uint_eq(fl_platform_at(report, CUDA)->pci_devices, 2); /* the sound function of the card is not one */
  ck_contains(fl_platform_at(report, CUDA)->pci, "(10de:2330 at 0000:00:02.0), NVIDIA");
  ck_assert(!fl_platform_at(report, CUDA)->driver_found);
  ck_contains(fl_platform_at(report, CUDA)->driver, "cannot open shared object file");
  ck_assert_int_eq(fl_platform_at(report, CUDA)->device_count, -1);
  fl_platform_report_free(report);
}
END_TEST

START_TEST(H1_vendor_and_class_must_both_fit) {
  set_machine(with_huawei);
  fl_platform_report *report = report_of(plugins, 3);
  ck_assert_uint_eq(fl_platform_at(report, ASCEND)->pci_devices, 1);
  ck_contains(fl_platform_at(report, ASCEND)->pci, "19e5:d802");
  fl_platform_report_free(report);
  set_machine(with_amd);
  report = report_of(plugins, 3);
  ck_assert_uint_eq(fl_platform_at(report, ROCM)->pci_devices, 1);
  ck_assert_uint_eq(fl_platform_at(report, CUDA)->pci_devices, 0);
  fl_platform_report_free(report);
}
END_TEST

START_TEST(H1_the_driver_counts_devices) {
  set_machine(with_nvidia);
  install(CUDA, true, "2");
  expect_diagnosis("cuda", "driver reports 2 devices");
  set_machine(bare);
  expect_diagnosis("cuda", "driver reports 2 devices, though none is to be seen on the PCI bus (as in a container)");
  set_machine(with_nvidia);
  install(CUDA, true, "0");
  expect_diagnosis("cuda", "NVIDIA device present; driver reports no device");
  fl_platform_report *report = report_of(plugins, 3);
  ck_assert(fl_platform_at(report, CUDA)->driver_found);
  ck_assert_str_eq(fl_platform_at(report, CUDA)->driver, driver);
  ck_assert_int_eq(fl_platform_at(report, CUDA)->device_count, 0);
  fl_platform_report_free(report);
}
END_TEST

START_TEST(H1_a_driver_that_fails_or_crashes_is_told) {
  set_machine(with_nvidia);
  install(CUDA, true, "error");
  expect_diagnosis("cuda", "NVIDIA device present; driver failed: initialisation: error 803");
  install(CUDA, true, "crash");
  expect_diagnosis("cuda", "NVIDIA device present; driver failed: cuda crashed or ended the process that asked it "
                           "(Segmentation fault)");
}
END_TEST

START_TEST(H1_a_driver_that_hangs_is_given_up) {
  fl_device_list list;
  setenv("FAKE_DRIVER", "hang", 1);
  fl_probe_devices(&plugins[0].platform, plugins[0].self, "cuda", 300, &list);
  ck_assert_str_eq(list.words, "cuda did not answer within 1 s");
  ck_assert_int_eq(list.count, -1);
}
END_TEST

START_TEST(H1_without_device_node_the_driver_is_not_asked) {
  char expected[4 * PATH_MAX];
  set_machine(with_nvidia);
  install(CUDA, false, "crash"); /* it would */
  snprintf(expected, sizeof expected,
           "NVIDIA device present; driver library %s opens, but there is no device node /nonexistent/node", driver);
  expect_diagnosis("cuda", expected);
}
END_TEST

START_TEST(H1_a_device_node_without_permission_is_told) {
  char expected[4 * PATH_MAX];
  bool root = !geteuid();
  set_machine(with_amd);
  install(ROCM, true, NULL);
  kinds[ROCM].patterns[0] = node;
  ck_assert_int_eq(chmod(node, 0660), 0);
  if (root) { /* who may do all: be somebody else meanwhile */
    ck_assert_int_eq(chmod(scratch, 0755), 0);
    ck_assert(!chown(node, 0, 0) && !setgroups(0, NULL) && !setegid(65534) && !seteuid(65534));
    snprintf(expected, sizeof expected,
             "; permission denied on %s (mode 0660, group root): add the user to group 'root'", node);
  } else {
    ck_assert_int_eq(chmod(node, 0), 0);
    snprintf(expected, sizeof expected, "; permission denied on %s (mode 0000, group ", node);
  }
  fl_platform_report *report = report_of(plugins, 3);
  ck_contains(fl_platform_at(report, ROCM)->diagnosis, expected);
  expect_step(fl_platform_at(report, ROCM), "device node", "failed", expected);
  fl_platform_report_free(report);
  ck_assert(!root || !seteuid(0));
}
END_TEST

/* As ROCm's is, in /opt/rocm or where ROCM_PATH says. */
START_TEST(H1_a_driver_in_its_vendors_own_directory_is_found) {
  const char *name = "libflhost_own_directory.so.1";
  fl_driver own = {.libraries = {"libflhost_no_such_driver.so.2", name}, .directories = {"$TEST_VENDOR_PATH"}};
  char absolute[PATH_MAX];
  fl_probe probe;
  ck_assert_ptr_nonnull(realpath(driver, absolute));
  ck_assert_int_eq(mkdir(in_scratch("lib"), 0755), 0);
  ck_assert_int_eq(symlink(absolute, in_scratch("lib/libflhost_own_directory.so.1")), 0);
  fl_probe_driver(&own, 10000, &probe);
  ck_assert(!probe.opened);
  ck_contains(probe.words, "libflhost_no_such_driver.so.2: cannot open shared object file");
  setenv("TEST_VENDOR_PATH", in_scratch(""), 1);
  fl_probe_driver(&own, 10000, &probe);
  ck_assert(probe.opened);
  ck_assert_str_eq(probe.driver, name);
  unsetenv("TEST_VENDOR_PATH");
  own.directories[1] = in_scratch("");
  fl_probe_driver(&own, 10000, &probe);
  ck_assert(probe.opened);
}
END_TEST

static pid_t in_use_by;

static int count_where_in_use(void *self) {
  (void)self;
  return getpid() == in_use_by ? 3 : -1;
}

START_TEST(a_driver_in_use_is_asked_where_it_is) {
  fl_component_record component = plugins[0];
  in_use_by = getpid(); /* so that a child's question fails */
  component.platform.device_count = count_where_in_use;
  set_machine(with_nvidia);
  install(CUDA, true, "");
  fl_platform_report *report = report_of(&component, 1);
  ck_assert_int_eq(fl_platform_at(report, CUDA)->device_count, 3);
  expect_step(fl_platform_at(report, CUDA), "devices", "ok", "3 devices");
  fl_platform_report_free(report);
}
END_TEST

/* ---------------------------------------------------------------------------------------------------------- steps */

START_TEST(H1_every_step_is_diagnosed_where_nothing_is_there) {
  set_machine(bare);
  fl_platform_report *report = report_of(plugins, 3);
  const fl_platform_info *cuda_found = fl_platform_at(report, CUDA);
  const fl_platform_step *step = expect_step(cuda_found, "bus", "missing", "no NVIDIA device on the PCI bus");
  ck_assert_uint_gt(strlen(step->advice), 0);
  step = expect_step(cuda_found, "kernel driver", "missing", "module nvidia is not loaded: there is no /nonexistent");
  ck_contains(step->advice, "modprobe nvidia");
  expect_step(cuda_found, "device node", "missing", "no device node /nonexistent/node");
  step = expect_step(cuda_found, "user driver", "missing", "cannot open shared object file");
  ck_contains(step->advice, "LD_LIBRARY_PATH");
  expect_step(cuda_found, "devices", "unknown", "an earlier step is not in order");
  expect_step(cuda_found, "plugin", "failed", "plugin 'cuda' says: no device node");
  ck_assert_uint_eq(cuda_found->n_steps, 6);
  ck_assert_uint_eq(cuda_found->n_devices, 0);
  /* The processor needs no step, and is a device. */
  ck_assert_uint_eq(fl_platform_at(report, 0)->n_steps, 0);
  ck_assert_uint_eq(fl_platform_at(report, 0)->n_devices, 1);
  ck_assert_uint_gt(fl_platform_device_at(fl_platform_at(report, 0), 0)->memory_total, 0);
  fl_platform_report_free(report);
}
END_TEST

START_TEST(H1_every_step_is_diagnosed_where_all_is_in_order) {
  char version_file[2 * PATH_MAX];
  set_machine(with_nvidia);
  snprintf(version_file, sizeof version_file, "%s",
           write_text("version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.82.07  Wed Aug 27\n"));
  for (int kind = CUDA; kind <= ASCEND; kind++) {
    install(kind, true, "2");
    kinds[kind].kernel[0] = kinds[kind].versions[0] = version_file;
    kinds[kind].patterns[0] = node;
    fl_platform_report *report = report_of(plugins, 3);
    const fl_platform_info *found = fl_platform_at(report, kind);
    if (kind == CUDA)
      expect_step(found, "bus", "ok", "10de:2330 at 0000:00:02.0");
    ck_contains(expect_step(found, "kernel driver", "ok", "580.82.07 (")->finding,
                kinds[kind].module ? kinds[kind].module : version_file);
    expect_step(found, "device node", "ok", node);
    expect_step(found, "user driver", "ok", ", version 13.1");
    ck_assert_str_eq(expect_step(found, "devices", "ok", "2 devices")->advice, "");
    fl_platform_report_free(report);
  }
}
END_TEST

START_TEST(H1_the_step_that_fails_is_told) {
  set_machine(with_nvidia);
  install(CUDA, true, "error");
  fl_platform_report *report = report_of(plugins, 3);
  const fl_platform_step *step =
      expect_step(fl_platform_at(report, CUDA), "devices", "failed", "initialisation: error 803");
  ck_assert_uint_gt(strlen(step->advice), 0);
  fl_platform_report_free(report);
  install(CUDA, true, "0");
  unsetenv("CUDA_VISIBLE_DEVICES");
  report = report_of(plugins, 3);
  step = expect_step(fl_platform_at(report, CUDA), "devices", "missing", "the driver reports no device");
  ck_assert_str_eq(step->advice, "look at the driver's own tool and its log");
  fl_platform_report_free(report);
}
END_TEST

/* The usual reason for a driver that answers and has none. */
START_TEST(H1_a_variable_that_hides_the_devices_is_named) {
  static const struct {
    int kind;
    const char *machine, *variable, *value, *advice;
  } cases[] = {
      {CUDA, with_nvidia, "CUDA_VISIBLE_DEVICES", "",
       "CUDA_VISIBLE_DEVICES is '', which may hide them: correct or unset it"},
      {ROCM, with_amd, "HIP_VISIBLE_DEVICES", "7", "HIP_VISIBLE_DEVICES is '7', which may hide them"},
  };
  static const char *const variables[] = {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    for (size_t j = 0; j < sizeof variables / sizeof *variables; j++)
      unsetenv(variables[j]);
    setenv(cases[i].variable, cases[i].value, 1);
    set_machine(cases[i].machine);
    install(cases[i].kind, true, "0");
    fl_platform_report *report = report_of(plugins, 3);
    const fl_platform_step *step = expect_step(fl_platform_at(report, cases[i].kind), "devices", "missing", NULL);
    ck_contains(step->advice, cases[i].advice);
    fl_platform_report_free(report);
  }
}
END_TEST

/* ------------------------------------------------------------------------------------------------------ in force */

static const char *active_name, *active_plugin;

static fl_status activate(const char *forced, const fl_component_record *components, uint32_t n) {
  return fl_platform_activate(kinds, scratch, forced, components, n, &active_name, &active_plugin);
}

static bool is_active(void *self, const char **reason) {
  *reason = "asleep";
  return self != NULL;
}

static int four(void *self) {
  (void)self;
  return 4;
}

static fl_component_record component(char *plugin, char *name, bool active) {
  return (fl_component_record){.plugin = plugin,
                               .type = (char *)"platform",
                               .name = name,
                               .platform = {.size = sizeof(fl_platform), .is_active = is_active, .device_count = four},
                               .self = active ? plugin : NULL};
}

static char acme[] = "acme", npu2[] = "npu2", bolt[] = "bolt", cuda[] = "cuda";

START_TEST(H2_without_devices_it_is_the_cpu) {
  ck_ok(activate(NULL, NULL, 0));
  ck_assert_str_eq(active_name, "cpu");
  ck_assert_ptr_null(active_plugin);
}
END_TEST

/* Whether it is there is the plugin's to say. */
START_TEST(H2_a_platform_is_not_active_without_its_plugin) {
  install(CUDA, true, "1");
  ck_ok(activate(NULL, NULL, 0));
  ck_assert_str_eq(active_name, "cpu");
  ck_ok(activate(NULL, plugins, 3));
  ck_assert_str_eq(active_name, "cuda");
  ck_assert_str_eq(active_plugin, "cuda");
}
END_TEST

START_TEST(H2_the_platform_of_an_active_plugin_is_in_force) {
  fl_component_record components[] = {component(bolt, bolt, false), component(acme, npu2, true)};
  ck_ok(activate(NULL, components, 2));
  ck_assert_str_eq(active_name, "npu2");
  ck_assert_str_eq(active_plugin, "acme");
  ck_ok(activate(NULL, components, 1));
  ck_assert_str_eq(active_name, "cpu");
}
END_TEST

/* A denied vendor's platform is the machine's none the less, where its device node is. */
START_TEST(H2_one_that_must_not_be_asked_is_in_force_by_its_node_if_nobody_else_is) {
  fl_component_record components[] = {plugins[0], component(acme, npu2, true)};
  components[0].not_asked = "vendor 'cuda' is denied";
  components[0].platform.is_active = NULL;
  ck_ok(activate(NULL, components, 1));
  ck_assert_str_eq(active_name, "cpu");
  install(CUDA, true, "1");
  ck_ok(activate(NULL, components, 1));
  ck_assert_str_eq(active_name, "cuda");
  ck_ok(activate(NULL, components, 2));
  ck_assert_str_eq(active_name, "npu2");
}
END_TEST

START_TEST(H2_two_active_plugins_are_an_error_that_names_both) {
  fl_component_record components[] = {component(bolt, bolt, true), component(acme, npu2, true)};
  ck_assert_int_eq(activate(NULL, components, 2), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(),
                   "two platforms claim to be active: 'bolt' of plugin 'bolt' and 'npu2' of plugin 'acme'; choose one "
                   "with VLLM_FL_PLATFORM, or remove one of the plugins");
  ck_ok(activate("npu2", components, 2));
  ck_assert_str_eq(active_plugin, "acme");
}
END_TEST

START_TEST(H2_what_is_forced_wins) {
  fl_component_record components[] = {component(acme, cuda, false), component(bolt, bolt, true)};
  ck_ok(activate("ascend", components, 2));
  ck_assert_str_eq(active_name, "ascend");
  ck_assert_ptr_null(active_plugin);
  ck_ok(activate("nvidia", components + 1, 1));
  ck_assert_str_eq(active_name, "cuda");
  ck_assert_ptr_null(active_plugin);
  ck_ok(activate("cuda", components, 2)); /* the plugin's, active or not */
  ck_assert_str_eq(active_plugin, "acme");
}
END_TEST

START_TEST(H2_an_unknown_platform_is_answered_with_the_nearest) {
  fl_component_record components[] = {component(acme, npu2, true)};
  ck_assert_int_eq(activate("rcom", components, 1), FL_ECONFIG);
  ck_assert_str_eq(fl_error_message(), "unknown platform 'rcom', expected one of cpu, cuda, nvidia, rocm, amd, ascend, "
                                       "npu, npu2, auto; did you mean 'rocm'?");
}
END_TEST

/* An operator may force it before the plugin is there. */
START_TEST(H2_a_platform_that_has_a_file_may_be_forced) {
  write_text("acme9.yaml", "prefer: vendor\n");
  ck_ok(activate("acme9", NULL, 0));
  ck_assert_str_eq(active_name, "acme9");
  ck_assert_ptr_null(active_plugin);
  ck_assert_int_eq(activate("acme8", NULL, 0), FL_ECONFIG);
  ck_contains(fl_error_message(), "acme9, auto; did you mean 'acme9'?");
}
END_TEST

START_TEST(H1_a_platform_that_only_its_file_knows_lacks_its_plugin) {
  fl_platform_report *report;
  set_machine(bare);
  ck_ok(fl_platform_report_create(kinds, "acme9", "VLLM_FL_PLATFORM", NULL, plugins, 3, &report));
  const fl_platform_info *last = fl_platform_at(report, report->n - 1);
  ck_assert_str_eq(last->name, "acme9");
  ck_assert(last->active);
  expect_step(last, "plugin", "missing", "no plugin brings it");
  fl_platform_report_free(report);
}
END_TEST

/* A plugin that cannot be loaded is no reason to be silent about its hardware. */
START_TEST(H1_without_its_plugins_code_a_platform_is_described) {
  set_machine(with_nvidia);
  install(CUDA, true, "2");
  kinds[CUDA].problem = "it needs libacme.so";
  fl_platform_report *report = report_of(plugins + 1, 2);
  const fl_platform_info *found = fl_platform_at(report, CUDA);
  ck_assert_str_eq(found->diagnosis, "NVIDIA device present; plugin 'cuda' is not loaded: it needs libacme.so");
  ck_assert_str_eq(found->plugin, "cuda");
  expect_step(found, "bus", "ok", "10de:2330");
  expect_step(found, "plugin", "failed", "plugin 'cuda' is not loaded: it needs libacme.so");
  expect_step(found, "devices", "unknown", "an earlier step is not in order");
  fl_platform_report_free(report);
}
END_TEST

START_TEST(H1_an_accelerator_that_no_plugin_serves_is_told) {
  fl_platform_report *report;
  set_machine(with_nvidia);
  report = report_of(plugins, 3);
  ck_assert_str_eq(report->unserved, "");
  fl_platform_report_free(report);
  const fl_platform_kind none[] = {kinds[0], {.name = NULL}};
  ck_ok(fl_platform_report_create(none, "cpu", "detected", NULL, NULL, 0, &report));
  ck_assert_str_eq(report->unserved, "graphics 10de:2330 at 0000:00:02.0, graphics 10de:2330 at 0000:00:03.0");
  fl_platform_report_free(report);
  set_machine(with_huawei); /* the network card is none */
  ck_ok(fl_platform_report_create(none, "cpu", "detected", NULL, NULL, 0, &report));
  ck_assert_str_eq(report->unserved, "accelerator 19e5:d802 at 0000:00:03.0");
  fl_platform_report_free(report);
}
END_TEST

START_TEST(a_description_that_is_wrong_is_refused_with_the_place) {
#define REST "; pci: 1abc 1200; kernel: /k; driver: libx.so"
  static const struct {
    const char *hardware, *words; /* NULL: it is right */
    bool is_newer;
  } cases[] = {
      {"title: X" REST, NULL, false},
      {" title : X ;" REST ";", NULL, false},
      {"titel: X" REST, "'titel' is none of its keys; did you mean 'title'?", false},
      {"title: X; later: y" REST, "'later' is none of its keys", false},
      {"title: X; later: y" REST, NULL, true},
      {"title X" REST, "'title X' is not a key, a colon and words", false},
      {"title: X; pci: 1abc; kernel: /k; driver: libx.so", "'pci' needs a vendor and its classes", false},
      {"title: X; pci: 1abc 12g0; kernel: /k; driver: x", "'pci' has '12g0', expected four hexadecimal", false},
      {"title: X; pci: 1abc 12000; kernel: /k; driver: x", "'pci' has '12000'", false},
      {"title: X; device: gpu" REST, "'device' is 'gpu', expected one of DLPack's device types", false},
      {"title: X; aliases: a b c d e f g h i" REST, "'aliases' has more than 8 words", false},
      {"title: X", "it needs title, pci, kernel and driver", false},
      {"", "it needs title, pci, kernel and driver", false},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fl_platform_note note = {"x", "x", "/dev/x", cases[i].hardware, cases[i].is_newer};
    fl_platform_kind kind;
    fl_status status = fl_platform_kind_read(&note, &arena, &kind);
    ck_assert_msg(!status == !cases[i].words, "'%s': %s", cases[i].hardware, fl_error_message());
    if (cases[i].words)
      ck_contains(fl_error_message(), cases[i].words);
  }
  fl_platform_note note = {"x", "x", "$X", "title: X" REST, false};
  fl_platform_kind kind;
  ck_assert_int_eq(fl_platform_kind_read(&note, &arena, &kind), FL_EPLUGIN);
  ck_contains(fl_error_message(), "FL_PLUGIN_PLATFORM names no device node");
}
END_TEST

START_TEST(aliases_are_resolved) {
  ck_assert_ptr_eq(fl_platform_kind_named(kinds, "nvidia"), &kinds[CUDA]);
  ck_assert_ptr_eq(fl_platform_kind_named(kinds, "AMD"), &kinds[ROCM]);
  ck_assert_ptr_eq(fl_platform_kind_named(kinds, "npu"), &kinds[ASCEND]);
  ck_assert_ptr_eq(fl_platform_kind_named(kinds, "cpu"), &kinds[0]);
  ck_assert_ptr_null(fl_platform_kind_named(kinds, "acme"));
}
END_TEST

START_TEST(H1_plugins_platforms_are_reported) {
  fl_component_record components[] = {component(bolt, bolt, false), component(acme, npu2, true)};
  fl_platform_report *report;
  set_machine(bare);
  ck_ok(fl_platform_report_create(kinds, "npu2", "acme", NULL, components, 2, &report));
  ck_assert_str_eq(report->active, "npu2");
  ck_assert_str_eq(report->active_origin, "acme");
  ck_assert_str_eq(report->config_file, "");
  ck_assert_uint_eq(report->n, 6);
  for (uint32_t i = 0; i < 6; i++)
    ck_assert_int_eq(fl_platform_at(report, i)->active, i == 5);
  ck_assert_str_eq(fl_platform_at(report, 4)->diagnosis, "plugin 'bolt' says: asleep");
  ck_assert_int_eq(fl_platform_at(report, 4)->device_count, -1);
  ck_assert_str_eq(fl_platform_at(report, 5)->plugin, "acme");
  ck_assert_int_eq(fl_platform_at(report, 5)->device_count, 4);
  ck_assert_str_eq(fl_platform_at(report, 5)->diagnosis, "plugin 'acme' reports 4 devices");
  fl_platform_report_free(report);
}
END_TEST

/* One row a platform: the plugin is heard where it says something else than the driver. */
START_TEST(H1_another_plugin_for_a_platform_shares_its_row) {
  fl_component_record components[] = {component(acme, cuda, false)};
  set_machine(with_nvidia);
  install(CUDA, true, "2");
  fl_platform_report *report = report_of(components, 1);
  ck_assert_uint_eq(report->n, 4);
  ck_assert_str_eq(fl_platform_at(report, CUDA)->plugin, "acme");
  ck_assert_int_eq(fl_platform_at(report, CUDA)->device_count, -1);
  ck_assert_str_eq(fl_platform_at(report, CUDA)->diagnosis, "NVIDIA device present; plugin 'acme' says: asleep");
  fl_platform_report_free(report);
  components[0] = component(acme, cuda, true);
  report = report_of(components, 1);
  ck_assert_int_eq(fl_platform_at(report, CUDA)->device_count, 4);
  ck_assert_str_eq(fl_platform_at(report, CUDA)->diagnosis, "driver reports 4 devices");
  fl_platform_report_free(report);
}
END_TEST

/* The same through a host and real files. */
START_TEST(H2_a_host_takes_the_platform_of_a_plugin) {
  const char *environment[] = {NULL, NULL};
  char path[4 * PATH_MAX];
  fl_host_options options = {.size = sizeof options, .environment = environment};
  fl_host *host = NULL;
  fl_platform_report *report;
  copy_to_scratch(built("tests/plugins/platform_a.so"), "a.so");
  snprintf(path, sizeof path, "VLLM_FL_PLUGIN_PATH=%s", scratch);
  environment[0] = path;
  ck_ok(fl_host_create(&options, &host));
  ck_ok(fl_get_platform(host, &report));
  ck_assert_str_eq(report->active, "platform_a");
  fl_platform_report_free(report);
  fl_host_destroy(host);
  copy_to_scratch(built("tests/plugins/platform_b.so"), "b.so");
  ck_assert_int_ne(fl_host_create(&options, &host), FL_OK);
  ck_contains(fl_error_message(), "'platform_a' of plugin 'platform_a' and 'platform_b' of plugin 'platform_b'");
}
END_TEST

START_TEST(H1_a_plugin_describes_its_devices) {
  fl_host *host = test_host(NULL, 0);
  fl_platform_report *report;
  ck_ok(fl_load_plugin(host, built("tests/plugins/device.so")));
  ck_ok(fl_get_platform(host, &report));
  const fl_platform_info *found = fl_platform_at(report, report->n - 1);
  ck_assert_str_eq(found->name, "test_device");
  expect_step(found, "plugin", "ok", "plugin 'test_device' is active");
  expect_step(found, "devices", "ok", "2 devices");
  ck_assert_uint_eq(found->n_steps, 2);
  ck_assert_uint_eq(found->n_devices, 2);
  ck_assert_str_eq(fl_platform_device_at(found, 1)->arch, "td_2");
  ck_assert_str_eq(fl_platform_device_at(found, 1)->name, "test part, memory of the host");
  fl_platform_report_free(report);
  fl_host_destroy(host);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, H1_no_device_and_no_driver);
  tcase_add_test(tests, H1_a_device_without_driver_is_a_diagnosis);
  tcase_add_test(tests, H1_vendor_and_class_must_both_fit);
  tcase_add_test(tests, H1_the_driver_counts_devices);
  tcase_add_test(tests, H1_a_driver_that_fails_or_crashes_is_told);
  tcase_add_test(tests, H1_a_driver_that_hangs_is_given_up);
  tcase_add_test(tests, H1_without_device_node_the_driver_is_not_asked);
  tcase_add_test(tests, H1_a_device_node_without_permission_is_told);
  tcase_add_test(tests, H1_a_driver_in_its_vendors_own_directory_is_found);
  tcase_add_test(tests, a_driver_in_use_is_asked_where_it_is);
  tcase_add_test(tests, H1_every_step_is_diagnosed_where_nothing_is_there);
  tcase_add_test(tests, H1_every_step_is_diagnosed_where_all_is_in_order);
  tcase_add_test(tests, H1_the_step_that_fails_is_told);
  tcase_add_test(tests, H1_a_variable_that_hides_the_devices_is_named);
  tcase_add_test(tests, H1_a_plugin_describes_its_devices);
  tcase_add_test(tests, H2_without_devices_it_is_the_cpu);
  tcase_add_test(tests, H2_a_platform_is_not_active_without_its_plugin);
  tcase_add_test(tests, H2_the_platform_of_an_active_plugin_is_in_force);
  tcase_add_test(tests, H2_one_that_must_not_be_asked_is_in_force_by_its_node_if_nobody_else_is);
  tcase_add_test(tests, H2_two_active_plugins_are_an_error_that_names_both);
  tcase_add_test(tests, H2_what_is_forced_wins);
  tcase_add_test(tests, H2_an_unknown_platform_is_answered_with_the_nearest);
  tcase_add_test(tests, H2_a_platform_that_has_a_file_may_be_forced);
  tcase_add_test(tests, H1_a_platform_that_only_its_file_knows_lacks_its_plugin);
  tcase_add_test(tests, H1_without_its_plugins_code_a_platform_is_described);
  tcase_add_test(tests, H1_an_accelerator_that_no_plugin_serves_is_told);
  tcase_add_test(tests, a_description_that_is_wrong_is_refused_with_the_place);
  tcase_add_test(tests, aliases_are_resolved);
  tcase_add_test(tests, H1_plugins_platforms_are_reported);
  tcase_add_test(tests, H1_another_plugin_for_a_platform_shares_its_row);
  tcase_add_test(tests, H2_a_host_takes_the_platform_of_a_plugin);
}

int main(void) {
  return run_suite("platform", add_tests, 60);
}
