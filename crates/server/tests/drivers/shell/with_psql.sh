#!/bin/sh
# psql: statements, variables, its own COPY, cursors of FETCH_COUNT, pipelines of \watch, descriptions.
. "$(dirname "$0")/checks.sh"
check "it connects without TLS and password" "$(PGSSLMODE=disable sql 'select current_user')" postgres
sql "create user ann superuser password 'secret'"
export PGUSER=ann PGPASSWORD=secret PGSSLMODE=verify-full PGSSLROOTCERT="$DRIVER_AUTHORITY" PGCHANNELBINDING=require
check "it connects with TLS and a password" "$(sql 'select current_user')" ann
script() { psql -XAtq -v VERBOSITY=sqlstate 2>&1; }
sql "create table account (id int primary key, name text, balance numeric(8, 2))"
check "rows" "$(sql "insert into account values (1, 'ann', 1.5), (2, null, 3) returning *")" "1|ann|1.50
2||3.00"
check "a key twice" "$(sql "insert into account values (1)")" "ERROR:  23505"
check "no number" "$(sql "select 'x'::int")" "ERROR:  22P02"
check "no table" "$(sql "select * from nothing")" "ERROR:  42P01"
check "variables" "$(script <<'END'
select balance as money, 'account' as place from account where id = 1 \gset
select * from :place where balance = :money and name = :'who' or id = :{?who}::int;
\set who ann
select id from :"place" where name = :'who';
END
)" "ERROR:  42601
1"
check "savepoints" "$(script <<'END'
begin;
update account set balance = 20 where id = 1;
savepoint one;
insert into account values (1);
select 1;
rollback to one;
select balance from account where id = 1;
commit;
END
)" "ERROR:  23505
ERROR:  25P02
20.00"
check "errors that are rolled back" "$(script <<'END'
\set ON_ERROR_ROLLBACK on
begin;
insert into account values (3, 'cid', 7);
insert into account values (1);
commit;
select count(*) from account;
END
)" "ERROR:  23505
3"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
script <<END
\copy account to '$folder/text'
\copy (select id, name from account order by id) to '$folder/csv' csv header
\copy account to '$folder/binary' binary
delete from account;
\copy account from '$folder/binary' binary
END
check "COPY out" "$(cat "$folder/csv")" "id,name
1,ann
2,
3,cid"
check "COPY in as binary" "$(sql "select * from account order by id")" "1|ann|20.00
2||3.00
3|cid|7.00"
check "COPY in" "$(sql "\\copy account from '$folder/text'")" "ERROR:  23505"
check "COPY in the script" "$(script <<'END'
copy account (id, name) from stdin;
4	d
5	\N
\.
select count(*), count(name) from account;
END
)" "5|3"
check "rows in portions" "$(script <<'END'
\set FETCH_COUNT 2
select x from generate_series(1, 5) as x;
END
)" "1
2
3
4
5"
check "statements that are made" "$(script <<'END'
select 'select ' || x from generate_series(1, 2) as x \gexec
select id, name, balance from account where id < 3 order by id \crosstabview id name balance
prepare p(int) as select name from account where id = $1; execute p(1);
END
)" "1
2
1|20.00|
2||3.00
ann"
check "descriptions" "$(script <<'END'
select id, name, balance, 1::bigint as more from account \gdesc
END
)" "id|integer
name|text
balance|numeric(8,2)
more|bigint"
for command in '\l' '\l+' '\dt' '\dt+' '\d account' '\d+ account' '\di' '\du' '\dn' '\dn+' '\df' '\dv' '\ds' '\dp' '\dT' \
    '\db' '\dx' '\dD' '\da' '\dA' '\dm' '\des' '\dRp' '\dconfig' '\conninfo' '\encoding' '\d'; do
    found=$(psql -X -c "$command" 2>&1) || check "$command" "$found" "no error"
    case $found in *ERROR*) check "$command" "$found" "no error" ;; esac
    printf 'ok %s\n' "$command"
done
check "databases" "$(sql '\l' | grep -c '^postgres|')" 1
check "a time limit" "$(sql 'set statement_timeout = 300; select count(*) from generate_series(1, 100000) a, generate_series(1, 100000) b where a.a < b.b')" \
    "ERROR:  57014"
psql -XAtq -v VERBOSITY=sqlstate -c 'select count(*) from generate_series(1, 100000) a, generate_series(1, 100000) b where a.a < b.b' \
    >"$folder/cancelled" 2>&1 &
sleep 1
kill -INT $!
wait $! || true
check "an interrupt cancels" "$(tail -1 "$folder/cancelled")" "ERROR:  57014"
