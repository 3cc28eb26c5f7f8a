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

CFLAGS ?= -O2 -g
WARNINGS := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith
# -ffp-contract=off: a multiplication and an addition round twice, as written.
BASE := -std=c11 -D_GNU_SOURCE -fPIC -fvisibility=hidden -ffp-contract=off -pthread $(WARNINGS) -I. -Iinclude -MMD -MP $(SANITIZE)
LINK := -pthread $(SANITIZE) $(LDFLAGS)

CORE_PACKAGES := yaml-0.1 hwloc jansson
CORE_CFLAGS = $(shell pkg-config --cflags $(CORE_PACKAGES)) -DFLHOST_VERSION='"$(VERSION)"' -DFLHOST_PREFIX='"$(PREFIX)"'
CORE_LIBS = $(shell pkg-config --libs $(CORE_PACKAGES)) -ldl -lm
CHECK_LIBS = $(shell pkg-config --libs check)

CORE_SOURCES := $(filter-out core/ops/generate.c,$(wildcard core/*.c core/ops/*.c))
CORE_OBJECTS := $(CORE_SOURCES:%.c=$(BUILD)/obj/%.o)
CLI_OBJECTS := $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard cli/*.c))
TESTS := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/test_*.c))
TEST_SUPPORT := $(patsubst %.c,$(BUILD)/obj/%.o,$(filter-out $(wildcard tests/test_*.c),$(wildcard tests/*.c)))
BENCHES := $(patsubst bench/%.c,$(BUILD)/bench/%,$(wildcard bench/*.c))
HEADERS := $(wildcard include/flhost/*.h)

SHARED := $(BUILD)/libflhost.so
STATIC := $(BUILD)/libflhost.a
COMMAND := $(BUILD)/flhost
PLUGINS :=

.PHONY: all
all: lib $(COMMAND) plugins config-files

include plugins/plugins.mk
include tests/tests.mk

.PHONY: lib plugins config-files
lib: $(SHARED) $(STATIC)
plugins: $(PLUGINS)
config-files: $(patsubst config/%,$(BUILD)/config/%,$(wildcard config/*.yaml))

$(BUILD)/config/%.yaml: config/%.yaml
	@mkdir -p $(@D)
	cp $< $@

# ---------------------------------------------------------------------------------------------------------- library
# include/flhost/ops.h is made from the entries in core/ops, and committed so that it can be read.
GENERATOR_SOURCES := core/ops/generate.c core/schema.c core/rules.c core/text.c core/error.c \
  $(filter-out core/ops/generate.c,$(wildcard core/ops/*.c))
$(BUILD)/generate-ops: $(GENERATOR_SOURCES) $(wildcard core/*.h core/ops/*.h) include/flhost/plugin.h include/flhost/flhost.h
	@mkdir -p $(@D)
	$(CC) $(filter-out -MMD -MP,$(BASE)) $(CFLAGS) -o $@ $(GENERATOR_SOURCES) $(LINK) -lm
$(BUILD)/ops.stamp: $(BUILD)/generate-ops
	$(BUILD)/generate-ops header > $(BUILD)/ops.h
	cmp -s $(BUILD)/ops.h include/flhost/ops.h || cp $(BUILD)/ops.h include/flhost/ops.h
	@touch $@

$(BUILD)/obj/core/%.o: core/%.c | $(BUILD)/ops.stamp
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CORE_CFLAGS) $(CFLAGS) -c -o $@ $<
$(BUILD)/obj/%.o: %.c | $(BUILD)/ops.stamp
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) -DFLHOST_VERSION='"$(VERSION)"' -c -o $@ $<

# nodelete: threads keep a destructor of the library's until they end.
$(SHARED).$(SOVERSION): $(CORE_OBJECTS) core/flhost.map
	$(CC) -shared -Wl,-soname,libflhost.so.$(SOVERSION) -Wl,--version-script=core/flhost.map -Wl,-z,defs,-z,nodelete,-z,relro,-z,now \
	  -o $@ $(CORE_OBJECTS) $(LINK) $(CORE_LIBS)
$(SHARED): $(SHARED).$(SOVERSION)
	ln -sf $(notdir $<) $@
$(STATIC): $(CORE_OBJECTS)
	rm -f $@
	$(AR) rcs $@ $(CORE_OBJECTS)

# ---------------------------------------------------------------------------------------------------------- command
$(COMMAND): $(CLI_OBJECTS) $(SHARED)
	$(CC) -o $@ $(CLI_OBJECTS) -L$(BUILD) -lflhost -Wl,-rpath,'$$ORIGIN:$$ORIGIN/../lib' $(LINK) \
	  $(shell pkg-config --libs jansson) -lm

# ------------------------------------------------------------------------------------------------------------ bench
$(BUILD)/bench/%: bench/%.c $(STATIC) | $(BUILD)/ops.stamp
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) -o $@ $< $(STATIC) $(LINK) $(CORE_LIBS) $(BENCH_LIBS)

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
