"""asyncpg: log-in, prepared statements, types in binary, retries, COPY, cancellation."""
import asyncio
import datetime
import decimal
import sys
import uuid

# This file has the name of the module.
sys.path.pop(0)
import asyncpg

ROW = (
    True, 7, -70_000, 1 << 40, 1.5, decimal.Decimal("12.50"), "gr\u00fcn", b"\x00\xff",
    uuid.UUID(int=9), datetime.date(2026, 11, 30), datetime.datetime(2026, 11, 30, 12, 30, 0, 5),
    datetime.datetime(2026, 11, 30, 12, 30, tzinfo=datetime.timezone.utc),
)
COLUMNS = "b boolean, s smallint, i int, l bigint, d float8, n numeric(8, 2), t text, y bytea, u uuid, a date, m timestamp, z timestamptz"


async def transfer():
    own = await asyncpg.connect()
    for _ in range(50):
        while True:
            try:
                async with own.transaction():
                    await own.execute("update account set balance = balance - 1 where id = 1")
                    await own.execute("update account set balance = balance + 1 where id = 2")
                break
            except asyncpg.SerializationError:
                continue
    await own.close()


async def main():
    connection = await asyncpg.connect()
    await connection.execute(f"create table kinds (id int primary key, {COLUMNS})")
    await connection.execute("create table account (id int primary key, balance int not null)")
    marks = ", ".join(f"${at + 1}" for at in range(len(ROW) + 1))
    insert = await connection.prepare(f"insert into kinds values ({marks})")
    for id in range(10):
        await insert.fetch(id, *ROW)
    found = await connection.fetchrow("select * from kinds where id = $1", 3)
    assert tuple(found) == (3, *ROW), found
    await connection.copy_records_to_table("account", records=[(id, 10) for id in range(100)])
    await asyncio.gather(transfer(), transfer())
    found = await connection.fetch("select balance from account where id in (1, 2) order by id")
    assert [row["balance"] for row in found] == [-90, 110], found
    slow = "select count(*) from account a, account b, account c, account d, account e"
    try:
        await connection.fetch(slow, timeout=0.3)
        raise SystemExit("the statement was not cancelled")
    except asyncio.TimeoutError:
        pass
    assert await connection.fetchval("select 1") == 1
    await connection.close()


asyncio.run(main())
