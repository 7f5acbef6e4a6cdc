#!/bin/sh
# join_kernels.sh UNIT.cu ROOT FILE.cu...: a unit that includes the headers of all files, then each file, named from
# ROOT, in a namespace of its own, because two files may have the same static names. A unit that would be the same
# is not written.
set -eu
unit=$1 root=$2
shift 2
{
  (cd "$root" && sed -n '/^#include.*\(h"\|>\)$/p' "$@") | LC_ALL=C sort -u
  for file; do
    name=${file##*/}
    printf 'namespace %s_cu {\n#include "%s"\n}\n' "${name%.cu}" "$file"
  done
} >"$unit.new"
if cmp -s "$unit.new" "$unit"; then
  rm "$unit.new"
else
  mv "$unit.new" "$unit"
fi
