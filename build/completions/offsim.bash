# Completion of offsim for bash. The program lists its verbs and options itself, so this file never lags behind.

_offsim() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} program=${COMP_WORDS[0]} verb=${COMP_WORDS[1]-}
  local options values
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W "$("$program" --list-verbs 2>/dev/null | cut -f1) help --help --version" -- "$word")
    return
  fi
  if [[ $verb == record && " ${COMP_WORDS[*]:0:COMP_CWORD} " == *" -- "* ]]; then
    mapfile -t COMPREPLY < <(compgen -c -f -- "$word")
    return
  fi
  options=$("$program" "$verb" --list-options 2>/dev/null)
  values=$(awk -F'\t' -v o="$before" '$1 == o { print $2 }' <<<"$options")
  if [[ $values =~ ^[a-z0-9_|-]+$ ]]; then
    mapfile -t COMPREPLY < <(compgen -W "${values//|/ }" -- "$word")
  elif [[ $word == -* && -z $values ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(cut -f1 <<<"$options")" -- "$word")
  else
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
}
complete -F _offsim offsim
