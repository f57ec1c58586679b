// node-postgres: log-in, named statements, types as text, retries, errors, cancellation.
const assert = require("node:assert");
const { Client } = require("pg");

const open = async () => {
  const client = new Client();
  await client.connect();
  return client;
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
  const client = await open();
  await client.query(
    "create table kinds (id int primary key, b boolean, l bigint, d float8, n numeric(8, 2), t text, y bytea, z timestamptz)",
  );
  await client.query("create table account (id int primary key, balance int not null)");
  const time = new Date("2026-11-30T12:30:00.005Z");
  const row = [true, "1099511627776", 1.5, "12.50", "gr\u00fcn", Buffer.from([0, 255]), time];
  const insert = { name: "insert", text: "insert into kinds values ($1, $2, $3, $4, $5, $6, $7, $8)" };
  for (let id = 0; id < 10; id++) {
    await client.query({ ...insert, values: [id, ...row] });
  }
  const found = (await client.query({ text: "select * from kinds where id = $1", values: [3], rowMode: "array" })).rows[0];
  assert.deepStrictEqual(found, [3, ...row]);
  for (let id = 0; id < 100; id++) {
    await client.query("insert into account values ($1, 10)", [id]);
  }
  await assert.rejects(client.query("insert into account values (1, 1)"), { code: "23505", constraint: "account_pkey" });
  await Promise.all([transfer(), transfer()]);
  const balances = (await client.query("select balance from account where id in (1, 2) order by id")).rows;
  assert.deepStrictEqual(balances, [{ balance: -90 }, { balance: 110 }]);
  await client.query("set statement_timeout = 300");
  const slow = "select count(*) from account a, account b, account c, account d, account e";
  await assert.rejects(client.query(slow), { code: "57014" });
  await client.end();
};

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
