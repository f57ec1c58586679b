//! Random procedures. They have loops that are left early, also out of two, and `return` and abort anywhere. Loops hand
//! on lists and counters, and keys, aborts and results are made of all of these.

use seriatim_base::Rng;
use seriatim_procedure::analysis::Schema;
use seriatim_procedure::ir::Procedure;

use crate::support::build::{Build, procedure};
use crate::support::table;

/// Tables; `v` is unsigned, `w` is not.
pub(crate) const TABLES: [&str; 3] = ["one", "two", "three"];

pub(crate) fn schema() -> Schema {
    Schema::new(TABLES.map(|name| table(name, "id:u32 v:u64 w:i64", &["id"]).finish().expect("valid")))
}

/// So long a list may become in a loop.
const LIST_MAX: usize = 4;

/// A procedure of two numbers and a list, with at most so many operations.
pub(crate) fn any(name: &str, rng: &mut Rng, operations: u32) -> Procedure {
    procedure(name, &["a", "b", "list"], |b| {
        let mut writer = Writer {
            rng,
            operations,
            numbers: vec![("a".into(), false), ("b".into(), false)],
            lists: vec!["list".into()],
            names: 0,
            loops: 0,
            depth: 0,
        };
        // The values that loops hand on.
        for _ in 0..writer.rng.below(3) {
            writer.variable(b);
        }
        writer.block(b, 6);
        let value = format!("({},)", writer.numbers.iter().map(|(name, _)| &**name).collect::<Vec<_>>().join(", "));
        b.return_(&value);
    })
}

struct Writer<'r> {
    rng: &'r mut Rng,
    /// Operations left.
    operations: u32,
    /// Numbers in scope, and whether they may be assigned.
    numbers: Vec<(String, bool)>,
    lists: Vec<String>,
    names: u32,
    loops: u32,
    depth: u32,
}

impl Writer<'_> {
    fn name(&mut self) -> String {
        self.names += 1;
        format!("x{}", self.names)
    }

    fn number(&mut self) -> String {
        let at = self.rng.below(self.numbers.len() as u64 + 1) as usize;
        match self.numbers.get(at) {
            Some((name, _)) => name.clone(),
            None => self.rng.below(3).to_string(),
        }
    }

    fn value(&mut self) -> String {
        let (one, two) = (self.number(), self.number());
        match self.rng.below(8) {
            0 => format!("{one} + {two}"),
            1 => format!("{one} - {two}"),
            2 => format!("12 / {one}"),
            _ => one,
        }
    }

    fn condition(&mut self) -> String {
        let (one, two) = (self.number(), self.number());
        let operator = ["==", "<", "!=", ">="][self.rng.below(4) as usize];
        format!("{one} {operator} {two}")
    }

    fn table(&mut self) -> &'static str {
        TABLES[self.rng.below(3) as usize]
    }

    fn variable(&mut self, b: &mut Build) {
        let (name, value) = (self.name(), self.value());
        if self.rng.below(4) == 0 {
            b.let_mut(&name, "Vec::new()");
            self.lists.push(name);
        } else {
            b.let_mut(&name, &value);
            self.numbers.push((name, true));
        }
    }

    /// A block of its own scope.
    fn scope(&mut self, b: &mut Build, steps: u64) {
        let before = (self.numbers.len(), self.lists.len());
        self.depth += 1;
        self.block(b, steps);
        self.depth -= 1;
        self.numbers.truncate(before.0);
        self.lists.truncate(before.1);
    }

    fn block(&mut self, b: &mut Build, steps: u64) {
        for _ in 0..1 + self.rng.below(steps) {
            self.step(b);
        }
    }

    /// A block that is often left.
    fn branch(&mut self, b: &mut Build) {
        let before = (self.numbers.len(), self.lists.len());
        if self.rng.below(2) == 0 {
            self.scope(b, 2);
        }
        if self.rng.below(3) > 0 {
            self.leave(b);
        }
        self.numbers.truncate(before.0);
        self.lists.truncate(before.1);
    }

    /// Does not come back.
    fn leave(&mut self, b: &mut Build) {
        match self.rng.below(10) {
            0..5 if self.loops > 0 => b.break_(),
            5..7 if self.loops > 0 => b.continue_(),
            0..8 => {
                let value = self.number();
                b.return_(&format!("({value},)"));
            }
            _ => b.abort(&b.next_step().to_string()),
        }
    }

    fn step(&mut self, b: &mut Build) {
        let nests = self.depth < 4;
        match self.rng.below(20) {
            0..6 if self.operations > 0 => self.operation(b),
            6..8 => self.variable(b),
            8..12 => self.assign(b),
            12..15 if nests => {
                let condition = self.condition();
                let writer = std::cell::RefCell::new(self);
                b.if_(
                    &condition,
                    |b| writer.borrow_mut().branch(b),
                    |b| {
                        let mut writer = writer.borrow_mut();
                        if writer.rng.below(3) == 0 {
                            writer.branch(b);
                        }
                    },
                );
            }
            15..18 if nests => {
                let (name, over) = (self.name(), self.over());
                b.for_(&name, &over, |b| self.iterate(b, Some((name.clone(), false))));
            }
            18 if nests && self.operations > 0 => {
                self.operations -= 1;
                let (name, table) = (self.name(), self.table());
                b.each(&name, table, "", |b| {
                    b.let_(&format!("{name}v"), &format!("{name}.v"));
                    self.iterate(b, Some((format!("{name}v"), false)));
                });
            }
            _ => self.assign(b),
        }
    }

    fn over(&mut self) -> String {
        match self.rng.below(3) {
            0 => format!("0..{}", self.rng.below(4)),
            _ => format!("{}.iter()", self.lists[self.rng.below(self.lists.len() as u64) as usize]),
        }
    }

    fn iterate(&mut self, b: &mut Build, element: Option<(String, bool)>) {
        let before = self.numbers.len();
        self.numbers.extend(element);
        self.loops += 1;
        self.scope(b, 4);
        self.loops -= 1;
        self.numbers.truncate(before);
    }

    fn assign(&mut self, b: &mut Build) {
        let mutable: Vec<String> =
            self.numbers.iter().filter(|(_, mutable)| *mutable).map(|(name, _)| name.clone()).collect();
        let value = self.value();
        if self.lists.len() > 1 && self.rng.below(3) == 0 {
            let list = self.lists[1 + self.rng.below(self.lists.len() as u64 - 1) as usize].clone();
            match self.loops {
                0 => b.push(&list, &value),
                // Loops over lists that grow in loops take for ever: a list doubles with every element of another.
                _ => b.if_(&format!("{list}.len() < {LIST_MAX}"), |b| b.push(&list, &value), |_| {}),
            }
        } else if let Some(name) = mutable.get(self.rng.below(mutable.len().max(1) as u64) as usize) {
            b.assign(name, if self.rng.below(2) == 0 { "=" } else { "+=" }, &value);
        }
    }

    fn operation(&mut self, b: &mut Build) {
        self.operations -= 1;
        let (name, table, key) = (self.name(), self.table(), self.number());
        match self.rng.below(10) {
            0..2 => {
                b.require(&name, table, &key);
                b.let_(&format!("{name}v"), &format!("{name}.v"));
                self.numbers.push((format!("{name}v"), false));
            }
            2 => {
                b.get(&name, table, &key);
                b.let_else(&format!("Some({name}r)"), &name, |b| self.leave(b));
                b.let_(&format!("{name}w"), &format!("{name}r.w"));
                self.numbers.push((format!("{name}w"), false));
            }
            3 => {
                b.get(&name, table, &key);
                b.if_(&format!("{name}.is_none()"), |b| self.leave(b), |_| {});
            }
            4 => {
                b.get(&name, table, &key);
                let writer = std::cell::RefCell::new(self);
                b.match_(
                    &name,
                    &format!("Some({name}r)"),
                    |b| {
                        let mut writer = writer.borrow_mut();
                        b.let_(&format!("{name}v"), &format!("{name}r.v"));
                        writer.numbers.push((format!("{name}v"), false));
                        writer.branch(b);
                        writer.numbers.retain(|(known, _)| *known != format!("{name}v"));
                    },
                    |b| writer.borrow_mut().branch(b),
                );
            }
            5..9 => self.update(b, &name, table, &key),
            _ => {
                b.delete_if(&name, table, &key);
                b.if_(&name, |b| self.branch(b), |_| {});
            }
        }
    }

    fn update(&mut self, b: &mut Build, name: &str, table: &str, key: &str) {
        let (value, gives) = (self.number(), self.rng.below(3) == 0);
        let (place, operator) =
            [("v", "+="), ("v", "-="), ("w", "+="), ("w", "-="), ("w", "=")][self.rng.below(5) as usize];
        let row = format!("{name}u");
        // Numbers here have no types. A literal beside an unsigned column would be unsigned.
        let value = if place == "v" { format!("{value}.max(0)") } else { value };
        let body = |b: &mut Build| {
            b.assign(&format!("{row}.{place}"), operator, &value);
            if gives {
                b.yield_(&format!("{row}.w"));
            }
        };
        let bind = if gives { name } else { "" };
        match self.rng.below(3) {
            0 => b.update_if("", table, key, &row, body),
            _ => {
                b.update(bind, table, key, &row, body);
                if gives {
                    self.numbers.push((name.to_owned(), false));
                }
            }
        }
    }
}
