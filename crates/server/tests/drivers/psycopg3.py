"""psycopg 3: log-in, prepared statements, types in both formats, retries, COPY, cancellation."""
import datetime
import decimal
import threading
import uuid

import psycopg
from psycopg import errors

ROW = (
    True, 7, -70_000, 1 << 40, 1.5, decimal.Decimal("12.50"), "gr\u00fcn", b"\x00\xff",
    uuid.UUID(int=9), datetime.date(2026, 11, 30), datetime.datetime(2026, 11, 30, 12, 30, 0, 5),
    datetime.datetime(2026, 11, 30, 12, 30, tzinfo=datetime.timezone.utc),
)
COLUMNS = "b boolean, s smallint, i int, l bigint, d float8, n numeric(8, 2), t text, y bytea, u uuid, a date, m timestamp, z timestamptz"

with psycopg.connect(autocommit=True) as connection:
    connection.execute(f"create table kinds (id int primary key, {COLUMNS})")
    connection.execute("create table account (id int primary key, balance int not null)")
    marks = ", ".join(["%s"] * (len(ROW) + 1))
    for id in range(10):
        connection.execute(f"insert into kinds values ({marks})", (id, *ROW), prepare=True)
    connection.execute(f"insert into kinds (id) values (%s)", (99,))
    for binary in (False, True):
        with connection.cursor(binary=binary) as cursor:
            found = cursor.execute("select * from kinds where id = %s", (3,)).fetchone()
            assert found == (3, *ROW), (binary, found)
            assert cursor.execute("select * from kinds where id = 99").fetchone()[1:] == (None,) * len(ROW)

    with connection.cursor().copy("copy account from stdin") as copy:
        for id in range(100):
            copy.write_row((id, 10))
    with connection.cursor().copy("copy account to stdout") as copy:
        assert sum(1 for _ in copy.rows()) == 100

    try:
        connection.execute("insert into account values (1, 1)")
        raise SystemExit("a key was inserted twice")
    except errors.UniqueViolation as error:
        assert error.diag.constraint_name == "account_pkey", error.diag.constraint_name


def transfer(times):
    with psycopg.connect() as own:
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
with psycopg.connect(autocommit=True) as connection:
    found = connection.execute("select balance from account where id in (0, 1, 2) order by id").fetchall()
    assert found == [(10,), (-90,), (110,)], found
    timer = threading.Timer(0.3, connection.cancel)
    timer.start()
    try:
        connection.execute("select count(*) from account a, account b, account c, account d, account e")
        raise SystemExit("the statement was not cancelled")
    except errors.QueryCanceled:
        pass
    assert connection.execute("select 1").fetchone() == (1,)
