//! What must hold of every protocol, on every back end.
