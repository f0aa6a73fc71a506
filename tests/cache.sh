# Sourced by the scripts here: where the tests keep what is downloaded or compiled once.

cache=${SHUFFLED_TEST_CACHE:-${HOME:?}/.cache/shuffled-tests}

# cached NAME COMMAND...
# Sees to it that $cache/NAME exists. COMMAND gets an empty directory as one more argument and fills
# it; only when it has succeeded does the directory get its name, so an interrupted run leaves nothing
# that looks whole.
cached() {
  local name=$1 fresh=$cache/.fresh
  shift
  [ ! -e "$cache/$name" ] || return 0
  mkdir -p "$cache"
  (
    flock 9
    [ ! -e "$cache/$name" ] || exit 0
    rm -rf "$fresh" # of a run that was killed: whoever lives holds the lock
    mkdir "$fresh"
    "$@" "$fresh" || { rm -rf "$fresh"; exit 1; }
    mv "$fresh" "$cache/$name"
  ) 9>"$cache/.lock"
}
