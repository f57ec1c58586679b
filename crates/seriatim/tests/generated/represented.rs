//! Procedures that exist only as data have the results and effects of the functions from which they are taken.

use std::fmt::Debug;

use seriatim::procedure::{Data, DataType, Declared, Procedures};
use seriatim::rng::{sample, seed};
use seriatim::{Builder, Database, Rng, Session};

use super::run::{Run, agree, contents};
use super::{orders, passes, transfer};

/// The function is called in one database, and the data in another.
struct Represented {
    called: (Database, Session),
    represented: (Database, Session),
}

impl Represented {
    fn new(open: fn(Builder) -> (Database, Session), builder: Builder) -> Represented {
        Represented { called: open(Database::builder()), represented: open(builder) }
    }
}

impl Run for Represented {
    fn run<P: Declared>(&mut self, procedure: P, arguments: &P::Arguments)
    where
        P::Arguments: Debug,
        P::Output: Debug + PartialEq,
    {
        let told = format!("{}{arguments:?}", P::NAME);
        let (db, session) = &mut self.represented;
        let name = format!("data {}", P::NAME);
        if db.plan(&name).is_none() {
            // Its own set has it as a function.
            let mut declaration = P::declaration();
            declaration.name = name.as_str().into();
            let types = vec![DataType::Any; declaration.parameters];
            let set = Procedures::new().with_representation(declaration, types);
            assert_eq!(db.register(set).expect("a sound procedure").added, [name.as_str()]);
        }
        let got = session.call_by_name(&name, &arguments.to_value());
        let got = got.map(|done| P::Output::from_value(&done.value).expect("the type of the function"));
        let wanted = self.called.1.call(procedure, arguments).map(|done| done.value);
        agree(&got, &wanted, &told);
        assert_eq!(contents(&self.represented.0), contents(&self.called.0), "after {told}");
    }
}

#[test]
fn data_means_what_the_function_does_under_every_protocol() {
    let seed = seed("data_means_what_the_function_does_under_every_protocol");
    let mut rng = Rng::from_seed(seed);
    for protocol in sample(seriatim::available_protocols(), 3, seed) {
        for check in [false, true] {
            eprintln!("under {}, checked: {check}", protocol.name);
            let builder = || Database::builder().protocol(protocol.name).workers(4).check_plans(check);
            let mut of_passes = Represented::new(passes::open, builder());
            (0..100).for_each(|_| passes::any(&mut rng, &mut of_passes));
            let mut of_orders = Represented::new(orders::open, builder());
            (0..60).for_each(|_| orders::any(&mut rng, &mut of_orders));
            let mut of_transfer = Represented::new(transfer::open, builder());
            (0..20).for_each(|_| transfer::any(&mut rng, &mut of_transfer));
        }
    }
}
