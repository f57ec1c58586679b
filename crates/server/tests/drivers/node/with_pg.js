// node-postgres: unnamed and named statements, types as text, cursors, COPY, errors, cancellation.
const assert = require("node:assert");
const fs = require("node:fs");
const { pipeline } = require("node:stream/promises");
const { Readable } = require("node:stream");
const { Client, types } = require("pg");
const Cursor = require("pg-cursor");
const copy = require("pg-copy-streams");

const check = (what, found, wanted = true) => {
  assert.deepStrictEqual(found, wanted, `FAILED ${what}`);
  console.log("ok", what);
};

const open = async () => {
  const ssl = { ca: fs.readFileSync(process.env.DRIVER_AUTHORITY), checkServerIdentity: () => undefined };
  const client = new Client({ user: "ann", password: "secret", ssl, enableChannelBinding: true });
  await client.connect();
  return client;
};

// The state and the constraint of an error.
const failure = async (client, ...query) => {
  try {
    await client.query(...query);
  } catch (error) {
    return [error.code, error.constraint];
  }
  return undefined;
};

const transfer = async () => {
  const client = await open();
  for (let done = 0; done < 50; ) {
    try {
      await client.query("begin");
      await client.query("update account set balance = balance - 1 where id = $1", [1]);
      await client.query("update account set balance = balance + 1 where id = $1", [2]);
      await client.query("commit");
      done += 1;
    } catch (error) {
      await client.query("rollback");
      assert.strictEqual(error.code, "40001");
    }
  }
  await client.end();
};

const main = async () => {
  const first = new Client({ ssl: false });
  await first.connect();
  check("it connects without TLS and password", (await first.query("select current_user as who")).rows, [{ who: "postgres" }]);
  await first.query("create user ann superuser password 'secret'");
  await first.end();
  const client = await open();
  check("it connects with TLS and a password", (await client.query("select current_user as who")).rows, [{ who: "ann" }]);
  await client.query(
    `create table kinds (id int primary key, b boolean, s smallint, i int, l bigint, f real, d float8, n numeric(8, 2),
       t text, v varchar(9), c char(3), y bytea, u uuid, a date, o time, m timestamp, z timestamptz)`,
  );
  await client.query("create table account (id int primary key, balance int not null)");
  const time = new Date("2026-11-30T12:30:00.005Z");
  types.setTypeParser(types.builtins.DATE, (text) => text);
  const row = [
    true, 7, -70000, "1099511627776", 0.5, 1.5, "12.50", "gr\u00fcn '\\\n\t", "abc", "ab ", Buffer.from([0, 255]),
    "00000000-0000-0000-0000-000000000009", "2026-11-30", "12:30:00.000005", new Date(2026, 10, 30, 12, 30, 0, 5), time,
  ];
  const marks = [...row, 0].map((_, at) => `$${at + 1}`).join(", ");
  const insert = { name: "insert", text: `insert into kinds values (${marks})` };
  for (let id = 0; id < 8; id++) {
    check("a named statement", (await client.query({ ...insert, values: [id, ...row] })).rowCount, 1);
  }
  await client.query({ ...insert, values: [99, ...row.map(() => null)] });
  const read = async (id) =>
    await client.query({ text: "select * from kinds where id = $1", values: [id], rowMode: "array" });
  const found = await read(3);
  found.fields.slice(1).forEach((field, at) => check(`column ${field.name}`, found.rows[0][at + 1], row[at]));
  check("types of columns", found.fields.map((field) => field.dataTypeID), [
    23, 16, 21, 23, 20, 700, 701, 1700, 25, 1043, 1042, 17, 2950, 1082, 1083, 1114, 1184,
  ]);
  check("NULL of each type", (await read(99)).rows[0], [99, ...row.map(() => null)]);
  for (const [at, field] of found.fields.slice(1).entries()) {
    const text = `select count(*)::int from kinds where ${field.name} = $1`;
    check(`conditions of column ${field.name}`, (await client.query({ text, values: [row[at]], rowMode: "array" })).rows, [[8]]);
  }
  const binary = await client.query({ text: "select id, n, y, z, t from kinds where id = 3", binary: true, rowMode: "array" });
  check("rows as binary", [binary.rows[0][0], Number(binary.rows[0][1]), binary.rows[0][4]], [3, 12.5, row[7]]);
  const any = await client.query("select id from kinds where id = any($1) order by id", [[5, 6, 100]]);
  check("an array", any.rows, [{ id: 5 }, { id: 6 }]);
  check("several statements", (await client.query("select 1 as a; select 2 as b")).map(({ rows }) => rows), [[{ a: 1 }], [{ b: 2 }]]);

  const input = client.query(copy.from("copy account from stdin"));
  await pipeline(Readable.from(Array.from({ length: 100 }, (_, id) => `${id}\t10\n`)), input);
  check("COPY in", input.rowCount, 100);
  const parts = [];
  for await (const part of client.query(copy.to("copy (select id, balance from account order by id limit 2) to stdout csv header"))) {
    parts.push(part);
  }
  check("COPY out", Buffer.concat(parts).toString(), "id,balance\n0,10\n1,10\n");
  const cursor = client.query(new Cursor("select id from account where id < $1 order by id", [50]));
  check("rows of a cursor", (await cursor.read(2)).map(({ id }) => id), [0, 1]);
  check("and more", (await cursor.read(100)).length, 48);
  await cursor.close();

  await client.query("begin isolation level serializable");
  await client.query("update account set balance = 20 where id = 1");
  for (const [what, wanted, ...query] of [
    ["a key twice", ["23505", "account_pkey"], "insert into account values ($1, 1)", [1]],
    ["no number", ["22P02", undefined], "select $1::int", ["x"]],
    ["no table", ["42P01", undefined], "select * from nothing"],
  ]) {
    await client.query("savepoint one");
    check(what, await failure(client, ...query), wanted);
    check("after an error", await failure(client, "select 1"), ["25P02", undefined]);
    await client.query("rollback to savepoint one");
  }
  await client.query("release savepoint one");
  await client.query("commit");
  check("the savepoint was there", (await client.query("select balance from account where id = 1")).rows, [{ balance: 20 }]);
  await Promise.all([transfer(), transfer()]);
  const balances = (await client.query("select balance from account where id in (1, 2) order by id")).rows;
  check("transfers beside each other", balances, [{ balance: -80 }, { balance: 110 }]);
  const both = [await open(), await open()];
  for (const own of both) {
    await own.query("begin isolation level serializable");
    await own.query("select sum(balance) from account where id in (10, 11)");
  }
  await both[0].query("update account set balance = 0 where id = 10");
  let lost = await failure(both[1], "update account set balance = 0 where id = 11");
  lost = (await failure(both[0], "commit")) ?? lost;
  lost = lost ?? (await failure(both[1], "commit"));
  check("write skew", lost[0], "40001");
  await Promise.all(both.map((own) => own.end()));
  const slow = "select count(*) from generate_series(1, 100000) a, generate_series(1, 100000) b where a.a < b.b";
  await client.query("set statement_timeout = 300");
  check("cancelled", await failure(client, slow), ["57014", undefined]);
  check("it goes on", (await client.query("select $1::int as one", [1])).rows, [{ one: 1 }]);
  await client.end();
};

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
