# Wheels and source distribution: build/dist. The tree that flhost's is made of is laid out as `make install` does it, under flhost/ in
# site-packages, so that the library finds the rest relative to itself.
WHEEL_TREE := $(BUILD)/wheel/tree
WHEEL_STAGE := $(BUILD)/wheel/stage
DIST := $(BUILD)/dist
WHEEL = $(firstword $(wildcard $(DIST)/flhost-$(VERSION)-*.whl))
SDIST := $(DIST)/flhost-$(VERSION).tar.gz
# One environment for every variant of the build.
VENV_TOOLS := build/venv-tools
TOOLS := $(VENV_TOOLS)/bin

# venv DIRECTORY,REQUIREMENTS: an environment, made anew when what it is to have changes.
define make_venv
	@echo "Making $(1)"
	@rm -rf '$(1)' && mkdir -p $(dir $(1)) && $(PYTHON) -m venv '$(1)'
	@'$(1)/bin/python' -m pip install -q --disable-pip-version-check -r '$(2)'
	@touch '$(1)/made'
endef

$(VENV_TOOLS)/made: python/requirements/tools.txt
	$(call make_venv,$(VENV_TOOLS),$<)

# A wheel has no links and no static library, and its pkg-config file is relative to itself. DLPack's header, which flhost's include, is
# there for whoever has none: where the compiler finds one, that is taken.
.PHONY: wheel-tree
wheel-tree: $(EXTENSION)
	@rm -rf '$(WHEEL_TREE)' '$(WHEEL_STAGE)'
	@$(MAKE) -s --no-print-directory install DESTDIR='$(abspath $(WHEEL_STAGE))' LIBDIR='$(PREFIX)/lib' >/dev/null
	@mkdir -p '$(WHEEL_TREE)/lib/pkgconfig' '$(WHEEL_TREE)/share/flhost'
	@cd '$(WHEEL_STAGE)$(PREFIX)' && cp -r bin include '$(abspath $(WHEEL_TREE))' && cp -r share/flhost/config share/flhost/peers \
	  '$(abspath $(WHEEL_TREE))/share/flhost' && cp -r lib/flhost '$(abspath $(WHEEL_TREE))/lib'
	@cp $(SHARED).$(SOVERSION) '$(WHEEL_TREE)/lib'
	@sed -e 's|@PREFIX@|$${pcfiledir}/../..|' -e 's|@LIBDIR@|$${prefix}/lib|' -e 's|@VERSION@|$(VERSION)|' -e '/^#/d' -e '/^Libs.private/d' \
	  -e 's|-lflhost|-l:libflhost.so.$(SOVERSION)|' -e 's|^Cflags:.*|& -idirafter $${includedir}/otherwise|' \
	  flhost.pc.in > '$(WHEEL_TREE)/lib/pkgconfig/flhost.pc'
	@mkdir -p '$(WHEEL_TREE)/include/otherwise/dlpack' && cp "$$(echo '#include <dlpack/dlpack.h>' | $(CC) -M -x c - | \
	  grep -o '[^ ]*/dlpack/dlpack\.h')" '$(WHEEL_TREE)/include/otherwise/dlpack'
	@cp $(EXTENSION) '$(WHEEL_TREE)'
	@strip --strip-unneeded $$(find '$(WHEEL_TREE)' -name '*.so*') '$(WHEEL_TREE)/bin/flhost'
	@rm -rf '$(WHEEL_STAGE)'

WHEEL_SOURCES := pyproject.toml README.md LICENSE python/extension/extension.mk $(wildcard python/packaging/*) $(MAN_PAGES) \
  cli/completions/flhost.bash flhost.pc.in $(HEADERS) $(wildcard config/*.yaml) $(PEERS) \
  $(shell find python/flhost -type f -not -name '*.pyc' 2>/dev/null)
$(DIST)/wheel.made: $(VENV_TOOLS)/made $(WHEEL_SOURCES) $(SHARED).$(SOVERSION) $(COMMAND) $(PLUGINS) $(EXTENSION)
	@$(MAKE) -s --no-print-directory wheel-tree
	@rm -rf '$(BUILD)/wheel/raw' && mkdir -p '$(DIST)' && rm -f '$(DIST)'/flhost-*.whl
	@env -u MAKEFLAGS -u MAKELEVEL FLHOST_WHEEL_TREE='$(abspath $(WHEEL_TREE))' \
	  $(TOOLS)/python -m build --wheel --no-isolation --outdir '$(BUILD)/wheel/raw' . >'$(BUILD)/wheel/log' 2>&1 || \
	  { cat '$(BUILD)/wheel/log'; exit 1; }
	@PATH='$(abspath $(TOOLS))':$$PATH $(TOOLS)/python python/packaging/bundle.py '$(BUILD)'/wheel/raw/*.whl '$(DIST)'
	@touch $@

# The drop-in for vllm_fl.dispatch: Python alone, so that nothing is bundled.
DISPATCH_SOURCES := Makefile $(shell find python/vllm_fl_dispatch -type f -not -name '*.pyc' 2>/dev/null)
$(DIST)/dispatch.made: $(VENV_TOOLS)/made $(DISPATCH_SOURCES)
	@mkdir -p '$(DIST)' '$(BUILD)/wheel' && rm -f '$(DIST)'/flhost_vllm_fl_dispatch-*.whl
	@env -u MAKEFLAGS -u MAKELEVEL $(TOOLS)/python -m build --wheel --no-isolation --outdir '$(DIST)' python/vllm_fl_dispatch \
	  >'$(BUILD)/wheel/log' 2>&1 || { cat '$(BUILD)/wheel/log'; exit 1; }
	@touch $@

.PHONY: wheel
wheel: ## make the Python wheels in build/dist: flhost with everything that it needs, and the drop-in for vllm_fl.dispatch
	$(INSTALL_DEPS) build python
	$(BUILD_QUIETLY) all
	@$(MAKE) -s --no-print-directory $(DIST)/wheel.made $(DIST)/dispatch.made
	@ls -sh $(DIST)/*.whl

.PHONY: sdist
sdist: $(VENV_TOOLS)/made ## make the Python source distribution in build/dist
	@mkdir -p '$(DIST)' '$(BUILD)/wheel' && rm -f '$(SDIST)'
	@env -u MAKEFLAGS -u MAKELEVEL $(TOOLS)/python -m build --sdist --no-isolation --outdir '$(DIST)' . >'$(BUILD)/wheel/log' 2>&1 || \
	  { cat '$(BUILD)/wheel/log'; exit 1; }
	@ls -sh '$(SDIST)'

.PHONY: audit-wheel
audit-wheel: wheel ## hold the wheels against the rules for wheels: auditwheel, abi3audit, twine
	$(TOOLS)/auditwheel show $(DIST)/flhost-*.whl
	$(TOOLS)/abi3audit --strict --report $(DIST)/flhost-*.whl
	$(TOOLS)/twine check --strict $(DIST)/*.whl

# Not the kernels for GPUs: what compiles them is the same, and takes minutes.
.PHONY: check-sdist
check-sdist: sdist ## build the source distribution by pip in a fresh environment, and run what came of it
	@rm -rf '$(BUILD)/wheel/sdist' && $(PYTHON) -m venv '$(BUILD)/wheel/sdist'
	@env -u MAKEFLAGS -u MAKELEVEL NVCC= ROCM_CLANG= '$(BUILD)/wheel/sdist/bin/python' -m pip install -q --disable-pip-version-check '$(SDIST)'
	@cd / && PATH='$(abspath $(BUILD))/wheel/sdist/bin':$$PATH && flhost verify silu_and_mul && \
	  python -c "import flhost; assert flhost.__version__ == '$(VERSION)', flhost.__version__"
	@rm -rf '$(BUILD)/wheel/sdist'

.PHONY: lint-python
lint-python: $(VENV_TOOLS)/made ## ruff and mypy over the Python package
	@$(TOOLS)/ruff check python
	@$(TOOLS)/ruff format --check --diff python
	@$(TOOLS)/mypy

.PHONY: format-python
format-python: $(VENV_TOOLS)/made ## format Python files by pyproject.toml
	@$(TOOLS)/ruff check -q --select I --fix python
	@$(TOOLS)/ruff format -q python
