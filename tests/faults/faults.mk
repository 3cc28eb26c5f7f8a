# `make check-faults`: each path of the library with each call of the C library failing in turn.
FAULTS := $(BUILD)/tests/faults/faults
FAULTS_INJECT := $(BUILD)/tests/faults/libinject.so
$(FAULTS_INJECT): tests/faults/inject.c
	@mkdir -p $(@D)
	$(CC) $(BASE) $(filter-out -O%,$(CFLAGS)) -O1 -fno-builtin -fvisibility=default -shared -o $@ $< $(LINK) -ldl
$(FAULTS): $(BUILD)/obj/tests/faults/faults.o $(BUILD)/obj/tests/faults/paths.o $(STATIC) | $(BUILD)/ops.stamp
	@mkdir -p $(@D)
	$(CC) -o $@ $(filter %.o,$^) $(STATIC) $(LINK) $(CORE_LIBS)

# FAULTS_ARGUMENTS: which: "--fault memory --path create --path call".
.PHONY: check-faults
check-faults: ## let memory, descriptors, files, processes fail at every site of every path
	$(INSTALL_DEPS) build
	$(BUILD_QUIETLY) all $(FAULTS) $(FAULTS_INJECT) $(BUILD)/tests/plugins/good.so $(BUILD)/tests/plugins/listed/lazy_a.so $(BUILD)/tests/plugins/two_vendors.so
	@FLHOST_BUILD=$(BUILD) LD_PRELOAD=$(abspath $(FAULTS_INJECT)) $(FAULTS) $(FAULTS_ARGUMENTS)

# SOAK: "--seconds 60 --seed 7".
SOAK ?=
$(BUILD)/tests/soak: $(BUILD)/obj/tests/soak.o $(STATIC)
	$(CC) -o $@ $(filter %.o,$^) $(STATIC) $(LINK) $(CORE_LIBS)
.PHONY: soak
soak: ## for ten minutes: calls while all else changes, fails and runs short
	$(INSTALL_DEPS) build
	$(BUILD_QUIETLY) all $(BUILD)/tests/soak $(FAULTS_INJECT) $(BUILD)/tests/plugins/good.so
	@HOME=$$(mktemp -d) && FLHOST_BUILD=$(BUILD) LD_PRELOAD=$(abspath $(FAULTS_INJECT)) $(BUILD)/tests/soak $(SOAK) && rm -rf "$$HOME"
