# Makefile: the commands of this project. `make demo` and `make check` set up a fresh machine first.
#   demo       set up, build, run the main job          check     every test that needs no GPU
#   check-gpu  the tests that need a GPU                bench     measure against peers (GPU)
#   golden     renew tests/golden                       format    clang-format in place
#   lint       every static check                       sanitize  check under ASan and UBSan; SUITES=regex
#   check-slow check with the long forms of tests       tsan      suites with threads under ThreadSanitizer
#   coverage   lines and branches covered, by folder    fuzz      readers of what others wrote; FUZZ_SECONDS=n
#   portable   needs only glibc, a driver and NVRTC     install   PREFIX=/usr/local
#   wheel      for pip                                  deb, tar  for apt; an archive for where there is none
BUILD ?= build
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
BUILD_TYPE ?= RelWithDebInfo

MAKEFLAGS += --no-print-directory
WHEEL_NVRTC := $(CURDIR)/.deps/python/nvidia/cu13/lib/libnvrtc.so.13
# FATUNE_HIDE_CUDA=1: as on a machine without a CUDA toolkit.
ifdef FATUNE_HIDE_CUDA
export FATUNE_HIDE_CUDA
export FATUNE_LIBNVRTC = $(WHEEL_NVRTC)
endif

CONFIGURE = cmake -DCMAKE_BUILD_TYPE=$(BUILD_TYPE) -DCMAKE_INSTALL_PREFIX=$(PREFIX) $(CMAKE_FLAGS) -S . -B
COMPILE = cmake --build
SOURCES = $(shell find generator cache runtime tuner tests bench python -name '*.[ch]' | sort)

.PHONY: all setup need-gpu build demo check check-slow check-gpu tsan coverage fuzz bench golden format lint sanitize portable wheel deb tar install clean
all: build

setup:
	@.ci/setup build nvrtc

need-gpu:
	@.ci/need-gpu

build: setup
	@$(CONFIGURE) $(BUILD) >/dev/null
	@$(COMPILE) $(BUILD) -j $(JOBS)

# The program alone: what takes longest to build are the tests.
demo: setup
	@$(CONFIGURE) $(BUILD) >/dev/null
	@$(COMPILE) $(BUILD) -j $(JOBS) --target fatune
	@.ci/demo $(BUILD)/fatune

check: build
	@.ci/test $(BUILD) -LE gpu -j $(JOBS)

check-gpu: need-gpu build
	@.ci/test $(BUILD) -L gpu -V

bench: need-gpu build
	@bench/run $(BUILD)

golden: build
	@FATUNE_GOLDEN_UPDATE=1 $(BUILD)/fatune_tests golden score_examples
	@git --no-pager diff --stat -- tests/golden generator/score/EXAMPLES.md 2>/dev/null || true

format:
	@clang-format --style=file -i $(SOURCES)

lint:
	@.ci/setup build lint
	@$(CONFIGURE) $(BUILD)/lint >/dev/null
	@$(COMPILE) $(BUILD)/lint -j $(JOBS) >/dev/null
	@.ci/lint $(BUILD)/lint $(JOBS)

sanitize: setup
	@$(CONFIGURE) $(BUILD)/sanitize -DFATUNE_SANITIZE=ON -DCMAKE_BUILD_TYPE=Debug >/dev/null
	@$(COMPILE) $(BUILD)/sanitize -j $(JOBS)
	@.ci/test $(BUILD)/sanitize -LE gpu $(if $(SUITES),-R '$(SUITES)') -j $(JOBS)

# Without -j: the long forms have hundreds of processes of their own.
check-slow: build
	@FATUNE_TEST_SLOW=1 $(CONFIGURE) $(BUILD) >/dev/null
	@FATUNE_TEST_SLOW=1 .ci/test $(BUILD) -LE gpu

THREADED = ^(single_flight|session|plan|shared_plans|store|tune|ahead|mask|emulator_memory)$$
tsan: setup
	@$(CONFIGURE) $(BUILD)/tsan -DFATUNE_SANITIZE=thread -DFATUNE_WERROR=OFF -DCMAKE_BUILD_TYPE=RelWithDebInfo >/dev/null
	@$(COMPILE) $(BUILD)/tsan -j $(JOBS)
	@TSAN_OPTIONS=halt_on_error=1 .ci/test $(BUILD)/tsan -LE gpu -R '$(or $(SUITES),$(THREADED))' -j $(JOBS)

# Gates hold for a run of all suites, with PyTorch (python/node.c). Raise them with what a run shows.
# `make check` has a short form of tsan and of coverage: tests/short_forms.cmake.
COVERAGE_GATES = cache=99.8 all=90
coverage: setup
	@$(CONFIGURE) $(BUILD)/coverage -DFATUNE_COVERAGE=ON -DFATUNE_WERROR=OFF -DCMAKE_BUILD_TYPE=Debug >/dev/null
	@$(COMPILE) $(BUILD)/coverage -j $(JOBS)
	@find $(BUILD)/coverage -name '*.gcda' -delete
	@.ci/test $(BUILD)/coverage -LE gpu $(if $(SUITES),-R '$(SUITES)') -j $(JOBS)
	@$(if $(SUITES),,.ci/sweep_places $(BUILD)/coverage)
	@.ci/coverage $(BUILD)/coverage $(if $(SUITES),,$(COVERAGE_GATES))

# FUZZ_SECONDS=n; what is new goes to tests/corpus when it has been looked at.
FUZZ_SECONDS ?= 60
fuzz: setup
	@$(CONFIGURE) $(BUILD)/fuzz -DCMAKE_C_COMPILER=clang -DFATUNE_WERROR=OFF -DCMAKE_BUILD_TYPE=RelWithDebInfo \
	  -DFATUNE_SANITIZE=address,undefined,fuzzer-no-link >/dev/null
	@$(COMPILE) $(BUILD)/fuzz -j $(JOBS) --target fatune_fuzz
	@mkdir -p $(BUILD)/fuzz/found
	@cd $(BUILD)/fuzz && ./fatune_fuzz -max_total_time=$(FUZZ_SECONDS) -timeout=60 -print_final_stats=1 found $(CURDIR)/tests/corpus

portable: setup
	@$(CONFIGURE) $(BUILD)/portable -DFATUNE_PORTABLE=ON >/dev/null
	@$(COMPILE) $(BUILD)/portable -j $(JOBS)
	@.ci/portable $(BUILD)/portable

wheel: build
	@.ci/wheel $(abspath $(BUILD))

deb: build
	@.ci/setup deb
	@.ci/deb $(BUILD)

tar: setup
	@$(CONFIGURE) $(BUILD)/tar -DFATUNE_PORTABLE=ON -DFATUNE_TESTS=OFF >/dev/null
	@$(COMPILE) $(BUILD)/tar -j $(JOBS)
	@.ci/tar $(BUILD)/tar

install: build
	@cmake --install $(BUILD)

clean:
	rm -rf $(BUILD)
