//! The side that is asked.

use super::message::{Answer, Ask, Page, Range};
use super::{ANSWER_BYTES_MAX, Rows, buckets_of, context_hash, group, whole};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Answers what can be answered by looking. Something pushed has to be taken in instead: nothing comes of it here.
pub fn answer(ask: &Ask, rows: &impl Rows) -> Option<Answer> {
    match ask {
        Ask::Push(_) => None,
        Ask::Summary(theirs) if *theirs == whole(rows) => Some(Answer::Same),
        Ask::Summary(_) => {
            let groups = (0..super::GROUPS).map(|of| group(rows, of)).collect();
            Some(Answer::Summary { context: rows.context().clone(), groups })
        }
        Ask::Groups(groups) => {
            let buckets = groups.iter().flat_map(|group| buckets_of((*group).into()));
            Some(Answer::Hashes(buckets.map(|bucket| rows.bucket(bucket)).collect()))
        }
        Ask::Rows { context, ranges } => {
            let (mut pages, mut bytes) = (Vec::new(), 0);
            for range in ranges {
                if bytes >= ANSWER_BYTES_MAX {
                    break;
                }
                pages.push(page(range, rows, &mut bytes));
            }
            let changed = *context != context_hash(rows.context());
            Some(Answer::Pages { context: changed.then(|| rows.context().clone()), pages })
        }
    }
}

fn page(range: &Range, rows: &impl Rows, bytes: &mut usize) -> Page {
    let mut unseen: BTreeMap<u64, u64> = BTreeMap::new();
    for (place, hash) in range.known.iter().enumerate() {
        unseen.insert(*hash, place as u64);
    }
    let mut page = Page { to: range.to.clone(), ..Page::default() };
    let mut last = None;
    for (key, row, hash) in rows.rows(range.bucket, range.after.as_ref()) {
        if range.to.as_ref().is_some_and(|to| key > to) {
            break;
        }
        if unseen.remove(&hash).is_none() {
            *bytes += key.bytes().len() + row.size();
            if *bytes > ANSWER_BYTES_MAX && last.is_some() {
                page.to = last;
                break;
            }
            page.rows.push((key.clone(), row.clone()));
        }
        last = Some(key.clone());
    }
    page.lacks = unseen.into_values().collect();
    page
}
