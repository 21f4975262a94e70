#!/usr/bin/env bash
# The tests of the kernels, which hold nearly all unsafe code (docs/UNSAFE.md), under AddressSanitizer, valgrind and Miri.
#
#   tools/sanitize.sh [asan|valgrind|miri ...]      all of them without arguments
#
# Everything is built apart from the usual target directory, in $SANITIZE_TARGET (target/sanitize by default). A tool that is not
# there is named and left out; the exit code is that of the tools that ran.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${SANITIZE_TARGET:-$PWD/target/sanitize}
host=$(rustc -vV | sed -n 's/^host: //p')
tools=${*:-asan valgrind miri}
# Buffers of their own, full of NaN: crates/crossfade-kernels/src/workspace.rs.
fresh='--cfg crossfade_fresh_buffers'
failed=0

# The test programs that a build makes: cargo prints their paths.
build() {
  cargo test --target "$host" -p crossfade-kernels --lib --tests --no-run 2>&1 | tee /dev/stderr | sed -n 's/.*Executable .*(\(.*\))$/\1/p'
}

asan() {
  # The flag is not stable, but part of every compiler.
  export RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address $fresh" CARGO_TARGET_DIR="$target/asan"
  local programs
  programs=$(build) || { echo 'asan: this compiler has no AddressSanitizer for this platform; left out'; return 0; }
  for program in $programs; do
    echo "asan: $program"
    # Helper threads run until the end of the process, so that what they hold is no leak.
    ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=1 "$program" || failed=1
  done
}

valgrind_() {
  command -v valgrind >/dev/null || { echo 'valgrind is not installed; left out'; return 0; }
  export RUSTFLAGS="$fresh" CARGO_TARGET_DIR="$target/valgrind"
  local programs
  programs=$(build)
  # Fewer random cases, because every instruction takes some fifty times as long.
  for program in $programs; do
    echo "valgrind: $program"
    PROPTEST_CASES=${PROPTEST_CASES:-4} valgrind --quiet --error-exitcode=9 --fair-sched=yes "$program" --test-threads 1 \
      --skip helpers_take_part --skip flushing_affects_one_thread || failed=1
  done
}

miri() {
  cargo miri --version >/dev/null 2>&1 || { echo 'Miri is not part of this toolchain; left out'; return 0; }
  CARGO_TARGET_DIR="$target/miri" RUSTFLAGS="$fresh" PROPTEST_CASES=1 cargo miri test -p crossfade-kernels --lib || failed=1
}

for tool in $tools; do
  case $tool in
    asan) (asan; exit $failed) || failed=1 ;;
    valgrind) (valgrind_; exit $failed) || failed=1 ;;
    miri) (miri; exit $failed) || failed=1 ;;
    *) echo "unknown tool $tool; known: asan, valgrind, miri" >&2; exit 2 ;;
  esac
done
exit $failed
