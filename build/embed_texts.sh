#!/bin/sh
# embed_texts.sh OUT HEADER TYPE ARRAY FILE.yaml...: a C array of TYPE { name, text } with the names and
# texts of files, ended by a NULL name. HEADER declares it.
# The texts become numbers, because C11 promises no more than 4095 characters in a literal.
set -eu
out=$1 header=$2 type=$3 array=$4
shift 4
{
  printf '/* Made by build/embed_texts.sh. */\n'
  printf '#include "%s"\n\n' "$header"
  index=0
  for file in "$@"; do
    printf 'static const char text_%d[] = {\n' "$index"
    od -An -v -td1 "$file" | sed 's|\(-\{0,1\}[0-9][0-9]*\)|\1,|g'
    printf '0 };\n'
    index=$((index + 1))
  done
  printf 'const %s %s[] = {\n' "$type" "$array"
  index=0
  for file in "$@"; do
    printf '  { "%s", text_%d },\n' "$(basename "$file" .yaml)" "$index"
    index=$((index + 1))
  done
  printf '  { 0, 0 },\n};\n'
} >"$out.new"
mv "$out.new" "$out"
