# flhost._core, and a tree to import the package from: PYTHONPATH=build/python python3 -c 'import flhost'. Its extension works with
# every CPython from 3.10 on (the limited API), and uses the library as engines do, by its public headers alone.
EXTENSION := $(PYTHON_TREE)/flhost/_core.abi3.so
EXTENSION_SOURCES := $(wildcard python/extension/*.c)
EXTENSION_OBJECTS := $(EXTENSION_SOURCES:%.c=$(BUILD)/obj/%.o)
PYTHON_INCLUDE = $(shell $(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("include"))')

# Not CFLAGS: what is given on the command line would hide it.
$(BUILD)/obj/python/%.o: BASE += -isystem $(PYTHON_INCLUDE)

$(EXTENSION): $(EXTENSION_OBJECTS) $(SHARED)
	@mkdir -p $(@D)
	$(CC) -shared -o $@ $(EXTENSION_OBJECTS) -L$(BUILD) -lflhost -Wl,-rpath,'$$ORIGIN/lib' $(LINK)

# Links: an edited file is what runs, and the library finds the plugins, platform files and command of this build.
.PHONY: python
python: all $(EXTENSION) ## build the Python package into build/python
	@mkdir -p $(PYTHON_TREE)/flhost/lib
	@ln -sfn $(abspath $(SHARED).$(SOVERSION)) $(PYTHON_TREE)/flhost/lib/libflhost.so.$(SOVERSION)
	@mkdir -p $(PYTHON_TREE)/flhost/bin && ln -sfn $(abspath $(COMMAND)) $(PYTHON_TREE)/flhost/bin/flhost
	@find $(PYTHON_TREE)/flhost -maxdepth 1 -type l -delete
	@for entry in python/flhost/*; do ln -sfn "$(abspath python/flhost)/$${entry##*/}" $(PYTHON_TREE)/flhost/ || exit 1; done
