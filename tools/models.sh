#!/usr/bin/env bash
# Recomputes the numbers of the cards of the models that ship, from what ships.
#
#   tools/models.sh DATA [NAME…]
#
# Every card models/NAME.md has its commands in a block that begins with "```sh measure". They run here with DATA, the
# directory of the data, and OUT, a directory for their results (runs/models/NAME). `crossfade` is the program that was built
# with `cargo build --release`, or the one that the variable CROSSFADE names.
set -euo pipefail
if [ $# -lt 1 ]; then
  sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
root=$(cd "$(dirname "$0")/.." && pwd)
DATA=$(cd "$1" && pwd)
shift
program=${CROSSFADE:-$root/target/release/crossfade}
[ -x "$program" ] || { echo "$program is not there: cargo build --release, or set CROSSFADE" >&2; exit 1; }
crossfade() { "$program" --quiet "$@"; }
export DATA
names=("$@")
if [ ${#names[@]} -eq 0 ]; then
  for card in "$root"/models/*.md; do
    [ -e "$card" ] && names+=("$(basename "$card" .md)")
  done
fi
failed=()
for name in ${names[@]+"${names[@]}"}; do
  card=$root/models/$name.md
  [ -f "$card" ] || { echo "there is no card $card" >&2; exit 1; }
  commands=$(awk '/^```/ { inside = /^```sh measure/; next } inside' "$card")
  echo "== $name"
  if [ -z "$commands" ]; then
    echo "the card has no block of commands" >&2
    failed+=("$name")
    continue
  fi
  export OUT=$root/runs/models/$name
  mkdir -p "$OUT"
  # A subshell with `set -e` inside: it must not be part of a condition, where bash ignores it.
  set +e
  (set -e; cd "$root"; eval "$commands")
  status=$?
  set -e
  [ $status -eq 0 ] || failed+=("$name")
done
if [ ${#failed[@]} -gt 0 ]; then
  echo "failed: ${failed[*]}" >&2
  exit 1
fi
