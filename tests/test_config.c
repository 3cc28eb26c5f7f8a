/* Settings in force: precedence and origins (C1, C3, C4, C6), unknown variables (C2), lists (L), switches. What is
 * invalid and how it is reported is in test_settings.c. */
#include "tests/settings_support.h"

#define ENV(...)                                                                                                       \
  (const char *const[]) {                                                                                              \
    __VA_ARGS__, NULL                                                                                                  \
  }
static const char *const no_environment[] = {NULL};

static log_lines lines;

/* Loads, and fails the test if that fails. */
static fl_config *load_from(fl_config_sources sources, const char *platform) {
  fl_config *config = NULL;
  sources.find_platform = find_platform;
  log_begin(&lines);
  ck_assert_msg(!fl_config_load(&sources, platform, &lines.log, &config), "%s", fl_error_message());
  return config;
}

static fl_config *load(const char *const *environment) {
  return load_from((fl_config_sources){.environment = environment}, NULL);
}

static void unload(fl_config *config) {
  fl_config_free(config);
  fl_strings_free(&lines.lines);
}

static void refuse(const char *const *environment, const char *part) {
  fl_config_sources sources = {.environment = environment};
  fl_config *config = NULL;
  log_begin(&lines);
  ck_assert_int_eq(fl_config_load(&sources, NULL, &lines.log, &config), FL_ECONFIG);
  ck_assert_ptr_null(config);
  ck_assert_msg(strstr(fl_error_message(), part), "'%s' not in '%s'", part, fl_error_message());
  fl_strings_free(&lines.lines);
}

static void expect(const fl_config *config, const char *name, const char *value, const char *origin) {
  const char *from = fl_config_origin(config, setting_id(name));
  expect_value(config, name, value, from);
  ck_assert_msg(!strcmp(from, origin), "%s is from %s, expected %s", name, from, origin);
}

static bool oot_allowed(const fl_config *config, const char *layer) {
  char reason[256];
  return fl_config_oot_allowed(config, (const char *const[]){layer, NULL}, reason, sizeof reason);
}

static const char *fingerprint(const fl_config *config) {
  return fl_policy_fingerprint(config->policy);
}

/* ------------------------------------------------------------------------------------------- every setting */

/* Variable (or "" with YAML text alone), what to set it to, its name, and value and default as JSON. */
static const struct {
  const char *variable, *text, *name, *value, *builtin, *yaml, *yaml_value;
} rows[] = {
    {"VLLM_FL_PREFER_ENABLED", "True", "VLLM_FL_PREFER_ENABLED", "true", "true", NULL, NULL},
    {"VLLM_FL_CONFIG", "config/cpu.yaml", "VLLM_FL_CONFIG", "\"config/cpu.yaml\"", "null", NULL, NULL},
    {"VLLM_FL_PLATFORM", " NVIDIA ", "VLLM_FL_PLATFORM", "\"cuda\"", "\"auto\"", NULL, NULL},
    {"VLLM_FL_PREFER", " Vendor ", "prefer", "\"vendor\"", "\"flagos\"", "prefer: reference", "\"reference\""},
    {"VLLM_FL_STRICT", "1", "strict", "true", "false", "strict: yes", "true"},
    {"VLLM_FL_HOST_FALLBACK", "1", "host_fallback", "true", "false", "host_fallback: true", "true"},
    {"VLLM_FL_PER_OP", "b=vendor;a=flagos|impl:x", "op_backends",
     "{\"a\": [\"flagos\", \"impl:x\"], \"b\": [\"vendor\"]}", "{}", "op_backends: {a: ' vendor | flagos '}",
     "{\"a\": [\"vendor\", \"flagos\"]}"},
    {"VLLM_FL_ALLOW_VENDORS", "cuda, ascend", "allow_vendors", "[\"cuda\", \"ascend\"]", "null", "allow_vendors: x,y",
     "[\"x\", \"y\"]"},
    {"VLLM_FL_DENY_VENDORS", "cuda,", "deny_vendors", "[\"cuda\"]", "[]", "deny_vendors: [x, ' y ']", "[\"x\", \"y\"]"},
    {"USE_FLAGGEMS", "0", "USE_FLAGGEMS", "false", "true", NULL, NULL},
    {"VLLM_FL_FLAGOS_WHITELIST", "b,a", "flagos_whitelist", "[\"b\", \"a\"]", "null", "flagos_whitelist: [x]",
     "[\"x\"]"},
    {"VLLM_FL_FLAGOS_BLACKLIST", "b,a", "flagos_blacklist", "[\"b\", \"a\"]", "[]", "flagos_blacklist: [x]", "[\"x\"]"},
    {"VLLM_FL_FLAGOS_BLACKLIST_APPEND", "c", "VLLM_FL_FLAGOS_BLACKLIST_APPEND", "[\"c\"]", "[]", NULL, NULL},
    {"VLLM_FL_OOT_ENABLED", "false", "VLLM_FL_OOT_ENABLED", "false", "true", NULL, NULL},
    {"VLLM_FL_OOT_WHITELIST", "rms_norm", "VLLM_FL_OOT_WHITELIST", "[\"rms_norm\"]", "null", NULL, NULL},
    {"VLLM_FL_OOT_BLACKLIST", "rms_norm", "oot_blacklist", "[\"rms_norm\"]", "[]", "oot_blacklist: [x, y]",
     "[\"x\", \"y\"]"},
    {"VLLM_FL_LOG_LEVEL", "debug", "VLLM_FL_LOG_LEVEL", "\"DEBUG\"", "\"INFO\"", NULL, NULL},
    {"VLLM_FL_DISPATCH_DEBUG", "1", "VLLM_FL_DISPATCH_DEBUG", "true", "false", NULL, NULL},
    {"VLLM_FL_SYNCHRONIZE", "1", "VLLM_FL_SYNCHRONIZE", "true", "false", NULL, NULL},
    {"VLLM_FL_STATISTICS", "1", "VLLM_FL_STATISTICS", "true", "false", NULL, NULL},
    {"VLLM_FL_PLUGIN_MODULES", "acme, /x.so:init", "VLLM_FL_PLUGIN_MODULES", "[\"acme\", \"/x.so:init\"]", "[]", NULL,
     NULL},
    {"VLLM_FL_PROBE", "Always", "VLLM_FL_PROBE", "\"always\"", "\"new\"", NULL, NULL},
    {"VLLM_FL_CHECK", "Off", "VLLM_FL_CHECK", "\"off\"", "\"error\"", NULL, NULL},
    {"VLLM_FL_CUSTOM_OPS", "none,+rms_norm", "custom_ops", "[\"none\", \"+rms_norm\"]", "[\"all\"]",
     "custom_ops: [all, -gelu]", "[\"all\", \"-gelu\"]"},
    {"VLLM_FL_CONFIG_DIR", "config", "VLLM_FL_CONFIG_DIR", "\"config\"", "null", NULL, NULL},
    {"VLLM_FL_PLUGIN_PATH", "/a:/b", "VLLM_FL_PLUGIN_PATH", "[\"/a\", \"/b\"]", "null", NULL, NULL},
    {"VLLM_FL_PLUGINS_LOCK", "/l", "VLLM_FL_PLUGINS_LOCK", "\"/l\"", "null", NULL, NULL},
    {"VLLM_FL_OP_CONFIG", "tests/data/op_config.json", "VLLM_FL_OP_CONFIG", "\"tests/data/op_config.json\"", "null",
     NULL, NULL},
    {"VLLM_FL_CPU_ISA", "AVX2", "VLLM_FL_CPU_ISA", "\"avx2\"", "\"auto\"", NULL, NULL},
    {"VLLM_FL_CPU_THREADS", "6", "VLLM_FL_CPU_THREADS", "6", "0", NULL, NULL},
    {"VLLM_FL_COMMUNICATOR", "mpi,shm", "communicator", "[\"mpi\", \"shm\"]", "null", "communicator: [nccl]",
     "[\"nccl\"]"},
    {"VLLM_FL_COMM_TIMEOUT_S", "60", "comm_timeout_s", "60", "300", "comm_timeout_s: 2.5", "2.5"},
    {"VLLM_FL_COMM_CHECK", "1", "VLLM_FL_COMM_CHECK", "true", "false", NULL, NULL},
    {"FLAGCX_PATH", "/opt/flagcx.so", "FLAGCX_PATH", "\"/opt/flagcx.so\"", "null", NULL, NULL},
    {"FLAGGEMS_ENABLE_OPLIST_PATH", "/tmp/l", "FLAGGEMS_ENABLE_OPLIST_PATH", "\"/tmp/l\"", "null", NULL, NULL},
    {"", NULL, "preserve_inputs", NULL, "false", "preserve_inputs: true", "true"},
    {"", NULL, "retry_first_s", NULL, "1", "retry_first_s: 0.25", "0.25"},
    {"", NULL, "retry_max_s", NULL, "300", "retry_max_s: 60", "60"},
    {"VLLM_FL_GUARD", "1", "VLLM_FL_GUARD", "true", "false", NULL, NULL},
    {"VLLM_FL_CANARY", "20", "VLLM_FL_CANARY", "20", "0", NULL, NULL},
    {"VLLM_FL_EVIDENCE", "/var/e", "VLLM_FL_EVIDENCE", "\"/var/e\"", "null", NULL, NULL},
    {"VLLM_FL_PREPARE_WEIGHTS", "1", "prepare_weights", "true", "false", "prepare_weights: true", "true"},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

START_TEST(C3_the_settings_are_those_of_the_table_in_its_order) {
  fl_config *config = load(no_environment);
  ck_assert_uint_eq(FL_N_SETTINGS, N_ROWS);
  for (size_t i = 0; i < N_ROWS; i++) {
    const fl_setting_row *row = &fl_setting_table[i];
    ck_assert_str_eq(fl_setting_name(row), rows[i].name);
    ck_assert_str_eq(row->variable, rows[i].variable);
    ck_assert_msg(*row->doc && !strchr(row->doc, '\n'), "%s has no one-line doc", rows[i].name);
    expect(config, rows[i].name, rows[i].builtin, "built-in");
  }
  ck_assert_uint_eq(lines.lines.n, 0);
  unload(config);
}
END_TEST

START_TEST(C3_every_variable_sets_its_setting_and_is_its_origin) {
  for (size_t i = 0; i < N_ROWS; i++) {
    if (!*rows[i].variable)
      continue;
    char *variable = fl_format("%s=%s", rows[i].variable, rows[i].text);
    fl_config *config = load(ENV(variable));
    expect(config, rows[i].name, rows[i].value, rows[i].variable);
    ck_assert_str_eq(fl_config_origin(config, (fl_setting_id)i), rows[i].variable);
    unload(config);
    free(variable);
  }
}
END_TEST

START_TEST(C4_an_empty_variable_counts_as_unset) {
  for (size_t i = 0; i < N_ROWS; i++) {
    char *variable = fl_format("%s=", rows[i].variable);
    fl_config *config = load(ENV(variable));
    expect(config, rows[i].name, rows[i].builtin, "built-in");
    ck_assert_uint_eq(lines.lines.n, 0);
    unload(config);
    free(variable);
  }
}
END_TEST

START_TEST(C3_every_key_sets_its_setting_and_its_line_is_the_origin) {
  scratch_dir scratch;
  for (size_t i = 0; i < N_ROWS; i++) {
    if (!rows[i].yaml)
      continue;
    scratch_begin(&scratch);
    char *text = fl_format("# a comment\n\n%s\n", rows[i].yaml);
    const char *path = scratch_file(&scratch, "p.yaml", text);
    char *origin = fl_format("%s:3", path), *variable = fl_format("VLLM_FL_CONFIG=%s", path);
    fl_config *config = load(ENV(variable));
    expect(config, rows[i].name, rows[i].yaml_value, origin);
    ck_assert_str_eq(fl_config_origin(config, FL_SETTING_CONFIG), "VLLM_FL_CONFIG");
    unload(config);
    free(variable);
    free(origin);
    free(text);
    scratch_end(&scratch);
  }
}
END_TEST

/* ------------------------------------------------------------------------------------------------- precedence */

static const char platform_text[] = "prefer: vendor\n"
                                    "strict: true\n"
                                    "op_backends:\n"
                                    "  rms_norm: [vendor, flagos]\n"
                                    "  gelu: [reference]\n"
                                    "allow_vendors: [acme]\n"
                                    "deny_vendors: [evil]\n"
                                    "flagos_blacklist: [mm]\n"
                                    "oot_blacklist: [linear]\n"
                                    "retry_first_s: 2\n";

static void begin_platform(scratch_dir *scratch, fl_config_sources *sources) {
  scratch_begin(scratch);
  scratch_file(scratch, "acme.yaml", platform_text);
  *sources = (fl_config_sources){.environment = no_environment, .default_config_dir = scratch->dir};
}

START_TEST(C1_the_platform_file_is_read_from_its_directory) {
  scratch_dir scratch;
  fl_config_sources sources;
  begin_platform(&scratch, &sources);
  fl_config *config = load_from(sources, "acme");
  char *file = fl_format("%s/acme.yaml", scratch.dir), *line = fl_format("%s:5", file),
       *dir = fl_format("\"%s\"", scratch.dir);
  ck_assert_str_eq(fingerprint(config),
                   "prefer=vendor;st=1;allow=acme;deny=evil;per=gelu=reference;rms_norm=vendor|flagos");
  ck_assert_str_eq(config->platform_file, file);
  ck_assert_str_eq(config->values[FL_SETTING_CONFIG_DIR].word, scratch.dir);
  ck_assert_str_eq(fl_config_op_origin(config, "gelu"), line);
  ck_assert_ptr_null(fl_config_op_origin(config, "silu"));
  ck_assert(config->values[FL_SETTING_RETRY_FIRST].seconds == 2.0);
  ck_assert(config->values[FL_SETTING_RETRY_MAX].seconds == 300.0);
  expect(config, "VLLM_FL_CONFIG_DIR", dir, "built-in");
  unload(config);
  config = load_from(sources, "other");
  ck_assert_str_eq(fingerprint(config), "prefer=flagos;st=0");
  ck_assert_ptr_null(config->platform_file);
  unload(config);
  free(file);
  free(line);
  free(dir);
  scratch_end(&scratch);
}
END_TEST

/* Table, VLLM_FL_STRICT: a platform file's `strict: true` holds unless the variable is set. */
START_TEST(C1_each_variable_replaces_the_files_value_and_merges_nothing) {
  scratch_dir scratch;
  fl_config_sources sources;
  static const struct {
    const char *variable, *fingerprint;
  } replaced[] = {
      {"VLLM_FL_STRICT=", "prefer=vendor;st=1;allow=acme;deny=evil;per=gelu=reference;rms_norm=vendor|flagos"},
      {"VLLM_FL_STRICT= ", "prefer=vendor;st=1;allow=acme;deny=evil;per=gelu=reference;rms_norm=vendor|flagos"},
      {"VLLM_FL_STRICT=0", "prefer=vendor;st=0;allow=acme;deny=evil;per=gelu=reference;rms_norm=vendor|flagos"},
      {"VLLM_FL_PREFER=reference",
       "prefer=reference;st=1;allow=acme;deny=evil;per=gelu=reference;rms_norm=vendor|flagos"},
      {"VLLM_FL_PER_OP=mm=flagos", "prefer=vendor;st=1;allow=acme;deny=evil;per=mm=flagos"},
      {"VLLM_FL_PER_OP=;", "prefer=vendor;st=1;allow=acme;deny=evil"},
      {"VLLM_FL_ALLOW_VENDORS=x", "prefer=vendor;st=1;allow=x;deny=evil;per=gelu=reference;rms_norm=vendor|flagos"},
      {"VLLM_FL_ALLOW_VENDORS=,", "prefer=vendor;st=1;deny=evil;per=gelu=reference;rms_norm=vendor|flagos"},
      {"VLLM_FL_DENY_VENDORS=x", "prefer=vendor;st=1;allow=acme;deny=x;per=gelu=reference;rms_norm=vendor|flagos"},
      {"VLLM_FL_DENY_VENDORS=,", "prefer=vendor;st=1;allow=acme;per=gelu=reference;rms_norm=vendor|flagos"},
  };
  begin_platform(&scratch, &sources);
  for (size_t i = 0; i < sizeof replaced / sizeof *replaced; i++) {
    sources.environment = ENV(replaced[i].variable);
    fl_config *config = load_from(sources, "acme");
    ck_assert_msg(!strcmp(fingerprint(config), replaced[i].fingerprint), "%s: %s", replaced[i].variable,
                  fingerprint(config));
    unload(config);
  }
  scratch_end(&scratch);
}
END_TEST

START_TEST(C4_a_comma_clears_a_list_of_a_file) {
  scratch_dir scratch;
  fl_config_sources sources;
  begin_platform(&scratch, &sources);
  sources.environment =
      ENV("VLLM_FL_FLAGOS_BLACKLIST=,", "VLLM_FL_OOT_BLACKLIST=,", "VLLM_FL_ALLOW_VENDORS=,", "VLLM_FL_PER_OP= , ");
  fl_config *config = load_from(sources, "acme");
  expect(config, "op_backends", "{}", "VLLM_FL_PER_OP");
  expect(config, "flagos_blacklist", "[]", "VLLM_FL_FLAGOS_BLACKLIST");
  expect(config, "oot_blacklist", "[]", "VLLM_FL_OOT_BLACKLIST");
  expect(config, "allow_vendors", "null", "VLLM_FL_ALLOW_VENDORS");
  ck_assert(oot_allowed(config, "linear"));
  unload(config);
  scratch_end(&scratch);
}
END_TEST

/* C1 and C6: complete, also for its lists; what has no YAML key counts as ever. */
START_TEST(C1_C6_a_config_file_replaces_every_other_source) {
  scratch_dir scratch;
  fl_config_sources sources;
  begin_platform(&scratch, &sources);
  const char *path = scratch_file(&scratch, "whole.yaml",
                                  "op_backends: {gelu: [vendor]}\nflagos_blacklist: [add]\noot_blacklist: [moe]\n");
  char *variable = fl_format("VLLM_FL_CONFIG= %s ", path), *origin = fl_format("%s:1", path), reason[256];
  sources.environment =
      ENV(variable, "VLLM_FL_PREFER=reference", "VLLM_FL_STRICT=nonsense", "VLLM_FL_PER_OP=a=vendor",
          "VLLM_FL_OP_CONFIG=/no/such/file", "VLLM_FL_FLAGOS_WHITELIST=x", "VLLM_FL_FLAGOS_BLACKLIST=y",
          "VLLM_FL_LOG_LEVEL=ERROR", "VLLM_FL_FLAGOS_BLACKLIST_APPEND=sub");
  fl_config *config = load_from(sources, "acme");
  ck_assert_str_eq(fingerprint(config), "prefer=flagos;st=0;per=gelu=vendor");
  expect(config, "prefer", "\"flagos\"", "built-in");
  expect(config, "op_backends", "{\"gelu\": [\"vendor\"]}", origin);
  expect(config, "VLLM_FL_OP_CONFIG", "null", "built-in");
  ck_assert_int_eq(config->log_level, FL_LOG_ERROR);
  ck_assert_ptr_null(config->platform_file);
  ck_assert(!fl_config_flagos_allowed(config, "add", reason, sizeof reason));
  ck_assert_msg(strstr(reason, "in flagos_blacklist (") == reason &&
                    strstr(reason, "whole.yaml:2 and VLLM_FL_FLAGOS_BLACKLIST_APPEND"),
                "%s", reason);
  ck_assert(!fl_config_flagos_allowed(config, "sub", reason, sizeof reason));
  ck_assert(fl_config_flagos_allowed(config, "mm", reason, sizeof reason));
  ck_assert(!oot_allowed(config, "moe"));
  ck_assert(oot_allowed(config, "linear"));
  ck_assert_uint_eq(log_count(&lines, "INFO Using custom config from '"), 1);
  ck_assert_uint_eq(log_count(&lines, "INFO VLLM_FL_PREFER is ignored: the policy file"), 1);
  ck_assert_uint_eq(log_count(&lines, "INFO VLLM_FL_OP_CONFIG is ignored: the policy file"), 1);
  ck_assert_uint_eq(log_count(&lines, " is ignored: "), 6);
  unload(config);
  free(variable);
  free(origin);
  scratch_end(&scratch);
}
END_TEST

START_TEST(C1_options_beat_variables) {
  scratch_dir scratch;
  scratch_begin(&scratch);
  const char *a = scratch_file(&scratch, "a.yaml", "prefer: vendor\n");
  scratch_file(&scratch, "b.yaml", "prefer: reference\n");
  char *quoted = fl_format("\"%s\"", a);
  fl_config *config =
      load_from((fl_config_sources){.environment =
                                        ENV("VLLM_FL_CONFIG=/none.yaml", "VLLM_FL_CONFIG_DIR=/none",
                                            "VLLM_FL_PLATFORM=x", "VLLM_FL_PLUGIN_PATH=/x", "VLLM_FL_PLUGIN_MODULES=x"),
                                    .config_file = a,
                                    .config_dir = scratch.dir,
                                    .platform = "amd",
                                    .plugin_path = "/p:/q",
                                    .plugin_modules = "m,n"},
                "b");
  expect(config, "VLLM_FL_CONFIG", quoted, "option config_file");
  expect(config, "VLLM_FL_PLATFORM", "\"rocm\"", "option platform");
  expect(config, "VLLM_FL_PLUGIN_PATH", "[\"/p\", \"/q\"]", "option plugin_path");
  expect(config, "VLLM_FL_PLUGIN_MODULES", "[\"m\", \"n\"]", "option plugin_modules");
  ck_assert_str_eq(fl_config_origin(config, FL_SETTING_CONFIG_DIR), "option config_dir");
  ck_assert_str_eq(fingerprint(config), "prefer=vendor;st=0");
  unload(config);
  config =
      load_from((fl_config_sources){.environment = ENV("VLLM_FL_CONFIG_DIR=/none"), .config_dir = scratch.dir}, "b");
  ck_assert_str_eq(fingerprint(config), "prefer=reference;st=0");
  unload(config);
  free(quoted);
  scratch_end(&scratch);
}
END_TEST

START_TEST(C1_a_config_dir_replaces_the_installed_one) {
  scratch_dir scratch;
  fl_config_sources sources;
  begin_platform(&scratch, &sources);
  sources.environment = ENV("VLLM_FL_CONFIG_DIR=tests/conformance/platforms");
  fl_config *config = load_from(sources, "acme");
  ck_assert_str_eq(fingerprint(config), "prefer=flagos;st=0");
  unload(config);
  sources.environment = ENV("VLLM_FL_CONFIG_DIR=/no/such/dir");
  config = load_from(sources, "acme");
  ck_assert_str_eq(fingerprint(config), "prefer=flagos;st=0");
  ck_assert_ptr_nonnull(log_find(&lines, "WARNING VLLM_FL_CONFIG_DIR: '/no/such/dir' is not a directory"));
  unload(config);
  scratch_end(&scratch);
}
END_TEST

START_TEST(C1_a_platforms_name_is_no_path) {
  static const char *const names[] = {"../x", ".hidden", "a/b"};
  for (size_t i = 0; i < 3; i++) {
    fl_config_sources sources = {.environment = ENV("VLLM_FL_CHECK=warn"), .default_config_dir = "config"};
    fl_config *config = NULL;
    ck_assert_int_eq(fl_config_load(&sources, names[i], NULL, &config), FL_ECONFIG);
    ck_assert_ptr_nonnull(strstr(fl_error_message(), names[i]));
  }
}
END_TEST

START_TEST(C1_op_config_beats_per_op_beats_op_backends) {
  scratch_dir scratch;
  fl_config_sources sources;
  begin_platform(&scratch, &sources);
  const char *json = scratch_file(&scratch, "ops.json", "{\"mm\": \"vendor\",\n  \"add\": \" Reference \"}");
  char *variable = fl_format("VLLM_FL_OP_CONFIG=%s", json), *line = fl_format("%s:2", json);
  sources.environment = ENV("VLLM_FL_PER_OP=x=flagos", variable);
  fl_config *config = load_from(sources, "acme");
  expect(config, "op_backends", "{\"add\": [\"reference\"], \"mm\": [\"vendor\"]}", "VLLM_FL_OP_CONFIG");
  ck_assert_str_eq(fl_config_op_origin(config, "add"), line);
  unload(config);
  sources.environment = ENV("VLLM_FL_PER_OP=x=flagos");
  config = load_from(sources, "acme");
  expect(config, "op_backends", "{\"x\": [\"flagos\"]}", "VLLM_FL_PER_OP");
  ck_assert_str_eq(fl_config_op_origin(config, "x"), "VLLM_FL_PER_OP");
  unload(config);
  scratch_file(&scratch, "ops.json", "{}");
  sources.environment = ENV("VLLM_FL_PER_OP=x=flagos", variable);
  config = load_from(sources, "acme");
  expect(config, "op_backends", "{\"x\": [\"flagos\"]}", "VLLM_FL_PER_OP");
  unload(config);
  free(variable);
  free(line);
  unlink(json);
  scratch.files.n--;
  free(scratch.files.items[scratch.files.n]);
  scratch_end(&scratch);
}
END_TEST

/* ------------------------------------------------------------------------------------------- unknown variables */

START_TEST(C2_unknown_variables_are_warned_about_once_with_the_nearest) {
  fl_config_sources sources = {.environment = ENV("VLLM_FL_PREFRE=vendor", "VLLM_FL_ALOW_VENDORS=x",
                                                  "VLLM_FL_XYZZYPLUGH=1", "VLLM_FL_NOTHING=", "VLLM_FL_SERVICE_HOST=1",
                                                  "VLLM_FL_PORT_80_TCP=1", "VLLM_FL_PORT=tcp://", "VLLM_FL_A_TCP_B=1",
                                                  "VLLM_OTHER=1", "PATH=/bin", "novalue", "VLLM_FL_STRICT=1")};
  fl_config *config = load_from(sources, NULL);
  ck_assert_ptr_nonnull(
      log_find(&lines, "WARNING VLLM_FL_PREFRE: unknown variable, ignored; did you mean 'VLLM_FL_PREFER'?"));
  ck_assert_ptr_nonnull(
      log_find(&lines, "VLLM_FL_ALOW_VENDORS: unknown variable, ignored; did you mean 'VLLM_FL_ALLOW_VENDORS'?"));
  ck_assert_ptr_nonnull(log_find(&lines, "VLLM_FL_XYZZYPLUGH: unknown variable, ignored"));
  ck_assert_ptr_null(log_find(&lines, "VLLM_FL_XYZZYPLUGH: unknown variable, ignored;"));
  ck_assert_uint_eq(lines.lines.n, 3);
  unload(config);
  sources.reload = true;
  config = load_from(sources, NULL);
  ck_assert_uint_eq(lines.lines.n, 0);
  unload(config);
}
END_TEST

START_TEST(C2_variables_that_only_the_peer_has_are_no_slips) {
  static const char *const names[] = {"VLLM_FL_OP_FAST_PATH", "VLLM_FL_USE_FLAGGEMS_ATTN", "VLLM_FL_IO_DUMP",
                                      "VLLM_FL_IO_DUMP_OPS"};
  for (size_t i = 0; i < 4; i++) {
    char *variable = fl_format("%s=1", names[i]), *line = fl_format("WARNING %s: flhost has no such setting", names[i]);
    fl_config *config = load(ENV(variable));
    ck_assert_ptr_nonnull(log_find(&lines, line));
    ck_assert_ptr_null(log_find(&lines, "did you mean"));
    unload(config);
    free(variable);
    free(line);
  }
}
END_TEST

START_TEST(C2_off_says_nothing) {
  fl_config *config =
      load(ENV("VLLM_FL_CHECK=off", "VLLM_FL_PREFRE=vendor", "VLLM_FL_PREFER=bogus", "VLLM_FL_STRICT=maybe"));
  ck_assert_uint_eq(lines.lines.n, 0);
  ck_assert_str_eq(fingerprint(config), "prefer=flagos;st=0");
  unload(config);
}
END_TEST

/* ------------------------------------------------------------------------------------------------------ lists */

static void expect_flagos(const fl_config *config, const char *op, const char *why) {
  char reason[128] = "";
  ck_assert_msg(fl_config_flagos_allowed(config, op, reason, sizeof reason) == !*why, "%s %s", op, reason);
  ck_assert_str_eq(reason, why);
}

START_TEST(L1_both_flagos_lists_are_an_error_that_names_both) {
  static const char *const modes[] = {"VLLM_FL_CHECK=error", "VLLM_FL_CHECK=warn", "VLLM_FL_CHECK=off"};
  for (size_t i = 0; i < 3; i++)
    refuse(
        ENV("VLLM_FL_FLAGOS_WHITELIST=a", "VLLM_FL_FLAGOS_BLACKLIST=,", modes[i]),
        "Cannot set both VLLM_FL_FLAGOS_WHITELIST and VLLM_FL_FLAGOS_BLACKLIST simultaneously. Please set only one of "
        "them.");
}
END_TEST

START_TEST(L1_both_oot_lists_are_an_error_and_under_warn_the_whitelist_wins) {
  refuse(ENV("VLLM_FL_OOT_WHITELIST=a", "VLLM_FL_OOT_BLACKLIST=a"),
         "Cannot set both VLLM_FL_OOT_WHITELIST and VLLM_FL_OOT_BLACKLIST simultaneously");
  fl_config *config = load(ENV("VLLM_FL_OOT_WHITELIST=a", "VLLM_FL_OOT_BLACKLIST=a", "VLLM_FL_CHECK=warn"));
  ck_assert_ptr_nonnull(log_find(&lines, "WARNING Cannot set both VLLM_FL_OOT_WHITELIST"));
  ck_assert(oot_allowed(config, "a"));
  ck_assert(!oot_allowed(config, "b"));
  unload(config);
}
END_TEST

START_TEST(L2_whitelist_over_environment_over_file_over_all) {
  scratch_dir scratch;
  fl_config_sources sources;
  begin_platform(&scratch, &sources);
  char *in_file = fl_format("in flagos_blacklist (%s/acme.yaml:8)", scratch.dir);
  fl_config *config = load_from(sources, "acme");
  expect_flagos(config, "mm", in_file);
  expect_flagos(config, "add", "");
  unload(config);
  sources.environment = ENV("VLLM_FL_FLAGOS_BLACKLIST=add");
  config = load_from(sources, "acme");
  expect_flagos(config, "mm", "");
  expect_flagos(config, "add", "in flagos_blacklist (VLLM_FL_FLAGOS_BLACKLIST)");
  unload(config);
  sources.environment = ENV("VLLM_FL_FLAGOS_WHITELIST=mm");
  config = load_from(sources, "acme");
  expect_flagos(config, "mm", "");
  expect_flagos(config, "add", "not in flagos_whitelist (VLLM_FL_FLAGOS_WHITELIST)");
  expect(config, "flagos_blacklist", "[]", "VLLM_FL_FLAGOS_WHITELIST");
  unload(config);
  sources.environment = ENV("VLLM_FL_FLAGOS_WHITELIST=,");
  config = load_from(sources, "acme");
  expect_flagos(config, "mm", "not in flagos_whitelist (VLLM_FL_FLAGOS_WHITELIST)");
  unload(config);
  free(in_file);
  scratch_end(&scratch);
}
END_TEST

START_TEST(L2_a_whitelist_of_a_file_beats_a_blacklist_variable) {
  scratch_dir scratch;
  fl_config_sources sources = {.environment = ENV("VLLM_FL_FLAGOS_BLACKLIST=a"), .default_config_dir = scratch.dir};
  scratch_begin(&scratch);
  char *line = fl_format("INFO VLLM_FL_FLAGOS_BLACKLIST is ignored: flagos_whitelist (%s/x.yaml:1) says which are "
                         "allowed",
                         scratch.dir);
  scratch_file(&scratch, "x.yaml", "flagos_whitelist: [a]\n");
  fl_config *config = load_from(sources, "x");
  expect_flagos(config, "a", "");
  ck_assert_ptr_nonnull(log_find(&lines, line));
  unload(config);
  free(line);
  scratch_end(&scratch);
}
END_TEST

START_TEST(L2_append_adds_to_the_blacklist_in_force) {
  scratch_dir scratch;
  fl_config_sources sources;
  begin_platform(&scratch, &sources);
  char *both = fl_format("%s/acme.yaml:8 and VLLM_FL_FLAGOS_BLACKLIST_APPEND", scratch.dir);
  sources.environment = ENV("VLLM_FL_FLAGOS_BLACKLIST_APPEND=add,mm");
  fl_config *config = load_from(sources, "acme");
  expect(config, "flagos_blacklist", "[\"mm\", \"add\"]", both);
  unload(config);
  sources.environment = ENV("VLLM_FL_FLAGOS_BLACKLIST_APPEND=add", "VLLM_FL_FLAGOS_BLACKLIST=sub");
  config = load_from(sources, "acme");
  expect(config, "flagos_blacklist", "[\"sub\", \"add\"]",
         "VLLM_FL_FLAGOS_BLACKLIST and VLLM_FL_FLAGOS_BLACKLIST_APPEND");
  unload(config);
  config = load(ENV("VLLM_FL_FLAGOS_BLACKLIST_APPEND=add"));
  expect(config, "flagos_blacklist", "[\"add\"]", "VLLM_FL_FLAGOS_BLACKLIST_APPEND");
  expect_flagos(config, "add", "in flagos_blacklist (VLLM_FL_FLAGOS_BLACKLIST_APPEND)");
  unload(config);
  config = load(ENV("VLLM_FL_FLAGOS_BLACKLIST_APPEND=add", "VLLM_FL_FLAGOS_WHITELIST=add"));
  expect_flagos(config, "add", "");
  unload(config);
  free(both);
  scratch_end(&scratch);
}
END_TEST

START_TEST(L3_a_name_with_white_space_in_it_is_warned_of_and_kept) {
  scratch_dir scratch;
  scratch_begin(&scratch);
  char *line =
      fl_format("WARNING %s/x.yaml:2: the name 'mm add' holds white space; names are separated by ','", scratch.dir);
  fl_config_sources sources = {.environment = ENV("VLLM_FL_DENY_VENDORS=cuda ascend,amd"),
                               .default_config_dir = scratch.dir};
  scratch_file(&scratch, "x.yaml", "prefer: vendor\nflagos_blacklist: [mm add]\n");
  fl_config *config = load_from(sources, "x");
  expect(config, "deny_vendors", "[\"cuda ascend\", \"amd\"]", "VLLM_FL_DENY_VENDORS");
  ck_assert_ptr_nonnull(log_find(
      &lines, "WARNING VLLM_FL_DENY_VENDORS: the name 'cuda ascend' holds white space; names are separated by ','"));
  ck_assert_ptr_nonnull(log_find(&lines, line));
  unload(config);
  free(line);
  scratch_end(&scratch);
}
END_TEST

START_TEST(L3_names_are_exact) {
  fl_config *config = load(ENV("VLLM_FL_FLAGOS_BLACKLIST=rms_norm", "VLLM_FL_OOT_BLACKLIST=RMSNorm"));
  expect_flagos(config, "RMS_NORM", "");
  expect_flagos(config, "rms_nor", "");
  ck_assert(oot_allowed(config, "rmsnorm"));
  ck_assert(!oot_allowed(config, "RMSNorm"));
  unload(config);
}
END_TEST

/* ------------------------------------------------------------------------------------------------------ switches */

/* Table, VLLM_FL_PREFER_ENABLED: reference, else vendor, whatever the other selection settings say. */
START_TEST(C_dispatch_off_ignores_the_other_selection_settings) {
  fl_config *config = load(ENV("VLLM_FL_PREFER_ENABLED=false", "VLLM_FL_PREFER=vendor", "VLLM_FL_PER_OP=a=flagos",
                               "VLLM_FL_ALLOW_VENDORS=x", "VLLM_FL_DENY_VENDORS=y", "VLLM_FL_STRICT=1"));
  ck_assert(!config->values[FL_SETTING_PREFER_ENABLED].flag);
  ck_assert_str_eq(fingerprint(config), "prefer=reference;st=1");
  expect(config, "prefer", "\"reference\"", "VLLM_FL_PREFER_ENABLED");
  expect(config, "op_backends", "{}", "VLLM_FL_PREFER_ENABLED");
  expect(config, "VLLM_FL_OOT_ENABLED", "false", "VLLM_FL_PREFER_ENABLED");
  expect_flagos(config, "a", "dispatch is off (VLLM_FL_PREFER_ENABLED)");
  ck_assert(!config->values[FL_SETTING_OOT_ENABLED].flag);
  ck_assert(!oot_allowed(config, "rms_norm"));
  unload(config);
}
END_TEST

START_TEST(C_switches_of_flaggems_and_oot) {
  fl_config *config = load(ENV("USE_FLAGGEMS=false", "VLLM_FL_OOT_ENABLED=0"));
  ck_assert(config->values[FL_SETTING_PREFER_ENABLED].flag && !config->values[FL_SETTING_USE_FLAGGEMS].flag &&
            !config->values[FL_SETTING_OOT_ENABLED].flag);
  expect_flagos(config, "a", "kind flagos is off (USE_FLAGGEMS)");
  ck_assert(!oot_allowed(config, "rms_norm"));
  unload(config);
  config = load(ENV("VLLM_FL_PREFER=vendor"));
  expect_flagos(config, "a", ""); /* Differs: it reorders and removes nothing */
  ck_assert(config->values[FL_SETTING_USE_FLAGGEMS].flag && config->values[FL_SETTING_OOT_ENABLED].flag);
  unload(config);
}
END_TEST

START_TEST(C_custom_ops_enable_and_disable) {
  static const struct {
    const char *list;
    bool all, rms_norm, gelu;
  } cases[] = {{"all", true, true, true},
               {"none", false, false, false},
               {"none,+rms_norm", false, true, false},
               {"-gelu", true, true, false},
               {"all,-rms_norm,-gelu", true, false, false},
               {"+rms_norm,+rms_norm,none", false, true, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *variable = fl_format("VLLM_FL_CUSTOM_OPS=%s", cases[i].list);
    fl_config *config = load(ENV(variable));
    ck_assert_msg(fl_config_op_enabled(config, "another") == cases[i].all, "%s", cases[i].list);
    ck_assert_msg(fl_config_op_enabled(config, "rms_norm") == cases[i].rms_norm, "%s", cases[i].list);
    ck_assert_msg(fl_config_op_enabled(config, "gelu") == cases[i].gelu, "%s", cases[i].list);
    unload(config);
    free(variable);
  }
}
END_TEST

START_TEST(C_effective_values_reach_their_fields) {
  fl_config *config =
      load(ENV("VLLM_FL_LOG_LEVEL= warning ", "VLLM_FL_DISPATCH_DEBUG=true", "FLAGGEMS_ENABLE_OPLIST_PATH=/o"));
  ck_assert_int_eq(config->log_level, FL_LOG_WARNING);
  ck_assert(config->values[FL_SETTING_DISPATCH_DEBUG].flag);
  ck_assert_str_eq(config->values[FL_SETTING_OPLIST_PATH].word, "/o");
  ck_assert(config->values[FL_SETTING_RETRY_FIRST].seconds == 1.0 &&
            config->values[FL_SETTING_RETRY_MAX].seconds == 300.0);
  ck_assert_ptr_null(config->values[FL_SETTING_CONFIG_DIR].word);
  unload(config);
}
END_TEST

/* --------------------------------------------------------------------------------------------- early questions */

START_TEST(early_log_level) {
  static const struct {
    const char *variable;
    int level;
  } cases[] = {{"VLLM_FL_LOG_LEVEL= debug ", FL_LOG_DEBUG},
               {"VLLM_FL_LOG_LEVEL=ERROR", FL_LOG_ERROR},
               {"VLLM_FL_LOG_LEVEL=", FL_LOG_INFO},
               {"VLLM_FL_LOG_LEVEL=loud", FL_LOG_INFO},
               {"VLLM_FL_LOG_LEVEL=louder than everything", FL_LOG_INFO}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    ck_assert_int_eq(fl_config_log_level(&(fl_config_sources){.environment = ENV(cases[i].variable)}), cases[i].level);
  ck_assert_int_eq(fl_config_log_level(&(fl_config_sources){.environment = no_environment}), FL_LOG_INFO);
}
END_TEST

START_TEST(early_platform_is_always_honoured) {
  static const struct {
    const char *variable, *option, *name, *origin;
  } cases[] = {{"VLLM_FL_PLATFORM=cpu", NULL, "cpu", "VLLM_FL_PLATFORM"},
               {"VLLM_FL_PLATFORM= NPU ", NULL, "ascend", "VLLM_FL_PLATFORM"},
               {"VLLM_FL_PLATFORM=cuda", "AMD", "rocm", "option platform"},
               {"VLLM_FL_PLATFORM=npu", "", "ascend", "VLLM_FL_PLATFORM"},
               {"VLLM_FL_PLATFORM=metax", NULL, "metax", "VLLM_FL_PLATFORM"},
               {"VLLM_FL_PLATFORM=Auto", NULL, NULL, NULL},
               {"VLLM_FL_PLATFORM= ", NULL, NULL, NULL},
               {"X=1", NULL, NULL, NULL}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *origin;
    fl_config_sources sources = {
        .environment = ENV(cases[i].variable), .platform = cases[i].option, .find_platform = find_platform};
    const char *name = fl_config_forced_platform(&sources, &origin);
    ck_assert_msg(cases[i].name ? name && !strcmp(name, cases[i].name) : !name, "%s: %s", cases[i].variable, name);
    if (name)
      ck_assert_str_eq(origin, cases[i].origin);
  }
}
END_TEST

START_TEST(early_plugins) {
  fl_strings path, modules;
  bool has_path;
  fl_config_sources sources = {.environment = ENV("VLLM_FL_PLUGIN_PATH=/a::/b", "VLLM_FL_PLUGIN_MODULES= x , y:z,x")};
  ck_assert(fl_config_plugins(&sources, &has_path, &path, &modules));
  ck_assert(has_path && path.n == 2 && modules.n == 3);
  ck_assert_str_eq(path.items[1], "/b");
  ck_assert_str_eq(modules.items[1], "y:z");
  fl_strings_free(&path);
  fl_strings_free(&modules);
  sources = (fl_config_sources){.environment = no_environment, .plugin_modules = "m"};
  ck_assert(fl_config_plugins(&sources, &has_path, &path, &modules));
  ck_assert(!has_path && !path.n && modules.n == 1);
  fl_strings_free(&modules);
  sources.plugin_path = ":";
  ck_assert(fl_config_plugins(&sources, &has_path, &path, &modules));
  ck_assert(has_path && !path.n);
  fl_strings_free(&modules);
}
END_TEST

START_TEST(early_variables) {
  fl_config_sources sources = {.environment = ENV("A=1", "AB=2", "E=", "A=3")};
  ck_assert_str_eq(fl_config_getenv(&sources, "A"), "1");
  ck_assert_str_eq(fl_config_getenv(&sources, "AB"), "2");
  ck_assert_ptr_null(fl_config_getenv(&sources, "E"));
  ck_assert_ptr_null(fl_config_getenv(&sources, "B"));
  setenv("VLLM_FL_PREFER", "vendor", 1);
  ck_assert_str_eq(fl_config_getenv(&(fl_config_sources){0}, "VLLM_FL_PREFER"), "vendor");
}
END_TEST

START_TEST(a_set_uid_program_ignores_its_environment_and_says_so) {
  setenv("VLLM_FL_PREFER", "vendor", 1);
  fl_config *config = load_from((fl_config_sources){.set_uid = true}, NULL);
  ck_assert_str_eq(fingerprint(config), "prefer=flagos;st=0");
  ck_assert_uint_eq(log_count(&lines, "WARNING The environment is ignored"), 1);
  ck_assert_uint_eq(lines.lines.n, 1);
  unload(config);
  config = load_from((fl_config_sources){0}, NULL);
  ck_assert_str_eq(fingerprint(config), "prefer=vendor;st=0");
  unload(config);
  unsetenv("VLLM_FL_PREFER");
  config = load_from((fl_config_sources){.set_uid = true}, NULL);
  ck_assert_uint_eq(lines.lines.n, 0);
  unload(config);
}
END_TEST

/* ------------------------------------------------------------------------------------------- what is installed */

/* An op with an order of its own does not follow VLLM_FL_PREFER: only where the order differs is it worth that. */
static void check_orders(const fl_config *config) {
  static const char *const usual[] = {"flagos", "vendor", "reference"};
  const fl_policy_fields *fields = fl_policy_get_fields(config->policy);
  ck_assert_str_eq(fields->prefer, "flagos");
  for (uint32_t i = 0; i < fields->n_per_op; i++) {
    bool same = fields->per_op[i].n_tokens == 3;
    for (uint32_t j = 0; same && j < 3; j++)
      same = !strcmp(fields->per_op[i].tokens[j], usual[j]);
    ck_assert_msg(!same, "%s has the order that prefer gives", fields->per_op[i].op);
  }
}

START_TEST(the_installed_platform_files_are_valid_and_pin_no_order_without_need) {
  static const char *const names[] = {"cpu", "cuda", "rocm", "ascend"};
  for (size_t i = 0; i < 4; i++) {
    fl_config *config =
        load_from((fl_config_sources){.environment = no_environment, .default_config_dir = "config"}, names[i]);
    ck_assert_ptr_nonnull(config->platform_file);
    ck_assert_ptr_null(fl_policy_get_fields(config->policy)->allow_vendors);
    check_orders(config);
    unload(config);
  }
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_test(tests, C3_the_settings_are_those_of_the_table_in_its_order);
  tcase_add_test(tests, C3_every_variable_sets_its_setting_and_is_its_origin);
  tcase_add_test(tests, C3_every_key_sets_its_setting_and_its_line_is_the_origin);
  tcase_add_test(tests, C4_an_empty_variable_counts_as_unset);
  tcase_add_test(tests, C4_a_comma_clears_a_list_of_a_file);
  tcase_add_test(tests, C1_the_platform_file_is_read_from_its_directory);
  tcase_add_test(tests, C1_each_variable_replaces_the_files_value_and_merges_nothing);
  tcase_add_test(tests, C1_C6_a_config_file_replaces_every_other_source);
  tcase_add_test(tests, C1_options_beat_variables);
  tcase_add_test(tests, C1_a_config_dir_replaces_the_installed_one);
  tcase_add_test(tests, C1_a_platforms_name_is_no_path);
  tcase_add_test(tests, C1_op_config_beats_per_op_beats_op_backends);
  tcase_add_test(tests, C2_unknown_variables_are_warned_about_once_with_the_nearest);
  tcase_add_test(tests, C2_variables_that_only_the_peer_has_are_no_slips);
  tcase_add_test(tests, C2_off_says_nothing);
  tcase_add_test(tests, L1_both_flagos_lists_are_an_error_that_names_both);
  tcase_add_test(tests, L1_both_oot_lists_are_an_error_and_under_warn_the_whitelist_wins);
  tcase_add_test(tests, L2_whitelist_over_environment_over_file_over_all);
  tcase_add_test(tests, L2_a_whitelist_of_a_file_beats_a_blacklist_variable);
  tcase_add_test(tests, L2_append_adds_to_the_blacklist_in_force);
  tcase_add_test(tests, L3_a_name_with_white_space_in_it_is_warned_of_and_kept);
  tcase_add_test(tests, L3_names_are_exact);
  tcase_add_test(tests, C_dispatch_off_ignores_the_other_selection_settings);
  tcase_add_test(tests, C_switches_of_flaggems_and_oot);
  tcase_add_test(tests, C_custom_ops_enable_and_disable);
  tcase_add_test(tests, C_effective_values_reach_their_fields);
  tcase_add_test(tests, early_log_level);
  tcase_add_test(tests, early_platform_is_always_honoured);
  tcase_add_test(tests, early_plugins);
  tcase_add_test(tests, early_variables);
  tcase_add_test(tests, a_set_uid_program_ignores_its_environment_and_says_so);
  tcase_add_test(tests, the_installed_platform_files_are_valid_and_pin_no_order_without_need);
}

int main(void) {
  return run_suite("config", add_tests, 10);
}
