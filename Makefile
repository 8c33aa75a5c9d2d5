# What each target does is in README.md.
.PHONY: build hook check test test-unit

build: hook
	cargo build --quiet --locked --release --bins

hook:
	./scripts/build-hook.sh

check:
	cargo fmt --all --check
	cargo clippy --quiet --locked --workspace --all-targets -- -D warnings
	cargo test --quiet --locked --workspace --lib

test: test-unit

test-unit: hook
	cargo test --locked --workspace
