# The front door. `make demo` and `make test` are all a newcomer needs; `make help` lists the rest.
SHELL := /bin/bash
.DEFAULT_GOAL := help
LAB := target/release/unspin-lab

# What only the tests need: of the locks, and of the exporter.
TEST_PACKAGES := spin libck-dev libabsl-dev gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
TEST_PACKAGES += libc6-dev-i386 lib32gcc-12-dev lib32stdc++-12-dev g++-aarch64-linux-gnu cmake prometheus musl-tools
# Programs that run over our locks, to see that they still run.
PROGRAM_PACKAGES := sysbench pbzip2 default-jdk-headless postgresql

# What the packages take, and what their test does.
DEB_PACKAGES := debhelper dh-dkms
TEST_DEB_PACKAGES := lintian mmdebstrap
RPM_PACKAGES := rpm
TEST_INSTALL_PACKAGES := rpm buildah busybox-static

.PHONY: help deps test-deps build demo demo-linux test test-emulated test-all test-acceptance test-diagnose test-programs lint lint-scripts pictures lines bench scenario-keys figures bench-locks diagnosis campaign-short matrix matrix-full check-locks campaign held-out agreement guest-kernel soak soak-locks soak-guests soak-guest-kernel soak-debug soak-slices install-lab install install-dev deb test-deb static rpm test-install clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' Makefile

deps: ## install packages for the build and the emulated computer (Debian 12, root)
	@.ci/deps

test-deps: deps ## install more packages for the tests
	@.ci/deps $(TEST_PACKAGES)

COMMANDS := -p unspin -p unspin-lab -p unspin-agent -p unspin-scx -p unspin-watch

build: deps ## build the commands and the agent
	cargo build --release --locked $(COMMANDS)

# The emulator is built beside the rest of the commands, unless this processor can be measured itself.
demo: deps ## compare stock KVM with HVS and APPLES; prints a table, writes out/demo/report.html
	cargo build --release --locked $(COMMANDS) --bin unspin-lab
	grep -Eqw 'ple|pausefilter' /proc/cpuinfo || $(LAB) lab emulator bochs & \
		cargo build --release --locked $(COMMANDS) && wait
	$(LAB) bench scenarios/demo.toml --machine auto --load --out out/demo
	@echo "open out/demo/report.html"

demo-linux: build ## the demo with unmodified programs in Debian guests under QEMU, on an emulated computer
	$(LAB) bench scenarios/linux-smoke.toml --machine emulated --out out/demo-linux
	@echo "open out/demo-linux/report.html"

test: test-deps ## unit, property and functional tests, without boots
	@.ci/test

test-emulated: deps ## the most important tests with boots: the module under QEMU, pause-loop exits and gains under Bochs
	@.ci/test --emulated

test-all: test test-programs ## most tests, on all of their kernels; not test-diagnose, test-acceptance and the soaks
	@.ci/test --emulated-all

test-diagnose: build ## unspin diagnose, its experiments and unspin shape under QEMU, compared with counts of the kernel; may fail on a busy host, where the emulator's clock jumps
	cargo test --release --locked -p unspin-computers --test diagnose --test ab --test shape -- --nocapture

test-acceptance: build ## CPU time of VMs next to a VM with a quota, and next to a VM that halts and interrupts all the time; turning turns off 100 times
	cargo test --release --locked -p unspin-computers --test quota --test escape --test rollback -- --nocapture

test-programs: build ## unmodified sysbench, pbzip2, Java, Rust and PostgreSQL with the locks of unspin
	@.ci/deps $(PROGRAM_PACKAGES) || echo "some programs could not be installed and are skipped"
	cargo build --release --locked -p unspin-bench-locks --example parking_lot
	@.ci/programs

pictures: ## draw the pictures of docs/ with Graphviz
	@.ci/deps graphviz
	for f in docs/*.dot; do dot -Tsvg $$f -o $${f%.dot}.svg || exit; done

lines: ## count lines: all, core/, host/, lab/, papers/
	@for of in . core host lab papers; do \
		git ls-files $$of | grep -E '\.(rs|c|h|sh|toml|md|pml|S|py)$$' | grep -v ^results/ | xargs -r cat | wc -l | \
			awk -v of=$$of '{ printf "%-8s %7d\n", of == "." ? "all" : of, $$1 }'; \
	done

lint: test-deps ## check formatting and run static checks; warnings are errors
	cargo fmt --all --check
	$(MAKE) --no-print-directory lint-scripts & scripts=$$!; \
		cargo clippy --release --workspace --all-targets --locked -- -D warnings -W clippy::too_many_lines && \
		wait $$scripts

# One CPU is enough for these. They run beside clippy.
lint-scripts:
	.ci/house
	shellcheck .ci/run .ci/deps .ci/test .ci/programs .ci/test-deb .ci/test-install .ci/units.sh lab/computers/src/init.sh core/verify/run.sh
	shellcheck -s sh -e SC1091,SC2015,SC2034,SC2086,SC2154 lab/computers/src/check.sh lab/computers/src/shell.sh lab/computers/tests/*.sh
	shellcheck -s sh debian/*.prerm debian/*.postinst debian/*.postrm
	@! grep -rnP '[ \t]+$$' --include='*.c' --include='*.h' --include='*.rs' core host lab papers/crates

bench: build ## instruction counts of policies, PLE exits and vCPU switches; events/s of the simulator; CPU time of top
	cargo bench --locked -p unspin-policy
	cargo bench --locked -p unspin-sim
	$(LAB) bench scenarios/exit-path.toml --machine emulated --out out/bench
	cargo test --release --locked -p unspin-computers --test ple pause_loop -- --nocapture
	cargo test --release --locked -p unspin --bin unspin cost -- --nocapture

scenario-keys: ## generate docs/scenario-keys.md, the reference of keys of scenarios and profiles
	UNSPIN_BLESS=1 cargo test --locked -p unspin-scenario --test reference

figures: build ## reproduce the figures of the papers on the simulator: out/figures, with reproduction.md
	$(LAB) figures

# What `make campaign` measures, each scenario on its host of four or eight pCPUs.
CAMPAIGN := apples-figures calibration components demo eight exit-path fixed-sweep hvs-variants-aple \
	hvs-variants-stock kernels large-vm long matrix one-vm-locks overall smoke table1 undersubscribed \
	uneven window-traces woken

campaign: campaign-6.1 campaign-6.12 campaign-7.3 ## measure the scenarios on each kernel (a day; campaign-6.12: one kernel); out/campaign

campaign-%: build
	$(LAB) bench $(CAMPAIGN:%=scenarios/%.toml) --machine emulated --kernel $* --out out/campaign/$* --resume

# README's programs, five seeds each. Linux guests are not pinned here; campaign-linux has all programs and arms.
SHORT := --repeats 5 --machine emulated --out out/campaign/short --resume
campaign-short: build ## measure the programs of the README with 5 seeds (1 h on 2 cores); out/campaign/short
	$(LAB) bench scenarios/demo.toml scenarios/kernels.toml $(SHORT)
	$(LAB) bench scenarios/linux-unpinned.toml --profile omp,hackbench,dbench,build --arm stock,apples,turns $(SHORT)

# Linux guests: the main table, and what its points depend on.
LINUX := linux linux-hosts linux-two linux-flat linux-unpinned linux-eight libvirt

campaign-linux: build ## measure programs in Linux guests: main table, other hosts, sizes and layouts (3 h); out/campaign/linux
	$(LAB) bench $(LINUX:%=scenarios/%.toml) --machine emulated --out out/campaign/linux --resume

# Turns where vCPUs are not pinned: who gains, and that nobody else loses.
TURNS := gangs-linux-unpinned gangs-linux-beside gangs-linux-eight gangs-linux-victim gangs-unpinned \
	gangs-victim gangs-billing gangs-wakeups-eight

campaign-turns: build ## measure turns with unpinned vCPUs: gains, neighbours, tails, bills (5 h on 1 core); out/campaign/turns
	$(LAB) bench $(TURNS:%=scenarios/%.toml) --machine emulated --out out/campaign/turns --resume

# Scenarios that the simulator was not made by: other ones with each release. To measure a few is a test:
# UNSPIN_HELD_OUT=3 cargo test --release --locked -p unspin-lab --test held_out -- --nocapture
HELD_OUT_COUNT ?= 20
HELD_OUT := out/held-out

held-out: build ## measure held-out scenarios, drawn by the seed of the release (2 h on 1 core); results/held-out.jsonl, out/agreement.md
	$(LAB) generate spaces/held-out.toml --count $(HELD_OUT_COUNT) --out $(HELD_OUT)/scenarios
	$(LAB) bench $(HELD_OUT)/scenarios/*.toml --machine emulated --resume --out $(HELD_OUT)/measured
	grep -hvE '^\{"record":"(progress|log)"' $(HELD_OUT)/measured/*/results.jsonl > results/held-out.jsonl
	$(MAKE) agreement

guest-kernel: build ## build the kernel of Linux guests with guest_lock = "preemptable", "pv-preemptable", "oticket" or "ticket" (10 to 40 min on 2 cores)
	@.ci/deps flex bison
	$(LAB) lab guest-kernel

agreement: build ## compare the simulator with the measured runs of results/: out/agreement.md
	@mkdir -p out
	$(LAB) agree --held-out results/held-out.jsonl --known results/known.jsonl --worlds 64 > $(HELD_OUT).md
	mv $(HELD_OUT).md out/agreement.md

diagnosis: build ## run unspin diagnose on VMs that lose time to known causes (30 min on 1 core); out/diagnosis*
	$(LAB) bench scenarios/diagnosis.toml --machine emulated --out out/diagnosis --resume
	$(LAB) bench scenarios/diagnosis-hogs.toml --machine emulated --out out/diagnosis-hogs --resume
	$(LAB) bench scenarios/diagnosis-quota.toml --machine emulated --out out/diagnosis-quota --resume
	$(LAB) bench scenarios/diagnosis-cache.toml --machine sim --attribute --out out/diagnosis-cache

matrix: build ## measure every lock under every host policy, 1 to 4 VMs, ebizzy: docs/matrix.md
	$(LAB) bench scenarios/matrix.toml --machine emulated --profile ebizzy --out out/matrix --resume
	$(LAB) report out/matrix --matrix docs/matrix.md --pictures ../results

matrix-full: build ## the matrix for all profiles (hours; resumes where it stopped): docs/matrix-full.md
	$(LAB) bench scenarios/matrix.toml --machine emulated --out out/matrix-full --resume
	$(LAB) report out/matrix-full --matrix docs/matrix-full.md --pictures ../results

bench-locks: test-deps ## compare every lock with those that programs use, and programs under unspin run; 15 to 18 minutes, out/bench-locks/summary.json
	@.ci/deps sysbench pbzip2 rocksdb-tools || echo "some programs could not be installed and are not compared"
	cargo build --release --locked -p unspin
	cargo run --release --locked -p unspin-bench-locks -- --out out/bench-locks

CHECK_LOCKS := cargo test --release --locked -p unspin-threads --test verify

check-locks: test-deps ## check every lock's header under all weakly ordered runs of 2 to 4 threads, in at most 10 minutes after the build; out/check-locks/summary.json
	rm -rf out/check-locks
	$(CHECK_LOCKS) --no-run
	UNSPIN_VERIFY_FULL=1 timeout 600 $(CHECK_LOCKS) -- locks_hold --nocapture || \
		[ $$? -ne 124 ] || echo "check-locks: not done after 10 minutes, so there is no verdict"
	@cat out/check-locks/verdict && ! grep -qv ' 0 failed' out/check-locks/verdict

soak: build soak-locks ## soak-locks; 10,000 random machines simulated; 1000 load/switch/unload cycles with guests
	UNSPIN_CASES=10000 cargo test --release --locked -p unspin-sim --test invariants
	UNSPIN_CYCLES=1000 cargo test --release --locked -p unspin-computers --test module -- --nocapture

soak-locks: test-deps ## 10^8 acquisitions of the locks with 4 threads per CPU (1 h, shows progress)
	cargo test --release --locked -p unspin-threads --test soak -- --ignored --nocapture

soak-guests: build ## every program of programs/ for 10 s in one and in three Debian guests, and the largest in one (2 to 3 h on 1 core); out/soak-guests
	$(LAB) bench scenarios/linux-ten-seconds.toml --machine emulated --out out/soak-guests --resume
	$(LAB) bench scenarios/linux-paper-programs.toml --machine emulated --out out/soak-paper-programs --resume

soak-guest-kernel: guest-kernel ## the kernel's locktorture with each lock of the guests' kernel
	cargo test --release --locked -p unspin-computers --test guest_kernel -- --ignored --nocapture

soak-debug: ## a shorter soak on kernels with lockdep, KASAN and kmemleak, which it builds first
	@.ci/deps flex bison
	cargo test --release --locked -p unspin-computers --test debug -- --ignored --nocapture

soak-slices: ## lease and a test-and-set lock with and without extended time slices, on a kernel that has them, which it builds first
	@.ci/deps flex bison
	for cpus in 2 4; do \
		UNSPIN_CPUS=$$cpus cargo test --release --locked -p unspin-computers --test slices -- --ignored --nocapture || exit; \
	done

# Where distributions have these things. Without UNITS no units are installed. make wants $$ for each $ of a path.
UNSPIN ?= target/release/unspin
UNSPIN_LAB ?= target/release/unspin-lab
PREFIX ?= /usr
ZSH_COMPLETIONS ?= $(PREFIX)/share/zsh/site-functions
UNITS ?= $(PREFIX)/lib/systemd/system
MAN := share/man/man1
BASH_COMPLETIONS := share/bash-completion/completions
FISH_COMPLETIONS := share/fish/vendor_completions.d

# One word of the shell, whatever is in it; and a path below DESTDIR as such a word.
quoted = '$(subst ','\'',$(1))'
below = $(call quoted,$(DESTDIR)$(1))
# All users may read what is installed, whatever the caller's umask is.
INSTALL := umask 022 && install -D

# $(1): the command's file; $(2): its name. Unlike install -d, mkdir leaves directories as they are that are there.
define INSTALL_COMMAND
$(INSTALL) -m 755 $(call quoted,$(1)) $(call below,$(PREFIX)/bin/$(2))
umask 022 && mkdir -p $(call below,$(PREFIX)/$(MAN)) $(call below,$(PREFIX)/$(BASH_COMPLETIONS)) \
	$(call below,$(PREFIX)/$(FISH_COMPLETIONS)) $(call below,$(ZSH_COMPLETIONS))
$(call quoted,$(1)) man $(call below,$(PREFIX)/$(MAN))
$(call quoted,$(1)) completions bash >$(call below,$(PREFIX)/$(BASH_COMPLETIONS)/$(2))
$(call quoted,$(1)) completions zsh >$(call below,$(ZSH_COMPLETIONS)/_$(2))
$(call quoted,$(1)) completions fish >$(call below,$(PREFIX)/$(FISH_COMPLETIONS)/$(2).fish)
chmod 644 $(call below,$(PREFIX)/$(MAN)/$(2))*.1 $(call below,$(PREFIX)/$(BASH_COMPLETIONS)/$(2)) \
	$(call below,$(ZSH_COMPLETIONS)/_$(2)) $(call below,$(PREFIX)/$(FISH_COMPLETIONS)/$(2).fish)
endef

install: ## install what the package unspin has, without building: the command, manual pages, completions, units; below DESTDIR
	$(call INSTALL_COMMAND,$(UNSPIN),unspin)
	$(INSTALL) -m 644 debian/unspin.toml $(call below,/etc/unspin/unspin.toml)
ifneq ($(UNITS),)
	$(INSTALL) -m 644 debian/unspin.service $(call below,$(UNITS)/unspin.service)
	$(INSTALL) -m 644 debian/unspin.unspin-export.service $(call below,$(UNITS)/unspin-export.service)
	$(INSTALL) -m 644 debian/unspin.unspin-shape.service $(call below,$(UNITS)/unspin-shape.service)
	$(INSTALL) -m 644 debian/unspin.unspin-schedule.service $(call below,$(UNITS)/unspin-schedule.service)
endif

install-lab: ## install what the package unspin-lab has, without building: the command, scenarios, profiles, manual pages; below DESTDIR
	$(call INSTALL_COMMAND,$(UNSPIN_LAB),unspin-lab)
	$(INSTALL) -m 644 -t $(call below,$(PREFIX)/share/unspin/scenarios) scenarios/*.toml
	$(INSTALL) -m 644 -t $(call below,$(PREFIX)/share/unspin/profiles) profiles/*.toml

install-dev: CMAKE_FILES = $(PREFIX)/share/cmake/unspin-locks
install-dev: PKG_CONFIG_FILES = $(PREFIX)/share/pkgconfig
install-dev: ## install what the package libunspin-locks-dev has: headers of the locks, for pkg-config and CMake, too; below DESTDIR
	$(INSTALL) -m 644 -t $(call below,$(PREFIX)/include/unspin) core/locks/*.h core/locks/locks.hpp
	$(INSTALL) -m 644 -t $(call below,$(CMAKE_FILES)) contrib/locks/unspin-locks-config.cmake
	umask 022 && mkdir -p $(call below,$(PKG_CONFIG_FILES))
	prefix=$$(printf '%s' $(call quoted,$(PREFIX)) | sed 's/[\\&|]/\\&/g') && \
		version=$$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml) && \
		sed "s|@PREFIX@|$$prefix|; s|@VERSION@|$$version|" contrib/locks/unspin-locks.pc.in \
			>$(call below,$(PKG_CONFIG_FILES)/unspin-locks.pc) && \
		sed "s|@VERSION@|$$version|" contrib/locks/unspin-locks-config-version.cmake.in \
			>$(call below,$(CMAKE_FILES)/unspin-locks-config-version.cmake)
	chmod 644 $(call below,$(PKG_CONFIG_FILES)/unspin-locks.pc) \
		$(call below,$(CMAKE_FILES)/unspin-locks-config-version.cmake)

# The program with the C library and those of libbpf in it. A target that is named keeps build scripts dynamic.
STATIC_TARGET := x86_64-unknown-linux-gnu
STATIC := $(or $(CARGO_TARGET_DIR),target)/$(STATIC_TARGET)/release/unspin
BUILD_STATIC = LIBBPF_SYS_LIBRARY_PATH=$$(dirname $$(gcc -print-file-name=libelf.a)) \
	RUSTFLAGS='-C target-feature=+crt-static -C relocation-model=static' \
	cargo build --release --locked -p unspin --target $(STATIC_TARGET) --features static

static: deps ## build one file with the commands that watch VMs, for any distribution: out/static/unspin
	$(BUILD_STATIC) --no-default-features
	install -D -s -m 755 $(STATIC) out/static/unspin

# The program of these is static, too: it runs with the C library of RHEL 8 as well as with Fedora's.
rpm: deps ## build the packages unspin, unspin-dkms, unspin-guest-dkms and unspin-locks-devel for RHEL, Fedora and SUSE: out/rpm/*.rpm
	@.ci/deps $(RPM_PACKAGES)
	$(BUILD_STATIC)
	rm -rf out/rpm out/rpm-build && mkdir -p out/rpm out/rpm-build
	install -s -m 755 $(STATIC) out/rpm-build/unspin
	rpmbuild -bb --quiet --define "_topdir $(CURDIR)/out/rpm-build" --define "_rpmdir $(CURDIR)/out/rpm" \
		--define "_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm" \
		--define "checkout $(CURDIR)" --define "program $(CURDIR)/out/rpm-build/unspin" contrib/rpm/unspin.spec
	rm -rf out/rpm-build

test-install: static rpm ## the static unspin, the .rpm packages and the container image, each in an empty root (a minute after the builds)
	@.ci/deps $(TEST_INSTALL_PACKAGES)
	@.ci/test-install

deb: deps ## build the packages unspin, unspin-lab, unspin-dkms, unspin-guest-dkms and libunspin-locks-dev: out/deb/*.deb (on Debian 12, for Debian 12 and 13)
	@.ci/deps $(DEB_PACKAGES)
	rm -rf out/deb && mkdir -p out/deb
	dpkg-buildpackage --build=binary --no-sign \
		--buildinfo-file=out/deb/unspin.buildinfo --changes-file=out/deb/unspin.changes \
		--buildinfo-option=-uout/deb --changes-option=-uout/deb

test-deb: deb ## install, upgrade, remove and purge the packages in clean Debian 12 and 13 roots (minutes; needs network)
	@.ci/deps $(TEST_DEB_PACKAGES)
	cargo build --release --locked -p unspin-computers --bin unspin-inside
	@.ci/test-deb

clean: ## remove all files that were built or measured
	rm -rf out debian/.debhelper debian/unspin debian/unspin-lab debian/unspin-dkms debian/unspin-guest-dkms \
		debian/libunspin-locks-dev
	rm -f debian/files debian/*.substvars debian/*debhelper*
	cargo clean
