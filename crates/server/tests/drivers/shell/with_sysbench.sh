#!/bin/sh
# sysbench: its OLTP scripts, by named statements with rows in binary.
. "$(dirname "$0")/checks.sh"
sql "create user ann superuser password 'secret'"
run() { # script, command, more
    script=$1 command=$2
    shift 2
    sysbench "$script" --db-driver=pgsql --pgsql-host="$PGHOST" --pgsql-port="$PGPORT" --pgsql-user=ann \
        --pgsql-password=secret --pgsql-db=postgres --tables=2 --table-size=1000 --threads=2 "$@" "$command" 2>&1
}
run oltp_read_write prepare >/dev/null
check "tables" "$(sql "select count(*), count(distinct id), min(k) > 0 from sbtest2")" "1000|1000|t"
for script in oltp_point_select oltp_read_only oltp_read_write oltp_update_index oltp_update_non_index oltp_insert \
    oltp_delete oltp_write_only select_random_points select_random_ranges; do
    found=$(run $script run --events=100 --time=60) || check "$script" "$found" "no error"
    check "$script" "$(printf '%s' "$found" | sed -n 's/^ *total number of events: *//p')" 100
    found=$(run $script run --events=20 --time=60 --db-ps-mode=disable) || check "$script" "$found" "no error"
    check "$script without preparation" "$(printf '%s' "$found" | sed -n 's/^ *total number of events: *//p')" 20
done
run oltp_read_write cleanup >/dev/null
check "no tables" "$(sql "select count(*) from pg_class where relname like 'sbtest%'")" 0
