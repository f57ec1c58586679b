// pgjdbc: server-side preparation, both formats, batches, generated keys, cursors, COPY, metadata, cancellation.
import java.io.ByteArrayOutputStream;
import java.io.StringReader;
import java.math.BigDecimal;
import java.sql.Array;
import java.sql.BatchUpdateException;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Properties;
import java.util.UUID;
import org.postgresql.PGConnection;
import org.postgresql.copy.CopyManager;
import org.postgresql.util.PSQLException;

public class WithPgjdbc {
    static final String URL =
        "jdbc:postgresql://127.0.0.1:" + System.getenv("PGPORT") + "/postgres?prepareThreshold=3&user=";
    static final String[] NAMES = "id b s i l f d n t v c y u a o m z".split(" ");
    static final Object[] ROW = {
        3, true, 7, -70_000, 1L << 40, 0.5f, 1.5, new BigDecimal("12.50"), "grün '\\\n\t", "abc", "ab ",
        new byte[] {0, -1, 92}, new UUID(0, 9), LocalDate.of(2026, 11, 30), LocalTime.of(12, 30, 0, 5000),
        LocalDateTime.of(2026, 11, 30, 12, 30, 0, 5000), OffsetDateTime.of(2026, 11, 30, 12, 30, 0, 0, ZoneOffset.UTC),
    };

    static void check(String what, Object found, Object wanted) {
        if (!Objects.deepEquals(found, wanted)) {
            System.out.println("FAILED " + what + ": " + found + " instead of " + wanted);
            System.exit(1);
        }
        System.out.println("ok " + what);
    }

    interface Action {
        void run() throws SQLException;
    }

    /** The state and the constraint of an error. */
    static String failure(Action action) {
        try {
            action.run();
            return "none";
        } catch (SQLException error) {
            if (error instanceof BatchUpdateException && error.getNextException() != null) {
                error = error.getNextException();
            }
            var said = error instanceof PSQLException known ? known.getServerErrorMessage() : null;
            String constraint = said == null ? null : said.getConstraint();
            return error.getSQLState() + (constraint == null ? "" : " " + constraint);
        }
    }

    static Connection open(String more) throws SQLException {
        String authority = System.getenv("DRIVER_AUTHORITY");
        return DriverManager.getConnection(
            URL + "ann&password=secret&sslmode=verify-full&sslrootcert=" + authority + more);
    }

    static List<Object> rows(Connection connection, String text, Object... values) throws SQLException {
        List<Object> rows = new ArrayList<>();
        try (PreparedStatement statement = connection.prepareStatement(text)) {
            for (int at = 0; at < values.length; at++) {
                statement.setObject(at + 1, values[at]);
            }
            ResultSet found = statement.executeQuery();
            while (found.next()) {
                for (int at = 1; at <= found.getMetaData().getColumnCount(); at++) {
                    rows.add(found.getObject(at));
                }
            }
        }
        return rows;
    }

    static void run(Connection connection, String text) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.execute(text);
        }
    }

    static void transfer() {
        try (Connection own = open("")) {
            own.setAutoCommit(false);
            own.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
            for (int done = 0; done < 50;) {
                try {
                    run(own, "update account set balance = balance - 1 where id = 1");
                    run(own, "update account set balance = balance + 1 where id = 2");
                    own.commit();
                    done++;
                } catch (SQLException error) {
                    own.rollback();
                    if (!error.getSQLState().equals("40001")) {
                        throw error;
                    }
                }
            }
        } catch (SQLException error) {
            check("a transfer", error.toString(), null);
        }
    }

    static void kinds(Connection connection) throws SQLException {
        String marks = "?" + ", ?".repeat(ROW.length - 1);
        run(connection, "delete from kinds");
        try (PreparedStatement insert = connection.prepareStatement("insert into kinds values (" + marks + ")")) {
            for (int id = 0; id < 8; id++) {
                for (int at = 0; at < ROW.length; at++) {
                    insert.setObject(at + 1, at == 0 ? (Object) id : ROW[at]);
                }
                check("a row is inserted", insert.executeUpdate(), 1);
            }
        }
        run(connection, "insert into kinds (id) values (99)");
        try (PreparedStatement select = connection.prepareStatement("select * from kinds where id = ?")) {
            // The first ones are text, the others binary.
            for (int time = 0; time < 6; time++) {
                select.setInt(1, 3);
                ResultSet found = select.executeQuery();
                found.next();
                for (int at = 0; at < ROW.length; at++) {
                    Object value = ROW[at] instanceof byte[]
                        ? found.getBytes(at + 1)
                        : found.getObject(at + 1, (Class<?>) ROW[at].getClass());
                    check("column " + NAMES[at], value, ROW[at]);
                }
                select.setInt(1, 99);
                found = select.executeQuery();
                found.next();
                for (int at = 1; at < ROW.length; at++) {
                    check("NULL of column " + NAMES[at], found.getObject(at + 1), null);
                }
            }
        }
        for (int at = 1; at < ROW.length; at++) {
            if (!NAMES[at].equals("c")) {
                List<Object> found =
                    rows(connection, "select count(*) from kinds where " + NAMES[at] + " = ?", ROW[at]);
                check("conditions of column " + NAMES[at], found, List.of(8L));
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        try (Connection first = DriverManager.getConnection(URL + "postgres&sslmode=disable")) {
            check("it connects without TLS and password", rows(first, "select current_user"), List.of("postgres"));
            run(first, "create user ann superuser password 'secret'");
        }
        Connection connection = open("");
        check("it connects with TLS and a password", rows(connection, "select current_user"), List.of("ann"));
        check("it is valid", connection.isValid(5), true);
        run(connection, "create table kinds (id int primary key, b boolean, s smallint, i int, l bigint, f real, d float8, "
            + "n numeric(8, 2), t text, v varchar(9), c char(3), y bytea, u uuid, a date, o time, m timestamp, z timestamptz)");
        run(connection, "create table account (id serial primary key, balance int not null)");
        kinds(connection);
        for (String more : new String[] {"&binaryTransfer=false", "&preferQueryMode=simple", "&prepareThreshold=-1"}) {
            try (Connection own = open(more)) {
                kinds(own);
            }
        }
        try (PreparedStatement select = connection.prepareStatement("select count(*) from kinds where id = any (?)")) {
            Array ids = connection.createArrayOf("int4", new Object[] {5, 6, 100});
            select.setArray(1, ids);
            ResultSet found = select.executeQuery();
            found.next();
            check("an array", found.getLong(1), 2L);
        }
        for (String more : new String[] {"", "&reWriteBatchedInserts=true"}) {
            try (Connection own = open(more);
                PreparedStatement insert = own.prepareStatement("insert into account (balance) values (?)")) {
                for (int id = 0; id < 50; id++) {
                    insert.setInt(1, 10);
                    insert.addBatch();
                }
                check("a batch" + more, insert.executeBatch().length, 50);
            }
        }
        check("all batches", rows(connection, "select count(*), min(id), max(id) from account"), List.of(100L, 1, 100));
        try (PreparedStatement insert = connection.prepareStatement(
                "insert into account (balance) values (?)", Statement.RETURN_GENERATED_KEYS)) {
            insert.setInt(1, 10);
            insert.addBatch();
            insert.setInt(1, 10);
            insert.addBatch();
            insert.executeBatch();
            ResultSet keys = insert.getGeneratedKeys();
            keys.next();
            check("generated keys", keys.getInt("id"), 101);
        }
        try (Statement statement = connection.createStatement()) {
            statement.addBatch("update account set balance = 1000 where id = 3");
            statement.addBatch("insert into account values (3, 1)");
            check("a batch that fails", failure(statement::executeBatch), "23505 account_pkey");
        }
        run(connection, "update account set balance = 10 where id = 3");

        connection.setAutoCommit(false);
        connection.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
        check("the level", connection.getTransactionIsolation(), Connection.TRANSACTION_SERIALIZABLE);
        run(connection, "update account set balance = 20 where id = 5");
        String[][] failing = {
            {"a key twice", "insert into account values (1, 1)", "23505 account_pkey"},
            {"no number", "select 'x'::int", "22P02"}, {"no table", "select * from nothing", "42P01"},
        };
        for (String[] one : failing) {
            Savepoint savepoint = connection.setSavepoint("one \"" + one[0]);
            check(one[0], failure(() -> run(connection, one[1])), one[2]);
            check("after an error", failure(() -> run(connection, "select 1")), "25P02");
            connection.rollback(savepoint);
            connection.releaseSavepoint(savepoint);
        }
        connection.commit();
        check("what was before the savepoint", rows(connection, "select balance from account where id = 5"), List.of(20));
        try (PreparedStatement select = connection.prepareStatement("select id from account where id <= ? order by id")) {
            select.setFetchSize(7);
            select.setInt(1, 50);
            ResultSet found = select.executeQuery();
            int count = 0;
            while (found.next()) {
                check("a row of a cursor", found.getInt(1), ++count);
            }
            check("its rows", count, 50);
        }
        connection.commit();
        connection.setReadOnly(true);
        check("read only", failure(() -> run(connection, "delete from account")), "25006");
        connection.rollback();
        connection.setReadOnly(false);
        connection.setAutoCommit(true);

        CopyManager copies = connection.unwrap(PGConnection.class).getCopyAPI();
        check("COPY in", copies.copyIn("copy account from stdin csv", new StringReader("200,1\n201,2\n")), 2L);
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        copies.copyOut("copy (select id, balance from account where id >= 200 order by id) to stdout", out);
        check("COPY out", out.toString(), "200\t1\n201\t2\n");

        Thread[] threads = {new Thread(WithPgjdbc::transfer), new Thread(WithPgjdbc::transfer)};
        for (Thread thread : threads) {
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        check("transfers beside each other", rows(connection, "select balance from account where id in (1, 2) order by id"),
            List.of(-90, 110));
        Connection[] both = {open(""), open("")};
        for (Connection own : both) {
            own.setAutoCommit(false);
            own.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
            rows(own, "select sum(balance) from account where id in (10, 11)");
        }
        run(both[0], "update account set balance = 0 where id = 10");
        List<String> ends = new ArrayList<>(List.of(
            failure(() -> run(both[1], "update account set balance = 0 where id = 11")), failure(both[0]::commit)));
        if (ends.equals(List.of("none", "none"))) {
            ends.add(failure(both[1]::commit));
        }
        check("write skew", ends.contains("40001"), true);
        both[0].close();
        both[1].close();
        try (Statement statement = connection.createStatement()) {
            statement.setQueryTimeout(1);
            String slow = "select count(*) from generate_series(1, 100000) a, generate_series(1, 100000) b where a.a < b.b";
            check("cancelled", failure(() -> statement.executeQuery(slow)), "57014");
        }
        check("it goes on", rows(connection, "select ?::int", 1), List.of(1));

        var metadata = connection.getMetaData();
        List<String> found = new ArrayList<>();
        for (ResultSet tables = metadata.getTables(null, "public", "%", new String[] {"TABLE"}); tables.next();) {
            found.add(tables.getString("TABLE_NAME"));
        }
        check("tables", found, List.of("account", "kinds"));
        check("no foreign keys", metadata.getImportedKeys(null, "public", "account").next(), false);
        connection.close();
    }
}
