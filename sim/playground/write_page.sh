#!/bin/sh
# write_page.sh OUT MODULE.wasm FOLDER MACHINE.yaml...: the page of the playground. As in sim/report/page.c, `@name@` becomes a
# file of this name, here or in FOLDER; the page's own parts have names, too.
set -eu
out=$1 module=$2 folder=$3
shift 3
machines=$(for file; do basename "$file" .yaml; done | sed 's|.*|<option>&</option>|' | tr '\n' ' ')
awk -v module="$module" -v folders="$(dirname "$0") $folder" -v machines="$machines" '
function put_file(name,   i, count, names, line, found) {
  count = split(folders, names, " ")
  for (i = 1; i <= count && !found; i++) {
    while ((getline line < (names[i] "/" name)) > 0) {
      found = 1
      put(line)
    }
    close(names[i] "/" name)
  }
  if (!found) {
    print "write_page.sh: no file is named " name >"/dev/stderr"
    exit 1
  }
}
function put_named(name) {
  if (name == "title") printf "playground"
  else if (name == "table") printf ""
  else if (name == "figures" || name == "timeline") printf "null"
  else if (name == "machines") printf "%s", machines
  else if (name == "module") {
    fflush()
    system("base64 -w0 " module)
  } else put_file(name == "content" ? "playground.html" : name == "script" ? "playground.js" : name)
}
function put(line) {
  while (match(line, /@[a-z_.]+@/)) {
    printf "%s", substr(line, 1, RSTART - 1)
    name = substr(line, RSTART + 1, RLENGTH - 2)
    line = substr(line, RSTART + RLENGTH)
    put_named(name)
  }
  print line
}
BEGIN { put_file("page.html") }
' >"$out.new"
mv "$out.new" "$out"
