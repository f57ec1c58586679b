"""psycopg 3: the extended protocol, prepared statements, both formats, pipelines and COPY."""
import threading

import psycopg
from checks import COLUMNS, ENCRYPTED, NAMES, ROW, SLOW, check
from psycopg import errors


def failure(connection, statement, values=None):
    """The state and the constraint of an error."""
    try:
        connection.execute(statement, values)
    except psycopg.Error as error:
        return error.sqlstate, error.diag.constraint_name
    return None


with psycopg.connect("sslmode=disable", autocommit=True) as connection:
    check("it connects without TLS and password", connection.pgconn.ssl_in_use, False)
    connection.execute("create user ann superuser password 'secret'")
connection = psycopg.connect(**ENCRYPTED, channel_binding="require", autocommit=True)
check("it connects with TLS, a password and channel binding", connection.pgconn.ssl_in_use)
connection.execute(f"create table kinds ({COLUMNS})")
connection.execute("create table account (id int primary key, balance int not null check (balance > -1000))")

for binary, mark in ((False, "%t"), (True, "%b"), (None, "%s")):
    connection.execute("truncate kinds")
    marks = ", ".join([mark] * (len(ROW) + 1))
    for id in range(8):
        connection.execute(f"insert into kinds values ({marks})", (id, *ROW))
    connection.execute(f"insert into kinds values ({marks})", (99, *[None] * len(ROW)))
    with connection.cursor(binary=bool(binary)) as cursor:
        found = cursor.execute("select * from kinds where id = " + mark, (3,)).fetchone()
        for name, value, wanted in zip(NAMES, found[1:], ROW):
            check(f"the type of column {name}, {mark}", (type(value), value), (type(wanted), wanted))
        found = cursor.execute("select * from kinds where id = 99").fetchone()
        check(f"NULL of each type, {mark}", found[1:], (None,) * len(ROW))
        check("OIDs of columns", [column.type_code for column in cursor.description],
              [23, 16, 21, 23, 20, 700, 701, 1700, 25, 1043, 1042, 17, 2950, 1082, 1083, 1114, 1184, 1186])
    for name, value in zip(NAMES, ROW):
        if (name, mark) == ("c", "%b"):
            continue  # The value is a text, of which blanks count.
        found = connection.execute(f"select count(*) from kinds where {name} = {mark}", (value,)).fetchone()
        check(f"conditions of column {name}, {mark}", found, (8,))
for statement, values, wanted in (
    ("select %s + i, %s * l from kinds where id = 1", (1, 2), (-69_999, 1 << 41)),
    ("select id from kinds where id = any(%s) order by id limit 1", ([5, 6, 100],), (5,)),
    ("select count(*) from kinds where t = any(%s)", ([ROW[7], "x"],), (8,)),
    ("select %s::text || 'x', %s::int", ("a", "7"), ("ax", 7)),
    ("select count(*) from kinds where id between %s and %s and n < %s", (2, 4, 100), (3,)),
    ("select coalesce(%s, t) from kinds where id = 99", ("none",), ("none",)),
):
    for prepare in (False, True):
        check(statement, connection.execute(statement, values, prepare=prepare).fetchone(), wanted)
connection.execute("deallocate all")

with connection.cursor() as cursor:
    cursor.executemany("insert into account values (%s, %s) returning id", [(id, 10) for id in range(100)], returning=True)
    first = cursor.fetchone()
    count = 1
    while cursor.nextset():
        count += 1
    check("many rows in a pipeline", (first, count), ((0,), 100))
with connection.pipeline():
    cursors = [connection.execute("select balance + %s from account where id = %s", (id, id)) for id in range(20)]
    check("a pipeline", [cursor.fetchone() for cursor in cursors], [(10 + id,) for id in range(20)])
try:
    with connection.pipeline():
        with connection.transaction():
            connection.execute("update account set balance = 0 where id = 5")
            connection.execute("insert into account values (5, 5)")
    raise SystemExit("a key was inserted twice")
except errors.UniqueViolation as error:
    check("an error in a pipeline", error.diag.constraint_name, "account_pkey")
check("the pipeline is undone", connection.execute("select balance from account where id = 5").fetchone(), (10,))

connection.execute("delete from account")
with connection.cursor().copy("copy account from stdin") as copy:
    for id in range(100):
        copy.write_row((id, 10))
with connection.cursor().copy("copy account to stdout") as copy:
    check("COPY in and out", sum(1 for _ in copy.rows()), 100)
with connection.cursor().copy("copy account (balance, id) from stdin (format binary)") as copy:
    copy.set_types(["int4", "int4"])
    for id in range(100, 200):
        copy.write_row((10, id))
kinds = ["int4", "bool", "int2", "int4", "int8", "float4", "float8", "numeric", "text", "varchar", "text", "bytea",
         "uuid", "date", "time", "timestamp", "timestamptz", "interval"]
with connection.cursor().copy("copy (select * from kinds where id in (3, 99) order by id) to stdout (format binary)") as copy:
    copy.set_types(kinds)
    rows = list(copy.rows())
check("binary COPY out", rows, [(3, *ROW), (99, *[None] * len(ROW))])
connection.execute("delete from kinds")
with connection.cursor().copy("copy kinds from stdin with binary") as copy:
    copy.set_types(kinds)
    for row in rows:
        copy.write_row(row)
check("binary COPY in", connection.execute("select * from kinds order by id").fetchall(), rows)
try:
    with connection.cursor().copy("copy account from stdin (format binary)") as copy:
        copy.write(b"PGCOPY\n\xff\r\n\0" + bytes(8) + b"\0\x02\0\0\0\x04\0\0")
    raise SystemExit("half a row was taken")
except errors.BadCopyFileFormat:
    check("half a row", connection.execute("select count(*) from account").fetchone(), (200,))
try:
    with connection.cursor().copy("copy account from stdin") as copy:
        copy.write_row((1000, 1))
        raise KeyError
except KeyError:
    check("COPY that the client gives up", connection.execute("select count(*) from account").fetchone(), (200,))

connection.autocommit = False
try:
    with connection.transaction():
        connection.execute("update account set balance = 20 where id = 1")
        for what, statement, wanted in (
            ("a key twice", "insert into account values (1, 1)", ("23505", "account_pkey")),
            ("a check", "update account set balance = -2000 where id = 3", ("23514", "account_balance_check")),
            ("no number", "select 'x'::int", ("22P02", None)),
            ("no table", "select * from nothing", ("42P01", None)),
            ("no column", "select nothing from account", ("42703", None)),
            ("no statement", "selec 1", ("42601", None)),
            ("division by zero", "select 1 / (id - 1) from account where id = 1", ("22012", None)),
            ("overflow", "select 2147483647 + balance from account where id = 1", ("22003", None)),
        ):
            try:
                with connection.transaction():
                    check(what, failure(connection, statement), wanted)
                    check("after an error", failure(connection, "select 1"), ("25P02", None))
                    raise psycopg.Rollback
            except psycopg.Rollback:
                pass
        check("the savepoint is there", connection.execute("select balance from account where id = 1").fetchone(), (20,))
except psycopg.Error as error:
    raise SystemExit(f"FAILED savepoints: {error}")
with connection.cursor("reader") as reader:
    reader.itersize = 7
    reader.execute("select id from account where id < %s order by id", (100,))
    check("a cursor", [row[0] for row in reader], list(range(100)))
connection.commit()
connection.autocommit = True


def transfer(times):
    with psycopg.connect(**ENCRYPTED) as own:
        for _ in range(times):
            while True:
                try:
                    with own.transaction():
                        own.execute("update account set balance = balance - 1 where id = 1")
                        own.execute("update account set balance = balance + 1 where id = 2")
                    break
                except errors.SerializationFailure:
                    continue


threads = [threading.Thread(target=transfer, args=(50,)) for _ in range(2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
found = connection.execute("select balance from account where id in (0, 1, 2) order by id").fetchall()
check("transfers beside each other", found, [(10,), (-80,), (110,)])
with psycopg.connect(**ENCRYPTED) as one, psycopg.connect(**ENCRYPTED) as other:
    for own in (one, other):
        own.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        own.execute("select sum(balance) from account where id in (10, 11)")
    one.execute("update account set balance = 0 where id = 10")
    lost = []
    try:
        other.execute("update account set balance = 0 where id = 11")
        one.commit()
        other.commit()
    except errors.SerializationFailure as error:
        lost.append(error.sqlstate)
        other.rollback()
    check("write skew", lost, ["40001"])
timer = threading.Timer(0.3, connection.cancel)
timer.start()
check("cancelled", failure(connection, SLOW), ("57014", None))
timer = threading.Timer(0.3, connection.cancel_safe)
timer.start()
check("cancelled again", failure(connection, SLOW), ("57014", None))
check("it goes on", connection.execute("select 1").fetchone(), (1,))
