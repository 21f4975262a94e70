#!/usr/bin/env bash
# Runs fuzz targets on one core: run.sh SECONDS [TARGET...]. CROSSFADE_FUZZ_TARGET_DIR is where cargo-fuzz has built them.
set -euo pipefail
cd "$(dirname "$0")"
seconds=$1
shift
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(ls fuzz_targets | sed 's/\.rs$//')
build="${CROSSFADE_FUZZ_TARGET_DIR:-target}/x86_64-unknown-linux-gnu/release"
# AddressSanitizer keeps freed memory for a while, which is none of the program's.
export ASAN_OPTIONS="quarantine_size_mb=16:detect_odr_violation=0:detect_leaks=0"
for target in "${targets[@]}"; do
  mkdir -p "${CROSSFADE_FUZZ_CORPUS:-corpus}/$target" "artifacts/$target"
  log="artifacts/$target.log"
  nice -n 5 "$build/$target" "${CROSSFADE_FUZZ_CORPUS:-corpus}/$target" -artifact_prefix="artifacts/$target/" -dict="dictionaries/$target" \
    -max_total_time="$seconds" -max_len=32768 -timeout=10 -rss_limit_mb=1024 -malloc_limit_mb=1024 -print_final_stats=1 -print_funcs=0 \
    >"$log" 2>&1 && end=ended || end="FAILED, see $log"
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  peak=$(sed -n 's/^stat::peak_rss_mb: *//p' "$log")
  reached=$(grep -oE 'cov: [0-9]+ ft: [0-9]+ corp: [0-9]+' "$log" | tail -1)
  echo "$target: ${runs:-?} executions, $reached, peak ${peak:-?} MB, $end"
done
