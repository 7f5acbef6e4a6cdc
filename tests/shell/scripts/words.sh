#!/bin/bash
# Quotes in quotes, defaults with blanks, nested expansions, arithmetic in indexes.
X="a  b" Y='c"d' Z=$'tab\there'
A=("$X" $X "" ${UNSET} "${UNSET}" [5]=five)
python x.py --one "${X}"$Y'$X' --two ${U:-p q} "${U:-p q}" ${U:-"p q"} --three "${A[@]}" --four ${A[@]} "${#A[@]}" "${A[1+1]}"
python x.py --five ${X/a/$Y} "${X//[ab]/-}" ${X%%b*}z "${Y^^}" {a,b}{1..2} "{a,b}" x{a,"b c"}y $((1 + ${#X} * 2)) $Z
f() { python x.py --six "$@" "$*" $#; shift; python x.py --seven "${@:1}" "${1:-none}"; }
f "1 2" 3
IFS=:; L=u:v; python x.py --eight $L "$L" --nine; unset IFS
python x.py --ten $L *.none "$(printf '%s\n' "last line")" `echo "back \`echo quoted\`"`
