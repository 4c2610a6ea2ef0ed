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

bench: all
	./tests/bench/run

lint: all
	./tests/lint

install: all
	meson install -C $(BUILD)

clean:
	rm -rf $(BUILD) $(SAN)

.PHONY: all check bench lint install clean
