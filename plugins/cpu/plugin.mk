# The CPU backend. The optimised kernels are written for the vectoriser, so they get -O3, but where the code is looked at and not
# its speed (CPU_OPTIMISE=-O1); functions are aligned so that what a call costs does not change with the kernels before it.
CPU_PLUGIN := $(BUILD)/plugins/cpu.so
CPU_OPTIMISE ?= $(if $(SANITIZE),-O1,-O3)
CPU_FLAGOS_FILES := $(patsubst plugins/cpu/flagos/%.c,%,$(sort $(wildcard plugins/cpu/flagos/*/*.c)))
CPU_PLUGIN_OBJECTS := $(patsubst %.c,$(BUILD)/obj/%.o,$(foreach folder,cpu cpu/support cpu/reference cpu/flagos/*,$(sort $(wildcard plugins/$(folder)/*.c))))
PLUGINS += $(CPU_PLUGIN)
# A copy of a chunk stays a loop: the memcpy that gcc makes of it goes through memory, as do sums and maxima of lanes whose loop gcc
# unrolls around that over the lanes.
CPU_LOOPS := $(call takes,-fno-tree-loop-distribute-patterns) $(call takes,-fno-loop-unroll-and-jam)
# Of optimised kernels lines can be told, and hardly a variable; to keep account of those takes a third of the compiler's time.
CPU_DEBUG := $(if $(filter -g,$(CFLAGS)),-g1)
cpu_flagos_flags = $(CPU_OPTIONS_$(1)) -DOP_LIST_SECTION='"op_lists_$(1)"' $(CPU_OPTIMISE) $(CPU_DEBUG) -falign-functions=64 -fno-math-errno -fno-trapping-math $(CPU_LOOPS) $(SANITIZE_KERNELS)
# Products are sums of many terms in any order: with fused multiply-add they are faster and no less exact.
# A rotation's difference of two products may cancel, as what is merged may; a product of xielu that overflows is infinite whatever
# is added to it.
cpu_contract = $(if $(filter matmul.o few_rows.o pairs.o scaled_rows.o four_bit_words.o four_bit_mxfp4.o,$(notdir $@)),-ffp-contract=fast)$(if $(filter rotary.o xielu.o merge.o,$(notdir $@)),-ffp-contract=off)
# A way of its own for what is constant behind a comparison, in silu, would become a second division of all lanes; in int8
# codes, masks in place of a maximum and a minimum.
cpu_ways = $(if $(filter gated.o gated_norm.o causal_conv1d.o quantisation.o fused_quantisation.o,$(notdir $@)),$(CPU_ONE_WAY))
CPU_ONE_WAY := $(call takes,-fno-thread-jumps)
cpu_compile = @mkdir -p $(@D) && $(CC) $(BASE) $(CFLAGS) $(if $(findstring plugins/cpu/flagos/,$<),$(call cpu_flagos_flags,$(1))) $(cpu_contract) $(cpu_ways) -DFLHOST_VERSION='"$(VERSION)"' -c -o $@ $<
$(CPU_PLUGIN_OBJECTS): $(BUILD)/obj/plugins/cpu/%.o: plugins/cpu/%.c plugins/cpu/plugin.mk $(BUILD)/harden.stamp
	$(call cpu_compile,baseline)
# What other backends have, too, is compiled as they have it, not by the rule above.
CPU_PLUGIN_OBJECTS += $(BUILD)/obj/plugins/quantile.o

# cpu_variant NAME: the optimised kernels for another instruction set (plugins/cpu/support/variants.h), joined into one
# object in which their names are local: only the section of their lists is seen.
define cpu_variant
CPU_VARIANT_OBJECTS += $(BUILD)/obj/plugins/cpu/$(1).o
$(BUILD)/obj/plugins/cpu/$(1).o: $(CPU_FLAGOS_FILES:%=$(BUILD)/obj/plugins/cpu/$(1)/%.o)
	$$(CC) -r -nostdlib -o $$@.joined $$^ && $$(OBJCOPY) --localize-hidden $$@.joined $$@ && rm $$@.joined
$(CPU_FLAGOS_FILES:%=$(BUILD)/obj/plugins/cpu/$(1)/%.o): $(BUILD)/obj/plugins/cpu/$(1)/%.o: plugins/cpu/flagos/%.c plugins/cpu/plugin.mk $(BUILD)/harden.stamp
	$$(call cpu_compile,$(1))
endef
OBJCOPY ?= objcopy
CPU_ARCHITECTURE := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine)))
CPU_VARIANTS_x86_64 := avx2 avx512 avx512_bf16 amx
CPU_OPTIONS_baseline = $(CPU_OPTIONS_$(CPU_ARCHITECTURE))
CPU_OPTIONS_aarch64 := -ffp-contract=fast
CPU_OPTIONS_avx2 := -march=x86-64-v3 -ffp-contract=fast
CPU_OPTIONS_avx512 := -march=x86-64-v4 -mprefer-vector-width=512 -ffp-contract=fast
# All processors with products of bfloat16 have those of bytes.
CPU_OPTIONS_avx512_bf16 := $(CPU_OPTIONS_avx512) -mavx512bf16 -mavx512vnni
# Instructions for tiles are those that the code asks for by name, which sanitizers do not look into: CPU_WATCHED is the widest
# variant without them.
CPU_OPTIONS_amx := $(CPU_OPTIONS_avx512_bf16) -mamx-tile -mamx-bf16
CPU_WATCHED = $(lastword $(filter-out amx,$(CPU_VARIANTS)))
CPU_VARIANTS ?= $(CPU_VARIANTS_$(CPU_ARCHITECTURE))
$(foreach variant,$(CPU_VARIANTS),$(eval $(call cpu_variant,$(variant))))

$(eval $(call listed_ops,cpu,$(CPU_PLUGIN_OBJECTS) $(CPU_VARIANT_OBJECTS)))
$(CPU_PLUGIN): $(CPU_PLUGIN_OBJECTS) $(CPU_VARIANT_OBJECTS) $(BUILD)/obj/plugins/cpu/listed_ops.o
	@mkdir -p $(@D)
	$(CC) $(PLUGIN_LINK) -o $@ $^ $(LINK) -lm

# vector.h and conversions alone, for tests/test_cpu_math.c and tests/cross/math.c, as the plugin's instruction sets have it
# (those of amx are avx512_bf16's, but that it widens bfloat16 as avx512 does).
CPU_MATH := $(foreach variant,baseline $(filter-out amx,$(CPU_VARIANTS)),$(BUILD)/tests/vector_math/$(variant).so)
$(CPU_MATH): $(BUILD)/tests/vector_math/%.so: tests/vector_math/functions.c tests/vector_math/functions.h $(patsubst %,plugins/cpu/flagos/vectors/%.h,vector gelu chunk half) plugins/cpu/plugin.mk $(BUILD)/harden.stamp
	@mkdir -p $(@D)
	$(CC) $(filter-out -MMD -MP,$(BASE)) $(CFLAGS) $(call cpu_flagos_flags,$*) -shared -o $@ $< $(LINK) -lm
$(BUILD)/tests/test_cpu_math: $(BUILD)/obj/tests/vector_math/promises.o | $(CPU_MATH)
$(BUILD)/tests/test_cpu_math: private LINK += $(BUILD)/obj/tests/vector_math/promises.o

.PHONY: check-math
check-math: $(BUILD)/tests/test_cpu_math ## elementary functions of the CPU's kernels at a billion points; minutes for each instruction set
	@FLHOST_BUILD=$(BUILD) CHECK_MATH_POINTS=1e9 CK_FORK=no $<
