//! Thousands of wrong requests: each is answered with a 4xx, a code and a field, and changes nothing.

use crate::client::{Answer, Client};
use crate::harness::Baton;
use serde_json::{Value, json};

/// Found nothing yet that another seed didn't; change it to look elsewhere.
const SEED: u64 = 0x0ba7_0001;

/// SplitMix64.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) % sides as u64) as usize
    }

    pub fn pick<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.roll(of.len())]
    }

    fn bytes(&mut self, max: usize) -> Vec<u8> {
        (0..self.roll(max)).map(|_| self.roll(256) as u8).collect()
    }
}

/// A refusal must say what is wrong.
pub fn check(answer: &Answer, sent: &[u8]) {
    let sent = sent[..sent.len().min(300)].escape_ascii();
    assert!((400..500).contains(&answer.status), "{} to {sent}: {answer:?}", answer.status);
    let body = answer.json();
    assert!(body["error"].is_string() && body["message"].is_string(), "{answer:?} to {sent}");
    if body["error"] == "INVALID_ARGUMENT" {
        assert!(body["field"].as_str().is_some_and(|field| !field.is_empty()), "{answer:?} to {sent}");
    }
}

/// Sends bytes on a connection of their own, and the end of them.
async fn send(baton: &Baton, bytes: &[u8]) -> Option<Answer> {
    let mut client = baton.client().await;
    // The server may answer and close before it has read all.
    drop(client.send(bytes).await);
    client.answer("POST").await
}

fn post(path: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// A value that no field takes, or one that this field doesn't.
fn wrong(dice: &mut Dice, field: &str) -> Value {
    let long = "y".repeat(5000);
    let any = [json!([]), json!([1]), json!(1.5), json!(-1), json!(1e300), json!({ "x": {} })];
    match (field, dice.roll(3)) {
        ("ownerId" | "requestId" | "lockToken", 0) => json!(long),
        ("ownerId" | "lockToken", 1) => json!(""),
        ("ownerId" | "requestId", _) => json!("a\u{7}b"),
        ("ttlMillis", 0) => json!(99),
        ("ttlMillis", 1) => json!(86_400_001_u64),
        ("waitTimeoutMillis", 0) => json!(600_001),
        ("metadata", _) => json!({ "x": long }),
        ("lockKeys", 0) => json!(["a", "a"]),
        ("lockKeys", 1) => json!(vec!["a"; 17]),
        ("lockKeys", _) => json!(["a", long]),
        _ => any[dice.roll(any.len() - 1)].clone(),
    }
}

/// A body that isn't allowed for sure.
fn bad_body(dice: &mut Dice, good: &Value) -> Vec<u8> {
    let mut body = good.clone();
    let fields = body.as_object_mut().unwrap();
    let names: Vec<String> = fields.keys().cloned().collect();
    let name = names[dice.roll(names.len())].clone();
    match dice.roll(10) {
        0 => drop(fields.remove("ownerId").or_else(|| fields.remove("reason"))),
        1 | 2 => drop(fields.insert(name.clone(), wrong(dice, &name))),
        3 => drop(fields.insert(format!("{name}x"), json!(1))),
        4 => {
            let text = body.to_string();
            return text.as_bytes()[..dice.roll(text.len())].to_vec();
        }
        5 => {
            return [body.to_string().as_bytes(), dice.pick(&["x", "{}", "]", "\u{0}", ","]).as_bytes()]
                .concat();
        }
        6 => return format!("{{\"{name}\":{},{}", good[&name], &body.to_string()[1..]).into_bytes(),
        7 => return body.to_string().replacen(':', dice.pick(&["", "::", "=", ": \u{1}"]), 1).into_bytes(),
        8 => return vec![*dice.pick(&[b"[", b"{", b" ", b"\xff"]).first().unwrap(); 1 + dice.roll(70_000)],
        _ => {
            let mut text = body.to_string().into_bytes();
            text.insert(1 + dice.roll(text.len() - 2), 0xff);
            return text;
        }
    }
    body.to_string().into_bytes()
}

async fn assert_untouched(baton: &Baton) {
    assert_eq!(baton.get("/v1/locks?limit=1000").await.ok()["locks"], json!([]));
    assert_eq!(baton.get("/readyz").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_are_not_allowed() {
    let baton = Baton::start().await;
    let mut dice = Dice(SEED);
    let acquire = json!({ "ownerId": "a", "ttlMillis": 1000, "wait": false, "requestId": "r",
                          "waitTimeoutMillis": 10, "reentrant": false, "metadata": {} });
    let release = json!({ "ownerId": "a", "lockToken": "t", "requestId": "r" });
    let renew = json!({ "ownerId": "a", "lockToken": "t", "ttlMillis": 1000 });
    let all = json!({ "lockKeys": ["a", "b"], "ownerId": "a", "ttlMillis": 1000, "wait": false, "requestId": "r",
                      "waitTimeoutMillis": 10, "metadata": {}, "lockDelayMillis": 5 });
    for _ in 0..1500 {
        let (path, good) = match dice.roll(8) {
            0 => ("/v1/locks/k/release", &release),
            1 => ("/v1/locks/k/renew", &renew),
            2 | 3 => ("/v1/locks:acquireAll", &all),
            _ => ("/v1/locks/k/acquire", &acquire),
        };
        let body = bad_body(&mut dice, good);
        let sent = post(path, &body);
        let answer = send(&baton, &sent).await.expect("an answer");
        check(&answer, &sent[sent.len() - body.len()..]);
        assert_eq!(answer.status, 400, "{answer:?} to {}", body.escape_ascii());
    }
    assert_untouched(&baton).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_and_queries_that_are_not_served() {
    let baton = Baton::start().await;
    let mut dice = Dice(SEED + 1);
    let body = json!({ "ownerId": "a", "ttlMillis": 1000 }).to_string();
    for _ in 0..1000 {
        let mut path = String::from("/v1/locks/");
        match dice.roll(5) {
            0 => path += dice.pick(&["%00", "%", "%f", "%c3%28", "..", ".", "%2e", "a%0ab", "%ED%A0%80"]),
            1 => path += &"k".repeat(513 + dice.roll(3000)),
            2 => path += "/",
            3 => path += &format!("%{:02x}", dice.roll(0x20)),
            _ => path += "k/more",
        }
        path += dice.pick(&["/acquire", "/acquire?namespace=a", "/acquire?", "/acquire#x"]);
        let sent = post(&path, body.as_bytes());
        check(&send(&baton, &sent).await.expect("an answer"), &sent);

        let query = match dice.roll(5) {
            0 => format!("namespace={}", "n".repeat(129 + dice.roll(100))),
            1 => format!("namespace=%{:02X}", dice.roll(0x20)),
            2 => format!("{}=1", dice.pick(&["Namespace", "name", "", "x", "namespace%00"])),
            3 => "namespace=a&namespace=a".into(),
            _ => format!("namespace={}", dice.pick(&["%", "%zz", "%ff", "", "%C2%85"])),
        };
        let sent = post(&format!("/v1/locks/k/acquire?{query}"), body.as_bytes());
        check(&send(&baton, &sent).await.expect("an answer"), &sent);
    }
    assert_untouched(&baton).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_that_are_not_http() {
    let baton = Baton::start().await;
    let mut dice = Dice(SEED + 2);
    let line = "POST /v1/locks/k/acquire HTTP/1.1\r\nconnection: close\r\n";
    for round in 0..800 {
        let bytes = match dice.roll(9) {
            0 => [b"\x01".as_slice(), &dice.bytes(200), b"\r\n\r\n"].concat(),
            1 => format!("{line}x: {}\r\n\r\n", "y".repeat(70_000 + dice.roll(100_000))).into_bytes(),
            2 => format!("{line}{}\r\n", "a: b\r\n".repeat(120 + dice.roll(2000))).into_bytes(),
            3 => format!(
                "{line}content-length: {}\r\n\r\n",
                dice.pick(&["-1", "x", "1, 2", "99999999999999999999"])
            )
            .into_bytes(),
            4 => format!("{line}transfer-encoding: {}\r\n\r\n", dice.pick(&["x", "chunked, x", "gzip"]))
                .into_bytes(),
            5 => format!(
                "{line}transfer-encoding: chunked\r\n\r\n{}\r\n",
                dice.pick(&["zz", "-1", "ffffffffffffffffff"])
            )
            .into_bytes(),
            6 => format!("POST /{} HTTP/1.1\r\n\r\n", "p".repeat(66_000 + dice.roll(10_000))).into_bytes(),
            7 => format!(
                "POST /v1/locks/{} HTTP/{}\r\n\r\n",
                dice.pick(&["a b", "\u{1}", "<", "k"]),
                dice.pick(&["9.9", "x", "1.7"])
            )
            .into_bytes(),
            _ => {
                let mut bytes = format!("{line}content-length: 0\r\n\r\n").into_bytes();
                let at = dice.roll(30);
                bytes[at] = dice.roll(32) as u8;
                bytes
            }
        };
        let mut client = baton.client().await;
        drop(client.send(&bytes).await);
        drop(finish(&mut client).await);
        // What isn't HTTP at all may also just be hung up on.
        if let Some(answer) = client.answer("POST").await {
            let sent = &bytes[..bytes.len().min(200)];
            assert!((400..500).contains(&answer.status), "{round}: {answer:?} to {}", sent.escape_ascii());
            check(&answer, &bytes);
        }
    }
    assert_untouched(&baton).await;
}

async fn finish(client: &mut Client) -> std::io::Result<()> {
    client.send(b"").await
}

fn percent_encoded(key: &str) -> String {
    key.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn valid_bodies_with_a_few_bytes_changed_are_never_an_error_of_the_server() {
    let baton = Baton::start().await;
    let mut dice = Dice(SEED + 3);
    let good =
        json!({ "ownerId": "abc", "ttlMillis": 60_000, "requestId": "r", "metadata": { "a": [1, "x"] } });
    let all = json!({ "lockKeys": ["a", "b"], "ownerId": "abc", "ttlMillis": 60_000 });
    let mut client = baton.client().await;
    for round in 0..1500 {
        let several = dice.roll(4) == 0;
        let mut body = if several { &all } else { &good }.to_string().into_bytes();
        for _ in 0..=dice.roll(3) {
            let at = dice.roll(body.len());
            body[at] = dice.roll(256) as u8;
        }
        let path =
            if several { "/v1/locks:acquireAll".into() } else { format!("/v1/locks/k{round}/acquire") };
        let answer = client.call("POST", &path, &body).await;
        if answer.status == 200 {
            let (grant, none) = (answer.json(), Vec::new());
            let grants = if several { grant["grants"].as_array().unwrap_or(&none) } else { &vec![grant] };
            for grant in grants {
                let key = percent_encoded(grant["lockKey"].as_str().unwrap());
                let body = json!({ "ownerId": grant["ownerId"], "lockToken": grant["lockToken"] });
                baton.post(&format!("/v1/locks/{key}/release"), body).await.ok();
            }
        } else {
            check(&answer, &body);
        }
    }
    assert_untouched(&baton).await;
}
