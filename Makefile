# What each target does is in README.md. Everything is built as a part of the whole workspace: a package alone has its
# dependencies with fewer features, and they would all be built once more.
.PHONY: build hook demo check bench test test-unit test-engines test-cluster test-counts bless-counts order deny fuzz proto chart vectors

build: hook
	cargo build --locked --workspace --release --bin divvy --bin divvy-node

hook:
	./scripts/build-hook.sh

demo:
	./scripts/need.sh runc busybox-static
	@$(MAKE) --no-print-directory build
	./scripts/demo.sh

check:
	cargo fmt --all --check
	cargo clippy --quiet --locked --workspace --all-targets -- -D warnings
	cargo clippy --quiet --locked --workspace --test engines --test cluster -- -D warnings
	cargo test --quiet --locked --workspace --lib

# The last two wait more than they work.
test: test-unit
	@$(MAKE) --no-print-directory -j2 test-engines test-cluster

test-unit: hook test-counts
	cargo test --locked --workspace

test-engines: hook
	cargo test --quiet --locked --workspace --test engines

test-cluster: hook
	cargo test --quiet --locked --workspace --test cluster

bench: build
	./bench/build.sh
	cargo build --quiet --locked --workspace --release --bin divvy-bench
	target/release/divvy-bench run
	target/release/divvy-bench node
	cargo test --quiet --locked --workspace --release --test cluster -- bench

test-counts bless-counts: hook
	./scripts/need.sh valgrind strace
	./bench/build.sh floors
	cargo build --quiet --locked --workspace --bin divvy-bench
	target/debug/divvy-bench $(@:-counts=)

# The hook with its symbols says which functions a start runs.
order:
	./scripts/need.sh valgrind
	CARGO_PROFILE_HOOK_STRIP=none ./scripts/build-hook.sh
	./bench/build.sh floors
	cargo build --quiet --locked --workspace --bin divvy-bench
	target/debug/divvy-bench order

# Advisories need their database from the network; the rest is checked offline.
deny:
	command -v cargo-deny >/dev/null || cargo install --quiet --locked cargo-deny
	cargo deny check licenses bans sources
	cargo deny check advisories

# The code of the kubelet's protocols, from src/plugin/proto.
proto:
	cargo test --quiet --locked --workspace --test repo -- --ignored write_proto

# The chart as plain manifests.
chart:
	./scripts/chart.sh >deploy/divvy.yaml.new
	mv deploy/divvy.yaml.new deploy/divvy.yaml

# The answers of the Go library in cdi/tests/vectors, written anew.
vectors:
	cargo test --quiet --locked --workspace --test reference -- --ignored write_vectors

SECONDS ?= 60
fuzz:
	./scripts/fuzz.sh $(SECONDS)
