//! The examples run, and their assertions hold, under several kinds of protocols. `docs/chopping.md` states the
//! number of pieces of their procedures.

const DOCUMENT: &str = include_str!("../../../docs/chopping.md");

macro_rules! examples {
    ($($name:ident $path:literal)*) => {
        $(
            #[allow(dead_code, reason = "its main is not run")]
            #[path = $path]
            mod $name;

            #[test]
            fn $name() {
                for protocol in ["dbx", "dbx-tc", "htcc", "wait-die"] {
                    let chopping = $name::run(protocol).unwrap_or_else(|error| panic!("under {protocol}: {error}"));
                    for chopped in &chopping.procedures {
                        let row = format!("| `{}` | {} |", chopped.procedure, chopped.pieces.len());
                        assert!(DOCUMENT.contains(&row), "{row}\n{chopping}");
                    }
                }
            }
        )*
    };
}

examples! {
    checkout "../examples/checkout.rs"
    seats "../examples/seats.rs"
    fees "../examples/fees.rs"
    feed "../examples/feed.rs"
    leaderboard "../examples/leaderboard.rs"
    job_queue "../examples/job_queue.rs"
}
