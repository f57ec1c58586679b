// pgx: prepared statements, both formats, batches, CopyFrom, savepoints, cancellation.
package main

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

var ctx = context.Background()

func check(what string, found, wanted any) {
	if !reflect.DeepEqual(found, wanted) {
		fmt.Printf("FAILED %s: %#v instead of %#v\n", what, found, wanted)
		os.Exit(1)
	}
	fmt.Println("ok", what)
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Println("FAILED", err)
		os.Exit(1)
	}
	return value
}

func code(err error) string {
	var failure *pgconn.PgError
	if errors.As(err, &failure) {
		return failure.Code + failure.ConstraintName
	}
	return fmt.Sprint(err)
}

func open() *pgx.Conn {
	return must(pgx.Connect(ctx, "user=ann password=secret sslmode=verify-full sslrootcert="+os.Getenv("DRIVER_AUTHORITY")))
}

func transfer() {
	own := open()
	defer own.Close(ctx)
	for done := 0; done < 50; {
		err := pgx.BeginTxFunc(ctx, own, pgx.TxOptions{IsoLevel: pgx.Serializable}, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "update account set balance = balance - $1 where id = 1", 1); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "update account set balance = balance + $1 where id = 2", 1)
			return err
		})
		if err == nil {
			done++
		} else if code(err) != "40001" {
			check("a transfer", code(err), "40001")
		}
	}
}

func one[T any](row pgx.Row) T {
	var value T
	if err := row.Scan(&value); err != nil {
		fmt.Println("FAILED", err)
		os.Exit(1)
	}
	return value
}

func main() {
	first := must(pgx.Connect(ctx, "sslmode=disable"))
	check("it connects without TLS and password", one[string](first.QueryRow(ctx, "select current_user")), "postgres")
	must(first.Exec(ctx, "create user ann superuser password 'secret'"))
	first.Close(ctx)
	conn := open()
	check("it connects with TLS and a password", one[string](conn.QueryRow(ctx, "select current_user")), "ann")
	check("ping", conn.Ping(ctx), nil)
	must(conn.Exec(ctx, `create table kinds (id int primary key, b boolean, s smallint, i int, l bigint, f real,
		d float8, n numeric(8, 2), t text, v varchar(9), c char(3), y bytea, u uuid, a date, o time, m timestamp,
		z timestamptz, p interval)`))
	must(conn.Exec(ctx, "create table account (id int primary key, balance int not null)"))
	row := []any{
		int32(3), true, int16(7), int32(-70_000), int64(1 << 40), float32(0.5), 1.5,
		pgtype.Numeric{Int: big.NewInt(1250), Exp: -2, Valid: true}, "grün '\\\n\t", "abc", "ab ", []byte{0, 255, '\\'},
		[16]byte{15: 9}, time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC),
		pgtype.Time{Microseconds: 45_000_000_005, Valid: true}, time.Date(2026, 11, 30, 12, 30, 0, 5000, time.UTC),
		time.Date(2026, 11, 30, 12, 30, 0, 0, time.UTC),
		pgtype.Interval{Microseconds: 61_500_000, Days: 3, Months: 1, Valid: true},
	}
	names := strings.Fields("id b s i l f d n t v c y u a o m z p")
	marks := make([]string, len(row))
	for at := range row {
		marks[at] = fmt.Sprintf("$%d", at+1)
	}
	values := func(mode pgx.QueryExecMode, text string, arguments ...any) []any {
		rows := must(conn.Query(ctx, text, append([]any{mode}, arguments...)...))
		defer rows.Close()
		if !rows.Next() {
			check(text, rows.Err(), nil)
			check(text+" has a row", false, true)
		}
		found := must(rows.Values())
		for at, value := range found {
			if stamp, ok := value.(time.Time); ok {
				found[at] = stamp.UTC()
			}
		}
		return found
	}
	given := slices.Clone(row)
	given[12] = pgtype.UUID{Bytes: [16]byte{15: 9}, Valid: true}
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec,
	} {
		name := mode.String()
		must(conn.Exec(ctx, "delete from kinds", mode))
		must(conn.Exec(ctx, "insert into kinds values ("+strings.Join(marks, ", ")+")", append([]any{mode}, given...)...))
		must(conn.Exec(ctx, "insert into kinds (id) values ($1)", mode, 99))
		found := values(mode, "select * from kinds where id = $1", 3)
		for at := range row {
			check(names[at]+" by "+name, found[at], row[at])
			if names[at] != "c" {
				condition := "select count(*) from kinds where " + names[at] + " = $1"
				check("conditions of "+names[at], values(mode, condition, given[at]), []any{int64(1)})
			}
		}
		check("NULL", values(mode, "select b, n, t, y, z from kinds where id = 99"), []any{nil, nil, nil, nil, nil})
	}
	check("simple protocol", values(pgx.QueryExecModeSimpleProtocol, "select i, t from kinds where id = $1", 3), []any{row[3], row[8]})
	check("an array", one[int64](conn.QueryRow(ctx, "select count(*) from kinds where id = any($1)", []int32{3, 5})), int64(1))

	rows := make([][]any, 0, 100)
	for id := range 100 {
		rows = append(rows, []any{int32(id), int32(10)})
	}
	copied := must(conn.CopyFrom(ctx, pgx.Identifier{"account"}, []string{"id", "balance"}, pgx.CopyFromRows(rows)))
	check("CopyFrom", copied, int64(100))
	must(conn.Exec(ctx, "delete from kinds"))
	must(conn.CopyFrom(ctx, pgx.Identifier{"kinds"}, names, pgx.CopyFromRows([][]any{row})))
	check("CopyFrom of each type", values(pgx.QueryExecModeCacheStatement, "select * from kinds"), row)
	_, err := conn.CopyFrom(ctx, pgx.Identifier{"account"}, []string{"id", "balance"}, pgx.CopyFromRows(rows[5:6]))
	check("CopyFrom of a key twice", code(err), "23505account_pkey")

	batch := &pgx.Batch{}
	for id := range 20 {
		batch.Queue("update account set balance = balance + $1 where id = $2 returning balance", id, id)
	}
	results := conn.SendBatch(ctx, batch)
	for id := range 20 {
		check("a batch", one[int32](results.QueryRow()), int32(10+id))
	}
	check("its end", results.Close(), nil)
	batch = &pgx.Batch{}
	batch.Queue("update account set balance = 0 where id = 50")
	batch.Queue("insert into account values (50, 0)")
	check("a batch that fails", code(conn.SendBatch(ctx, batch).Close()), "23505account_pkey")
	check("is undone", one[int32](conn.QueryRow(ctx, "select balance from account where id = 50")), int32(10))

	tx := must(conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.Serializable}))
	must(tx.Exec(ctx, "update account set balance = 20 where id = 1"))
	for _, failing := range [][3]string{
		{"a key twice", "insert into account values (1, 1)", "23505account_pkey"},
		{"no number", "select 'x'::int", "22P02"}, {"no table", "select * from nothing", "42P01"},
	} {
		nested := must(tx.Begin(ctx))
		_, err := nested.Exec(ctx, failing[1])
		check(failing[0], code(err), failing[2])
		_, err = nested.Exec(ctx, "select 1")
		check("after an error", code(err), "25P02")
		check("back to the savepoint", nested.Rollback(ctx), nil)
	}
	check("commit", tx.Commit(ctx), nil)
	check("what was before the savepoint", one[int32](conn.QueryRow(ctx, "select balance from account where id = 1")), int32(20))
	must(conn.Exec(ctx, "update account set balance = 10 where id in ($1, $2)", 1, 2))
	tx = must(conn.Begin(ctx))
	must(tx.Exec(ctx, "declare c cursor for select id from account order by id"))
	found := must(pgx.CollectRows(must(tx.Query(ctx, "fetch 3 from c")), pgx.RowTo[int32]))
	check("a cursor", found, []int32{0, 1, 2})
	check("its end", tx.Rollback(ctx), nil)

	var transfers sync.WaitGroup
	for range 2 {
		transfers.Add(1)
		go func() { defer transfers.Done(); transfer() }()
	}
	transfers.Wait()
	check("transfers beside each other", one[int32](conn.QueryRow(ctx, "select balance from account where id = 1")), int32(-90))
	conns := []*pgx.Conn{open(), open()}
	txs := make([]pgx.Tx, 2)
	for at, own := range conns {
		txs[at] = must(own.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.Serializable}))
		one[int64](txs[at].QueryRow(ctx, "select sum(balance) from account where id in (10, 11)"))
	}
	must(txs[0].Exec(ctx, "update account set balance = 0 where id = 10"))
	_, lost := txs[1].Exec(ctx, "update account set balance = 0 where id = 11")
	if err := txs[0].Commit(ctx); err != nil {
		lost = err
	}
	if err := txs[1].Commit(ctx); lost == nil {
		lost = err
	}
	check("write skew", code(lost), "40001")

	slow := "select count(*) from generate_series(1, 100000) a, generate_series(1, 100000) b where a.a < b.b"
	time.AfterFunc(300*time.Millisecond, func() { conn.PgConn().CancelRequest(ctx) })
	_, err = conn.Exec(ctx, slow)
	check("cancelled", code(err), "57014")
	check("it goes on", one[int32](conn.QueryRow(ctx, "select $1::int", 1)), int32(1))
}
