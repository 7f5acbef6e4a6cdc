# Sourced by build/demo, build/test and build/bench: what they share. Each step says what it does.
#
# Checks that the Debian packages are there; installs them when run as root, otherwise prints the one
# line to paste and stops with status 3.

root=$(cd "$(dirname "$0")/.." && pwd)
program_packages="generate-ninja ninja-build gcc libc6-dev clang libfyaml-dev libcairo2-dev libxxhash-dev libsqlite3-dev zlib1g-dev"
test_packages="git clang-format libclang-rt-14-dev libcmocka-dev python3 python3-pytest python3-pytest-xdist python3-jsonschema pkg-config libopenmpi-dev openmpi-bin"
wasm_packages="wasi-libc libclang-rt-14-dev-wasm32 clang-14 lld-14 llvm-14"

say() {
  echo "$*" >&2
}

missing_packages() {
  for package in "$@"; do
    dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -q '^installed$' ||
      printf ' %s' "$package"
  done
}

install_packages() {
  say "apt-get install$1"
  export DEBIAN_FRONTEND=noninteractive
  apt-get -qq update >&2
  # shellcheck disable=SC2086  # a list of words
  apt-get -qq -y --no-install-recommends install $1 >/dev/null
}

# set_up PACKAGE...
set_up() {
  missing=$(missing_packages "$@")
  [ -z "$missing" ] && return
  if [ "$(id -u)" = 0 ]; then
    install_packages "$missing"
  else
    say "Some Debian packages are missing. Install them with"
    say "  sudo apt-get install -y --no-install-recommends$missing"
    exit 3
  fi
}

# generate CONFIGURATION: writes the build files of out/CONFIGURATION.
generate() {
  case $1 in
  release) args='is_debug=false' ;;
  without-cuda) args='nvcc="" use_mpi=true' ;; # -O0: it runs little
  wasm) args='is_debug=false nvcc="" is_wasm=true' ;;
  static) args='is_debug=false nvcc="" is_static=true' ;;
  debug) args='' ;;
  san) args='is_debug=false is_clang=true is_asan=true is_ubsan=true nvcc=""' ;;
  clang-release) args='is_debug=false is_clang=true nvcc=""' ;;
  clang-debug) args='is_clang=true nvcc=""' ;;
  gcc-san) args='is_debug=false is_asan=true is_ubsan=true nvcc=""' ;;
  fuzz) args='is_debug=false is_clang=true is_asan=true is_ubsan=true is_fuzz=true nvcc=""' ;;
  *)
    say "no configuration is named $1"
    exit 2
    ;;
  esac
  generate_with "$1" "$args"
}

# generate_with CONFIGURATION ARGUMENTS
generate_with() {
  say "gn gen out/$1 --args='$2'"
  gn gen "$root/out/$1" -q --root="$root" --fail-on-unused-args --args="$2"
}

# compile CONFIGURATION NINJA_TARGET...: one line that changes on a terminal, else every hundredth step.
compile() {
  name=$1
  shift
  say "ninja -C out/$name $*"
  export NINJA_STATUS='[%f/%t] '
  if [ -t 2 ]; then
    ninja -C "$root/out/$name" "$@" >&2
  else
    { ninja -C "$root/out/$name" "$@" 2>&1 || echo "ninja ended with $?"; } | {
      status=0
      while IFS= read -r line; do
        case $line in
        'ninja: Entering directory'* | 'ninja: no work to do.') ;;
        'ninja ended with '*) status=${line##* } ;;
        '['[0-9]*00/[0-9]*'] '*) say "$line" ;;
        '['[0-9]*/[0-9]*'] '*) ;;
        *) say "$line" ;;
        esac
      done
      exit "$status"
    }
  fi
}

# with_pytest ARGUMENT...: becomes pytest, with one more worker than cores. Debian's modules belong to Debian's
# python, which may not be the first one in PATH. Tests that rewrite files (BLESS=1) run one after the other.
with_pytest() {
  cores="-n $(($(nproc) + 1)) --dist loadgroup" # some tests wait
  [ -n "${BLESS-}" ] && cores='-n 0'
  for python in python3 /usr/bin/python3; do
    if "$python" -c 'import pytest, xdist' 2>/dev/null; then
      say "pytest $cores $*"
      # shellcheck disable=SC2086  # a list of words
      exec "$python" -B -m pytest -q -p no:cacheprovider $cores "$@"
    fi
  done
  say "no python3 has the modules pytest and xdist"
  exit 3
}

# help_and_exit: prints the comment at the top of the script.
help_and_exit() {
  sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
  exit 0
}
