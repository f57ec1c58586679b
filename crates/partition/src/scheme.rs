//! The schemes: how transactions share a partition while one of them waits for other partitions.

/// How an owner orders transactions. All owners of a database use the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// One transaction at a time (§4.1).
    Blocking,
    /// Later transactions run while a finished one waits for its decision; their replies wait (§4.2.1).
    LocalSpeculation,
    /// As local speculation, but responses to the same coordinator do not wait; they name the transaction that
    /// they depend on (§4.2.2).
    Speculation,
    /// Two-phase locking while a transaction over several partitions is under way (§4.3).
    Locking,
}

impl Scheme {
    /// All of them.
    pub const ALL: [Scheme; 4] = [Scheme::Blocking, Scheme::LocalSpeculation, Scheme::Speculation, Scheme::Locking];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Blocking => "blocking",
            Scheme::LocalSpeculation => "local-speculation",
            Scheme::Speculation => "speculation",
            Scheme::Locking => "locking",
        }
    }

    /// The scheme of this name.
    pub fn named(name: &str) -> Option<Scheme> {
        Scheme::ALL.into_iter().find(|scheme| scheme.name() == name)
    }

    /// Whether all transactions over several partitions must go through one coordinator, whose order all
    /// owners follow. Otherwise each client can have a coordinator of its own.
    pub fn needs_one_coordinator(self) -> bool {
        self != Scheme::Locking
    }
}
