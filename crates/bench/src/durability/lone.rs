//! A single client with one transaction after another: its rate with group commit, and with a flush for each
//! transaction.
//!
//! Both arms insert a small row and wait until it is durable. So their ratio is the cost of waiting for other
//! commits when there are none.

use std::error::Error;
use std::path::Path;

use serde_json::{Value, json};
use seriatim::{Database, Durability};
use seriatim_base::clock::Instant;

use crate::measure::{Arm, Length, Quartiles, alternate};
use crate::row::{Hashed, Record};
use crate::setting::Setting;

/// Transactions per second, by round.
#[derive(Debug)]
pub(super) struct SingleClientRates {
    group: Vec<f64>,
    sync: Vec<f64>,
}

/// Transactions per second of one session.
fn rate(db: &Database, next: &mut u64, length: Length) -> Result<f64, Box<dyn Error>> {
    let records = db.create_or_open::<Hashed>()?;
    let mut session = db.session();
    let (begin, mut count) = (Instant::now(), 0);
    let ends = |count: u64| match length {
        Length::Operations(most) => count >= most,
        Length::Seconds(seconds) => begin.elapsed().as_secs_f64() >= seconds,
    };
    while !ends(count) {
        session.transact(|tx| tx.insert(&records, &Hashed::new(*next)))?;
        *next += 1;
        count += 1;
    }
    Ok(count as f64 / begin.elapsed().as_secs_f64().max(1e-9))
}

/// Measures in two new databases in this directory.
pub(super) fn measure(directory: &Path, setting: &Setting) -> Result<SingleClientRates, Box<dyn Error>> {
    let open = |durability: Durability| {
        let directory = directory.join(format!("lone-{durability}"));
        super::builder(setting, &directory).durability(durability).open()
    };
    let (group, sync) = (open(Durability::Group)?, open(Durability::Sync)?);
    let (mut of_group, mut of_sync) = (0, 0);
    let mut group = |length, _| rate(&group, &mut of_group, length).expect("the disk works");
    let mut sync = |length, _| rate(&sync, &mut of_sync, length).expect("the disk works");
    let arms: &mut [Arm<'_>] = &mut [&mut group, &mut sync];
    let mut rates = alternate(arms, setting.rounds, setting.length, setting.seed).into_iter();
    let (group, sync) = (rates.next().unwrap_or_default(), rates.next().unwrap_or_default());
    Ok(SingleClientRates { group, sync })
}

impl SingleClientRates {
    /// The ratio of the rates. Above 1, group commit is faster.
    fn ratio(&self) -> Quartiles {
        Quartiles::of_ratios(&self.group, &self.sync)
    }

    pub(super) fn json(&self) -> Value {
        let rates = |rates: &[f64]| Quartiles::of(rates.iter().copied()).json();
        json!({
            "group_per_second": rates(&self.group), "sync_per_second": rates(&self.sync),
            "ratio": self.ratio().json(),
        })
    }

    pub(super) fn lines(&self) -> [String; 2] {
        let rates = |rates: &[f64]| Quartiles::of(rates.iter().copied());
        [
            format!("one client, tx/s    group {:.0}, sync {:.0}", rates(&self.group), rates(&self.sync)),
            format!("    group over sync {:.2}", self.ratio()),
        ]
    }
}
