# Collectives of the ranks that mpirun starts. Built where Open MPI's header is (Debian: libopenmpi-dev), which is asked of
# pkg-config; MPI_CFLAGS names another place. The library is not linked: plugins/mpi/library.c opens it. Reductions are shm's.
ifeq ($(origin MPI_CFLAGS),undefined)
MPI_CFLAGS := $(shell pkg-config --cflags ompi-c 2>/dev/null)
endif
# Of a library that a test puts before it.
MPI_LIBS ?= $(or $(shell pkg-config --libs ompi-c 2>/dev/null),-lmpi)
MPI_PROBE := $(shell echo 'int version = OMPI_MAJOR_VERSION;' | $(CC) $(MPI_CFLAGS) -include mpi.h -x c -fsyntax-only - 2>/dev/null && echo yes)
ifneq ($(MPI_PROBE),)
MPI_PLUGIN := $(BUILD)/plugins/mpi.so
MPI_PLUGIN_OBJECTS := $(patsubst %.c,$(BUILD)/obj/%.o,$(sort $(wildcard plugins/mpi/*.c)))
PLUGINS += $(MPI_PLUGIN)
$(MPI_PLUGIN_OBJECTS): private BASE += $(MPI_CFLAGS:-I%=-isystem %)
$(MPI_PLUGIN): $(MPI_PLUGIN_OBJECTS) $(BUILD)/obj/plugins/shm/reduce.o
	@mkdir -p $(@D)
	$(CC) $(PLUGIN_LINK) -o $@ $^ $(LINK) -ldl
endif

.PHONY: toolchain-mpi
toolchains: toolchain-mpi
toolchain-mpi:
	@if test -n "$(MPI_PROBE)"; then echo "mpi: Open MPI"; \
	else echo "mpi: not built: no mpi.h of Open MPI (Debian: libopenmpi-dev; MPI_CFLAGS=...)"; fi
