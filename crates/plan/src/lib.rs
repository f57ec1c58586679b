//! What the analysis of procedures found, as inert data.
//!
//! Invariant: no behaviour but checking and showing itself. Analysis sits high (`procedure`), its conclusions are consumed low.
