//! Receipts: nobody but the cluster can make one, and each is for one limit and key.

use crate::limit::{Metered, Receipt};
use crate::lock::ClusterKey;
use crate::name::Name;
use crate::record::WallTime;
use proptest::prelude::*;

proptest! {
    #[test]
    fn a_receipt_is_read_where_it_was_issued_for_and_nowhere_else(id: [u8; 16], amount: u64, at: u64, shared: bool, secret: [u8; 32]) {
        let (cluster, name) = (ClusterKey(secret), Name::new("n", "limit"));
        let metered = if shared { Metered::Shared } else { Metered::Own };
        let receipt = Receipt { id, amount, at: WallTime(at), metered };
        let text = receipt.issue(&cluster, &name, "key");
        prop_assert!(text.len() <= 256);
        prop_assert_eq!(Receipt::read(&text, &cluster, &name, "key"), Some(receipt));
        for (name, key) in [("limit", "other"), ("other", "key"), ("limitk", "ey")] {
            prop_assert_eq!(Receipt::read(&text, &cluster, &Name::new("n", name), key), None);
        }
        prop_assert_eq!(Receipt::read(&text, &cluster, &Name::new("m", "limit"), "key"), None);
        let mut other = secret;
        other[0] ^= 1;
        prop_assert_eq!(Receipt::read(&text, &ClusterKey(other), &name, "key"), None);
    }

    #[test]
    fn a_changed_receipt_is_none(id: [u8; 16], amount: u64, place in 0_usize..65, letter in "[A-Za-z0-9_-]") {
        let (cluster, name) = (ClusterKey([7; 32]), Name::new("n", "limit"));
        let text = Receipt { id, amount, at: WallTime(5), metered: Metered::Own }.issue(&cluster, &name, "key");
        let mut changed = text.clone();
        changed.replace_range(place..=place, &letter);
        if changed != text {
            prop_assert_eq!(Receipt::read(&changed, &cluster, &name, "key"), None);
        }
    }

    #[test]
    fn no_text_makes_a_reader_panic(text: alloc::string::String) {
        prop_assert_eq!(Receipt::read(&text, &ClusterKey([7; 32]), &Name::new("n", "l"), "k"), None);
    }
}
