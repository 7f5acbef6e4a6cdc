#!/bin/sh
# build/man.sh PROGRAM FOLDER: writes offsim.1 and offsim-VERB.1 into the folder.
#
# help2man makes each page from --help, so that page and program agree. The date is that of the last commit,
# or of SOURCE_DATE_EPOCH: the same sources give the same pages.

set -eu
program=$1 folder=$2
version=$("$program" --version | cut -d' ' -f2)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: "${SOURCE_DATE_EPOCH:=$(git -C "$(dirname "$0")" log -1 --format=%ct 2>/dev/null || echo 0)}"
export SOURCE_DATE_EPOCH
unset COLUMNS FORCE_COLOR
verbs=$("$program" --list-verbs | cut -f1)

cat >"$work/include" <<TEXT
[EXIT STATUS]
$("$program" --help | sed -n 's/^Exit status: //p')

[SEE ALSO]
$(for verb in $verbs; do echo ".BR offsim-$verb (1),"; done)
.BR offsim (1)
TEXT

# page NAME MEANING [VERB]: help2man calls a program of the page's name for its help.
page() {
  cat >"$work/$1" <<TEXT
#!/bin/sh
'$program' ${3-} --help | sed '/^offsim: /,/^\$/d;1,/^[^ ]*\$/{s/^usage: /Usage: /;s/^       offsim/  or:  offsim/};/^Exit status: /,\$d'
TEXT
  chmod +x "$work/$1"
  help2man --no-info --include="$work/include" --name="$2" --version-string="$version" --source="offsim $version" "$work/$1" |
    sed "s/^\.TH .*/.TH $(echo "$1" | tr '[:lower:]' '[:upper:]') 1 $(date -u -d "@$SOURCE_DATE_EPOCH" +%F) \"offsim $version\"/" \
      >"$folder/$1.1"
}

mkdir -p "$folder"
page offsim 'predicts peak memory and overhead of activation offloading'
"$program" --list-verbs | tr '\t' ' ' | while read -r verb meaning; do
  page "offsim-$verb" "$meaning" "$verb"
done
