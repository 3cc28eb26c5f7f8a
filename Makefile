# flhost: `make help` lists the targets.
VERSION := 0.1.0
SOVERSION := 0
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
BUILD ?= build
CC ?= cc
CXX ?= c++
AR ?= ar
SANITIZE ?=
# Runs what is built, where it is for another machine than this one: "qemu-aarch64 -L /usr/aarch64-linux-gnu".
EMULATOR ?=

CFLAGS ?= -O2 -g
WARNINGS := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith
# Everything that is built is hardened as far as this compiler can; tests/test_hardened.c reads in the files what came of it. Not
# fortified with a sanitizer, which sees more and does not see through that. Of control-flow protection the shadow stack: marks of
# places to jump to made a call by handle a third slower, resolving 8 %, and no kernel makes use of them in user space so far.
takes = $(shell $(CC) -Werror $(1) -x c -c -o /dev/null /dev/null 2>/dev/null && echo '$(1)')
HARDEN := $(foreach option,-fstack-protector-strong -fstack-clash-protection -fcf-protection=return -mbranch-protection=standard,$(call takes,$(option))) \
  $(if $(SANITIZE),,-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3)
# Of a kernel's many loads UBSan asks nothing that the address sanitizer sees, too: the questions take half of the compiler's time.
SANITIZE_KERNELS := $(if $(and $(findstring address,$(SANITIZE)),$(findstring undefined,$(SANITIZE))),-fno-sanitize=null -fno-sanitize=object-size -fno-sanitize=pointer-overflow)
# What gcc clears and copies structs with, `rep stos` and `rep movs`, takes some processors 30 ns to begin: by vectors it is there at once.
comma := ,
COPIES := $(foreach kind,memset memcpy,$(call takes,-m$(kind)-strategy=vector_loop:4096:noalign$(comma)libcall:-1:noalign))
# -ffp-contract=off: a multiplication and an addition round twice, as written.
BASE := -std=c11 -D_GNU_SOURCE -fPIC -fvisibility=hidden -ffp-contract=off -pthread $(COPIES) $(HARDEN) $(WARNINGS) -I. -Iinclude -MMD -MP $(SANITIZE)
LINK := -pthread -Wl,-z,relro,-z,now,-z,noexecstack $(SANITIZE) $(LDFLAGS)

CORE_PACKAGES := yaml-0.1 hwloc jansson libmd
CORE_CFLAGS = $(shell pkg-config --cflags $(CORE_PACKAGES)) -DFLHOST_VERSION='"$(VERSION)"' -DFLHOST_PREFIX='"$(PREFIX)"'
CORE_LIBS = $(shell pkg-config --libs $(CORE_PACKAGES)) -ldl -lm
CHECK_LIBS = $(shell pkg-config --libs check)

CORE_SOURCES := $(wildcard core/*/*.c)
# The ops' entries, and what reads them: they need the C library alone.
OPS_SOURCES := $(wildcard core/schema/*.c core/ops/*.c) core/cases/cases.c core/cases/cost.c \
  $(addprefix core/support/,arena.c element_types.c error.c sized.c tensor.c text.c)
CORE_OBJECTS := $(CORE_SOURCES:%.c=$(BUILD)/obj/%.o)
CLI_OBJECTS := $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard cli/*.c cli/*/*.c))
TESTS := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/test_*.c))
TEST_SUPPORT := $(patsubst %.c,$(BUILD)/obj/%.o,$(filter-out $(wildcard tests/test_*.c) tests/stress.c tests/soak.c,$(wildcard tests/*.c)))
HEADERS := $(wildcard include/flhost/*.h)
PEERS := $(wildcard cli/bench/peers/*.py)

BENCH := $(BUILD)/bench/dispatch
BENCH_SOURCES := $(wildcard bench/dispatch/*.c)
BENCH_ARCHIVE := $(BUILD)/bench/dispatch-archive
BENCH_PLUGINS := $(patsubst %,$(BUILD)/bench/plugins/%.so,idle many)
BENCH_FORWARD := $(BUILD)/bench/libforward.so
BENCH_FIGURES := $(BUILD)/bench/report $(BUILD)/bench/plot

SHARED := $(BUILD)/libflhost.so
STATIC := $(BUILD)/libflhost.a
COMMAND := $(BUILD)/flhost
LLM := $(BUILD)/llm
PLUGINS :=

.PHONY: all
all: toolchains lib $(COMMAND) $(LLM) plugins config-files peer-files ## build the library, the command and the plugins (default)

include plugins/plugins.mk
include tests/tests.mk
include python/python.mk

.PHONY: lib plugins config-files peer-files
lib: $(SHARED) $(STATIC)
plugins: $(PLUGINS)
config-files: $(patsubst config/%,$(BUILD)/config/%,$(wildcard config/*.yaml))

peer-files: $(patsubst cli/bench/%,$(BUILD)/%,$(PEERS))

$(BUILD)/config/%.yaml: config/%.yaml
	@mkdir -p $(@D)
	cp $< $@
$(BUILD)/peers/%.py: cli/bench/peers/%.py
	@mkdir -p $(@D)
	cp $< $@

# ---------------------------------------------------------------------------------------------------------- library
# include/flhost/ops.h and python/flhost/ops.pyi are made from the entries in core/ops, and committed so that they can be read.
GENERATOR_SOURCES := tools/generate_ops.c $(OPS_SOURCES)
$(BUILD)/generate-ops: $(GENERATOR_SOURCES) $(wildcard core/*/*.h) $(filter-out include/flhost/ops.h,$(HEADERS))
	@mkdir -p $(@D)
	$(CC) $(filter-out -MMD -MP,$(BASE)) $(CFLAGS) -o $@ $(GENERATOR_SOURCES) $(LINK) -lm
$(BUILD)/ops.stamp: $(BUILD)/generate-ops
	$(EMULATOR) $(BUILD)/generate-ops header > $(BUILD)/ops.h
	cmp -s $(BUILD)/ops.h include/flhost/ops.h || cp $(BUILD)/ops.h include/flhost/ops.h
	$(EMULATOR) $(BUILD)/generate-ops stubs > $(BUILD)/ops.pyi
	cmp -s $(BUILD)/ops.pyi python/flhost/ops.pyi || cp $(BUILD)/ops.pyi python/flhost/ops.pyi
	@touch $@

# Objects are made anew when how they are hardened, or structs are copied, changes.
$(BUILD)/harden.stamp: .FORCE
	@mkdir -p $(@D)
	@echo '$(COPIES) $(HARDEN)' | cmp -s - $@ || echo '$(COPIES) $(HARDEN)' > $@
$(BUILD)/obj/core/%.o: core/%.c $(BUILD)/harden.stamp | $(BUILD)/ops.stamp
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CORE_CFLAGS) $(CFLAGS) -c -o $@ $<
# The library knows its prefix: made anew when that changes.
$(BUILD)/prefix.stamp: .FORCE
	@mkdir -p $(@D)
	@echo '$(PREFIX)' | cmp -s - $@ || echo '$(PREFIX)' > $@
# And whether it has probes (core/support/probes.h): made anew when the header comes or goes.
$(BUILD)/probes.stamp: .FORCE
	@mkdir -p $(@D)
	@{ echo '#include <sys/sdt.h>' | $(CC) -E -x c - >/dev/null 2>&1 && echo yes || echo no; } >$@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@
.PHONY: .FORCE
# What a call costs should not change with the code that lies before it.
$(BUILD)/obj/core/call/invoke.o: CFLAGS += -falign-functions=64
# What they took is given back when an exception, or the end of the thread, passes through: plugins are called from many
# places. Not CFLAGS: what is given on the command line would hide it.
$(BUILD)/obj/core/%.o: CORE_CFLAGS += -fexceptions
$(BUILD)/obj/core/plugins/discovery.o: $(BUILD)/prefix.stamp
$(addprefix $(BUILD)/obj/core/,call/binding.o call/fallback.o plugins/loader.o) $(BUILD)/tests/test_probes: $(BUILD)/probes.stamp
$(BUILD)/obj/%.o: %.c $(BUILD)/harden.stamp | $(BUILD)/ops.stamp
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) -DFLHOST_VERSION='"$(VERSION)"' -c -o $@ $<

# nodelete: threads keep a destructor of the library's until they end.
$(SHARED).$(SOVERSION): $(CORE_OBJECTS) core/flhost.map
	$(CC) -shared -Wl,-soname,libflhost.so.$(SOVERSION) -Wl,--version-script=core/flhost.map -Wl,-z,defs,-z,nodelete \
	  -o $@ $(CORE_OBJECTS) $(LINK) $(CORE_LIBS)
$(SHARED): $(SHARED).$(SOVERSION)
	ln -sf $(notdir $<) $@
$(STATIC): $(CORE_OBJECTS)
	rm -f $@
	$(AR) rcs $@ $(CORE_OBJECTS)

# Prints a page of the manual with its parts about settings made anew from their table.
$(BUILD)/setting-pages: tools/setting_pages.c $(STATIC)
	$(CC) $(BASE) $(CORE_CFLAGS) $(CFLAGS) -o $@ $< $(STATIC) $(LINK) $(CORE_LIBS)

# ---------------------------------------------------------------------------------------------------------- command
$(COMMAND): $(CLI_OBJECTS) $(SHARED)
	$(CC) -pie -o $@ $(CLI_OBJECTS) -L$(BUILD) -lflhost -Wl,-rpath,'$$ORIGIN:$$ORIGIN/../lib' $(LINK) \
	  $(shell pkg-config --libs jansson) -lm

# --------------------------------------------------------------------------------------------------------- example
# An engine, built as one outside of this tree would be: public headers, the shared library, jansson.
LLM_OBJECTS := $(patsubst %.c,$(BUILD)/obj/%.o,$(sort $(wildcard examples/llm/*.c)))
$(LLM): $(LLM_OBJECTS) $(SHARED)
	$(CC) -o $@ $(LLM_OBJECTS) -L$(BUILD) -lflhost -Wl,-rpath,'$$ORIGIN' $(LINK) $(shell pkg-config --libs jansson) -lm

# ------------------------------------------------------------------------------------------------------------ bench
# The benchmark links the library as engines do, shared; what it takes to link the archive is a program beside it. One of its plugins is copied under other names: the build id is text, too.
BENCH_OBJECTS := $(BENCH_SOURCES:%.c=$(BUILD)/obj/%.o) $(addprefix $(BUILD)/obj/cli/,bench/measure.o trials/machine.o)
BENCH_LINK = -L$(BUILD)/bench -lforward -Wl,-rpath,'$$ORIGIN/..:$$ORIGIN' $(LINK)
$(BENCH): $(BENCH_OBJECTS) $(SHARED) $(BENCH_FORWARD)
	@mkdir -p $(@D)
	$(CC) -o $@ $(filter %.o,$^) -L$(BUILD) -lflhost $(BENCH_LINK) $(shell pkg-config --libs jansson) -ldl -lm
$(BENCH_ARCHIVE): $(BENCH_OBJECTS) $(STATIC) $(BENCH_FORWARD)
	@mkdir -p $(@D)
	$(CC) -o $@ $(filter %.o %.a,$^) $(BENCH_LINK) $(CORE_LIBS)
$(BENCH_FORWARD): bench/forward.c
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) -shared -o $@ $< $(LINK)
$(BENCH_PLUGINS): $(BUILD)/bench/plugins/%.so: bench/plugins/%.c
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) $(PLUGIN_LINK) -Wl,--build-id=0x$(shell printf bench_$*_000 | od -An -tx1 | tr -d ' ') -o $@ $< $(LINK)
$(BENCH_FIGURES): $(BUILD)/bench/%: bench/%.c
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) -o $@ $< $(LINK) $(shell pkg-config --cflags --libs jansson) -lm

# ------------------------------------------------------------------------------------------------------ daily work
# As many jobs as processors, unless the caller of make chose a number.
PARALLEL = $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(shell nproc))
# The commands of a build are many; `make` alone shows them, this how far it is. Two targets that are made side by side take turns
# here: each would make what both need.
BUILD_QUIETLY = @mkdir -p $(BUILD) && echo "Building in $(BUILD)" && flock -o $(BUILD)/lock tools/progress $(MAKE) -s $(PARALLEL)
# DEPS=no: trust the machine, install nothing.
DEPS ?= .ci/deps
INSTALL_DEPS = $(if $(filter no,$(DEPS)),@:,@$(DEPS))

.PHONY: deps
deps: ## install what is missing of the Debian packages in packages.txt
	@.ci/deps build check

.PHONY: run
run: ## install what is missing, build, and show in a minute what this does
	$(INSTALL_DEPS) build
	$(BUILD_QUIETLY) all
	@echo
	@CC='$(CC)' tools/first-minute '$(BUILD)'

.PHONY: bench bench-report bench-disassembly bench-cuda bench-rocm bench-kernels bench-communicators
bench: ## build and run the benchmark: a table, and build/bench/dispatch.json
	$(INSTALL_DEPS) build
	$(BUILD_QUIETLY) all $(BENCH) $(BENCH_ARCHIVE) $(BENCH_PLUGINS)
	@FLHOST_BUILD=$(BUILD) $(BENCH)
bench-report: $(BENCH_FIGURES) ## put the last run's figures into bench/README.md and bench/dispatch.svg
	@$(BUILD)/bench/report $(BUILD)/bench/dispatch.json bench/README.md
	@$(BUILD)/bench/plot $(BUILD)/bench/dispatch.json bench/dispatch.svg
bench-cuda bench-rocm: bench-%: ## time every operator on a GPU, beside a copy and PyTorch: bench/results
	$(INSTALL_DEPS) build
	$(BUILD_QUIETLY) all
	@python3 bench/gpu.py --flhost $(COMMAND) --device $*
bench-kernels: python $(BENCH_FIGURES) ## time the CPU's kernels beside a copy and torch (BENCH_INTERPRETER=python with torch; KERNELS=options)
	@PYTHONPATH='$(PYTHON_TREE)' $(BENCH_INTERPRETER) bench/kernels.py --flhost $(COMMAND) --json $(BUILD)/bench/kernels.json $(KERNELS)
	@$(BUILD)/bench/plot $(BUILD)/bench/kernels.json $(BUILD)/bench/kernels.svg
	@echo 'drawn: $(BUILD)/bench/kernels.svg'
bench-communicators: $(BENCH_FIGURES) ## time collectives by size, between processes by shm and by MPI: bench/results (COLLECTIVES=options)
	$(INSTALL_DEPS) build
	$(BUILD_QUIETLY) $(COMMAND) $(SHM_PLUGIN) $(MPI_PLUGIN)
	@python3 bench/communicators.py --flhost $(COMMAND) --plot $(BUILD)/bench/plot $(COLLECTIVES)
bench-disassembly: $(SHARED) ## show the machine code of a call by handle
	@objdump -d --no-show-raw-insn --disassemble=fl_invoke $(SHARED)

# ------------------------------------------------------------------------------------------------------------ tests
# tests/run gives the suites these; test_install builds the examples with the compiler and the flags of the library.
TEST_ENVIRONMENT = FLHOST_BUILD='$(BUILD)' PREFIX='$(PREFIX)' CC='$(CC)' SANITIZE='$(SANITIZE)'

.PHONY: tests
tests: $(TESTS)
.SECONDARY: $(TEST_SUPPORT)
# What `make check` runs: all suites, or those that ONLY names, without those that WITHOUT names. Those that take long come
# first, so that none runs by itself at the end.
ONLY ?=
WITHOUT ?=
SUITES = $(filter-out $(WITHOUT:%=$(BUILD)/tests/%),$(if $(ONLY),$(ONLY:%=$(BUILD)/tests/%),$(TESTS)))
COMPILED = $(SUITES)
LONG := $(patsubst %,$(BUILD)/tests/test_%,verify misbehaving judge cli_bench ascend_ops gpu_sequences checked_forms bounds \
  gpu_kernels gpu_paged_attention cli availability cpu_matmul)

.PHONY: check
check: ## install what is missing, build, and run all tests
	$(INSTALL_DEPS) build check
	$(BUILD_QUIETLY) all $(COMPILED)
	@$(TEST_ENVIRONMENT) tests/run $(filter $(LONG),$(SUITES)) $(filter-out $(LONG),$(SUITES))

# Of the CPU's kernels another compiler sees one instruction set beside the baseline: what is compiled for the others is for
# that, too. Of the suites it runs those of kernels here, and nearly all others in check-valgrind, which cannot read what clang writes
# for debuggers.
CLANG = BUILD=$(BUILD)/clang CC=clang CFLAGS=-O1 CPU_OPTIMISE=-O1 CPU_VARIANTS='$(CPU_WATCHED)'
.PHONY: check-clang
check-clang: ## all compiled by clang, without warnings, and the tests of kernels, in build/clang
	@FLHOST_SAMPLE=8 $(MAKE) --no-print-directory check $(CLANG) COMPILED='$(TESTS:$(BUILD)/%=$(BUILD)/clang/%)' \
	  ONLY='$(filter-out $(COMMAND_SUITES) test_mpi $(notdir $(LONG)),$(VALGRIND_LEAVES_OUT))'

# intercept_tls_get_addr=0: the leak checker of gcc 12 guesses the size of a plugin's thread-local storage from what lies before
# it in memory, and crashes where that is something else.
# Of the CPU's kernels one instruction set beside the baseline: to compile them takes longest. What starts the command again and
# again looks at what it says, which is the same; other suites call what it calls. Ranks that wait for each other, and large rows,
# have smaller ones beside them. Open MPI, in whose ranks test_mpi runs, leaks memory, has errors of its own under valgrind, and
# threads that the thread sanitizer does not see into.
ASAN_LEAVES_OUT = test_verify test_judge test_cli_bench test_bench_kernels test_bench_communicators test_availability test_mpi \
  test_gpu_command test_ascend_command test_cli_help test_first_minute test_install test_gpu_build test_launch test_run \
  test_doctor test_cpu_rows test_groups test_rank_limits
.PHONY: check-asan
check-asan: ## nearly all tests with the address and undefined-behaviour sanitizers, in build/asan
	@FLHOST_SAMPLE=16 ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:intercept_tls_get_addr=0 UBSAN_OPTIONS=print_stacktrace=1 CK_TIMEOUT_MULTIPLIER=6 \
	  $(MAKE) --no-print-directory check BUILD=$(BUILD)/asan CPU_VARIANTS='$(CPU_WATCHED)' CFLAGS='-O1 -g1 -fno-omit-frame-pointer' \
	  SANITIZE='-fsanitize=address,undefined -fno-sanitize-recover=undefined' WITHOUT='$(ASAN_LEAVES_OUT)'

# die_after_fork=0: tests fork while other threads run, on purpose. -Wno-tsan: the fence of core/support/thread.h, which only
# readers without membarrier need, means nothing to the sanitizer.
TSAN_CFLAGS = -O1 -g1 -Wno-unknown-warning-option -Wno-tsan
# The suites that start threads, but for two that take longest, and those of the kernels that share them. Not followed are the
# coroutines that the stand-in GPUs run kernels in.
TSAN_SUITES = $(sort $(filter-out test_mpi test_cpu_matmul test_availability,$(basename $(notdir $(shell grep -l pthread_create tests/test_*.c)))) test_cpu_plugin test_cpu_variants test_hccl test_over_ranks test_run test_shm_communicator)
.PHONY: check-tsan
check-tsan: ## the tests that have threads with the thread sanitizer, in build/tsan
	@FLHOST_SAMPLE=100 TSAN_OPTIONS='die_after_fork=0:halt_on_error=1:suppressions=$(abspath tests/tsan.supp)' CK_TIMEOUT_MULTIPLIER=10 \
	  $(MAKE) --no-print-directory check BUILD=$(BUILD)/tsan CPU_VARIANTS='$(firstword $(CPU_VARIANTS))' CFLAGS='$(TSAN_CFLAGS)' SANITIZE=-fsanitize=thread \
	  ONLY='$(TSAN_SUITES)'

# Without the sanitizer it is faster by ten and forks more freely. STRESS: further options, "--seconds 600 --seed 7".
STRESS ?=
.PHONY: stress check-stress
stress:
	$(BUILD_QUIETLY) $(BUILD)/tests/stress
check-stress: ## all kinds of calls and changes at once, for 15 s, then 30 s with the thread sanitizer
	$(INSTALL_DEPS) build
	@$(MAKE) --no-print-directory stress
	@$(MAKE) --no-print-directory stress BUILD=$(BUILD)/tsan CPU_VARIANTS='$(firstword $(CPU_VARIANTS))' CFLAGS='$(TSAN_CFLAGS)' SANITIZE=-fsanitize=thread
	@FLHOST_BUILD=$(BUILD) $(BUILD)/tests/stress --seconds 10 $(STRESS)
	@FLHOST_BUILD=$(BUILD) $(BUILD)/tests/stress --seconds 5 --no-membarrier $(STRESS)
	@for seed in 2 3; do FLHOST_BUILD=$(BUILD)/tsan TSAN_OPTIONS=die_after_fork=0:halt_on_error=1 \
	  $(BUILD)/tsan/tests/stress --seconds 15 --seed $$seed $(STRESS) || exit 1; done

# Children are checked too, and leaks in them; but not the compilers and shells that tests call. Threads take turns fairly:
# one that only calls would starve the others. Kernels on the CPU take too long here, and so does each start of the command: the
# address sanitizer has kernels, and of the command most. Set-gid programs are not to be followed, nor the process that plugins are tried in: it would end
# otherwise than by what they do. One thread for kernels: where others of the pool run while the process forks, the tool's own
# lock is never free in the child. Without oneDNN, whose code reads behind the end of a buffer of its own. Nor are suites run that
# make many calls of the same code, kernels on stand-ins among them, and ranks that wait for each other. It is clang's build that is
# run: check-clang runs other suites of it.
VALGRIND = valgrind --quiet --error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite,indirect,possible --suppressions=$(abspath tests/valgrind.supp) \
  --trace-children=yes --trace-children-skip=/bin/*,/usr/*,/sbin/*,*/native/flhost --child-silent-after-fork=no --fair-sched=try --log-file=$(abspath $(BUILD))/valgrind/%p
VALGRIND_LEAVES_OUT = test_secure test_judge test_freeze test_backend test_device_work test_guard_plugins test_hostile_settings test_lock \
  test_cpu_math test_cpu_matmul \
  test_cpu_memory test_cpu_rows test_cpu_variants test_availability test_bounds test_checked_forms test_bad_calls test_cost \
  test_device_calls test_ascend_ops test_ascend_calls test_op_files test_cpu_plugin test_groups test_hccl test_over_ranks test_rank_limits \
  test_shm_communicator test_nccl test_flagcx test_mpi \
  $(basename $(notdir $(wildcard tests/test_ops_*.c tests/test_gpu_*.c))) $(COMMAND_SUITES)
COMMAND_SUITES = $(basename $(notdir $(wildcard tests/test_cli*.c tests/test_*_command*.c))) test_bench test_bench_gpu test_bench_kernels test_bench_communicators \
  test_doctor test_first_minute test_install test_launch test_llm test_misbehaving test_run test_save_call test_verify
.PHONY: check-valgrind
check-valgrind: ## the library's and the plugins' tests under valgrind, compiled by clang; leaks are errors
	@rm -rf $(BUILD)/valgrind && mkdir -p $(BUILD)/valgrind && chmod 1777 $(BUILD)/valgrind
	@FLHOST_SAMPLE=100 OMP_NUM_THREADS=1 FLHOST_ONEDNN= TEST_WRAPPER='$(VALGRIND)' CK_TIMEOUT_MULTIPLIER=30 $(MAKE) --no-print-directory check $(CLANG) \
	  WITHOUT='$(VALGRIND_LEAVES_OUT)' || \
	  { grep -h '^==' $(BUILD)/valgrind/* | head -n 300; exit 1; }

# Backends of this machine alone would make the pages differ from one to the next: those of the tree.
.PHONY: docs
docs: all $(BUILD)/setting-pages ## make docs/operators and the tables of settings anew
	@mkdir -p docs/operators
	env -i VLLM_FL_PLUGIN_PATH='$(abspath $(BUILD)/plugins)' $(COMMAND) ops --pages docs/operators
	for page in docs/policy-guide.md docs/man/flhost.1 docs/man/flhost.yaml.5; do \
	  $(BUILD)/setting-pages $$page > $(BUILD)/page && { cmp -s $(BUILD)/page $$page || cp $(BUILD)/page $$page; } || exit 1; done

# Its warnings are errors, but for fields without a comment.
.PHONY: docs-html
docs-html: ## make the public headers' pages, build/docs/html/index.html (needs doxygen)
	@mkdir -p $(BUILD)/docs
	@{ cat docs/api/Doxyfile; printf '%s\n' 'PROJECT_NUMBER = $(VERSION)' 'OUTPUT_DIRECTORY = $(BUILD)/docs' \
	  'WARN_LOGFILE = $(BUILD)/docs/warnings'; } | doxygen -
	@! grep -vE 'Member .* \(variable\) of .* is not documented' $(BUILD)/docs/warnings

# From then on tests/abi-check, in CI, lets both interfaces only grow.
.PHONY: abi-baseline
abi-baseline: lib ## write tests/abi/*.abi anew: what both interfaces are (needs abidw)
	@$(TEST_ENVIRONMENT) tests/abi-check --baseline

# What it may find even so, and why that is no fault: tools/analysis/explained.
.PHONY: analyse
analyse: ## static analysis by cppcheck, clang-tidy and gcc -fanalyzer
	@tools/analyse

.PHONY: format
format: ## format C files by .clang-format
	clang-format -i $$(git ls-files '*.c' '*.h')

# ---------------------------------------------------------------------------------------------------------- install
INSTALL ?= install
PLUGINS_DIR = $(LIBDIR)/flhost/plugins
CONFIG_DIR = $(PREFIX)/share/flhost/config
PEERS_DIR = $(PREFIX)/share/flhost/peers
DOC_DIR = $(PREFIX)/share/doc/flhost
MAN_DIR = $(PREFIX)/share/man
MAN_PAGES := $(wildcard docs/man/*.[1-9])
# Pages lie below DOC_DIR as they do here, so that their links lead somewhere; the headers do by a link.
DOCS := README.md LICENSE CONTRIBUTING.md python/README.md bench/README.md bench/kernels.md bench/dispatch.svg bench/kernels.svg \
  plugins/gpu/README.md \
  $(wildcard docs/*.md docs/operators/*.md examples/*.* examples/python/* examples/llm/*) $(addprefix plugins/template/,Makefile README.md template.c)
COMPLETION_DIR = $(PREFIX)/share/bash-completion/completions
# Links need no flags of the host's own: see flhost.pc.in.
PRIVATE_LIBS = $(CORE_LIBS) -pthread

.PHONY: install
install: all ## install under PREFIX (/usr/local), staged in DESTDIR
	$(INSTALL) -d '$(DESTDIR)$(PREFIX)/bin' '$(DESTDIR)$(PREFIX)/include/flhost' '$(DESTDIR)$(LIBDIR)/pkgconfig' \
	  '$(DESTDIR)$(PLUGINS_DIR)' '$(DESTDIR)$(CONFIG_DIR)' '$(DESTDIR)$(PEERS_DIR)' '$(DESTDIR)$(COMPLETION_DIR)' \
	  '$(DESTDIR)$(DOC_DIR)/include'
	$(INSTALL) -m 755 $(COMMAND) '$(DESTDIR)$(PREFIX)/bin'
	$(INSTALL) -m 644 $(HEADERS) '$(DESTDIR)$(PREFIX)/include/flhost'
	$(INSTALL) -m 755 $(SHARED).$(SOVERSION) '$(DESTDIR)$(LIBDIR)/libflhost.so.$(VERSION)'
	ln -sf libflhost.so.$(VERSION) '$(DESTDIR)$(LIBDIR)/libflhost.so.$(SOVERSION)'
	ln -sf libflhost.so.$(SOVERSION) '$(DESTDIR)$(LIBDIR)/libflhost.so'
	$(INSTALL) -m 644 $(STATIC) '$(DESTDIR)$(LIBDIR)'
	$(INSTALL) -m 755 $(PLUGINS) '$(DESTDIR)$(PLUGINS_DIR)'
	$(INSTALL) -m 644 $(wildcard config/*.yaml) '$(DESTDIR)$(CONFIG_DIR)'
	$(INSTALL) -m 644 $(PEERS) '$(DESTDIR)$(PEERS_DIR)'
	for page in $(DOCS); do $(INSTALL) -D -m 644 $$page '$(DESTDIR)$(DOC_DIR)'/$$page || exit 1; done
	ln -sfn ../../../../include/flhost '$(DESTDIR)$(DOC_DIR)/include/flhost'
	$(INSTALL) -m 644 cli/completions/flhost.bash '$(DESTDIR)$(COMPLETION_DIR)/flhost'
	for page in $(MAN_PAGES); do $(INSTALL) -D -m 644 -t '$(DESTDIR)$(MAN_DIR)'/man$${page##*.} $$page || exit 1; done
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR:$(PREFIX)/%=$${prefix}/%)|' -e 's|@VERSION@|$(VERSION)|' \
	  -e 's|@PRIVATE_LIBS@|$(strip $(PRIVATE_LIBS))|' flhost.pc.in > '$(DESTDIR)$(LIBDIR)/pkgconfig/flhost.pc'
	chmod 644 '$(DESTDIR)$(LIBDIR)/pkgconfig/flhost.pc'

# Only what install put there: other vendors' plugins stay, and so do directories that are not empty.
.PHONY: uninstall
uninstall: ## remove what install put there
	rm -f '$(DESTDIR)$(PREFIX)/bin/flhost' '$(DESTDIR)$(COMPLETION_DIR)/flhost' \
	  $(HEADERS:include/flhost/%='$(DESTDIR)$(PREFIX)/include/flhost/%') \
	  '$(DESTDIR)$(LIBDIR)/libflhost.so.$(VERSION)' '$(DESTDIR)$(LIBDIR)/libflhost.so.$(SOVERSION)' \
	  '$(DESTDIR)$(LIBDIR)/libflhost.so' '$(DESTDIR)$(LIBDIR)/libflhost.a' '$(DESTDIR)$(LIBDIR)/pkgconfig/flhost.pc' \
	  $(patsubst %,'$(DESTDIR)$(PLUGINS_DIR)/%',$(notdir $(PLUGINS))) \
	  $(patsubst config/%,'$(DESTDIR)$(CONFIG_DIR)/%',$(wildcard config/*.yaml)) \
	  $(patsubst cli/bench/peers/%,'$(DESTDIR)$(PEERS_DIR)/%',$(PEERS)) \
	  $(patsubst %,'$(DESTDIR)$(DOC_DIR)/%',$(DOCS) include/flhost)
	for page in $(MAN_PAGES); do rm -f '$(DESTDIR)$(MAN_DIR)'/man$${page##*.}/$${page##*/}; done
	find '$(DESTDIR)$(DOC_DIR)' -type d -empty -delete 2>/dev/null || true
	for directory in '$(PREFIX)/include/flhost' '$(PLUGINS_DIR)' '$(LIBDIR)/flhost' '$(CONFIG_DIR)' '$(PEERS_DIR)' \
	  '$(PREFIX)/share/flhost'; do \
	  rmdir "$(DESTDIR)$$directory" 2>/dev/null || true; done

# --------------------------------------------------------------------------------------------------------- the rest
.PHONY: clean
clean: ## remove what was built
	rm -rf $(BUILD)

.PHONY: dist-clean
dist-clean: ## remove everything built, by any variant
	rm -rf build $(BUILD)

.PHONY: help
help: ## show this list
	@echo "make [TARGET] [BUILD=$(BUILD)] [CC=$(CC)] [CFLAGS='$(CFLAGS)'] [PREFIX=$(PREFIX)] [LIBDIR=$(LIBDIR)] [DESTDIR=] [DEPS=no]"
	@echo "  [CUDA_ARCHS='$(CUDA_ARCHS)'] [ROCM_ARCHS='$(ROCM_ARCHS)']"
	@awk -F ':.*## ' '/^[a-z0-9 -]+:.*## / { printf "  %-21s  %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST)) $(filter bench/% python/% plugins/% tests/%,$(MAKEFILE_LIST))

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
