# Fuzz targets: tests/fuzz/targets/NAME.c, each with inputs to begin with, and all that ever failed, in
# tests/fuzz/corpus/NAME. Built here to replay these; `make fuzz` builds them with clang's libFuzzer.
FUZZ_TARGETS := $(sort $(patsubst tests/fuzz/targets/%.c,%,$(wildcard tests/fuzz/targets/*.c)))
FUZZ_REPLAY := $(FUZZ_TARGETS:%=$(BUILD)/tests/fuzz/%)
FUZZ_SUPPORT := $(patsubst %,$(BUILD)/obj/tests/fuzz/%.o,fuzz settings) $(BUILD)/obj/cli/run/safetensors.o
FUZZ_LINK = $(STATIC) $(LINK) $(CORE_LIBS)

$(BUILD)/tests/fuzz/%: $(BUILD)/obj/tests/fuzz/targets/%.o $(BUILD)/obj/tests/fuzz/replay.o $(FUZZ_SUPPORT) $(STATIC)
	@mkdir -p $(@D)
	$(CC) -o $@ $(filter %.o,$^) $(FUZZ_LINK)
$(BUILD)/fuzz/%: $(BUILD)/obj/tests/fuzz/targets/%.o $(FUZZ_SUPPORT) $(STATIC)
	@mkdir -p $(@D)
	$(CC) -fsanitize=fuzzer -o $@ $(filter %.o,$^) $(FUZZ_LINK)
.SECONDARY: $(FUZZ_SUPPORT) $(FUZZ_TARGETS:%=$(BUILD)/obj/tests/fuzz/targets/%.o) $(BUILD)/obj/tests/fuzz/replay.o
$(BUILD)/tests/test_fuzz: | $(FUZZ_REPLAY)

# What it finds is written to tests/fuzz/corpus/TARGET: mend, commit both, and it is replayed for ever. New inputs that
# reach new code stay in build/fuzz/corpus; `make fuzz-merge` keeps the least of them that reach as much.
SECONDS ?= 60
FUZZ_BUILD = $(MAKE) --no-print-directory -s $(PARALLEL) fuzz-targets BUILD=$(BUILD)/fuzz CC=clang CFLAGS='-O1 -g' \
  SANITIZE='-fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=undefined'
.PHONY: fuzz fuzz-merge fuzz-targets
fuzz-targets: $(FUZZ_TARGETS:%=$(BUILD)/fuzz/%)
fuzz: ## fuzz each reader of other people's text, and calls: SECONDS=60 each, TARGETS='policy schema'
	$(INSTALL_DEPS) build check ci
	@echo "Building in $(BUILD)/fuzz" && tools/progress $(FUZZ_BUILD)
	@tests/fuzz/run '$(BUILD)/fuzz' $(SECONDS) $(or $(TARGETS),$(FUZZ_TARGETS))
fuzz-merge: ## keep the least inputs that reach all that the kept ones and the last runs reached
	@tests/fuzz/run '$(BUILD)/fuzz' merge $(or $(TARGETS),$(FUZZ_TARGETS))
