//! The settings in which every test runs, and the table that most of them use.

use std::time::Duration;

use seriatim::htm::{Emulation, HtmMode};
use seriatim::rng::{is_nightly, sample, seed};
use seriatim::{Builder, Database, Decimal, Handle, ProtocolInfo, Session, Table, Text, Timestamp};
pub(crate) use seriatim_engine::test_support::protocols::copying::NAME as COPYING;

/// A protocol with a back end.
pub(crate) struct Setting {
    pub(crate) protocol: ProtocolInfo,
    htm: HtmMode,
    /// Whether all records are hot, under the protocol that has hot records.
    pub(crate) hot: bool,
}

/// All records are hot and every call can be repaired. All sessions share one thread here, so that waits for locks
/// are short.
const HOT: [(&str, u64); 4] = [("hot", 2), ("repair_from", 0), ("repair_share_max", 100), ("lock_steps", 6)];

impl Setting {
    /// Options for a database in this setting.
    pub(crate) fn builder(&self) -> Builder {
        // On a busy machine, tests that wait for a conflict may take minutes. No transaction may exceed its age by
        // then.
        let age = Duration::from_secs(3600);
        let builder =
            Database::builder().protocol(self.protocol.name).htm(self.htm).workers(4).transaction_age_max(age);
        let hot: &[(&str, u64)] = if self.hot { &HOT } else { &[] };
        hot.iter().fold(builder, |builder, &(name, value)| builder.protocol_option(name, value))
    }

    /// A database in this setting.
    pub(crate) fn open(&self) -> Database {
        self.builder().open().expect("a valid setting")
    }

    /// A database in this setting with the table of people, and a session of it.
    pub(crate) fn people(&self) -> (Database, Handle<Person>, Session) {
        let db = self.open();
        let people = db.create().expect("a valid table");
        let session = db.session();
        (db, people, session)
    }
}

/// Every protocol, and one that copies rows and poisons each copy as early as it may.
pub(crate) fn protocols() -> Vec<ProtocolInfo> {
    let all = seriatim::protocols();
    let default = all.iter().find(|protocol| protocol.name == "dbx").expect("it is registered");
    all.iter().copied().chain([ProtocolInfo { name: COPYING, ..*default }]).collect()
}

/// Options for databases under each protocol that orders batches of decisions. A batch has `batch_max` decisions, and
/// waits for `wait` until it is full.
pub(crate) fn in_batches(batch_max: u64, wait: Duration) -> impl Iterator<Item = Builder> {
    let orders = seriatim::protocols().iter().filter(|protocol| protocol.capabilities.detach);
    assert!(orders.clone().next().is_some(), "there is a protocol that orders batches of decisions");
    orders.map(move |protocol| {
        let builder = Database::builder().protocol(protocol.name).protocol_option("batch_max", batch_max);
        builder.protocol_option("batch_wait_us", wait.as_micros() as u64)
    })
}

/// Runs a test under every protocol, on the default back end and on emulated regions with random aborts. With each
/// change, only protocols whose commits enter regions run on emulated ones. A protocol with hot records also runs with
/// all records hot.
pub(crate) fn each(test: impl Fn(&Setting)) {
    in_turn(settings(), test);
}

/// As [`each`], for tests that take long: with each change in every third setting. The seed decides which.
pub(crate) fn sampled(name: &str, test: impl FnMut(&Setting)) {
    in_turn(sample(settings(), 3, seed(name)), test);
}

fn in_turn(settings: impl IntoIterator<Item = Setting>, mut test: impl FnMut(&Setting)) {
    for setting in settings {
        eprintln!("under {} on {}, all hot: {}", setting.protocol.name, setting.htm, setting.hot);
        test(&setting);
    }
}

fn settings() -> Vec<Setting> {
    let mut settings = Vec::new();
    let emulation = Emulation { seed: 7, abort_one_in: 16, yields: false };
    for htm in [HtmMode::Auto, HtmMode::Emulated(emulation)] {
        let runs = |protocol: &ProtocolInfo| {
            let always = htm == HtmMode::Auto || protocol.requirements.regions || is_nightly();
            protocol.opens_on(htm) && (always || protocol.capabilities.commits_in_regions)
        };
        for protocol in protocols().into_iter().filter(runs) {
            for &hot in if protocol.name == "htcc" { &[false, true][..] } else { &[false] } {
                settings.push(Setting { protocol, htm, hot });
            }
        }
    }
    settings
}

/// A row with a composite key, fixed and long text, nullable and immutable columns, and an index of every kind.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "person", key(region, desc(number)), ordered)]
#[table(index(name = "by_name", columns(last, first), ordered))]
#[table(index(name = "by_age", columns(desc(age)), ordered))]
#[table(index(name = "by_badge", columns(badge), ordered, unique))]
#[table(index(name = "by_email", columns(email), hash, unique))]
#[table(index(name = "by_city", columns(city), hash))]
pub(crate) struct Person {
    pub(crate) region: u8,
    pub(crate) number: u32,
    #[column(immutable)]
    pub(crate) born: Timestamp,
    #[column(immutable)]
    pub(crate) origin: String,
    pub(crate) first: Text<16>,
    pub(crate) last: Text<16>,
    pub(crate) age: Option<i16>,
    pub(crate) badge: u32,
    pub(crate) email: Text<40>,
    pub(crate) city: Text<12>,
    pub(crate) balance: Decimal<2>,
    pub(crate) rate: f64,
    pub(crate) is_member: bool,
    pub(crate) note: String,
    pub(crate) nickname: Option<String>,
}

/// Text of any capacity.
pub(crate) fn text<const N: usize>(value: &str) -> Text<N> {
    Text::new(value).expect("a text that fits")
}

/// A person whose unique columns follow from the key.
pub(crate) fn person(region: u8, number: u32) -> Person {
    let badge = u32::from(region) * 1000 + number;
    Person {
        region,
        number,
        born: Timestamp::from_microseconds(-5),
        origin: format!("born in region {region}"),
        first: text("Ada"),
        last: text("Lovelace"),
        age: Some(36),
        badge,
        email: text(&format!("{badge}@example.org")),
        city: text("London"),
        balance: Decimal::from_units(-12_34),
        rate: 0.5,
        is_member: true,
        note: format!("a note of some length about number {number} of region {region}"),
        nickname: None,
    }
}
