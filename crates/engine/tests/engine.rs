//! The engine on the real embedded store.

mod engine {
    mod locks;
}
