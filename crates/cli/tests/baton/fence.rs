//! `baton fence`, and the SDK's fence at the server (F3, F4).

use crate::server::Server;
use baton_client::{Baton, FencingToken};
use serde_json::Value;

#[test]
fn a_stale_token_exits_with_76_and_says_what_was_seen() {
    let server = Server::start();
    assert_eq!(server.run(&["fence", "show", "r"]).code, 69);
    for (arguments, code) in [
        (&["34"][..], 0),
        (&["34"], 0),
        (&["35"], 0),
        (&["34"], 76),
        (&["35", "--strict"], 76),
        (&["36", "--strict"], 0),
        (&["0"], 64),
        (&["x"], 64),
    ] {
        let output = server.run(&[&["fence", "check", "r"], arguments].concat());
        assert_eq!((output.code, output.stdout.as_str()), (code, ""), "{arguments:?}: {}", output.stderr);
        assert!(code != 76 || output.stderr.contains("has seen 35"), "{}", output.stderr);
    }
    let shown: Value =
        serde_json::from_str(&server.run(&["fence", "show", "r", "--output", "json"]).stdout).unwrap();
    assert_eq!((&shown["highest"], &shown["refused"]), (&36.into(), &2.into()));
    assert!(server.run(&["fence", "ls"]).stdout.contains("36"));
    assert_eq!(server.run(&["fence", "forget", "r"]).code, 64, "it needs a reason");
    assert_eq!(server.run(&["fence", "forget", "r", "--reason", "gone"]).code, 0);
    assert_eq!(server.run(&["fence", "forget", "r", "--reason", "gone"]).code, 69);
    assert_eq!(server.run(&["fence", "ls"]).stdout, "no token was checked\n");
    assert!(server.log().contains("a fence was forgotten") && server.log().contains("gone"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sdk_s_error_for_a_stale_token_is_a_type_of_its_own() {
    let server = Server::start();
    let baton = Baton::connect(&server.url).await.unwrap();
    let lock = baton.lock("k").acquire().await.unwrap();
    let fence = baton.fence("r");
    fence.check(lock.fencing_token()).await.unwrap();
    fence.check(lock.fencing_token()).await.unwrap();
    let stale = fence.check(FencingToken::new(7)).await.unwrap_err();
    let highest = stale.stale_token().and_then(|stale| stale.highest);
    assert_eq!(highest, Some(lock.fencing_token().get()), "{stale}");
    assert!(fence.check_higher(lock.fencing_token()).await.unwrap_err().stale_token().is_some());
    assert_eq!(fence.status().await.unwrap().map(|fence| fence.refused), Some(2));
    assert!(baton.fence("unknown").status().await.unwrap().is_none());
}
