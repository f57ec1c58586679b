# What the scripts of programs share. Each line of output says what holds; the first that does not ends the script.
set -eu
check() { # what, found, wanted
    if [ "$2" != "$3" ]; then
        printf 'FAILED %s: %s\ninstead of: %s\n' "$1" "$2" "$3"
        exit 1
    fi
    printf 'ok %s\n' "$1"
}
sql() { psql -XAtq -v VERBOSITY=sqlstate -c "$1" 2>&1; }
