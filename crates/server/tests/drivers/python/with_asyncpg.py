"""asyncpg: everything is prepared and binary; cursors, COPY, a pool."""
import asyncio
import os
import ssl

import asyncpg
from checks import COLUMNS, NAMES, ROW, SLOW, check


def encrypted():
    context = ssl.create_default_context(cafile=os.environ["DRIVER_AUTHORITY"])
    context.check_hostname = False
    return {"user": "ann", "password": "secret", "ssl": context}


async def failure(connection, statement, *values):
    """The state and the constraint of an error."""
    try:
        await connection.fetch(statement, *values)
    except asyncpg.PostgresError as error:
        return error.sqlstate, getattr(error, "constraint_name", None)
    return None


async def transfer():
    own = await asyncpg.connect(**encrypted())
    for _ in range(50):
        while True:
            try:
                async with own.transaction():
                    await own.execute("update account set balance = balance - 1 where id = $1", 1)
                    await own.execute("update account set balance = balance + 1 where id = $1", 2)
                break
            except asyncpg.SerializationError:
                continue
    await own.close()


async def main():
    connection = await asyncpg.connect(ssl=False)
    check("it connects without TLS and password", await connection.fetchval("select current_user"), "postgres")
    await connection.execute("create user ann superuser password 'secret'")
    await connection.close()
    connection = await asyncpg.connect(**encrypted())
    check("it connects with TLS and a password", await connection.fetchval("select current_user"), "ann")
    await connection.execute(f"create table kinds ({COLUMNS}); create table account (id int primary key, balance int)")
    marks = ", ".join(f"${at + 1}" for at in range(len(ROW) + 1))
    insert = await connection.prepare(f"insert into kinds values ({marks})")
    # A server may take texts of any kind as text.
    types = ["text" if ty.name in ("varchar", "bpchar") else ty.name for ty in insert.get_parameters()]
    check("types of parameters", types,
          ["int4", "bool", "int2", "int4", "int8", "float4", "float8", "numeric", "text", "text", "text", "bytea",
           "uuid", "date", "time", "timestamp", "timestamptz", "interval"])
    for id in range(8):
        await insert.fetch(id, *ROW)
    await insert.fetch(99, *[None] * len(ROW))
    found = await connection.fetchrow("select * from kinds where id = $1", 3)
    for name, value, wanted in zip(NAMES, tuple(found)[1:], ROW):
        # asyncpg has a type of its own for uuid.
        check(f"the type of column {name}", (isinstance(value, type(wanted)), value), (True, wanted))
        count = await connection.fetchval(f"select count(*) from kinds where {name} = $1", wanted)
        check(f"conditions of column {name}", count, 8)
    found = await connection.fetchrow("select * from kinds where id = 99")
    check("NULL of each type", tuple(found)[1:], (None,) * len(ROW))
    found = await connection.fetch("select id from kinds where id = any($1::int[]) order by id", [5, 6, 100])
    check("an array", [row["id"] for row in found], [5, 6])
    found = await connection.fetch("select id from kinds where id = any($1) order by id", [5, 6, 100])
    check("an array whose type is told by its place", [row["id"] for row in found], [5, 6])
    await connection.executemany("insert into account values ($1, $2)", [(id, 10) for id in range(50)])
    check("many rows", await connection.fetchval("select count(*) from account"), 50)
    await connection.copy_records_to_table("account", records=[(id, 10) for id in range(50, 100)])
    check("COPY in", await connection.fetchval("select sum(balance) from account"), 1000)
    rows = [tuple(row) for row in await connection.fetch("select * from kinds order by id")]
    await connection.execute("delete from kinds")
    await connection.copy_records_to_table("kinds", records=rows)
    check("COPY in of each type", [tuple(row) for row in await connection.fetch("select * from kinds order by id")], rows)
    parts = []

    async def keep(part):
        parts.append(bytes(part))

    await connection.copy_from_query("select id, balance from account where id < $1", 3, output=keep, format="csv")
    check("COPY out as CSV", b"".join(parts), b"0,10\n1,10\n2,10\n")
    parts.clear()
    await connection.copy_from_table("account", output=keep, format="binary")
    data = b"".join(parts)
    check("COPY out as binary", (data[:11], data[-2:], len(data)), (b"PGCOPY\n\xff\r\n\0", b"\xff\xff", 19 + 100 * 18 + 2))
    async with connection.transaction():
        found = [row["id"] async for row in connection.cursor("select id from account order by id", prefetch=7)]
        check("a cursor", found, list(range(100)))
        cursor = await connection.cursor("select id from account where id > $1 order by id", 10)
        check("its first row", tuple(await cursor.fetchrow()), (11,))
        check("and those behind it", [row["id"] for row in await cursor.fetch(3)], [12, 13, 14])
    async with connection.transaction():
        await connection.execute("update account set balance = 20 where id = 1")
        for what, statement, wanted in (
            ("a key twice", "insert into account values (1, 1)", ("23505", "account_pkey")),
            ("no number", "select 'x'::int", ("22P02", None)),
            ("no table", "select * from nothing", ("42P01", None)),
        ):
            try:
                async with connection.transaction():
                    check(what, await failure(connection, statement), wanted)
                    check("after an error", await failure(connection, "select 1"), ("25P02", None))
                    raise KeyError
            except KeyError:
                pass
        check("the savepoint is there", await connection.fetchval("select balance from account where id = 1"), 20)
    await asyncio.gather(transfer(), transfer())
    found = await connection.fetch("select balance from account where id in (1, 2) order by id")
    check("transfers beside each other", [row["balance"] for row in found], [-80, 110])
    one, other = [await asyncpg.connect(**encrypted()) for _ in range(2)]
    transactions = [own.transaction(isolation="serializable") for own in (one, other)]
    for own, transaction in zip((one, other), transactions):
        await transaction.start()
        await own.fetch("select sum(balance) from account where id in (10, 11)")
    await one.execute("update account set balance = 0 where id = 10")
    lost = []
    try:
        await other.execute("update account set balance = 0 where id = 11")
        await transactions[0].commit()
        await transactions[1].commit()
    except asyncpg.SerializationError as error:
        lost.append(error.sqlstate)
    check("write skew", lost, ["40001"])
    await one.close()
    other.terminate()
    try:
        await connection.fetch(SLOW, timeout=0.3)
        raise SystemExit("the statement was not cancelled")
    except asyncio.TimeoutError:
        check("cancelled, and it goes on", await connection.fetchval("select 1"), 1)
    await connection.close()
    async with asyncpg.create_pool(**encrypted(), min_size=2, max_size=2) as pool:
        for _ in range(4):
            async with pool.acquire() as own:
                check("a connection of the pool", await own.fetchval("select 2"), 2)


asyncio.run(main())
