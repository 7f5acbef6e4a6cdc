# Sourced by build/demo, build/test and build/bench: what they share.
#
# Checks that the Debian packages are there; installs them when run as root, otherwise prints the one
# line to paste and stops with status 3.

root=$(cd "$(dirname "$0")/.." && pwd)
packages="git generate-ninja ninja-build gcc libc6-dev clang libclang-rt-14-dev python3 python3-pytest
          libfyaml-dev libcmocka-dev libcairo2-dev libxxhash-dev"

missing_packages() {
  for package in $packages; do
    dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -q '^installed$' ||
      printf ' %s' "$package"
  done
}

install_packages() {
  echo "installing:$1" >&2
  export DEBIAN_FRONTEND=noninteractive
  apt-get -qq update >&2
  # shellcheck disable=SC2086  # a list of words
  apt-get -qq -y --no-install-recommends install $1 >/dev/null
}

set_up() {
  missing=$(missing_packages)
  [ -z "$missing" ] && return
  if [ "$(id -u)" = 0 ]; then
    install_packages "$missing"
  else
    echo "Some Debian packages are missing. Install them with" >&2
    echo "  sudo apt-get install -y --no-install-recommends$missing" >&2
    exit 3
  fi
}

# build_in CONFIGURATION [NINJA_TARGET...]: generates and builds out/CONFIGURATION.
build_in() {
  name=$1
  shift
  case $name in
  release) args='is_debug=false' ;;
  without-cuda) args='is_debug=false nvcc=""' ;;
  debug) args='' ;;
  san) args='is_debug=false is_clang=true is_asan=true is_ubsan=true nvcc=""' ;;
  clang-release) args='is_debug=false is_clang=true nvcc=""' ;;
  clang-debug) args='is_clang=true nvcc=""' ;;
  gcc-san) args='is_debug=false is_asan=true is_ubsan=true nvcc=""' ;;
  fuzz) args='is_debug=false is_clang=true is_asan=true is_ubsan=true is_fuzz=true nvcc=""' ;;
  *)
    echo "no configuration is named $name" >&2
    exit 2
    ;;
  esac
  gn gen "$root/out/$name" -q --root="$root" --fail-on-unused-args --args="$args"
  ninja --quiet -C "$root/out/$name" "$@"
}

# with_pytest ARGUMENT...: becomes pytest. Debian's module belongs to Debian's python, which may not be the
# first one in PATH.
with_pytest() {
  for python in python3 /usr/bin/python3; do
    if "$python" -c 'import pytest' 2>/dev/null; then
      exec "$python" -B -m pytest -q -p no:cacheprovider "$@"
    fi
  done
  echo "no python3 has the module pytest" >&2
  exit 3
}

# help_and_exit: prints the comment at the top of the script.
help_and_exit() {
  sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
  exit 0
}
