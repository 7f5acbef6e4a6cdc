#!/bin/sh
# embed_presets.sh OUT FILE.yaml...: C tables with the names and texts of the shipped machines.
# The texts become numbers, because C11 promises no more than 4095 characters in a literal.
set -eu
out=$1
shift
{
  printf '/* Made from sim/machine/presets by embed_presets.sh. */\n'
  printf '#include "sim/machine/machine.h"\n\n'
  index=0
  for file in "$@"; do
    printf 'static const char text_%d[] = {\n' "$index"
    od -An -v -tu1 "$file" | sed 's/\([0-9][0-9]*\)/\1,/g'
    printf '0 };\n'
    index=$((index + 1))
  done
  printf 'const machine_preset machine_presets[] = {\n'
  index=0
  for file in "$@"; do
    printf '  { "%s", text_%d },\n' "$(basename "$file" .yaml)" "$index"
    index=$((index + 1))
  done
  printf '  { 0, 0 },\n};\n'
} >"$out.new"
mv "$out.new" "$out"
