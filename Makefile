# `make` alone lists what there is. Each target is a few plain commands, so each can also be typed by hand.
.DEFAULT_GOAL := help
.PHONY: help run test check fix bench

# On CI a Cargo.lock that doesn't fit Cargo.toml is a failure, not something to repair on the fly.
LOCKED := $(if $(CI),--locked)

# Tests from the shell that hold on every store; those of clocks name their stores themselves.
ON_EVERY_STORE := bundle:: elect:: fence:: job_workers:: jobs:: limits:: lock:: locks:: loss:: modes:: once:: scheduler_kills:: stores::

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' Makefile

run: ## build and start the server on 127.0.0.1:7117, data in ./baton-data
	cargo run --release $(LOCKED) -- serve

test: export TMPDIR := $(shell scripts/test-directory)
# Of a test that passes nobody sees what it prints: what was measured beside a bound is gathered, and shown when the tests are through.
test: export BATON_MEASURED := $(abspath $(or $(CARGO_TARGET_DIR),target))/measured
test: ## everything that must hold: check, tests (on every store), README, OpenAPI, simulation
	scripts/install-test-tools
	$(MAKE) --no-print-directory check
	rm -f $(BATON_MEASURED)
	cargo test --workspace $(LOCKED)
	cat $(BATON_MEASURED)
	cargo test -p baton-client --lib --features object-store $(LOCKED) fence::object
	for store in etcd etcd-cluster postgres redis redis-cluster redis-sentinel; do \
	  $${CARGO_TARGET_DIR:-target}/debug/with-store $$store cargo test --workspace --test engine --test server $(LOCKED) || exit; \
	  $${CARGO_TARGET_DIR:-target}/debug/with-store $$store cargo test --workspace --test baton $(LOCKED) -- $(ON_EVERY_STORE) --skip clocks:: || exit; \
	done
	cargo build --release $(LOCKED)
	scripts/first-minute
	scripts/schemathesis
	cargo run --release $(LOCKED) -p baton-sim -- --seeds 10000

check: ## formatting, lints, tidy rules and docs; changes nothing
	cargo fmt --all --check
	cargo clippy --workspace --all-targets $(LOCKED) -- -D warnings
	cargo clippy -p baton-client --all-targets --all-features $(LOCKED) -- -D warnings
	cargo test $(LOCKED) -p baton-testkit --test tidy
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps $(LOCKED)

fix: ## format, and apply what clippy can repair by itself
	cargo fmt --all
	cargo clippy --workspace --all-targets --fix --allow-dirty --allow-staged

bench: ## measure against etcd, Redis and PostgreSQL in the same run; writes bench/RESULTS.md
	scripts/install-test-tools
	cargo run --release $(LOCKED) -p baton-bench --features limitador
