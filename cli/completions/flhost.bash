# Completion for flhost in bash: commands, options, operators, device types.
_flhost() {
  local word=$2 before=$3 command=${COMP_WORDS[1]}
  local commands='bench config doctor explain help launch lock manifest ops platform plugins probe resolve run verify version'
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W "$commands --help --version" -- "$word")
    return
  fi
  # --device=cuda is three words to bash.
  if [[ $word == = ]]; then
    word=
  elif [[ $before == = ]]; then
    before=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  case $before in
  --device)
    mapfile -t COMPREPLY < <(compgen -W "cpu cuda rocm ext_dev $("${COMP_WORDS[0]}" platform 2>/dev/null | awk '/^PLATFORM/ { found = 1; next } !NF { found = 0 } found && !/^(cpu|cuda|rocm) / { print $1 }')" -- "$word")
    return
    ;;
  --dtype)
    mapfile -t COMPREPLY < <(compgen -W "$("${COMP_WORDS[0]}" verify --dtype ? 2>&1 | sed -n 's/,//g; s/.*element types: //p')" -- "$word")
    return
    ;;
  --impl)
    mapfile -t COMPREPLY < <(compgen -W "$("${COMP_WORDS[0]}" ops --impls 2>/dev/null | awk 'NR > 1 { print $2 }')" -- "$word")
    return
    ;;
  --size)
    mapfile -t COMPREPLY < <(compgen -W 'small large' -- "$word")
    return
    ;;
  --peer)
    mapfile -t COMPREPLY < <(compgen -W 'copy torch torch.compile' -- "$word")
    return
    ;;
  --compare | --junit | --output)
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
    compopt -o filenames
    return
    ;;
  --out | --pages | --save)
    mapfile -t COMPREPLY < <(compgen -d -- "$word")
    return
    ;;
  esac
  case $command:$word in
  run:-*) mapfile -t COMPREPLY < <(compgen -W '--device --out --repeat --ranks --timeout --in-process --summary --explain --json --help' -- "$word") ;;
  verify:-*) mapfile -t COMPREPLY < <(compgen -W '--device --impl --dtype --seed --seeds --quick --seconds --timeout --memory --save --in-process --ranks --junit --json --help' -- "$word") ;;
  bench:-*) mapfile -t COMPREPLY < <(compgen -W '--device --impl --no-reference --prepared --dtype --size --dims --seconds --rotate --peer --compare --ranks --timeout --in-process --json --help' -- "$word") ;;
  explain:-*) mapfile -t COMPREPLY < <(compgen -W '--device --brief --json --help' -- "$word") ;;
  resolve:-*) mapfile -t COMPREPLY < <(compgen -W '--device --json --help' -- "$word") ;;
  manifest:-*) mapfile -t COMPREPLY < <(compgen -W '--device --text --json --help' -- "$word") ;;
  lock:-*) mapfile -t COMPREPLY < <(compgen -W '--check --output --json --help' -- "$word") ;;
  launch:-*) mapfile -t COMPREPLY < <(compgen -W '--ranks --device --help' -- "$word") ;;
  plugins:-*) mapfile -t COMPREPLY < <(compgen -W '--rescan --json --help' -- "$word") ;;
  probe:-*) mapfile -t COMPREPLY < <(compgen -W '--json --channel --help' -- "$word") ;;
  ops:-*) mapfile -t COMPREPLY < <(compgen -W '--impls --pages --json --help' -- "$word") ;;
  help:-*) mapfile -t COMPREPLY < <(compgen -W '--help' -- "$word") ;;
  *:-*) mapfile -t COMPREPLY < <(compgen -W '--json --help' -- "$word") ;;
  explain:* | resolve:* | ops:* | verify:* | bench:*)
    mapfile -t COMPREPLY < <(compgen -W "$("${COMP_WORDS[0]}" ops 2>/dev/null | awk 'NR > 1 { print $1 }')" -- "$word")
    ;;
  help:*) mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$word") ;;
  run:* | lock:* | probe:* | launch:*)
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
    compopt -o filenames
    ;;
  esac
}
complete -F _flhost flhost
