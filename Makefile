# The everyday commands. Everything real is in meson.build, manage.sh and tests/.
BUILD ?= build
SAN   ?= build-asan

all: $(BUILD)/build.ninja
	ninja -C $(BUILD)

$(BUILD)/build.ninja:
	meson setup $(BUILD) $(MESON_ARGS)

# Installs what tests need, builds with -Werror, runs all tests (plain and under sanitizers).
check:
	./tests/run

bench:
	./manage.sh bench-packages
	[ -f build-bench/build.ninja ] || meson setup build-bench --buildtype=release
	ninja -C build-bench
	HB_BUILD=$(CURDIR)/build-bench ./tests/bench/run $(BENCH)

lint: all
	./tests/lint

# A million inputs for each fuzz target (RUNS=N for another number); clang and libFuzzer.
fuzz:
	./tests/fuzz/run

# Long seeded runs of the differential and the crash tests (ROUNDS=N).
soak:
	./tests/soak

install: all
	meson install -C $(BUILD)

clean:
	rm -rf $(BUILD) $(SAN)

.PHONY: all check bench lint fuzz soak install clean
