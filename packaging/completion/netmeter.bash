# SPDX-License-Identifier: BSD-3-Clause
# Completion for netmeter, netmeter-loader and the programs beside them in bash.
# It reads the programs' own --help, so it needs no list of options.

_netmeter() {
  local program=$1 word=${COMP_WORDS[COMP_CWORD]} command='' index help
  for ((index = 1; index < COMP_CWORD; index++)); do
    if [[ ${COMP_WORDS[index]} == [a-z]* ]]; then
      command=${COMP_WORDS[index]}
      break
    fi
  done
  COMPREPLY=()
  case ${COMP_WORDS[COMP_CWORD - 1]} in
    --btf | --budgets | --client-names | --config | --cursor | --database | --html) mapfile -t COMPREPLY < <(compgen -f -- "$word"); return ;;
    --cgroup | --pin-dir) mapfile -t COMPREPLY < <(compgen -d -- "$word"); return ;;
  esac
  help=$("$program" ${command:+"$command"} --help 2> /dev/null) || return
  if [[ $word == -* ]]; then
    help=$(sed -n '/^Options:/,/^$/s/^  \(-[a-z],\)\{0,1\}\(--[a-z0-9-]*\).*/\2/p' <<< "$help")
  elif [[ $command == check ]]; then
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
    return
  elif [[ -z $command ]]; then
    help=$(sed -n '/^Subcommands:/,/^$/s/^  \([a-z0-9-]*\).*/\1/p' <<< "$help")
  else
    return
  fi
  mapfile -t COMPREPLY < <(compgen -W "$help" -- "$word")
}
complete -F _netmeter netmeter netmeter-loader netmeter-fds netmeter-exporter netmeter-ipfix
