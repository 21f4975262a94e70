//! Image sets behind one trait, and the registry.
