# Plugins that the tests load: one that is in order, and one for each thing that can be wrong with a plugin. Variants
# that are no product of a linker (truncated, another architecture, …) are made from good.so by the tests themselves.
TP := $(BUILD)/tests/plugins
TP_BUILD = $(CC) $(BASE) -Itests/plugins $(CFLAGS) -o $@ $< -shared -Wl,-z,now,-Bsymbolic $(LINK)
TP_BUILD_PLAIN = $(CC) $(filter-out $(SANITIZE),$(BASE)) -Itests/plugins -O1 -o $@ $< -shared -Wl,-z,now,-Bsymbolic -pthread

# Platforms that are active under names that cannot be: platform_unnamable_N.so.
UNNAMABLE := $(patsubst %,platform_unnamable_%,0 1 2 3 4 5)
TEST_PLUGINS := $(TEMPLATE_PLUGIN) $(patsubst %,$(TP)/%.so,good good_rebuilt good_anonymous no_entry wrong_abi error entries needs_good no_note changes \
  failing new_minor frozen unavailable duplicate duplicate_skip undefined undefined_host isa isa_unknown absent \
  absent_middle two_vendors platform_a platform_b platform_asleep platform_crashes platform_of_acme $(UNNAMABLE) named_engine named_flhost undefined_present asks_default layer_a layer_b layer_taken layer_unknown layer_own layer_listed asked_crashes asked_hangs asked_counts cxx device prepares communicators zephyr executable_stack text_relocations) $(TP)/lib/libfake_driver.so

# FL_PLUGIN_OPS: what each lists and what it registers.
LISTED_PLUGINS := $(patsubst %,$(TP)/listed/%.so,lazy_a lazy_better lazy_builtin lazy_slow lazy_slow_start lazy_other lazy_layer lazy_missing \
  lazy_fails lazy_again lazy_empty lazy_gap lazy_twice lazy_odd lazy_huge lazy_platform lazy_platform_unsaid lazy_platform_other \
  lazy_signs_none lazy_signs_unnamed lazy_signs_twice lazy_poor lazy_exits lazy_forks lazy_ends lazy_ends_at_start \
  acme_listed acme_eager acme_platform acme_other acme_reference acme_empty acme_comma acme_twice)
lazy_a_IS := -DOPS='"lazy_a"' -DREGISTERS='"lazy_a"'
lazy_better_IS := -DOPS='" lazy_a , lazy_c "' -DREGISTERS='"lazy_a","lazy_c"' -DPRIORITY=120
lazy_builtin_IS := -DOPS='"relu2"' -DREGISTERS='"relu2"'
lazy_slow_IS := -DOPS='"lazy_a"' -DREGISTERS='"lazy_a"' -DSLOW=300000
lazy_slow_start_IS := -DOPS='"lazy_a"' -DREGISTERS='"lazy_a"' -DSLOW_START=300000
lazy_other_IS := -DOPS='"lazy_a"' -DREGISTERS='"lazy_a","lazy_b"'
lazy_layer_IS := -DOPS='"lazy_a"' -DREGISTERS='"lazy_a"' -DLAYER='"AcmeAttention"'
lazy_missing_IS := -DOPS='"lazy_a,lazy_b"' -DREGISTERS='"lazy_a"'
lazy_fails_IS := -DOPS='"lazy_a"' -DREGISTERS='"lazy_a"' -DFAILS
lazy_forks_IS := -DOPS='"lazy_a"' -DREGISTERS='"lazy_a"' -DFORKS
lazy_exits_IS := -DOPS='"lazy_a"' -DREGISTERS='"lazy_a"' -DEXITS
lazy_ends_IS := -DOPS='"lazy_a"' -DREGISTERS='"lazy_a"' -DENDS_THREAD
lazy_ends_at_start_IS := -DOPS='"lazy_a"' -DREGISTERS='"lazy_a"' -DENDS_THREAD_AT_START
lazy_poor_IS := -DOPS='"lazy_a"' -DREGISTERS='"lazy_a"' -DPOOR
lazy_again_IS := -DOPS='"lazy_again_a,lazy_again_b"' -DREGISTERS='"lazy_again_a","lazy_again_b"'
lazy_empty_IS := -DOPS='""' -DREGISTERS='"lazy_a"'
lazy_gap_IS := -DOPS='"lazy_a,,lazy_b"' -DREGISTERS='"lazy_a"'
lazy_twice_IS := -DOPS='"lazy_a,lazy_b,lazy_a"' -DREGISTERS='"lazy_a","lazy_b"'
lazy_odd_IS := -DOPS='"lazy_a,lazy-b"' -DREGISTERS='"lazy_a"'
lazy_huge_IS := -DHUGE_LIST=70000 -DREGISTERS='"lazy_a"'
lazy_platform_IS := -DOPS='"lazy_a"' -DREGISTERS='"lazy_a"' -DPLATFORM='"lazynpu"' -DSIGNS='"/nonexistent/lazy0, $$LAZY_PLATFORM"'
lazy_platform_unsaid_IS := -DOPS='"lazy_a"' -DREGISTERS='"lazy_a"' -DPLATFORM='"lazynpu"'
lazy_platform_other_IS := -DOPS='"lazy_a"' -DREGISTERS='"lazy_a"' -DPLATFORM='"lazynpu"' -DBRINGS='"other"' -DSIGNS='"/nonexistent"'
lazy_signs_none_IS := -DOPS='"lazy_a"' -DREGISTERS='"lazy_a"' -DPLATFORM_NOTE='"lazynpu"'
lazy_signs_unnamed_IS := -DOPS='"lazy_a"' -DREGISTERS='"lazy_a"' -DPLATFORM_NOTE='":/dev/null"'
lazy_signs_twice_IS := -DOPS='"lazy_a"' -DREGISTERS='"lazy_a"' -DPLATFORM='"lazynpu"' -DSIGNS='"/dev/null"' -DPLATFORM_NOTE='"a:/dev/null"'
# FL_PLUGIN_VENDOR: what each says and what it registers.
acme_listed_IS := -DOPS='"lazy_a"' -DREGISTERS='"lazy_a"' -DSAYS='"acme"' -DVENDOR='"acme"'
acme_eager_IS := -DREGISTERS='"lazy_b"' -DSAYS='"acme"' -DVENDOR='"acme"'
acme_platform_IS := -DOPS='"lazy_c"' -DREGISTERS='"lazy_c"' -DSAYS='"acme"' -DVENDOR='"acme"' -DPLATFORM='"acmenpu"' -DSIGNS='"$$LAZY_PLATFORM"'
acme_other_IS := -DREGISTERS='"lazy_b"' -DSAYS='"acme"' -DVENDOR='"other"'
acme_reference_IS := -DREGISTERS='"lazy_b"' -DSAYS='"acme"' -DVENDOR='"acme"' -DKIND=FL_KIND_REFERENCE
acme_empty_IS := -DREGISTERS='"lazy_b"' -DSAYS='""'
acme_comma_IS := -DREGISTERS='"lazy_b"' -DSAYS='"acme,other"'
acme_twice_IS := -DREGISTERS='"lazy_b"' -DSAYS='"acme"' -DSAYS_TOO='"other"' -DVENDOR='"acme"'
$(LISTED_PLUGINS): $(TP)/listed/%.so: tests/plugins/listed.c
	@mkdir -p $(@D)
	$(TP_BUILD) -DNAME='"$*"' $($*_IS)

# What does harm: WHEN-WHAT, of tests/plugins/hostile.c; tests/test_judge.c has the verdict that each must get.
HOSTILE := $(addprefix opened-,nothing crash divide exit_0 exit_at_once end_thread sleep_on close_all kill_parent fork_one count crash_in_thread) \
  $(addprefix registers-,nothing count_and_crash crash illegal abort_with_words exit_0 exit_3 exit_at_once exec_other end_thread spin allocate reserve \
    close_all close_streams open_files daemonise crash_and_leave_daemon kill_guard_and_leave_daemon kill_parent kill_self kill_group stop \
    change_directory change_locale handle block round_down print set_variable jump overflow break_heap leave_thread crash_in_thread alarm_soon) \
  $(addprefix asked-,crash abort_with_words exit_0 end_thread sleep_on allocate open_files kill_parent overflow leave_thread) \
  $(addprefix ends-,crash exit_at_once sleep_on) registers-crash_at_exit
HOSTILE_PLUGINS := $(HOSTILE:%=$(TP)/hostile/%.so) $(TP)/hostile/registers-throw_out.so
$(TP)/hostile/registers-throw_out.so: tests/plugins/hostile_throw.cc
	@mkdir -p $(@D)
	$(CXX) -std=c++17 -fPIC -fvisibility=hidden -Wall -Wextra -Werror -Iinclude -MMD -MP $(SANITIZE) $(CFLAGS) -o $@ $< -shared -Wl,-z,now,-Bsymbolic $(LINK)
$(TP)/hostile/%.so: tests/plugins/hostile.c
	@mkdir -p $(@D)
	$(TP_BUILD) -DNAME='"$*"' -DWHEN=$(shell echo $(firstword $(subst -, ,$*)) | tr a-z A-Z) -DWHAT=$(lastword $(subst -, ,$*))
$(BUILD)/tests/test_judge: | $(HOSTILE_PLUGINS) $(TP)/wrong_abi.so

# Errors that `flhost verify` must find: one plugin each.
PLANTED := last_element behind_row overwrites_input overwrites_x ignores_stride ignores_offset odd_sizes drops_nan in_place \
  forgets_weight other_threads other_bits enotsup_after_yes writes_before_enotsup fails wrong_prepared prepares_behind fails_to_prepare prepares
PLANTED_PLUGINS := $(PLANTED:%=$(TP)/planted_%.so)

$(TP)/%.so: tests/plugins/%.c
	@mkdir -p $(@D)
	$(TP_BUILD)
$(PLANTED_PLUGINS): $(TP)/planted_%.so: tests/plugins/planted.c
	@mkdir -p $(@D)
	$(TP_BUILD) -DNAME='"planted_$*"' -DERROR=$$(echo $* | tr a-z A-Z) -lm
# What a plugin may do to a host: one each, and one in C++.
MISBEHAVING := nothing constructor_exits constructor_ends_thread entry_exits entry_ends_thread crashes crashes_later divides aborts \
  kills_itself exits exits_at_once ends_thread hangs takes_memory overflows_stack jumps frees_twice wrong_tail wrong_many_rows \
  wrong_long_rows wrong_nan wrong_500th skips_row of_previous_call of_static_buffer of_unset_memory of_unset_result reads_behind \
  reads_before writes_behind writes_far_behind writes_far_before writes_input leaks_descriptor leaks_thread leaks_mask \
  changes_handler changes_directory changes_locale changes_rounding prints status_garbage message_without_end
MISBEHAVING_PLUGINS := $(MISBEHAVING:%=$(TP)/misbehaving_%.so) $(TP)/throws.so

# Two builds of one plugin, the newer with an error.
PLANTED_BUILDS := $(TP)/old/planted.so $(TP)/new/planted.so
$(TP)/old/planted.so: ERROR := NOTHING
$(TP)/new/planted.so: ERROR := LAST_ELEMENT
$(PLANTED_BUILDS): tests/plugins/planted.c
	@mkdir -p $(@D)
	$(TP_BUILD) -DNAME='"planted"' -DERROR=$(ERROR) -lm
# Built plainly: a sanitizer would end them before the host has a say.
$(MISBEHAVING:%=$(TP)/misbehaving_%.so): $(TP)/misbehaving_%.so: tests/plugins/misbehaving.c
	@mkdir -p $(@D)
	$(TP_BUILD_PLAIN) -DNAME='"misbehaving_$*"' -DCASE=$$(echo $* | tr a-z A-Z) -lm
$(TP)/throws.so: tests/plugins/throws.cc
	@mkdir -p $(@D)
	$(CXX) -std=c++17 -fPIC -fvisibility=hidden -Wall -Wextra -Werror -Iinclude -MMD -MP -O1 -o $@ $< -shared -Wl,-z,now,-Bsymbolic
# Of tests/stress.c.
STRESS_PLUGINS := $(TP)/stress_acme.so $(TP)/stress_bolt.so $(TP)/stress_even.so $(TP)/stress_reference.so
$(TP)/stress_even.so: STRESS_FLAGS = -DEVEN -DVENDOR='"even"' -DID='"vendor.even"'
$(TP)/stress_reference.so: STRESS_FLAGS = -DVENDOR='""' -DID='"reference.stress"'
$(STRESS_PLUGINS): $(TP)/stress_%.so: tests/plugins/stress.c
	@mkdir -p $(@D)
	$(TP_BUILD) -DNAME='"stress_$*"' $(or $(STRESS_FLAGS),-DVENDOR='"$*"' -DID='"vendor.$*"')
$(BUILD)/tests/stress: | $(STRESS_PLUGINS)
# What loading does to the process's memory.
$(TP)/executable_stack.so: tests/plugins/good.c
	@mkdir -p $(@D)
	$(TP_BUILD) -Wl,-z,execstack
$(TP)/text_relocations.so: tests/plugins/text_relocations.c
	@mkdir -p $(@D)
	$(TP_BUILD) -Wl,-z,notext
# A build id that the tests know.
$(TP)/good.so: tests/plugins/good.c
	@mkdir -p $(@D)
	$(TP_BUILD) -Wl,--build-id=0x00c0ffee
$(TP)/good_rebuilt.so: tests/plugins/good.c
	@mkdir -p $(@D)
	$(TP_BUILD) -Wl,--build-id=0x00c0ffef
$(TP)/good_anonymous.so: tests/plugins/good.c
	@mkdir -p $(@D)
	$(TP_BUILD) -Wl,--build-id=none
$(TP)/duplicate.so: tests/plugins/duplicate.c
	@mkdir -p $(@D)
	$(TP_BUILD) -DNAME='"duplicate"' -DFLAGS=0
$(TP)/duplicate_skip.so: tests/plugins/duplicate.c
	@mkdir -p $(@D)
	$(TP_BUILD) -DNAME='"duplicate_skip"' -DFLAGS=FL_PLUGIN_SKIP_REFUSED
$(TP)/undefined.so: tests/plugins/undefined.c
	@mkdir -p $(@D)
	$(TP_BUILD) -DNAME='"undefined"' -DSYMBOL=acme_missing
$(TP)/undefined_host.so: tests/plugins/undefined.c
	@mkdir -p $(@D)
	$(TP_BUILD) -DNAME='"undefined_host"' -DSYMBOL=fl_get_the_registry
# A function that the host's library has, and shows to all where a program is linked with it.
$(TP)/undefined_present.so: tests/plugins/undefined.c
	@mkdir -p $(@D)
	$(TP_BUILD) -DNAME='"undefined_present"' -DSYMBOL=fl_version
# Of the instruction sets that have a name, two that were given up.
$(TP)/isa.so: tests/plugins/isa.c
	@mkdir -p $(@D)
	$(TP_BUILD) -DNAME='"isa"' -DISA='"sse2, xop,fma4"'
$(TP)/isa_unknown.so: tests/plugins/isa.c
	@mkdir -p $(@D)
	$(TP_BUILD) -DNAME='"isa_unknown"' -DISA='"avx513f"'
$(TP)/platform_a.so: tests/plugins/platform.c
	@mkdir -p $(@D)
	$(TP_BUILD) -DNAME='"platform_a"' -DACTIVE=1
$(TP)/platform_crashes.so: tests/plugins/platform.c
	@mkdir -p $(@D)
	$(TP_BUILD) -DNAME='"platform_crashes"' -DACTIVE=2
$(TP)/platform_of_acme.so: tests/plugins/platform.c
	@mkdir -p $(@D)
	$(TP_BUILD) -DNAME='"platform_of_acme"' -DVENDOR='"acme"' -DACTIVE=2
platform_unnamable_0_IS := "../evil"
platform_unnamable_1_IS := ".evil"
platform_unnamable_2_IS := "a/b"
platform_unnamable_3_IS := "auto"
platform_unnamable_4_IS := "e v i l"
platform_unnamable_5_IS := "evil\n\033[31m"
$(UNNAMABLE:%=$(TP)/%.so): $(TP)/%.so: tests/plugins/platform.c
	@mkdir -p $(@D)
	$(TP_BUILD) -DNAME='"$*"' -DPLATFORM='$($*_IS)' -DACTIVE=1
$(TP)/platform_b.so: tests/plugins/platform.c
	@mkdir -p $(@D)
	$(TP_BUILD) -DNAME='"platform_b"' -DACTIVE=1
$(TP)/platform_asleep.so: tests/plugins/platform.c
	@mkdir -p $(@D)
	$(TP_BUILD) -DNAME='"platform_asleep"' -DACTIVE=0
# What is_available does.
$(TP)/asked_crashes.so $(TP)/asked_hangs.so $(TP)/asked_counts.so: $(TP)/asked_%.so: tests/plugins/asked.c
	@mkdir -p $(@D)
	$(TP_BUILD) -DNAME='"asked_$*"' -DANSWER=$$(echo $* | tr a-z A-Z)
# Names that are the engine's and the host's own.
$(TP)/named_engine.so $(TP)/named_flhost.so: $(TP)/named_%.so: tests/plugins/platform.c
	@mkdir -p $(@D)
	$(TP_BUILD) -DNAME='"$*"' -DACTIVE=1
# AcmeAttention twice, a class of the host's own table, and an op that nobody has.
$(TP)/layer_a.so: tests/plugins/layer.c
	@mkdir -p $(@D)
	$(TP_BUILD) -DNAME='"layer_a"' -DCLASS='"AcmeAttention"' -DOP='"test_layer"'
$(TP)/layer_b.so: tests/plugins/layer.c
	@mkdir -p $(@D)
	$(TP_BUILD) -DNAME='"layer_b"' -DCLASS='"AcmeAttention"' -DOP='"rms_norm"'
$(TP)/layer_taken.so: tests/plugins/layer.c
	@mkdir -p $(@D)
	$(TP_BUILD) -DNAME='"layer_taken"' -DCLASS='"SiluAndMul"' -DOP='"test_layer"'
$(TP)/layer_unknown.so: tests/plugins/layer.c
	@mkdir -p $(@D)
	$(TP_BUILD) -DNAME='"layer_unknown"' -DCLASS='"AcmeAttention"' -DOP='"test_layre"'
# Classes in the entry of the plugin's op; and where nobody would look for them.
$(TP)/layer_own.so: tests/plugins/layer.c
	@mkdir -p $(@D)
	$(TP_BUILD) -DNAME='"layer_own"' -DLAYERS='"AcmeNorm, AcmeMLP:acme_former"'
$(TP)/layer_listed.so: tests/plugins/layer.c
	@mkdir -p $(@D)
	$(TP_BUILD) -DNAME='"layer_listed"' -DLAYERS='"AcmeNorm"' -DOPS='"test_layer"'
$(TP)/device.so: tests/plugins/device.c
	@mkdir -p $(@D)
	$(TP_BUILD) -lm
$(TP)/needs_good.so: tests/plugins/needs_good.c $(TP)/good.so
	@mkdir -p $(@D)
	$(TP_BUILD) -Wl,--no-as-needed -L$(TP) -l:good.so -Wl,-rpath,$(abspath $(TP))
$(TP)/frozen.so: tests/abi/plugin-0.1.h

# (Run paths are absolute: valgrind finds fault with the C library's expansion of $$ORIGIN.)
# A library to link against that is gone when the plugin is loaded (it lies in no run path), and one that needs it.
$(BUILD)/tests/absent/libfltest_absent.so.1: tests/plugins/missing_library.c
	@mkdir -p $(@D)
	$(TP_BUILD) -Wl,-soname,libfltest_absent.so.1
$(TP)/lib/libfltest_middle.so: tests/plugins/missing_library.c $(BUILD)/tests/absent/libfltest_absent.so.1
	@mkdir -p $(@D)
	$(TP_BUILD) -Wl,-soname,libfltest_middle.so -Wl,--no-as-needed $(BUILD)/tests/absent/libfltest_absent.so.1
$(TP)/absent.so: tests/plugins/missing_library.c $(BUILD)/tests/absent/libfltest_absent.so.1
	@mkdir -p $(@D)
	$(TP_BUILD) -DNAME='"absent"' -Wl,--no-as-needed $(BUILD)/tests/absent/libfltest_absent.so.1
$(TP)/absent_middle.so: tests/plugins/missing_library.c $(TP)/lib/libfltest_middle.so
	@mkdir -p $(@D)
	$(TP_BUILD) -DNAME='"absent_middle"' -Wl,--no-as-needed,--allow-shlib-undefined $(TP)/lib/libfltest_middle.so -Wl,-rpath,$(abspath $(TP)/lib)
$(TP)/lib/libfake_driver.so: tests/plugins/fake_driver.c
	@mkdir -p $(@D)
	$(TP_BUILD)
THROWING := $(patsubst %,$(TP)/throws_from_%.so,register_builtins creation is_available supports_args workspace_size nowhere)
$(THROWING): WHERE = -DWHERE=$(shell echo $* | tr a-z A-Z)
$(TP)/throws_from_creation.so: WHERE = -DWHERE=REGISTER_BUILTINS -DUNLISTED
$(THROWING): $(TP)/throws_from_%.so: tests/plugins/throws_from.cc
	@mkdir -p $(@D)
	$(CXX) -std=c++17 -fPIC -fvisibility=hidden -Wall -Wextra -Werror -Iinclude -MMD -MP $(SANITIZE) $(CFLAGS) -DNAME='"throws_from_$*"' $(WHERE) -o $@ $< -shared -Wl,-z,now,-Bsymbolic $(LINK)
$(BUILD)/tests/test_exceptions: | $(THROWING) $(TP)/lib/libcatches.so
$(TP)/cxx.so: tests/plugins/cxx.cc
$(TP)/lib/libcatches.so: tests/plugins/catches.cc
$(TP)/cxx.so $(TP)/lib/libcatches.so:
	@mkdir -p $(@D)
	$(CXX) -std=c++17 -fPIC -fvisibility=hidden -Wall -Wextra -Werror -Iinclude -MMD -MP $(SANITIZE) $(CFLAGS) -o $@ $< -shared -Wl,-z,now,-Bsymbolic $(LINK)

$(patsubst %,$(BUILD)/tests/test_%,note prepared cpu_variants loader registration trust lock cli_lock discovery platform cli run host verify freeze manifest cli_manifest device device_calls device_commands probes cli_bench availability): | $(TEST_PLUGINS) $(PLUGINS) $(SHARED) $(COMMAND)
$(BUILD)/tests/test_not_returning: | $(TP)/lib/libcatches.so
$(BUILD)/tests/test_misbehaving: | $(MISBEHAVING_PLUGINS) $(PLANTED_PLUGINS) $(PLUGINS) $(SHARED) $(COMMAND)
$(BUILD)/tests/test_guard_plugins: | $(MISBEHAVING_PLUGINS) $(COMMAND)
$(BUILD)/tests/test_verify $(BUILD)/tests/test_cli_bench: | $(PLANTED_PLUGINS) $(PLANTED_BUILDS)
$(patsubst %,$(BUILD)/tests/test_%,judge kept_out lazy lazy_platforms lazy_refusals lazy_calls lock note cli discovery doctor): | $(LISTED_PLUGINS)
$(BUILD)/tests/test_op_files: | $(PLUGINS)
$(BUILD)/tests/test_hardened: | $(PLUGINS) $(SHARED) $(COMMAND)
