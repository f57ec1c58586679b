"""What the scripts of drivers in Python share: checks, and a row of each type."""
import datetime
import decimal
import os
import uuid

COLUMNS = """id int primary key, b boolean, s smallint, i int, l bigint, f real, d float8, n numeric(8, 2), t text,
    v varchar(9), c char(3), y bytea, u uuid, a date, o time, m timestamp, z timestamptz, p interval"""
ROW = (
    True, 7, -70_000, 1 << 40, 0.5, 1.5, decimal.Decimal("12.50"), "gr\u00fcn '\\\n\t", "abc", "ab ", b"\x00\xff\\",
    uuid.UUID(int=9), datetime.date(2026, 11, 30), datetime.time(12, 30, 0, 5),
    datetime.datetime(2026, 11, 30, 12, 30, 0, 5),
    datetime.datetime(2026, 11, 30, 12, 30, tzinfo=datetime.timezone.utc), datetime.timedelta(days=3, seconds=61.5),
)
NAMES = "b s i l f d n t v c y u a o m z p".split()
# A statement that ends only by being cancelled.
SLOW = "select count(*) from generate_series(1, 100000) a, generate_series(1, 100000) b where a.a < b.b"
ENCRYPTED = {
    "user": "ann", "password": "secret", "sslmode": "verify-ca", "sslrootcert": os.environ["DRIVER_AUTHORITY"],
}


def check(what, found, wanted=True):
    """Prints that something holds, or ends the script."""
    if found != wanted:
        raise SystemExit(f"FAILED {what}: {found!r} instead of {wanted!r}")
    print("ok", what)
