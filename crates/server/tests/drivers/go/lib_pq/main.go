// lib/pq by database/sql: statements with and without preparation, COPY, arrays, errors, cancellation.
package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/lib/pq"
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
	var failure *pq.Error
	if errors.As(err, &failure) {
		return string(failure.Code) + failure.Constraint
	}
	return fmt.Sprint(err)
}

func one[T any](row *sql.Row) T {
	var value T
	if err := row.Scan(&value); err != nil {
		fmt.Println("FAILED", err)
		os.Exit(1)
	}
	return value
}

func transfer(db *sql.DB) {
	for done := 0; done < 50; {
		tx := must(db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable}))
		_, err := tx.Exec("update account set balance = balance - $1 where id = 1", 1)
		if err == nil {
			_, err = tx.Exec("update account set balance = balance + $1 where id = 2", 1)
		}
		if err == nil {
			err = tx.Commit()
		} else {
			tx.Rollback()
		}
		if err == nil {
			done++
		} else if code(err) != "40001" {
			check("a transfer", code(err), "40001")
		}
	}
}

func main() {
	first := must(sql.Open("postgres", "sslmode=disable"))
	check("it connects without TLS and password", one[string](first.QueryRow("select current_user")), "postgres")
	must(first.Exec("create user ann superuser password 'secret'"))
	first.Close()
	where := "user=ann password=secret sslmode=verify-full sslrootcert=" + os.Getenv("DRIVER_AUTHORITY")
	db := must(sql.Open("postgres", where))
	check("ping", db.Ping(), nil)
	check("it connects with TLS and a password", one[string](db.QueryRow("select current_user")), "ann")
	must(db.Exec(`create table kinds (id int primary key, b boolean, s smallint, i int, l bigint, f real, d float8,
		n numeric(8, 2), t text, v varchar(9), c char(3), y bytea, u uuid, a date, o time, m timestamp, z timestamptz)`))
	must(db.Exec("create table account (id int primary key, balance int not null)"))
	given := []any{
		3, true, 7, -70_000, int64(1 << 40), 0.5, 1.5, "12.50", "grün '\\\n\t", "abc", "ab ", []byte{0, 255, '\\'},
		"00000000-0000-0000-0000-000000000009", "2026-11-30", "12:30:00.000005",
		time.Date(2026, 11, 30, 12, 30, 0, 5000, time.UTC), time.Date(2026, 11, 30, 12, 30, 0, 0, time.UTC),
	}
	wanted := []any{
		int64(3), true, int64(7), int64(-70_000), int64(1 << 40), 0.5, 1.5, []byte("12.50"), "grün '\\\n\t", "abc",
		"ab ", []byte{0, 255, '\\'}, []byte("00000000-0000-0000-0000-000000000009"),
		time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC), time.Date(0, 1, 1, 12, 30, 0, 5000, time.UTC),
		time.Date(2026, 11, 30, 12, 30, 0, 5000, time.UTC), time.Date(2026, 11, 30, 12, 30, 0, 0, time.UTC),
	}
	names := strings.Fields("id b s i l f d n t v c y u a o m z")
	marks := make([]string, len(given))
	for at := range given {
		marks[at] = fmt.Sprintf("$%d", at+1)
	}
	insert := must(db.Prepare("insert into kinds values (" + strings.Join(marks, ", ") + ")"))
	check("a row is inserted", must(must(insert.Exec(given...)).RowsAffected()), int64(1))
	must(db.Exec("insert into kinds (id) values ($1)", 99))
	read := func(db *sql.DB, id int) []any {
		found, places := make([]any, len(names)), make([]any, len(names))
		for at := range found {
			places[at] = &found[at]
		}
		if err := db.QueryRow("select * from kinds where id = $1", id).Scan(places...); err != nil {
			check("the row is found", err, nil)
		}
		for at, value := range found {
			if stamp, ok := value.(time.Time); ok {
				found[at] = stamp.UTC()
			}
		}
		return found
	}
	for _, more := range []string{"", " binary_parameters=yes"} {
		own := must(sql.Open("postgres", where+more))
		found := read(own, 3)
		for at, name := range names {
			check("column "+name+more, found[at], wanted[at])
			condition := "select count(*) from kinds where " + name + " = $1"
			check("conditions of "+name, one[int64](own.QueryRow(condition, given[at])), int64(1))
		}
		check("NULL", read(own, 99)[1:], make([]any, len(names)-1))
		own.Close()
	}
	check("an array", one[int64](db.QueryRow("select count(*) from kinds where id = any($1)", pq.Array([]int64{3, 5}))), int64(1))

	tx := must(db.Begin())
	copying := must(tx.Prepare(pq.CopyIn("account", "id", "balance")))
	for id := range 100 {
		must(copying.Exec(id, 10))
	}
	must(copying.Exec())
	check("the end of COPY", copying.Close(), nil)
	check("commit", tx.Commit(), nil)
	check("COPY in", one[int64](db.QueryRow("select count(*) from account where balance = 10")), int64(100))

	tx = must(db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable}))
	must(tx.Exec("update account set balance = 20 where id = 1"))
	for _, failing := range [][3]string{
		{"a key twice", "insert into account values (1, 1)", "23505account_pkey"},
		{"no number", "select 'x'::int", "22P02"}, {"no table", "select * from nothing", "42P01"},
	} {
		must(tx.Exec("savepoint one"))
		_, err := tx.Exec(failing[1])
		check(failing[0], code(err), failing[2])
		must(tx.Exec("rollback to savepoint one"))
	}
	check("commit", tx.Commit(), nil)
	check("what was before the savepoint", one[int32](db.QueryRow("select balance from account where id = 1")), int32(20))
	must(db.Exec("update account set balance = 10 where id = 1"))
	tx = must(db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true}))
	_, err := tx.Exec("delete from account")
	check("read only", code(err), "25006")
	tx.Rollback()

	rows := must(db.Query("select id, balance from account where id < $1 order by id", 3))
	kinds := must(rows.ColumnTypes())
	check("a type", kinds[0].DatabaseTypeName(), "INT4")
	var text bytes.Buffer
	for rows.Next() {
		var id, balance int
		check("a row", rows.Scan(&id, &balance), nil)
		fmt.Fprint(&text, id, ":", balance, " ")
	}
	check("rows", text.String(), "0:10 1:10 2:10 ")

	var transfers sync.WaitGroup
	for range 2 {
		transfers.Add(1)
		go func() { defer transfers.Done(); transfer(db) }()
	}
	transfers.Wait()
	check("transfers beside each other", one[int32](db.QueryRow("select balance from account where id = 1")), int32(-90))
	txs := make([]*sql.Tx, 2)
	for at := range txs {
		txs[at] = must(db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable}))
		one[int64](txs[at].QueryRow("select sum(balance) from account where id in (10, 11)"))
	}
	must(txs[0].Exec("update account set balance = 0 where id = 10"))
	_, lost := txs[1].Exec("update account set balance = 0 where id = 11")
	if err := txs[0].Commit(); err != nil {
		lost = err
	}
	if err := txs[1].Commit(); lost == nil {
		lost = err
	}
	check("write skew", code(lost), "40001")
	soon, stop := context.WithTimeout(ctx, 300*time.Millisecond)
	defer stop()
	_, err = db.ExecContext(soon, "select count(*) from generate_series(1, 100000) a, generate_series(1, 100000) b where a.a < b.b")
	check("cancelled", code(err), "57014")
	check("it goes on", one[int32](db.QueryRow("select $1::int", 1)), int32(1))
}
