//! Paging through a range while other keys come and go neither repeats nor skips what stays.

use super::{Ground, Harness, put};
use baton_core::Write;

const STAYING: usize = 60;

pub(super) async fn pages_are_stable<H: Harness>(harness: &H) {
    let ground = Ground::new(harness, "scan").await;
    let staying = |index: usize| ground.key(&format!("{:03}-stays", index * 2));
    let passing = |index: usize| ground.key(&format!("{:03}-passes", index * 2 + 1));
    for from in (0..STAYING).step_by(30) {
        let writes = (from..from + 30).flat_map(|index| [put(staying(index), ""), put(passing(index), "")]);
        ground.done(vec![], writes.collect()).await;
    }
    let neighbour = format!("{}0", ground.tag).into_bytes();
    ground.done(vec![], vec![put(baton_core::Key::new(ground.group, neighbour), "outside")]).await;

    for limit in [1, 7, 1000] {
        let (mut after, mut seen, mut turn) = (None, Vec::new(), 0);
        loop {
            let page = ground.store.scan(ground.range(after), limit).await.expect("the store answers");
            assert!(page.records.len() <= limit, "{} records instead of {limit}", page.records.len());
            seen.extend(page.records.iter().map(|record| record.key.clone()));
            if !page.more {
                break;
            }
            after = seen.last().map(|key| key.name.clone());
            assert!(after.is_some(), "an empty page says that there is more");
            let key = passing(turn % STAYING);
            turn += 1;
            let write = if turn % 2 == 0 { put(key, "again") } else { Write::Delete { key } };
            ground.done(vec![], vec![write]).await;
        }
        assert!(seen.is_sorted_by(|a, b| a < b), "out of order or repeated: {seen:?}");
        let stayed: Vec<_> = seen.into_iter().filter(|key| key.name.ends_with(b"-stays")).collect();
        assert_eq!(stayed, (0..STAYING).map(staying).collect::<Vec<_>>(), "pages of {limit}");
    }

    // Exactly as many as asked for, and no more: `more` must not promise what isn't there.
    let last = staying(STAYING - 2).name;
    let rest = ground.store.scan(ground.range(Some(last)), 1000).await.expect("the store answers").records;
    let (after, count) = (Some(staying(STAYING - 2).name), rest.len());
    let page = ground.store.scan(ground.range(after), count).await.expect("the store answers");
    assert_eq!((page.records.len(), page.more), (count, false));
}
