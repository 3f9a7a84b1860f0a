//! The engine on the real embedded store.

mod engine {
    mod counting;
    mod locks;
}
