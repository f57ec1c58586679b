"""psycopg 2: the simple protocol, with values written into statements."""
import io
import threading

import psycopg2
import psycopg2.errors
import psycopg2.extras
from checks import COLUMNS, ENCRYPTED, NAMES, ROW, SLOW, check

psycopg2.extras.register_uuid()


def failure(cursor, statement, values=None):
    """The state and the constraint of an error."""
    try:
        cursor.execute(statement, values)
    except psycopg2.Error as error:
        return error.pgcode, error.diag.constraint_name
    return None


connection = psycopg2.connect("sslmode=disable")
check("it connects without TLS and password", connection.info.ssl_in_use, False)
connection.autocommit = True
connection.cursor().execute("create user ann superuser password 'secret'")
connection.close()
connection = psycopg2.connect(**ENCRYPTED)
check("it connects with TLS and a password", connection.info.ssl_in_use)
cursor = connection.cursor()
cursor.execute(f"create table kinds ({COLUMNS})")
cursor.execute("create table account (id int primary key, balance int not null check (balance > -1000))")
connection.commit()

marks = ", ".join(["%s"] * (len(ROW) + 1))
cursor.execute(f"insert into kinds values ({marks})", (1, *ROW))
cursor.execute(f"insert into kinds values ({marks})", (2, *[None] * len(ROW)))
cursor.execute("select * from kinds order by id")
found = cursor.fetchall()
for name, value, wanted in zip(NAMES, found[0][1:], ROW):
    value = bytes(value) if name == "y" else value
    check(f"the type of column {name}", (type(value), value), (type(wanted), wanted))
check("NULL of each type", found[1], (2, *[None] * len(ROW)))
check("OIDs of columns", [column.type_code for column in cursor.description],
      [23, 16, 21, 23, 20, 700, 701, 1700, 25, 1043, 1042, 17, 2950, 1082, 1083, 1114, 1184, 1186])
cursor.execute("select id from kinds where t = %s and n = %s and z = %s and id in %s", (ROW[7], ROW[6], ROW[15], (1, 2)))
check("values in conditions", cursor.fetchall(), [(1,)])
cursor.execute("select %s, id = any(%s) from kinds where id = 1", (1.5, [1, 5]))
check("arrays", cursor.fetchone()[1], True)
connection.commit()

psycopg2.extras.execute_values(cursor, "insert into account values %s", [(id, 10) for id in range(100)])
check("rows in one statement", cursor.rowcount, 100)
psycopg2.extras.execute_batch(cursor, "update account set balance = balance + %s where id = %s", [(1, id) for id in range(9)])
cursor.execute("select sum(balance), min(balance), avg(balance) from account")
check("aggregates", tuple(map(str, cursor.fetchone())), ("1009", "10", "10.0900000000000000"))
connection.rollback()
cursor.execute("select count(*) from account")
check("rolled back", cursor.fetchone(), (0,))

cursor.copy_from(io.StringIO("".join(f"{id}\t10\n" for id in range(100))), "account", columns=("id", "balance"))
connection.commit()
out = io.StringIO()
cursor.copy_to(out, "account", sep="|")
check("COPY out", sorted(out.getvalue().split())[:2], ["0|10", "10|10"])
out = io.StringIO()
cursor.copy_expert("copy (select id, t, null from kinds where id = 1) to stdout with csv header", out)
check("COPY out as CSV", out.getvalue(), "id,t,?column?\n1,\"gr\u00fcn '\\\n\t\",\n")
cursor.copy_expert("copy kinds (id, t) from stdin csv", io.StringIO("3,\"a\nb\"\n"))
cursor.execute("select t from kinds where id = 3")
check("COPY in as CSV", cursor.fetchone(), ("a\nb",))
connection.commit()

cursor.execute("update account set balance = 20 where id = 1")
cursor.execute("savepoint one")
check("a key twice", failure(cursor, "insert into account values (1, 1)"), ("23505", "account_pkey"))
check("after an error", failure(cursor, "select 1"), ("25P02", None))
cursor.execute("rollback to savepoint one")
check("a check", failure(cursor, "update account set balance = -2000 where id = 3"), ("23514", "account_balance_check"))
cursor.execute("rollback to one")
check("no number", failure(cursor, "select %s::int", ("x",)), ("22P02", None))
cursor.execute("rollback to one")
check("no table", failure(cursor, "select * from nothing"), ("42P01", None))
cursor.execute("rollback to one")
cursor.execute("release savepoint one")
connection.commit()
cursor.execute("select balance from account where id = 1")
check("what was before the savepoint", cursor.fetchone(), (20,))
connection.commit()

with connection.cursor("reader") as reader:
    reader.itersize = 7
    reader.execute("select id from account order by id")
    check("a cursor", [row[0] for row in reader], list(range(100)))
connection.commit()

first, second = psycopg2.connect(**ENCRYPTED), psycopg2.connect(**ENCRYPTED)
for own in (first, second):
    own.set_session(isolation_level="SERIALIZABLE")
one, other = first.cursor(), second.cursor()
for own in (one, other):
    own.execute("select sum(balance) from account where id in (10, 11)")
one.execute("update account set balance = 0 where id = 10")
lost = []
try:
    other.execute("update account set balance = 0 where id = 11")
    first.commit()
    second.commit()
except psycopg2.errors.SerializationFailure as error:
    lost.append(error.pgcode)
check("write skew", lost, ["40001"])
first.close()
second.close()

connection.set_session(readonly=True)
check("read only", failure(cursor, "delete from account"), ("25006", None))
connection.rollback()
connection.set_session(readonly=False, autocommit=True)
timer = threading.Timer(0.3, connection.cancel)
timer.start()
check("cancelled", failure(cursor, SLOW), ("57014", None))
cursor.execute("select 1; select 2")
check("it goes on, with several statements in one", cursor.fetchone(), (2,))
notices = connection.notices
cursor.execute("drop table if exists nothing")
check("a notice", "does not exist, skipping" in connection.notices[-1])
