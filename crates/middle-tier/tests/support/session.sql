-- What a session of psql can contain: its output is compared with that of the same session without the middle tier.
\set VERBOSITY verbose
\set SHOW_CONTEXT always
select session_user, current_setting('application_name');
create temporary table t (id int primary key, name text);
copy t from stdin;
1	one
2	\N
3	drei
\.
copy t to stdout;
copy t from stdin;
4	four
four	4
\.
copy t (id) from stdin;
1
\.
select * from t order by id;
insert into t values (1, 'again');
select 1 / 0;
do $$ begin raise notice 'a notice'; raise warning 'a warning'; end $$;
begin;
insert into t values (5, 'five');
savepoint s;
insert into t values (5, 'five');
select 1;
rollback to s;
commit;
select count(*) from t;
begin isolation level serializable;
select 1 / 0;
commit;
prepare p as select $1::int + 1;
execute p(41);
deallocate p;
select 1 \; select 2 \; select 3;
begin \; insert into t values (6, 'six') \; select 1 / 0 \; commit;
rollback;
begin isolation level serializable \; insert into t values (6, 'six') \; commit;
\;
;
select generate_series(1, 3) \gset x
select * from t where id > :id order by id;
\set id 4
select * from t where id > :id order by id;
set client_encoding to latin1;
select chr(228);
set client_encoding to utf8;
set statement_timeout = 50 \; select pg_sleep(60);
listen here;
\d t
\copy t to '/dev/null'
begin;
declare c cursor for select * from t order by id;
fetch 2 from c;
move 1 in c;
fetch all from c;
commit;
select 'the end';
