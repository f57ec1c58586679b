#!/bin/sh
# pgbench: initialization of each kind, its three scripts in each mode, pipelines, retries.
. "$(dirname "$0")/checks.sh"
run() { # arguments; the transactions that it did
    pgbench -n -c 2 -j 2 --max-tries 1000 "$@" 2>&1 | sed -n 's/^number of transactions actually processed: //p'
}
initialized() {
    pgbench -i -q "$@" >/dev/null 2>&1 && sql "select (select count(*) from pgbench_accounts), (select count(*) from pgbench_tellers)"
}
same() { # what: the sums of all tables agree
    check "$1" "$(sql "select (select sum(abalance) from pgbench_accounts) = (select sum(bbalance) from pgbench_branches),
        (select sum(tbalance) from pgbench_tellers) = (select coalesce(sum(delta), 0) from pgbench_history)")" "t|t"
}
check "initialization by the client" "$(initialized)" "100000|10"
same "its sums"
check "initialization by the server, with foreign keys" "$(initialized -I dtGvpf)" "100000|10"
sql "select 1" >/dev/null
check "initialization again, with keys" "$(initialized -I dtgvp --foreign-keys)" "100000|10"
for mode in simple extended prepared; do
    check "TPC-B, $mode" "$(run -M $mode -t 50)" 100/100
    check "simple update, $mode" "$(run -M $mode -N -t 50)" 100/100
    check "select, $mode" "$(run -M $mode -S -t 50)" 100/100
done
check "sums after all" "$(sql "select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history)")" t
check "its own vacuum" "$(pgbench -t 5 2>&1 | sed -n 's/^number of transactions actually processed: //p')" 5/5
script=$(mktemp)
trap 'rm -f "$script"' EXIT
cat >"$script" <<'END'
\set aid random(1, 1000)
\startpipeline
begin;
update pgbench_accounts set abalance = abalance + 1 where aid = :aid;
select abalance from pgbench_accounts where aid = :aid;
end;
\endpipeline
\startpipeline
select abalance from pgbench_accounts where aid = :aid;
select abalance from pgbench_accounts where aid = :aid;
\endpipeline
select abalance as money from pgbench_accounts where aid = :aid \gset
\if :money < -100000000
select 1 / 0;
\endif
select 1 as one \; select 2 as two \aset
END
for mode in extended prepared; do
    check "pipelines, $mode" "$(sed '/aset/d' "$script" >"$script.$mode"; run -M $mode -t 50 -f "$script.$mode")" 100/100
    rm "$script.$mode"
done
sed '/pipeline/d' "$script" >"$script.simple"
check "variables from rows" "$(run -M simple -t 50 -f "$script.simple")" 100/100
rm "$script.simple"
