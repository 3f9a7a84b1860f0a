//! Limits: what is sent again and what isn't, refusals as outcomes, and what goes back by itself.

use crate::scripted::{Act, Seen, Server, eventually, ms, refused};
use baton_client::limit::{Checked, CheckedAll, OneCheck, Reserved};
use baton_client::wire_limit::Identity;
use baton_client::{Baton, ErrorCode, LimitDefinition, secs};
use serde_json::{Value, json};

fn passed() -> Value {
    json!({"allowed": true, "limit": 100, "remaining": 42, "resetMillis": 1300, "source": "central"})
}

fn exceeded(retry_after: Option<u64>) -> Value {
    json!({
        "error": "LIMIT_EXCEEDED", "message": "used up", "allowed": false, "name": "api", "key": "acme", "limit": 100,
        "remaining": 3, "resetMillis": 1300, "source": "local", "reason": "local_budget_exhausted",
        "retryAfterMillis": retry_after,
    })
}

/// Says yes to every check, with a place.
fn with_place(seen: &Seen) -> Act {
    Act::Answer(
        200,
        match seen.operation.as_str() {
            "check" => {
                let mut body = passed();
                (body["leaseId"], body["leaseTtlMillis"]) = ("p1".into(), 60_000.into());
                body
            }
            _ => json!({"status": "RETURNED"}),
        },
    )
}

#[tokio::test]
async fn a_check_is_sent_once_and_nothing_is_remembered_of_it() {
    let server = Server::start(|_| Act::Close).await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let error = baton.limit("api").check("acme").await.unwrap_err();
    assert!(error.is_unknown() && error.code().is_none(), "{error}");
    let seen = server.seen("check");
    assert_eq!((seen.len(), seen[0].key.as_str()), (1, "api"));
    assert_eq!(seen[0].body, json!({"key": "acme", "cost": 1}), "no requestId: the store would remember it");
}

#[tokio::test]
async fn a_check_that_may_be_sent_again_is_under_one_request_id() {
    let server = Server::start(|seen| match seen.number {
        1 => Act::Close,
        2 => Act::Answer(503, refused("STORE_UNAVAILABLE")),
        _ => Act::Answer(200, passed()),
    })
    .await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let allowed = baton.limit("api").check("acme").cost(5).retry().await.unwrap().allowed().unwrap();
    assert_eq!((allowed.remaining, allowed.limit, allowed.reset), (42, 100, ms(1300)));
    assert!(allowed.receipt.is_none() && allowed.place.is_none() && !allowed.would_refuse);
    assert!(baton.limit("api").check("acme").request_id("mine").await.unwrap().is_allowed());
    let ids: Vec<_> = server.seen("check").iter().map(|seen| seen.request_id().to_owned()).collect();
    assert_eq!((ids.len(), ids[3].as_str()), (4, "mine"));
    assert!(ids[0] == ids[1] && ids[1] == ids[2] && ids[2] != ids[3], "{ids:?}");
}

#[tokio::test]
async fn a_refusal_is_an_outcome_that_says_who_refused_and_when_to_come_back() {
    let server =
        Server::start(|seen| Act::Answer(429, exceeded((seen.body["cost"] == 1).then_some(250)))).await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let limit = baton.limit("api");
    let refused = limit.check("acme").await.unwrap().refused().unwrap();
    assert_eq!((refused.name.as_str(), refused.key.as_str(), refused.remaining), ("api", "acme", 3));
    assert_eq!((refused.reason.as_str(), refused.source.as_str()), ("local_budget_exhausted", "local"));
    assert_eq!((refused.retry_after, refused.reset), (Some(ms(250)), ms(1300)));
    let never = limit.check("acme").cost(101).await.unwrap().refused().unwrap();
    assert_eq!(never.retry_after, None, "more than there ever is");
    assert!(limit.check("acme").retry().await.unwrap().refused().is_some());
    assert_eq!(server.requests(), 3, "a refusal is an answer, not a reason to ask again");
}

#[tokio::test]
async fn an_unknown_limit_is_an_error_and_not_a_refusal() {
    let server = Server::start(|_| Act::Answer(404, refused("LIMIT_NOT_FOUND"))).await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let error = baton.limit("api").check("acme").await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::LimitNotFound));
    assert!(baton.limits().get("api").await.unwrap().is_none());
    assert!(!baton.limits().remove("api").await.unwrap());
}

#[tokio::test]
async fn a_look_at_something_that_is_used_up_is_a_refusal() {
    let server = Server::start(|_| {
        let mut body = passed();
        (body["allowed"], body["remaining"]) = (false.into(), 0.into());
        Act::Answer(200, body)
    })
    .await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let Checked::Refused(refused) = baton.limit("api").check("acme").cost(0).await.unwrap() else {
        panic!("nothing is left")
    };
    assert_eq!((refused.remaining, refused.retry_after), (0, Some(ms(1300))));
}

#[tokio::test]
async fn several_checks_are_one_call_and_the_answers_keep_their_order() {
    let server = Server::start(|seen| match seen.number {
        1 => {
            let mut second = passed();
            (second["remaining"], second["receipt"]) = (7.into(), "slip".into());
            Act::Answer(200, json!({"allowed": true, "checks": [passed(), second]}))
        }
        2 => Act::Answer(429, exceeded(Some(9))),
        _ => Act::Answer(200, json!({"allowed": true, "checks": [passed()]})),
    })
    .await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let all = || baton.check_all([("per-ip", "10.1.2.3", 1), ("per-tenant", "acme", 5)]);
    let allowed = all().receipt().await.unwrap().allowed().unwrap();
    assert_eq!(allowed.iter().map(|one| one.remaining).collect::<Vec<_>>(), [42, 7]);
    assert_eq!(allowed[1].receipt.as_ref().unwrap().reveal(), "slip");
    let checks = json!([
        {"limit": "per-ip", "key": "10.1.2.3", "cost": 1}, {"limit": "per-tenant", "key": "acme", "cost": 5},
    ]);
    assert_eq!(server.seen("checkAll")[0].body, json!({"checks": checks, "receipt": true}));
    let CheckedAll::Refused(refused) = all().await.unwrap() else { panic!("the script refuses it") };
    assert_eq!(server.seen("checkAll")[1].body, json!({"checks": checks}));
    assert_eq!((refused.name.as_str(), refused.retry_after), ("api", Some(ms(9))));
    assert!(all().await.unwrap_err().is_unknown(), "one answer for two checks is nobody's");
}

#[tokio::test]
async fn who_is_not_known_is_said_with_a_check_and_with_one_of_several() {
    let server = Server::start(|seen| match seen.operation.as_str() {
        "checkAll" => Act::Answer(200, json!({"allowed": true, "checks": [passed(), passed()]})),
        _ => Act::Answer(200, passed()),
    })
    .await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let checked = baton.limit("api").check("acme").identity(Identity::Anonymous).await.unwrap();
    assert!(checked.is_allowed());
    assert_eq!(server.seen("check")[0].body["identity"], "anonymous");
    let stranger = OneCheck::from(("per-ip", "10.1.2.3")).identity(Identity::Anonymous);
    let all = baton.check_all([stranger, OneCheck::from(("per-tenant", "acme"))]).await.unwrap();
    assert_eq!(all.allowed().unwrap().len(), 2);
    let said = server.seen("checkAll")[0].body["checks"].clone();
    assert_eq!((&said[0]["identity"], &said[1]["identity"]), (&json!("anonymous"), &json!(null)));
}

#[tokio::test]
async fn a_receipt_gives_back_and_is_not_printed() {
    let server = Server::start(|seen| match (seen.operation.as_str(), seen.number) {
        ("check", _) => {
            let mut body = passed();
            body["receipt"] = "slip".into();
            Act::Answer(200, body)
        }
        (_, 1) => Act::Close,
        _ => Act::Answer(200, json!({"refunded": 3})),
    })
    .await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let receipt =
        baton.limit("api").check("acme").receipt().await.unwrap().allowed().unwrap().receipt.unwrap();
    assert!(!format!("{receipt:?}").contains("slip"));
    assert_eq!(receipt.refund().await.unwrap(), 3, "a lost reply is asked for again");
    let seen = server.seen("refund");
    assert_eq!((seen.len(), &seen[1].body), (2, &json!({"key": "acme", "receipt": "slip"})));
}

#[tokio::test]
async fn a_place_goes_back_when_it_is_dropped_unless_it_is_kept_for_somebody_else() {
    let server = Server::start(with_place).await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let limit = baton.limit("api");
    let place = || async { limit.check("acme").await.unwrap().allowed().unwrap().place.unwrap() };
    let kept = place().await;
    assert!(kept.remaining() <= secs(60) && kept.remaining() > secs(50));
    assert_eq!(kept.keep(), "p1");
    assert_eq!(server.seen("lease/return").len(), 0);
    drop(place().await);
    eventually("it goes back", || server.seen("lease/return").len() == 1).await;
    place().await.give_back().await.unwrap();
    // Were it given back a second time, that would be seen by the end of another call.
    place().await.keep();
    let seen = server.seen("lease/return");
    assert_eq!((seen.len(), &seen[1].body), (2, &json!({"key": "acme", "leaseId": "p1"})));
}

#[tokio::test]
async fn a_reservation_says_how_long_to_wait_and_can_be_cancelled() {
    let server = Server::start(|seen| match (seen.operation.as_str(), seen.number) {
        ("reserve", 1) => Act::Answer(200, json!({"waitMillis": 20, "reservationId": "booked"})),
        ("reserve", 2) => {
            let mut body = refused("LIMIT_EXCEEDED");
            body["retryAfterMillis"] = 900.into();
            Act::Answer(429, body)
        }
        ("reserve", _) => Act::Answer(409, refused("LIMIT_MISMATCH")),
        _ => Act::Answer(200, json!({"refunded": 2})),
    })
    .await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let reserve = || baton.limit("api").reserve("acme", secs(2)).cost(2);
    let reservation = reserve().await.unwrap().booked().unwrap();
    assert_eq!((reservation.wait(), reservation.reveal()), (ms(20), "booked"));
    reservation.ready().await;
    assert_eq!(reservation.cancel().await.unwrap(), 2);
    assert_eq!(server.seen("refund")[0].body, json!({"key": "acme", "receipt": "booked"}));
    assert_eq!(server.seen("reserve")[0].body, json!({"key": "acme", "cost": 2, "maxWaitMillis": 2000}));
    let Reserved::Refused { retry_after } = reserve().await.unwrap() else { panic!("the script refuses it") };
    assert_eq!(retry_after, Some(ms(900)));
    assert_eq!(reserve().await.unwrap_err().code(), Some(ErrorCode::LimitMismatch));
}

#[tokio::test]
async fn a_definition_may_be_put_again_and_a_removal_may_not_be_sent_again() {
    let server = Server::start(|seen| match (seen.operation.as_str(), seen.number) {
        ("put", 2) => Act::Answer(
            200,
            json!({"name": seen.key, "definition": seen.body, "version": 7, "changedAt": 0, "status": "MADE"}),
        ),
        _ => Act::Close,
    })
    .await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let definition = LimitDefinition::new(100, 60_000);
    let status = baton.limits().put("api", &definition).await.unwrap();
    assert_eq!((&status.definition, status.status.as_deref()), (&definition, Some("MADE")));
    assert_eq!(server.seen("put").len(), 2);
    assert!(baton.limits().remove("api").await.unwrap_err().is_unknown());
    assert_eq!(server.seen("delete").len(), 1, "what was defined since must not go");
}

#[tokio::test]
async fn what_is_not_allowed_in_a_check_is_refused_without_a_call() {
    let server = Server::start(with_place).await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let limit = baton.limit("api");
    let many = (0..17).map(|number| ("api", format!("k{number}")));
    for error in [
        baton.limit("").check("k").await.unwrap_err(),
        limit.clone().namespace("").check("k").await.unwrap_err(),
        limit.check("").await.unwrap_err(),
        limit.check("k").cost(1_000_000_001).await.unwrap_err(),
        limit.check("k").request_id("").await.unwrap_err(),
        limit.reserve("k", secs(1)).cost(0).await.unwrap_err(),
        limit.refund("k", "").await.unwrap_err(),
        limit.give_back("k", "a b").await.unwrap_err(),
        limit.usage("").await.unwrap_err(),
        limit.bound(Some("")).await.unwrap_err(),
        baton.check_all([("api", "k"), ("api", "k")]).await.unwrap_err(),
        baton.check_all(many).await.unwrap_err(),
        baton.limits().put("api", &LimitDefinition::new(0, 1)).await.unwrap_err(),
        baton.limits().remove("..").await.unwrap_err(),
    ] {
        assert_eq!(error.code(), Some(ErrorCode::InvalidArgument), "{error}");
    }
    assert_eq!(server.requests(), 0);
}
