#compdef offsim
# Completion of offsim for zsh. The program lists its verbs and options itself, so this file never lags behind.

_offsim() {
  local program=$words[1] line
  local -a fields entries
  if ((CURRENT == 2)); then
    for line in ${(f)"$(_call_program verbs $program --list-verbs)"}; do
      fields=("${(@ps:\t:)line}")
      entries+=("$fields[1]:${fields[2]//:/\\:}")
    done
    _describe verb entries
    return
  fi
  for line in ${(f)"$(_call_program options $program $words[2] --list-options)"}; do
    fields=("${(@ps:\t:)line}")
    if [[ -z $fields[2] ]]; then
      entries+=("${fields[1]}[${${fields[3]//\[/\\[}//\]/\\]}]")
    elif [[ $fields[2] =~ '^[a-z0-9_|-]+$' ]]; then
      entries+=("*${fields[1]}[${${fields[3]//\[/\\[}//\]/\\]}]:value:(${fields[2]//|/ })")
    else
      entries+=("*${fields[1]}[${${fields[3]//\[/\\[}//\]/\\]}]:${fields[2]//:/\\:}:_files")
    fi
  done
  shift words
  ((CURRENT--))
  _arguments -s : $entries '*:file:_files'
}
if [[ $funcstack[1] == _offsim ]]; then _offsim "$@"; else compdef _offsim offsim; fi
